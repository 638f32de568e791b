package histogram_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/algorithms/histogram"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestJob: without failures the histogram is exact; with failures no more numbers are missing than the bound says, and
// the exact quantiles lie in the ranges that it gives.
func TestJob(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 0))
	numbers := make([]float64, 40_000)
	var exact histogram.Exact
	for i := range numbers {
		numbers[i] = r.ExpFloat64() * 10
		exact.Add(numbers[i])
	}
	l, err := histogram.Relative(0.01, 1e-6, 1e6)
	require.NoError(t, err)
	for _, pipe := range []bool{false, true} {
		for _, faults := range []int{0, 4} {
			opts := controller.Options{Params: errorbound.Params{Theta: 800, L: 50, Gamma: 500}, PipeSources: pipe}
			for i := range faults {
				opts.Faults = append(opts.Faults, controller.Fault{Operator: "histogram", Worker: i % 2, Items: uint64(4000 * (i + 1))})
			}
			top := stream.New("histogram")
			in := stream.From(top, "numbers", connector.Slice(numbers))
			var out connector.Collector[histogram.Histogram]
			stream.To(histogram.Assemble(in, l, 2), "out", connector.Collect(&out))
			result, err := controller.RunLocal(context.Background(), top, opts)
			require.NoError(t, err)
			require.Len(t, result.Failures, faults)
			require.Len(t, out.Items(), 1)
			h := out.Items()[0]
			q := histogram.Compare(h, &exact)
			bound := histogram.Bound(opts.Params)
			require.LessOrEqual(t, q.SumBinError, bound)
			if faults == 0 {
				require.Zero(t, q.SumBinError)
				require.LessOrEqual(t, q.MaxRelativeError, 0.01)
			}
			for _, share := range []float64{0.1, 0.5, 0.9, 0.99} {
				low, high := h.Range(share, bound)
				require.LessOrEqual(t, low, exact.Quantile(share))
				require.GreaterOrEqual(t, high, exact.Quantile(share))
			}
		}
	}
}
