package worker

import "github.com/afstream/afstream/transport"

// gap says what has become of the frames of a channel that came too early while its partition was rebuilt (I9).
type gap uint8

const (
	noGap   gap = iota
	dropped     // to be asked for when the partition is rebuilt
	asked       // what the sender had sent before it was asked is still to be dropped
)

// tooEarly says whether a frame is to be dropped: because it is beyond the mark of a partition that is being rebuilt, or because
// it was on its way before the sender was asked to go back. A frame that reaches beyond the mark is cut there.
func (ch *inChannel) tooEarly(r *rebuild, f *transport.Frame) bool {
	mark := r.mark(ch.input)
	switch {
	case ch.gap != noGap && f.First > ch.next:
		return true
	case ch.gap == asked && f.Next() > ch.next:
		ch.gap = noGap
		return false
	case ch.gap != dropped && !r.silent.Load() || f.Next() <= mark:
		return false
	}
	ch.gap = dropped
	if f.First >= mark {
		return true
	}
	f.Count = int(mark - f.First)
	return false
}

// ask has the sender go back to what was dropped, once the partition is rebuilt. It reports false if there is no room.
func (u *upstream) ask(c *connection, ch *inChannel) bool {
	if ch.gap != dropped || u.w.operators[ch.id.To%u.w.cfg.Node.Compute].rebuild.silent.Load() {
		return true
	}
	if !c.In.Acknowledge(transport.Ack{Channel: ch.id, Resume: true, Epoch: c.Epoch, Acked: ch.next}) {
		return false
	}
	ch.gap = asked
	return true
}
