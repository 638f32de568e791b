package threshold

// Raise sets the limit to l when failures have been forgotten. Limits only ever rise within an incarnation: a lower one
// could be broken already.
func (r *Receiver) Raise(l uint64) { r.l = max(r.l, l) }

// Raise sets the limit to gamma when failures have been forgotten; it never lowers it.
func (s *Sender) Raise(gamma uint64) { s.gamma = max(s.gamma, gamma) }

// Raise sets the limit to l when failures have been forgotten; it never lowers it.
func (m *Marks) Raise(l uint64) { m.l = max(m.l, l) }
