package worker

import (
	"github.com/afstream/afstream/ringbuf"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/transport"
)

// Output is a connection to one incarnation of a receiving worker.
type Output struct {
	Edge     int // among the outputs of this worker's operator
	Receiver int // number of the receiving worker
	Out      transport.Outbound
}

// downstream is the sending stage. Everything here belongs to its goroutine.
type downstream struct {
	w        *Worker
	park     *ringbuf.Parker
	attached handoff[Output]
	conns    []*outConnection
	lanes    []*lane // per compute goroutine
}

// outConnection is one attached receiving worker.
type outConnection struct{ Output }

// lane is what one compute goroutine sends.
type lane struct {
	core     *core
	rewinds  *ringbuf.SPSC[rewind] // to compute
	gen      uint32                // frames made before the latest rewind are dropped, on all channels
	asked    bool                  // the latest rewind has not been passed to compute yet
	channels []*outChannel         // per ordinal
	held     outgoing              // the next frame, if it could not be sent yet
	holding  bool
}

// outChannel is the sender's side of one channel.
//
// Invariants: queue holds the kept frames in order; the first delivered of them are with the receiver, the others have
// to be sent (again) before anything new; sent is the position after the last frame the receiver has or was sent.
type outChannel struct {
	conn      *outConnection // nil until its receiver is attached
	ready     bool           // the receiver has said where to start
	queue     []transport.Frame
	delivered int
	sent      uint64
	acked     uint64
	window    stream.Window    // the last that was ended on the channel, as far as it was sent since the last rewind
	notice    *transport.Frame // what the receiver has to be told first: which window was ended before it goes on
	nudge     bool             // tell the receiver that the sender is blocked
	met       bool             // a receiver has said what it has
	paused    transport.Frame  // the last frame that was sent, if it says that nothing more comes
	again     bool             // say it again
}

// rewind asks a source to go back to where it can make everything again that its receivers lack.
//
// It concerns all channels at once, although only one receiver has failed. Frames of the others may stand in its way: a
// receiver that waits for the failed one, at the end of a window, takes no more, and a source that waits for that
// receiver could not go back. So they are dropped, too, and made again.
type rewind struct {
	from []uint64 // per output channel, what the receiver has or was sent
	gen  uint32
}

// run is the downstream goroutine.
func (d *downstream) run() error {
	for !d.w.halted.Load() {
		d.park.Wait(func() bool { return d.w.halted.Load() || d.step() })
	}
	return nil
}

// step does everything that can be done without waiting and reports whether that was anything.
func (d *downstream) step() (moved bool) {
	for _, o := range d.attached.take() {
		d.attach(o)
		moved = true
	}
	for _, c := range d.conns {
		for {
			a, ok := c.Out.Acks()
			if !ok {
				break
			}
			d.acked(c, a)
			moved = true
		}
	}
	for _, l := range d.lanes {
		moved = d.pump(l) || moved
	}
	return moved
}

// attach replaces the connection of a receiving worker. Nothing is sent on it before the receiver has said for each
// channel where to start.
func (d *downstream) attach(o Output) {
	c := &outConnection{Output: o}
	for i, old := range d.conns {
		if old.Edge == o.Edge && old.Receiver == o.Receiver {
			d.conns = append(d.conns[:i], d.conns[i+1:]...)
			break
		}
	}
	d.conns = append(d.conns, c)
	to := d.w.cfg.Node.Outputs[o.Edge].To
	for _, l := range d.lanes {
		base := l.core.exit.base[o.Edge] + o.Receiver*to.Compute
		for i := range to.Compute {
			ch := l.channels[base+i]
			ch.conn, ch.ready, ch.delivered = c, false, 0
		}
	}
}

