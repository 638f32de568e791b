package worker

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/transport"
)

// eager is a connection that has a frame of one item whenever it is asked, until they are all taken.
type eager struct {
	channel    transport.Channel
	next, left uint64
}

func (e *eager) Receive() (transport.Frame, bool) {
	if e.left == 0 {
		return transport.Frame{}, false
	}
	e.left--
	e.next++
	return transport.Frame{Channel: e.channel, Epoch: 1, First: e.next - 1, Count: 1, Slab: &fakeSlab{n: 1}}, true
}

func (e *eager) Acknowledge(transport.Ack) bool { return true }

// both takes two streams.
type both struct{}

func (both) ProcessLeft(uint64, *stream.Emitter[uint64]) error  { return nil }
func (both) ProcessRight(uint64, *stream.Emitter[uint64]) error { return nil }

// TestInputsTakeTurns: senders to an operator with two inputs that always have something get the same share of the room, whatever
// room there is, in one step and over all of them; and one that has nothing holds up no other.
func TestInputsTakeTurns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		topo := stream.New("turns")
		source := func(name string, workers int) stream.Stream[uint64] {
			return stream.From(topo, name, func(int, int) (stream.Source[uint64], error) { return &counting{}, nil }, stream.Workers(workers))
		}
		workers := []int{rapid.IntRange(1, 3).Draw(rt, "left"), rapid.IntRange(1, 3).Draw(rt, "right")}
		joined := stream.Join(source("left", workers[0]), source("right", workers[1]), "join", func() both { return both{} }, nil, nil)
		stream.To(joined, "sink", func(int, int) (stream.Sink[uint64], error) { return discard{}, nil })
		nodes, err := topo.Build()
		require.NoError(rt, err)
		store := backup.NewMemory()
		defer store.Close()
		w := load(t, nodes[2], 1, store, nil)
		require.Len(rt, w.cfg.Node.Inputs, 2)

		const plenty = 1 << 20
		senders := workers[0] + workers[1]
		quiet := rapid.IntRange(-1, senders-1).Draw(rt, "quiet")
		for i := range senders {
			in := Input{Sender: i, Epoch: 1, Replay: Rewinds}
			if i >= workers[0] {
				in.Edge, in.Sender = 1, i-workers[0]
			}
			connection := &eager{channel: transport.Channel{Edge: in.Edge, From: in.Sender}, left: plenty}
			if i == quiet {
				connection.left = 0
			}
			in.In = connection
			w.AttachInput(in)
		}
		taken := make([]uint64, senders)
		for _, room := range rapid.SliceOfN(rapid.IntRange(0, framesPerStep), 1, 100).Draw(rt, "rooms") {
			_, err := w.up.step()
			require.NoError(rt, err)
			for range room {
				d, ok := w.operators[0].in.TryPop()
				require.True(rt, ok)
				taken[d.Channel.Edge*workers[0]+d.Channel.From]++
			}
		}
		low, high := uint64(plenty), uint64(0)
		for i, n := range taken {
			if i != quiet {
				low, high = min(low, n), max(high, n)
			}
		}
		require.LessOrEqual(rt, high-low, uint64(1), "%v", taken)
	})
}
