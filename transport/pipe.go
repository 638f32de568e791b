package transport

import "github.com/afstream/afstream/ringbuf"

// pipe is a connection within the process. Its data ring is written by the sender's downstream goroutine and read by
// the receiver's upstream goroutine; its feedback ring the other way round.
type pipe struct {
	data     *ringbuf.SPSC[Frame]
	feedback *ringbuf.SPSC[Ack]
	sender   *ringbuf.Parker
	receiver *ringbuf.Parker
}

// feedbackSlots is the room for acknowledgements under way. They are cumulative, so a full ring only delays them.
const feedbackSlots = 64

// Pipe returns the two ends of a new connection that holds up to slabs frames, at least 1 or it panics. sender and
// receiver park the goroutines that own the ends; each end is for its owner only. Whatever one end does that the other
// may wait for (a frame or an acknowledgement that arrives, or room for the next) wakes the other's parker.
func Pipe(slabs int, sender, receiver *ringbuf.Parker) (Outbound, Inbound) {
	p := &pipe{
		data:     ringbuf.NewSPSC[Frame](slabs),
		feedback: ringbuf.NewSPSC[Ack](feedbackSlots),
		sender:   sender,
		receiver: receiver,
	}
	return (*outbound)(p), (*inbound)(p)
}

// outbound is the pipe as its sender sees it.
type outbound pipe

// Send implements Outbound.
func (p *outbound) Send(f Frame) bool {
	if !p.data.TryPush(f) {
		return false
	}
	p.receiver.Wake()
	return true
}

// Feedback implements Outbound.
func (p *outbound) Acks() (Ack, bool) {
	a, ok := p.feedback.TryPop()
	if ok {
		p.receiver.Wake()
	}
	return a, ok
}

// inbound is the pipe as its receiver sees it.
type inbound pipe

// Receive implements Inbound.
func (p *inbound) Receive() (Frame, bool) {
	f, ok := p.data.TryPop()
	if ok {
		p.sender.Wake()
	}
	return f, ok
}

// Acknowledge implements Inbound.
func (p *inbound) Acknowledge(a Ack) bool {
	if !p.feedback.TryPush(a) {
		return false
	}
	p.sender.Wake()
	return true
}
