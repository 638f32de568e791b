package link

import (
	"context"

	"github.com/afstream/afstream/ringbuf"
	"github.com/afstream/afstream/transport"
)

// Inbound is the receiving worker's end of a connection. Receive and Acknowledge are for one goroutine, the owner, whose
// Parker is woken when there is news; the other methods are for any.
type Inbound struct {
	end
	acks   queue[transport.Ack]
	decode transport.Decode
	frames []byte // of the content being read, by the owner
	size   int
}

func newInbound(id string, owner *ringbuf.Parker, decode transport.Decode, cfg Config) *Inbound {
	i := &Inbound{acks: newQueue[transport.Ack](cfg.Queue, owner), decode: decode}
	i.end = end{name: id, cfg: cfg, owner: owner, what: i}
	return i
}

// Receive implements [transport.Inbound]. It costs what decoding the items does.
func (i *Inbound) Receive() (transport.Frame, bool) {
	if i.closing.Load() {
		return transport.Frame{}, false
	}
	if len(i.frames) == 0 {
		body, ok := i.inbox.TryPop()
		if !ok {
			return transport.Frame{}, false
		}
		i.frames, i.size = body, len(body)
	}
	f, rest, err := transport.TakeFrame(i.frames, i.decode)
	if err != nil {
		i.fail(err)
		return transport.Frame{}, false
	}
	if i.frames = rest; len(rest) == 0 {
		i.use(i.size)
	}
	return f, true
}

// Acknowledge implements [transport.Inbound]. After a failure or Close it reports false.
func (i *Inbound) Acknowledge(a transport.Ack) bool {
	if i.closing.Load() || !i.acks.put(a) {
		return false
	}
	if !i.lingering.Load() || i.acks.busy() {
		i.park.Wake()
	}
	return true
}

// waiting implements contents.
func (i *Inbound) waiting() (some, busy bool) { return i.acks.ring.Len() > 0, i.acks.busy() }

// fill implements contents.
func (i *Inbound) fill(msg []byte, batch, limit int) ([]byte, error) {
	for first := true; first || len(msg) < batch && len(msg)+transport.AckBytes <= limit; first = false {
		a, ok := i.acks.take()
		if !ok {
			break
		}
		msg = transport.AppendAck(msg, a)
	}
	return msg, nil
}

// discard implements contents.
func (i *Inbound) discard() {}

// Flush waits until the sending process has all acknowledgements that were passed before, as [Outbound.Flush] does.
func (i *Inbound) Flush(ctx context.Context) error { return i.flush(ctx) }

// Close ends the connection at this end, as [Outbound.Close] does. The sender is told what has arrived.
func (i *Inbound) Close() { i.close() }

// Stats returns what has happened so far.
func (i *Inbound) Stats() Stats { return i.stats(i.sub.Dropped()) }
