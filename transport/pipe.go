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

// Pipe returns the two ends of a new connection that holds up to slabs frames. sender and receiver park the
// goroutines that own the ends.
func Pipe(slabs int, sender, receiver *ringbuf.Parker) (Outbound, Inbound) {
	p := &pipe{
		data:     ringbuf.NewSPSC[Frame](slabs),
		feedback: ringbuf.NewSPSC[Ack](feedbackSlots),
		sender:   sender,
		receiver: receiver,
	}
	return (*outbound)(p), (*inbound)(p)
}

type outbound pipe

func (p *outbound) Send(f Frame) bool {
	if !p.data.TryPush(f) {
		return false
	}
	p.receiver.Wake()
	return true
}

func (p *outbound) Feedback() (Ack, bool) {
	a, ok := p.feedback.TryPop()
	if ok {
		p.receiver.Wake()
	}
	return a, ok
}

type inbound pipe

func (p *inbound) Receive() (Frame, bool) {
	f, ok := p.data.TryPop()
	if ok {
		p.sender.Wake()
	}
	return f, ok
}

func (p *inbound) Acknowledge(a Ack) bool {
	if !p.feedback.TryPush(a) {
		return false
	}
	p.sender.Wake()
	return true
}
