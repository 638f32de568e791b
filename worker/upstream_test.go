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
	sender     int
	next, left uint64
}

func (e *eager) Receive() (transport.Frame, bool) {
	if e.left == 0 {
		return transport.Frame{}, false
	}
	e.left--
	e.next++
	return transport.Frame{Channel: transport.Channel{From: e.sender}, Epoch: 1, First: e.next - 1, Count: 1, Slab: &fakeSlab{n: 1}}, true
}

func (e *eager) Acknowledge(transport.Ack) bool { return true }

// TestConnectionsTakeTurns: senders that always have something get the same share of the room, whatever room there is, in one
// step and over all of them; and one that has nothing holds up no other.
func TestConnectionsTakeTurns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		senders := rapid.IntRange(1, 5).Draw(rt, "senders")
		topo := stream.New("turns")
		s := stream.From(topo, "source", func(int, int) (stream.Source[uint64], error) { return &counting{}, nil }, stream.Workers(senders))
		stream.To(s, "sink", func(int, int) (stream.Sink[uint64], error) { return discard{}, nil })
		nodes, err := topo.Build()
		require.NoError(rt, err)
		store := backup.NewMemory()
		defer store.Close()
		w := load(t, nodes[1], 1, store, nil)
		const plenty = 1 << 20
		quiet := rapid.IntRange(-1, senders-1).Draw(rt, "quiet")
		for i := range senders {
			in := &eager{sender: i, left: plenty}
			if i == quiet {
				in.left = 0
			}
			w.AttachInput(Input{Sender: i, Epoch: 1, Replay: Rewinds, In: in})
		}
		taken := make([]uint64, senders)
		active := senders > 1 || quiet < 0
		for _, room := range rapid.SliceOfN(rapid.IntRange(0, framesPerStep), 1, 100).Draw(rt, "rooms") {
			_, err := w.up.step()
			require.NoError(rt, err)
			for range room {
				d, ok := w.operators[0].in.TryPop()
				require.Equal(rt, active, ok)
				if ok {
					taken[d.Channel.From]++
				}
			}
		}
		low, high := uint64(plenty), uint64(0)
		for i, n := range taken {
			if i != quiet {
				low, high = min(low, n), max(high, n)
			}
		}
		if active {
			require.LessOrEqual(rt, high-low, uint64(1), "%v", taken)
		}
	})
}