// acked takes one acknowledgement.
func (d *downstream) acked(c *outConnection, a transport.Ack) {
	l := d.lanes[a.Channel.From%d.w.cfg.Node.Compute]
	ordinal := l.core.exit.base[c.Edge] + a.Channel.To
	ch := l.channels[ordinal]
	switch {
	case a.Epoch != d.w.cfg.Epoch || ch.conn != c:
	case a.Resume:
		d.resume(l, ordinal, a)
	case d.w.replay == Retains || d.w.replay == Remakes:
		ch.forget(a.Committed)
		l.core.exit.committed[ordinal].Store(a.Committed)
		l.core.park.Wake()
	case d.w.replay == AtRisk:
		l.acknowledge(ch, a.Acked)
	default:
		l.core.exit.committed[ordinal].Store(a.Committed)
		l.core.park.Wake()
	}
}

// resume starts a channel where the receiver asks for.
func (d *downstream) resume(l *lane, ordinal int, a transport.Ack) {
	ch := l.channels[ordinal]
	ch.ready, ch.notice, ch.again = true, nil, ch.paused.Kind == transport.Paused
	l.meet(ordinal, a)
	switch d.w.replay {
	case Live:
		ch.sent = max(ch.sent, a.Acked)
		ch.tell(l.core.exit.channels[ordinal], d.w.cfg.Epoch, ch.window)
		return
	case AtRisk:
		l.acknowledge(ch, a.Acked)
		ch.nudge = l.core.exit.blocked.Load()
	case Rewinds:
		if a.Acked < ch.sent {
			l.gen++
			l.asked = true
			ch.sent, ch.window = a.Acked, stream.Window{}
			for _, other := range l.channels {
				other.paused, other.again = transport.Frame{}, false // it will say so again
			}
			return // the source tells the window that it goes back to
		}
	}
	ch.sent, ch.delivered = a.Acked, 0
	for ch.delivered < len(ch.queue) && ch.queue[ch.delivered].Next() <= a.Acked {
		ch.delivered++
	}
	before := ch.window
	if ch.delivered < len(ch.queue) {
		before = stream.Window{Number: ch.queue[ch.delivered].Level}
	}
	ch.tell(l.core.exit.channels[ordinal], d.w.cfg.Epoch, before)
}

// meet takes note of what the receiver had when it was first connected with this incarnation.
func (l *lane) meet(ordinal int, a transport.Ack) {
	if ch := l.channels[ordinal]; !ch.met {
		ch.met = true
		l.core.exit.had[ordinal].Store(a.Acked)
		l.core.exit.unmet.Add(-1)
		l.core.park.Wake()
	}
}

// tell makes the notice of the window that the channel has ended where the receiver goes on. A recovered receiver knows
// its positions, not which of them were ends.
func (ch *outChannel) tell(id transport.Channel, epoch uint64, w stream.Window) {
	if w.Number > 0 {
		ch.notice = &transport.Frame{Kind: transport.Punctuation, Channel: id, Epoch: epoch, First: ch.sent, Window: w}
	}
}

// acknowledge frees what the receiver answers for and gives the partition credit for it.
func (l *lane) acknowledge(ch *outChannel, acked uint64) {
	if acked <= ch.acked {
		return
	}
	l.core.exit.acked.Add(acked - ch.acked)
	ch.acked = acked
	ch.forget(acked)
	l.core.park.Wake()
}

// forget drops the kept frames before position to.
func (ch *outChannel) forget(to uint64) {
	n := 0
	for n < len(ch.queue) && ch.queue[n].Next() <= to {
		ch.queue[n].Release()
		n++
	}
	if n > 0 {
		rest := copy(ch.queue, ch.queue[n:])
		clear(ch.queue[rest:])
		ch.queue = ch.queue[:rest]
		ch.delivered = max(0, ch.delivered-n)
	}
}

