package transport

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/ringbuf"
	"github.com/afstream/afstream/stream"
)

func frame(first uint64) Frame {
	return Frame{Kind: Data, Channel: Channel{Edge: 1, From: 2, To: 3}, Epoch: 4, First: first, Count: 1}
}

func ack(acked uint64) Ack {
	return Ack{Channel: Channel{Edge: 1, From: 2, To: 3}, Epoch: 4, Acked: acked}
}

// Both directions against plain queues: order is kept, a full ring reports false and changes nothing, and neither
// direction gets in the way of the other.
func TestPipeAgainstQueues(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		slabs := rapid.IntRange(1, 5).Draw(rt, "slabs")
		out, in := Pipe(slabs, ringbuf.NewParker(), ringbuf.NewParker())
		var frames []Frame
		var acks []Ack
		next := uint64(0)
		for range rapid.IntRange(0, 300).Draw(rt, "steps") {
			next++
			switch rapid.IntRange(0, 4).Draw(rt, "step") {
			case 0:
				sent := out.Send(frame(next))
				require.Equal(rt, len(frames) < slabs, sent)
				if sent {
					frames = append(frames, frame(next))
				}
			case 1:
				f, ok := in.Receive()
				require.Equal(rt, len(frames) > 0, ok)
				if ok {
					require.Equal(rt, frames[0], f)
					frames = frames[1:]
				} else {
					require.Zero(rt, f)
				}
			case 2, 3: // more often: there are more places
				passed := in.Acknowledge(ack(next))
				require.Equal(rt, len(acks) < feedbackSlots, passed)
				if passed {
					acks = append(acks, ack(next))
				}
			case 4:
				a, ok := out.Acks()
				require.Equal(rt, len(acks) > 0, ok)
				if ok {
					require.Equal(rt, acks[0], a)
					acks = acks[1:]
				} else {
					require.Zero(rt, a)
				}
			}
		}
	})
}

// The receiver's place in a full feedback ring, which rapid rarely reaches.
func TestFeedbackRingHasItsRoom(t *testing.T) {
	out, in := Pipe(1, ringbuf.NewParker(), ringbuf.NewParker())
	for i := range uint64(feedbackSlots) {
		require.True(t, in.Acknowledge(ack(i)))
	}
	require.False(t, in.Acknowledge(ack(1000)))
	require.True(t, out.Send(frame(0)), "the other direction has room")
	for i := range uint64(feedbackSlots) {
		a, ok := out.Acks()
		require.True(t, ok)
		require.Equal(t, ack(i), a)
	}
	_, ok := out.Acks()
	require.False(t, ok)
}

// Every change wakes the side that waits for it: a reader always may, a writer does after it found no room. The waiter announces itself first, so that the wake-up cannot
// come too early; that it came at all is what ParkTimeout reports.
func TestChangesWakeTheOtherSide(t *testing.T) {
	for name, c := range map[string]struct {
		before, change func(Outbound, Inbound)
		receiver       bool // who is woken
	}{
		"Send":        {func(Outbound, Inbound) {}, func(o Outbound, _ Inbound) { o.Send(frame(1)) }, true},
		"Receive":     {func(o Outbound, _ Inbound) { o.Send(frame(1)); o.Send(frame(2)) }, func(_ Outbound, i Inbound) { i.Receive() }, false},
		"Acknowledge": {func(Outbound, Inbound) {}, func(_ Outbound, i Inbound) { i.Acknowledge(ack(1)) }, false},
		"Acks": {func(_ Outbound, i Inbound) {
			for range feedbackSlots + 1 {
				i.Acknowledge(ack(1))
			}
		}, func(o Outbound, _ Inbound) { o.Acks() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			sender, receiver := ringbuf.NewParker(), ringbuf.NewParker()
			out, in := Pipe(1, sender, receiver)
			c.before(out, in)
			woken, other := sender, receiver
			if c.receiver {
				woken, other = receiver, sender
			}
			woken.Prepare()
			other.Prepare()
			c.change(out, in)
			require.True(t, woken.ParkTimeout(time.Minute), "nobody woke it")
			require.False(t, other.ParkTimeout(0), "it waits for something else")
		})
	}
}

