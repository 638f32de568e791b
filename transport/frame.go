package transport

import "github.com/afstream/afstream/stream"

// Kind says what a frame is.
type Kind uint8

const (
	// Data carries the items of one slab.
	Data Kind = iota
	// Punctuation ends a window or the stream. It takes one number of its channel's sequence; without a number (Count 0)
	// it only repeats, at the start of a connection, which window the channel has ended last.
	Punctuation
	// Blocked says that the sending partition cannot go on until more of its items are acknowledged, or committed, if it makes
	// its output again after a failure (worker.Remakes).
	Blocked
	// Paused says that the sending partition sends nothing more until the job goes on, and in which round of coming to
	// rest that is so (worker.Worker.Pause): the number of Window. Like Blocked it takes no number of its channel's
	// sequence.
	Paused
)

// Channel names the way from one sending to one receiving partition, within one connection.
type Channel struct {
	Edge     int // position of the edge among the inputs of the receiving operator
	From, To int // sending and receiving partition
}

// Frame is what travels downstream. Sequence numbers count items (and punctuation) per channel from 0.
type Frame struct {
	Kind    Kind
	Channel Channel
	Epoch   uint64 // incarnation of the sending worker
	First   uint64 // sequence number of the first item
	Count   int    // items; 1 for punctuation, 0 for Blocked and Paused
	Level   uint64 // number of the window that the channel had ended last before this frame
	Slab    stream.Slab
	Window  stream.Window // of a punctuation; of Paused, its number is the round
}

// Next returns the sequence number that follows the frame.
func (f *Frame) Next() uint64 { return f.First + uint64(f.Count) }

// Release gives back the frame's share of its slab.
func (f *Frame) Release() {
	if f.Slab != nil {
		f.Slab.Release()
	}
}

// Ack is what travels upstream: how far one channel has come at the receiver. All positions are the number of the
// first item not covered, and only ever grow within a connection.
type Ack struct {
	Channel   Channel
	Resume    bool   // the first message on a channel: send everything from Acked on
	Epoch     uint64 // incarnation of the sender that the positions belong to
	Acked     uint64 // the receiver answers for these
	Committed uint64 // these are part of a durable backup
	// Live says, with Resume, that the receiver makes no promise and wants only what comes next.
	Live bool
}

// Outbound is the sender's end of a connection. It is for one goroutine, and nothing it does blocks.
type Outbound interface {
	// Send hands over a frame and the hold on its slab, or reports false when there is no room now: then nothing has
	// changed.
	Send(f Frame) bool
	// Acks returns the next acknowledgement, if one has arrived.
	Acks() (Ack, bool)
}

// Inbound is the receiver's end of a connection. It is for one goroutine, and nothing it does blocks.
type Inbound interface {
	// Receive returns the next frame, if one has arrived, and with it the hold on its slab.
	Receive() (Frame, bool)
	// Acknowledge passes an acknowledgement upstream, or reports false when there is no room now: then nothing has
	// changed.
	Acknowledge(a Ack) bool
}
