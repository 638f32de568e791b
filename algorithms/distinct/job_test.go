//go:build invariants

package distinct_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/algorithms/distinct"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/jobtest"
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
	o := controller.Options{Params: errorbound.Params{Theta: 60, L: 20, Gamma: 500}}
	assemble := func(in stream.Stream[connector.Keyed]) stream.Stream[distinct.Sketch] {
		return distinct.Assemble(in, 11, 2)
	}
	for c := range jobtest.Cases(o, "distinct", 4, 2500) {
		out := jobtest.Run(t, items, assemble, c)
		require.Len(t, out, 1)
		q := distinct.Compare(out[0], exact)
		require.Equal(t, 25_000, q.Keys)
		require.InDelta(t, 0, q.RelativeError, 5*distinct.StandardError(11)+0.1)
		require.Zero(t, q.HighRegisters)
		lost := o.StateBound(1)
		require.LessOrEqual(t, float64(q.LowRegisters), lost)
		if len(c.Faults) == 0 {
			require.Zero(t, q.LowRegisters)
		}
		low, high := out[0].Range(uint64(lost))
		require.LessOrEqual(t, low, q.Estimate*(1+q.Loss)*(1+1e-12))
		require.GreaterOrEqual(t, high, q.Estimate*(1+q.Loss))
		require.LessOrEqual(t, q.Loss, distinct.Bound(o.Params, 11))
	}
}
