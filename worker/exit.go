package worker

import (
	"math"
	"slices"
	"sync/atomic"

	"github.com/afstream/afstream/ringbuf"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/threshold"
	"github.com/afstream/afstream/transport"
)

// outgoing is a frame on its way from compute to downstream.
type outgoing struct {
	transport.Frame
	ordinal int    // which output channel of the partition
	gen     uint32 // how often the partition had gone back when the frame was made
}

// exit numbers what one partition emits and passes it to the downstream goroutine. It belongs to the compute
// goroutine, which is the single writer of its channels; the atomics are written by the downstream goroutine.
type exit struct {
	c        *core
	base     []int               // per output edge, the ordinal of its channel to partition 0
	channels []transport.Channel // per ordinal
	reach    []bool              // per ordinal: forward edges have channels that carry nothing
	next     []uint64            // per ordinal, the next sequence number
	gen      uint32              // see outgoing
	level    uint64              // number of the last window that was ended
	windows  uint64              // how many were
	ended    bool                // so was the stream
	out      *ringbuf.SPSC[outgoing]
	sender   *threshold.Sender // nil unless the channels are at risk
	unseen   int               // frames since the downstream goroutine was woken
	lazy     bool              // it need not be woken for each: compute waits for nothing unannounced, nor soon for credit
	full     atomic.Bool       // compute waits for room in out

	acked     atomic.Uint64   // items acknowledged over all channels
	committed []atomic.Uint64 // per ordinal, what the receiver has committed
	had       []atomic.Uint64 // of a source that rewinds, per ordinal: what the receiver had of earlier incarnations
	unmet     atomic.Int32    // channels whose receiver has not said that yet
	blocked   atomic.Bool     // the partition waits for credit
}

func newExit(c *core) *exit {
	x := &exit{c: c, out: ringbuf.NewSPSC[outgoing](ringSlabs)}
	for _, e := range c.w.cfg.Node.Outputs {
		x.base = append(x.base, len(x.channels))
		input := InputOf(e)
		for to := range e.To.Partitions() {
			x.channels = append(x.channels, transport.Channel{Edge: input, From: c.index, To: to})
			x.reach = append(x.reach, e.Reaches(c.index, to))
		}
	}
	x.next = make([]uint64, len(x.channels))
	x.committed = make([]atomic.Uint64, len(x.channels))
	x.had = make([]atomic.Uint64, len(x.channels))
	x.each(func(int) { x.unmet.Add(1) })
	return x
}

// InputOf returns the position of e among the inputs of its receiver.
func InputOf(e *stream.Edge) int { return slices.Index(e.To.Inputs, e) }

// OutputOf returns the position of e among the outputs of its sender.
func OutputOf(e *stream.Edge) int { return slices.Index(e.From.Outputs, e) }

// EmittedOn cuts out of what each partition of a sender had emitted, per output channel, what belongs to edge e.
func EmittedOn(e *stream.Edge, emitted [][]uint64) [][]uint64 {
	base := 0
	for _, before := range e.From.Outputs[:OutputOf(e)] {
		base += before.To.Partitions()
	}
	var on [][]uint64
	for _, all := range emitted {
		on = append(on, all[base:base+e.To.Partitions()])
	}
	return on
}

// Send implements stream.Exit.
func (x *exit) Send(leg, to int, s stream.Slab) {
	x.push(x.base[leg]+to, transport.Frame{Kind: transport.Data, Count: s.Len(), Slab: s})
}

// Credit implements stream.Exit. What is buffered counts as emitted, I3.
func (x *exit) Credit(buffered int) int64 {
	if x.sender == nil {
		return stream.Unlimited
	}
	x.sender.Acked(x.acked.Load())
	return int64(min(x.sender.Credit(), math.MaxInt64)) - int64(buffered)
}

// AwaitCredit implements stream.Exit: it waits until n more items may be emitted, I3. The emitter has flushed, so every
// emitted item was sent. Without a sender Credit is unlimited, and nobody waits.
func (x *exit) AwaitCredit(n int64) int64 {
	x.awaitAcks(func() bool { return x.credit(n) >= n })
	if err := x.sender.Valid(); checkInvariants && err != nil {
		panic(err)
	}
	return x.credit(n)
}

// awaitAcks waits until so much is acknowledged that enough holds.
func (x *exit) awaitAcks(enough func() bool) {
	known := func() bool {
		x.sender.Acked(x.acked.Load())
		return enough()
	}
	if known() {
		return
	}
	x.blocked.Store(true)
	if !x.c.awaitFor(forCredit, logPatience, known) {
		x.each(func(ordinal int) { x.push(ordinal, transport.Frame{Kind: transport.Blocked}) })
		x.c.await(forCredit, known)
	}
	x.blocked.Store(false)
}

// Hurry implements stream.Exit.
func (x *exit) Hurry() { x.show() }

// credit is what the sender machine grants. An item that goes to more channels than gamma allows at all (a broadcast)
// must still be able to move: it may once nothing else is unacknowledged.
func (x *exit) credit(n int64) int64 {
	c := x.sender.Credit()
	if x.sender.Unacked() == 0 {
		c = max(c, uint64(n))
	}
	return int64(min(c, math.MaxInt64))
}

// punctuate sends w on every channel.
func (x *exit) punctuate(w stream.Window) {
	x.each(func(ordinal int) { x.push(ordinal, transport.Frame{Kind: transport.Punctuation, Count: 1, Window: w}) })
	x.level, x.ended = w.Number, w.Last
	x.windows++
}

// sent returns how many items each channel has carried, without punctuation.
func (x *exit) sent() []uint64 {
	sent := append([]uint64(nil), x.next...)
	x.each(func(ordinal int) { sent[ordinal] -= x.windows })
	return sent
}

// notice repeats on one channel which window was ended last.
func (x *exit) notice(ordinal int) {
	if x.level > 0 {
		x.push(ordinal, transport.Frame{Kind: transport.Punctuation, Window: stream.Window{Number: x.level, Last: x.ended}})
	}
}

func (x *exit) each(f func(ordinal int)) {
	for ordinal, ok := range x.reach {
		if ok {
			f(ordinal)
		}
	}
}

func (x *exit) push(ordinal int, f transport.Frame) {
	f.Channel, f.Epoch, f.First, f.Level = x.channels[ordinal], x.c.w.cfg.Epoch, x.next[ordinal], x.level
	x.next[ordinal] += uint64(f.Count)
	if x.sender != nil && f.Count > 0 {
		x.sender.Emitted(uint64(f.Count))
	}
	o := outgoing{Frame: f, ordinal: ordinal, gen: x.gen}
	if !x.out.TryPush(o) {
		x.c.await(forRoom, func() bool { x.full.Store(true); return x.out.TryPush(o) })
	}
	if x.unseen++; !x.lazy || x.unseen == wakeEvery || f.Kind != transport.Data {
		x.show()
	}
}

// show wakes the downstream goroutine if there is something that it was not woken for.
func (x *exit) show() {
	if x.unseen > 0 {
		x.unseen = 0
		x.c.w.down.park.Wake()
	}
}
