package reservoir_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/algorithms/reservoir"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func run(t *testing.T, items []connector.Keyed, o reservoir.Options[connector.Keyed], opts controller.Options) []reservoir.Entry[connector.Keyed] {
	top := stream.New("reservoir")
	in := stream.From(top, "items", connector.Slice(items))
	var out connector.Collector[reservoir.Entry[connector.Keyed]]
	stream.To(reservoir.Assemble(in, o, 2), "out", connector.Collect(&out))
	result, err := controller.RunLocal(context.Background(), top, opts)
	require.NoError(t, err)
	require.Len(t, result.Failures, len(opts.Faults))
	return out.Items()
}

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
		want := run(t, items, o, opts)
		require.Len(t, want, 500)
		require.EqualValues(t, len(items), want[0].Seen)
		for _, pipe := range []bool{false, true} {
			if pipe && o.ID == nil {
				continue // the sample is another one
			}
			opts := opts
			opts.PipeSources = pipe
			for i := range 4 {
				opts.Faults = append(opts.Faults, controller.Fault{Operator: "sample", Worker: i % 2, Items: uint64(3000 * (i + 1))})
			}
			got := run(t, items, o, opts)
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
