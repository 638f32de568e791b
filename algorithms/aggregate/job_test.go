//go:build invariants

package aggregate_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/algorithms/aggregate"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/jobtest"
	"github.com/afstream/afstream/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Reading is an item with a signed value, and with exported fields for msgpack.
type Reading struct {
	Sensor int
	Value  float64
}

func options(measure aggregate.Measure, norm errorbound.Norm) aggregate.Options[Reading] {
	return aggregate.Options[Reading]{
		Key:     func(r *Reading) connector.Key { return connector.MakeKey(fmt.Append(nil, "s", r.Sensor)) },
		Value:   func(r *Reading) float64 { return r.Value },
		Keep:    func(r *Reading) bool { return r.Sensor%10 != 3 },
		Measure: measure, Norm: norm, Alpha: 8,
	}
}

func readings(n int) (items []Reading) {
	r := rand.New(rand.NewPCG(7, 0))
	zipf := rand.NewZipf(r, 1.3, 1, 200)
	for range n {
		items = append(items, Reading{Sensor: int(zipf.Uint64()), Value: math.Round(r.NormFloat64()*2*4) / 4})
		if last := &items[len(items)-1]; math.Abs(last.Value) > 8 {
			last.Value = 8
		}
	}
	return items
}

func assemble(o aggregate.Options[Reading]) func(stream.Stream[Reading]) stream.Stream[aggregate.Row] {
	return func(in stream.Stream[Reading]) stream.Stream[aggregate.Row] { return aggregate.Assemble(in, o, 2) }
}

func exactOf(items []Reading, o aggregate.Options[Reading]) *aggregate.Exact[Reading] {
	e := aggregate.NewExact(o)
	for _, item := range items {
		e.Add(item)
	}
	return e
}

// TestJob: without failures the rows are exact, with failures within the bound, in both measures and norms, with sources
// that can go back and sources that cannot.
func TestJob(t *testing.T) {
	items := readings(20_000)
	for _, measure := range []aggregate.Measure{aggregate.ByCount, aggregate.BySum} {
		for _, norm := range []errorbound.Norm{errorbound.Max, errorbound.L1} {
			o := options(measure, norm)
			exact := exactOf(items, o)
			require.Greater(t, exact.Len(), 100)
			for c := range jobtest.Cases(controller.Options{Params: errorbound.Params{Theta: 200, L: 20, Gamma: 100}}, "aggregate", 3, 2000) {
				q := aggregate.Compare(jobtest.Run(t, items, assemble(o), c), exact)
				if len(c.Faults) == 0 {
					require.Equal(t, aggregate.Quality{Keys: exact.Len(), Reported: exact.Len()}, q)
				}
				got := map[aggregate.Measure]map[errorbound.Norm]float64{
					aggregate.ByCount: {errorbound.Max: float64(q.MaxCountError), errorbound.L1: float64(q.SumCountError)},
					aggregate.BySum:   {errorbound.Max: q.MaxSumError, errorbound.L1: q.SumSumError},
				}[measure][norm]
				require.LessOrEqual(t, got, aggregate.Bound(c.Params, o), "%v %v %v: %+v", measure, norm, c.PipeSources, q)
				require.Zero(t, q.Extra)
			}
		}
	}
}
