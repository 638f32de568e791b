package worker

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/threshold"
	"github.com/afstream/afstream/transport"
)

// fakeSlab counts its references.
type fakeSlab struct{ n, refs int }

func (s *fakeSlab) Len() int { return s.n }
func (s *fakeSlab) Retain()  { s.refs++ }
func (s *fakeSlab) Release() { s.refs-- }
func (s *fakeSlab) AppendItems(dst []byte, from, to int) ([]byte, error) {
	return append(dst, make([]byte, to-from)...), nil
}

// TestArrivalsFollowTheMachine drives two channels at random and checks against a plain account of every item: what is
// acknowledged on a channel is a prefix of it, in all no more than the machine allows, the log takes exactly what is
// pending, and every slab is let go once its items are acknowledged and safe.
func TestArrivalsFollowTheMachine(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := rapid.Uint64Range(0, 40).Draw(rt, "l")
		a := &arrivals{machine: threshold.NewReceiver(l)}
		conn := &connection{Input: Input{Replay: AtRisk, Epoch: 3}}
		channels := []*inChannel{
			{conn: conn, id: transport.Channel{From: 0}, epoch: 3},
			{conn: conn, id: transport.Channel{From: 1}, epoch: 3},
		}
		var order []int // channel of each item, in the order of arrival
		var slabs []*fakeSlab
		processed := uint64(0)
		rt.Repeat(map[string]func(*rapid.T){
			"arrive": func(rt *rapid.T) {
				c := rapid.IntRange(0, 1).Draw(rt, "channel")
				n := rapid.IntRange(1, 20).Draw(rt, "items")
				skip := rapid.IntRange(0, n-1).Draw(rt, "skip")
				ch := channels[c]
				s := &fakeSlab{n: n}
				slabs = append(slabs, s)
				f := transport.Frame{Epoch: 3, First: ch.next - uint64(min(skip, int(ch.next))), Count: n, Slab: s}
				skip = int(ch.next - f.First)
				retain(&f)
				a.add(ch, f, skip)
				ch.next = f.Next()
				for range n - skip {
					order = append(order, c)
				}
			},
			"process": func(rt *rapid.T) {
				most := min(a.machine.Gate(), a.machine.Received())
				if most > processed {
					processed = rapid.Uint64Range(processed, most).Draw(rt, "to")
					a.machine.Processed(processed)
				}
			},
			"log": func(rt *rapid.T) {
				from, to := a.machine.Pending()
				entries, err := a.pending()
				require.NoError(rt, err)
				items := uint64(0)
				for _, e := range entries {
					require.Len(rt, e.Items, e.Count)
					items += uint64(e.Count)
				}
				require.Equal(rt, to-from, items)
				a.machine.Logged(a.logTo)
			},
			"": func(rt *rapid.T) {
				a.acknowledge()
				require.NoError(rt, a.machine.Valid())
				var want [2]uint64
				for _, c := range order[:a.machine.Acked()] {
					want[c]++
				}
				require.Equal(rt, want[0], channels[0].acked)
				require.Equal(rt, want[1], channels[1].acked)
				held := 0
				for _, s := range slabs {
					held += s.refs
				}
				require.Equal(rt, len(a.queue), held)
				safe := min(a.machine.Acked(), a.machine.Safe())
				require.True(rt, len(a.queue) == 0 || a.queue[0].end > safe)
			},
		})
	})
}