// pump sends what one compute goroutine has made, in order, until there is nothing left or no room.
func (d *downstream) pump(l *lane) (moved bool) {
	if l.asked && l.rewinds.TryPush(l.rewind()) {
		l.asked = false
		l.core.park.Wake()
	}
	for _, ch := range l.channels {
		moved = ch.catchUp() || moved
	}
	for {
		if !l.holding {
			o, ok := l.core.exit.out.TryPop()
			if !ok {
				return moved
			}
			l.held, l.holding = o, true
			if x := l.core.exit; x.full.Load() && x.full.Swap(false) {
				l.core.park.Wake()
			}
		}
		if !d.send(l, l.channels[l.held.ordinal]) {
			return moved
		}
		l.held, l.holding = outgoing{}, false
		moved = true
	}
}

func (l *lane) rewind() rewind {
	r := rewind{gen: l.gen}
	for _, ch := range l.channels {
		r.from = append(r.from, ch.sent)
	}
	return r
}

// catchUp sends what a new receiver has to be told first, and kept frames that it lacks.
func (ch *outChannel) catchUp() (moved bool) {
	if !ch.ready {
		return false
	}
	if ch.notice != nil {
		if !ch.conn.Out.Send(*ch.notice) {
			return false
		}
		ch.notice, moved = nil, true
	}
	for ch.delivered < len(ch.queue) {
		f := ch.queue[ch.delivered]
		retain(&f)
		if !ch.conn.Out.Send(f) {
			f.Release()
			return moved
		}
		ch.sent = max(ch.sent, f.Next())
		ch.delivered++
		moved = true
	}
	if ch.nudge && ch.conn.Out.Send(ch.blocked()) {
		ch.nudge, moved = false, true
	}
	if ch.again && ch.conn.Out.Send(ch.paused) {
		ch.again, moved = false, true
	}
	return moved
}

// blocked makes a frame that says so. Something unacknowledged is in the queue, or there is nothing to say: then the
// frame is as harmless as it is useless.
func (ch *outChannel) blocked() transport.Frame {
	f := transport.Frame{Kind: transport.Blocked, First: ch.sent}
	if len(ch.queue) > 0 {
		f.Channel, f.Epoch = ch.queue[0].Channel, ch.queue[0].Epoch
	}
	return f
}

// send deals with the lane's held frame, or reports false if it has to wait.
func (d *downstream) send(l *lane, ch *outChannel) bool {
	f := &l.held.Frame
	if l.held.gen != l.gen {
		f.Release() // made before a rewind, and to be made again
		return true
	}
	if f.Kind == transport.Blocked {
		return ch.ready && ch.conn.Out.Send(*f)
	}
	if !ch.ready {
		return false
	}
	if ch.notice != nil || ch.again || ch.delivered < len(ch.queue) {
		return false // these come first
	}
	if f.Kind == transport.Paused {
		sent := ch.conn.Out.Send(*f)
		if sent {
			ch.paused = *f
		}
		return sent
	}
	keep := d.w.keeps() && f.Count > 0
	// An end is sent even if its position says that the receiver has it, unless it was told: a recovered one knows the
	// position only.
	untold := f.Kind == transport.Punctuation && (f.Window.Number > ch.window.Number || f.Window.Last && !ch.window.Last)
	if f.Next() > ch.sent || untold {
		if keep {
			retain(f)
		}
		if !ch.conn.Out.Send(*f) {
			if keep {
				f.Release()
			}
			return false
		}
		d.w.stats.Emitted.Add(uint64(f.Count))
		ch.sent, ch.paused = max(ch.sent, f.Next()), transport.Frame{}
	} else if !keep {
		f.Release() // the receiver had it already
	}
	if keep {
		ch.queue = append(ch.queue, *f)
		ch.delivered++
	}
	if untold {
		ch.window = f.Window
	}
	return true
}

// keeps says whether the worker has to keep what it sends.
func (w *Worker) keeps() bool {
	return w.replay == AtRisk || w.replay == Retains || w.replay == Remakes
}

// retain takes one more share of a frame's slab; Frame.Release gives it back.
func retain(f *transport.Frame) {
	if f.Slab != nil {
		f.Slab.Retain()
	}
}
