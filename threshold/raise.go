package threshold

// Raise sets the limit to l when failures have been forgotten. Limits only ever rise within an incarnation: a lower one
// could be broken already.
func (r *Receiver) Raise(l uint64) { r.l = max(r.l, l) }

// Raise sets the limit to gamma when failures have been forgotten; it never lowers it.
func (s *Sender) Raise(gamma uint64) { s.gamma = max(s.gamma, gamma) }

// Raise sets the limit to l when failures have been forgotten; it never lowers it.
func (m *Marks) Raise(l uint64) { m.l = max(m.l, l) }

// SetTheta makes theta the limit in the middle of an incarnation. No backup may be in flight. A higher limit holds from
// now on. After a lower one the caller asks Decide, as it does after a run of items, and obeys until it no longer says
// Wait: only then is the state durable to within the new limit (B1), and until then the old one is what a failure may
// cost. If the state is told theta as well it is told first, since what a partial backup saves depends on it.
func (b *Backup) SetTheta(theta float64) {
	if theta < b.theta {
		// A backup made for the old limit may have left what one for the new limit clears, and under +Inf nobody looked
		// whether a NaN is old.
		b.floor, b.granted = -1, true
	}
	b.theta, b.begin = theta, b.beginning(theta)
	if !b.inFlight && b.carried == 0 {
		b.quiet = b.calm()
	}
}
