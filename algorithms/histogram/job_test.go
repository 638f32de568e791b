//go:build invariants

package histogram_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/algorithms/histogram"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/jobtest"
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
	o := controller.Options{Params: errorbound.Params{Theta: 800, L: 50, Gamma: 500}}
	assemble := func(in stream.Stream[float64]) stream.Stream[histogram.Histogram] {
		return histogram.Assemble(in, l, 2)
	}
	for c := range jobtest.Cases(o, "histogram", 4, 4000) {
		out := jobtest.Run(t, numbers, assemble, c)
		require.Len(t, out, 1)
		h := out[0]
		q := histogram.Compare(h, &exact)
		bound := histogram.Bound(o.Params)
		require.LessOrEqual(t, q.SumBinError, bound)
		if len(c.Faults) == 0 {
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