// What changes nothing wakes nobody.
func TestFailuresWakeNobody(t *testing.T) {
	sender, receiver := ringbuf.NewParker(), ringbuf.NewParker()
	out, in := Pipe(1, sender, receiver)
	out.Send(frame(1))
	for in.Acknowledge(ack(1)) {
	}
	sender.Prepare()
	receiver.Prepare()
	require.False(t, out.Send(frame(2)))
	require.False(t, in.Acknowledge(ack(2)))
	require.False(t, sender.ParkTimeout(0))
	require.False(t, receiver.ParkTimeout(0))

	out, in = Pipe(1, sender, receiver)
	sender.Prepare()
	receiver.Prepare()
	_, ok := in.Receive()
	require.False(t, ok)
	_, ok = out.Acks()
	require.False(t, ok)
	require.False(t, sender.ParkTimeout(0))
	require.False(t, receiver.ParkTimeout(0))
}

// Two goroutines, one per end, that park whenever they can do nothing: all frames arrive in order and all are
// acknowledged in order. Each waits for room and for news at once, so a missed wake-up in either direction would hang.
func TestTwoGoroutines(t *testing.T) {
	const total = 20_000
	for _, slabs := range []int{1, 2, 32} {
		sender, receiver := ringbuf.NewParker(), ringbuf.NewParker()
		out, in := Pipe(slabs, sender, receiver)
		var wg sync.WaitGroup
		wg.Go(func() {
			for sent, acked := uint64(0), uint64(0); acked < total; {
				sender.Wait(func() bool {
					moved := false
					if sent < total && out.Send(frame(sent)) {
						sent++
						moved = true
					}
					if a, ok := out.Acks(); ok {
						if a.Acked != acked+1 {
							t.Errorf("acknowledged up to %d after %d", a.Acked, acked)
						}
						acked, moved = a.Acked, true
					}
					return moved
				})
			}
		})
		wg.Go(func() {
			for next, acked := uint64(0), uint64(0); acked < total; {
				receiver.Wait(func() bool {
					moved := false
					if next-acked < 3 { // or it only acknowledges
						if f, ok := in.Receive(); ok {
							if f.First != next {
								t.Errorf("frame %d after %d", f.First, next)
							}
							next++
							moved = true
						}
					}
					if acked < next && in.Acknowledge(ack(acked+1)) {
						acked++
						moved = true
					}
					return moved
				})
			}
		})
		wg.Wait()
	}
}

// counted is a slab that counts its holders.
type counted struct {
	stream.Slab
	holders int
}

func (c *counted) Release() { c.holders-- }

func TestFrame(t *testing.T) {
	s := &counted{holders: 2}
	f := Frame{Kind: Data, First: 10, Count: 5, Slab: s}
	require.EqualValues(t, 15, f.Next())
	f.Release()
	require.Equal(t, 1, s.holders)
	f = Frame{Kind: Punctuation, First: 15, Count: 1, Window: stream.Window{Number: 1, Last: true}}
	require.EqualValues(t, 16, f.Next())
	require.NotPanics(t, f.Release, "there is no slab")
	f = Frame{Kind: Blocked, First: 16}
	require.EqualValues(t, 16, f.Next(), "it takes no number")
}

func TestPipeNeedsRoom(t *testing.T) {
	require.Panics(t, func() { Pipe(0, ringbuf.NewParker(), ringbuf.NewParker()) })
}

// BenchmarkPipe is the cost of a frame and its acknowledgement between two goroutines.
func BenchmarkPipe(b *testing.B) {
	sender, receiver := ringbuf.NewParker(), ringbuf.NewParker()
	out, in := Pipe(32, sender, receiver)
	b.ReportAllocs()
	n := b.N
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range n {
			receiver.Wait(func() bool { _, ok := in.Receive(); return ok })
			receiver.Wait(func() bool { return in.Acknowledge(Ack{}) })
		}
	}()
	for sent, acked := 0, 0; acked < n; {
		sender.Wait(func() bool {
			if sent < n && out.Send(Frame{}) {
				sent++
				return true
			}
			_, ok := out.Acks()
			if ok {
				acked++
			}
			return ok
		})
	}
	<-done
}
