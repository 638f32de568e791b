package link

import (
	"context"

	"github.com/afstream/afstream/ringbuf"
	"github.com/afstream/afstream/transport"
)

// Outbound is the sending worker's end of a connection. Send and Acks are for one goroutine, the owner, whose Parker is
// woken when there is news; the other methods are for any.
type Outbound struct {
	end
	frames queue[transport.Frame]
	// The frame that is being packed, by the end's goroutine.
	cur     transport.Frame
	next    int // item to go on with
	holding bool
	acks    []byte // of the content being read, by the owner
	size    int
}

func newOutbound(id string, owner *ringbuf.Parker, cfg Config) *Outbound {
	o := &Outbound{frames: newQueue[transport.Frame](cfg.Queue, owner)}
	o.end = end{name: id, cfg: cfg, owner: owner, what: o}
	return o
}

// Send implements [transport.Outbound]. It only puts the frame into a ring; after a failure or Close it reports false.
func (o *Outbound) Send(f transport.Frame) bool {
	if o.closing.Load() || !o.frames.put(f) {
		return false
	}
	if !o.lingering.Load() || o.frames.busy() {
		o.park.Wake()
	}
	return true
}

// Acks implements [transport.Outbound].
func (o *Outbound) Acks() (transport.Ack, bool) {
	if o.closing.Load() {
		return transport.Ack{}, false
	}
	if len(o.acks) == 0 {
		body, ok := o.inbox.TryPop()
		if !ok {
			return transport.Ack{}, false
		}
		o.acks, o.size = body, len(body)
	}
	a, rest, err := transport.TakeAck(o.acks)
	if err != nil {
		o.fail(err)
		return transport.Ack{}, false
	}
	if o.acks = rest; len(rest) == 0 {
		o.use(o.size)
	}
	return a, true
}

// waiting implements contents.
func (o *Outbound) waiting() (some, busy bool) {
	return o.holding || o.frames.ring.Len() > 0, o.holding || o.frames.busy()
}

// fill implements contents. A slab that does not fit is cut, and the rest begins the next message.
func (o *Outbound) fill(msg []byte, batch, limit int) ([]byte, error) {
	for first := true; len(msg) < batch || first; first = false {
		if !o.holding {
			f, ok := o.frames.take()
			if !ok {
				return msg, nil
			}
			o.cur, o.next, o.holding = f, 0, true
		}
		out, next, err := transport.AppendFrame(msg, &o.cur, o.next, limit, first)
		if err != nil {
			return nil, err
		}
		if len(out) == len(msg) {
			return msg, nil // no room: it begins the next
		}
		if msg, o.next = out, next; next < o.cur.Count {
			return msg, nil // full
		}
		o.letGo()
	}
	return msg, nil
}

// letGo ends the hold on the slab of the frame that was packed: its bytes are kept from now on.
func (o *Outbound) letGo() {
	o.cur.Release()
	o.cur, o.holding = transport.Frame{}, false
}

// discard implements contents.
func (o *Outbound) discard() {
	if o.holding {
		o.letGo()
	}
	for f, ok := o.frames.take(); ok; f, ok = o.frames.take() {
		f.Release()
	}
}

// Flush waits until the receiving process has all frames that were sent before; its worker need not have looked at
// them. A peer that has died lets it wait until ctx ends. The error is why the connection has ended, or ctx's.
func (o *Outbound) Flush(ctx context.Context) error { return o.flush(ctx) }

// Close ends the connection at this end at once and waits for its goroutine: what was handed over and has not arrived
// is lost, see Flush. Messages that still come are dropped. It may be called more than once; the owner may go on to use
// the end, to no effect.
//
// It waits for a write to NATS that is under way, which nats.FlusherTimeout bounds.
func (o *Outbound) Close() { o.close() }

// Stats returns what has happened so far.
func (o *Outbound) Stats() Stats { return o.stats(o.sub.Dropped()) }
