package distinct_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/algorithms/distinct"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestJob: without failures the sketch is exact; with failures no more registers are lower than the bound says, none is
// higher, and the estimate without failures is in the range that the sketch gives.
func TestJob(t *testing.T) {
	items := make([]connector.Keyed, 60_000)
	exact := distinct.NewExact(11)
	for i := range items {
		items[i] = connector.MakeKeyed(fmt.Append(nil, i%25_000), 1)
		exact.Add(items[i])
	}
	for _, pipe := range []bool{false, true} {
		for _, faults := range []int{0, 4} {
			opts := controller.Options{Params: errorbound.Params{Theta: 60, L: 20, Gamma: 500}, PipeSources: pipe}
			for i := range faults {
				opts.Faults = append(opts.Faults, controller.Fault{Operator: "distinct", Worker: i % 2, Items: uint64(2500 * (i + 1))})
			}
			top := stream.New("distinct")
			in := stream.From(top, "items", connector.Slice(items))
			var out connector.Collector[distinct.Sketch]
			stream.To(distinct.Assemble(in, 11, 2), "out", connector.Collect(&out))
			result, err := controller.RunLocal(context.Background(), top, opts)
			require.NoError(t, err)
			require.Len(t, result.Failures, faults)
			require.Len(t, out.Items(), 1)
			q := distinct.Compare(out.Items()[0], exact)
			require.Equal(t, 25_000, q.Keys)
			require.InDelta(t, 0, q.RelativeError, 5*distinct.StandardError(11)+0.1)
			require.Zero(t, q.HighRegisters)
			lost := opts.StateBound(1)
			require.LessOrEqual(t, float64(q.LowRegisters), lost)
			if faults == 0 {
				require.Zero(t, q.LowRegisters)
			}
			low, high := out.Items()[0].Range(uint64(lost))
			require.LessOrEqual(t, low, q.Estimate*(1+q.Loss)*(1+1e-12))
			require.GreaterOrEqual(t, high, q.Estimate*(1+q.Loss))
			require.LessOrEqual(t, q.Loss, distinct.Bound(opts.Params, 11))
		}
	}
}
