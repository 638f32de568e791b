//go:build invariants

package spacesaving_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/algorithms/heavyhitter"
	"github.com/afstream/afstream/algorithms/spacesaving"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/jobtest"
	"github.com/afstream/afstream/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestJob: with failures estimates are too low by no more than the bound says, too high by no more than without, and
// keys that are heavy enough are all reported.
func TestJob(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 0))
	zipf := rand.NewZipf(r, 1.2, 1, 5000)
	items, exact := make([]connector.Keyed, 40_000), heavyhitter.NewExact()
	for i := range items {
		items[i] = connector.MakeKeyed(fmt.Append(nil, "k", zipf.Uint64()), float64(1+r.IntN(3)))
		require.NoError(t, exact.Add(items[i]))
	}
	o := spacesaving.Options{Capacity: 400, Threshold: 0.01, Alpha: 3}
	assemble := func(in stream.Stream[connector.Keyed]) stream.Stream[heavyhitter.Row] {
		return spacesaving.Assemble(in, o, 2)
	}
	for c := range jobtest.Cases(controller.Options{Params: errorbound.Params{Theta: 600, L: 20, Gamma: 500}}, "count", 4, 4000) {
		out := jobtest.Run(t, items, assemble, c)
		bound := 0.0
		if len(c.Faults) > 0 {
			bound = spacesaving.Bound(c.Params, o)
		}
		reported := map[connector.Key]bool{}
		for _, row := range out {
			reported[row.Key] = true
			require.GreaterOrEqual(t, row.Estimate, exact.Weight(row.Key)-bound)
			require.LessOrEqual(t, row.Estimate, exact.Weight(row.Key)+exact.Total()/float64(o.Capacity)+1e-6)
		}
		must := exact.HeavyHitters(o.Threshold + bound/exact.Total())
		require.Greater(t, len(must), 3)
		for _, row := range must {
			require.True(t, reported[row.Key], "%v", row)
		}
	}
}
