package transport

import (
	"sync/atomic"

	"github.com/afstream/afstream/ringbuf"
)

// pipe is a connection within the process. Its data ring is written by the sender's downstream goroutine and read by
// the receiver's upstream goroutine; its feedback ring the other way round.
type pipe struct {
	data     way[Frame]
	feedback way[Ack]
}

// way is one direction: a ring, the goroutine that reads it, and the one that writes it.
type way[T any] struct {
	ring   *ringbuf.SPSC[T]
	reader *ringbuf.Parker
	writer *ringbuf.Parker
	full   atomic.Bool // the writer has found no room
}

func newWay[T any](slots int, writer, reader *ringbuf.Parker) way[T] {
	return way[T]{ring: ringbuf.NewSPSC[T](slots), writer: writer, reader: reader}
}

// put writes one value, or reports false if there is no room; the writer is then woken when there is.
func (w *way[T]) put(v T) bool {
	if !w.ring.TryPush(v) {
		w.full.Store(true)
		if !w.ring.TryPush(v) { // the reader may have made room before it could see the mark
			return false
		}
	}
	w.reader.Wake()
	return true
}

// take reads one value. The writer is woken only if it waits for room: waking a goroutine that sleeps costs more than
// all else here.
func (w *way[T]) take() (T, bool) {
	v, ok := w.ring.TryPop()
	if ok && w.full.Load() && w.full.Swap(false) {
		w.writer.Wake()
	}
	return v, ok
}

// feedbackSlots is the room for acknowledgements under way. They are cumulative, so a full ring only delays them.
const feedbackSlots = 64

// Pipe returns the two ends of a new connection that holds up to slabs frames. sender and receiver park the
// goroutines that own the ends.
func Pipe(slabs int, sender, receiver *ringbuf.Parker) (Outbound, Inbound) {
	p := &pipe{data: newWay[Frame](slabs, sender, receiver), feedback: newWay[Ack](feedbackSlots, receiver, sender)}
	return (*outbound)(p), (*inbound)(p)
}

type outbound pipe

func (p *outbound) Send(f Frame) bool { return p.data.put(f) }
func (p *outbound) Acks() (Ack, bool) { return p.feedback.take() }

type inbound pipe

func (p *inbound) Receive() (Frame, bool) { return p.data.take() }
func (p *inbound) Acknowledge(a Ack) bool { return p.feedback.put(a) }
