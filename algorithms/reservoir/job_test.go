//go:build invariants

package reservoir_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/algorithms/reservoir"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/jobtest"
	"github.com/afstream/afstream/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestJob: the sample of a run with failures differs from that of one without by no more entries than the bound says.
func TestJob(t *testing.T) {
	items := make([]connector.Keyed, 30_000)
	for i := range items {
		items[i] = connector.MakeKeyed(fmt.Append(nil, i), float64(i%9+1))
	}
	byHash := func(k *connector.Keyed) uint64 { return k.Hash }
	for _, o := range []reservoir.Options[connector.Keyed]{
		{}, {ID: byHash}, {Weight: func(k *connector.Keyed) float64 { return k.Weight }, ID: byHash},
	} {
		o.Size, o.Seed = 500, 4
		opts := controller.Options{Params: errorbound.Params{Theta: 120, L: 8, Gamma: 100}}
		assemble := func(in stream.Stream[connector.Keyed]) stream.Stream[reservoir.Entry[connector.Keyed]] {
			return reservoir.Assemble(in, o, 2)
		}
		want := jobtest.Run(t, items, assemble, opts)
		require.Len(t, want, 500)
		require.EqualValues(t, len(items), want[0].Seen)
		for c := range jobtest.Cases(opts, "sample", 4, 3000) {
			if c.PipeSources && o.ID == nil {
				continue // the sample is another one
			}
			got := jobtest.Run(t, items, assemble, c)
			require.Len(t, got, 500)
			keys := map[connector.Key]int{}
			for _, e := range want {
				keys[e.Item.Key]++
			}
			for _, e := range got {
				keys[e.Item.Key]--
			}
			differ := 0
			for _, n := range keys {
				if n != 0 {
					differ++
				}
			}
			require.LessOrEqual(t, float64(differ), reservoir.Bound(opts.Params))
			require.GreaterOrEqual(t, got[0].Seen, uint64(len(items))*8/10)
		}
	}
}
