package errorbound_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/errorbound"
)

// The source's example: 40 GB, 10 MB, eps 1/2, delta 1/16 gives 4 x 8192.
var example = errorbound.HeavyHitters{Total: 40 << 30, Phi: 10 << 20, Eps: 0.5, Delta: 1. / 16}

func TestHeavyHitterShapes(t *testing.T) {
	require.NoError(t, example.Validate())
	require.Equal(t, errorbound.CountMin{Rows: 4, Width: 8192}, example.Source())
	require.Equal(t, errorbound.CountMin{Rows: 4, Width: 16384}, example.Proven())
	decimal := errorbound.HeavyHitters{Total: 40e9, Phi: 10e6, Eps: 0.5, Delta: 0.1}
	require.Equal(t, errorbound.CountMin{Rows: 4, Width: 8000}, decimal.Source(), "rows are rounded up")
	require.Equal(t, errorbound.CountMin{Rows: 5, Width: 272}, errorbound.CountMinFor(0.01, 0.01))
	require.Equal(t, errorbound.CountMin{Rows: 1, Width: 3}, errorbound.CountMinFor(1, 0.99))
}

// "L = 10^3, Theta = 10^5 shift the limit by 1.6 MB"
func TestHeavyHitterLimitsAfterFailures(t *testing.T) {
	p := errorbound.Params{Theta: 1e5, L: 1e3}
	require.Equal(t, 5.0*(1<<20)-1.6e6, example.FalseLimit(p, 1500, true))
	require.Equal(t, 10.0*(1<<20), example.MissLimit(p, 1500, true), "with compensation none is missed")
	require.Equal(t, 10.0*(1<<20)+1.6e6, example.MissLimit(p, 1500, false))
	require.Equal(t, 5.0*(1<<20), example.FalseLimit(p, 1500, false), "failures alone never report a key too much")
	require.Negative(t, example.FalseLimit(errorbound.Params{Theta: 1e9}, 1500, true), "a budget over the threshold")
}

func TestHeavyHitterValidate(t *testing.T) {
	bad := errorbound.HeavyHitters{Total: math.NaN(), Phi: -1, Eps: 1, Delta: 0}
	err := bad.Validate()
	require.ErrorIs(t, err, errorbound.ErrHeavyHitters)
	for _, name := range []string{"total", "phi", "eps", "delta"} {
		require.ErrorContains(t, err, name)
	}
	require.Error(t, errorbound.HeavyHitters{Total: math.Inf(1), Phi: 1, Eps: 0.1, Delta: 0.1}.Validate())
}

func TestOvercountAndExceedsAreInverse(t *testing.T) {
	s := errorbound.CountMin{Rows: 4, Width: 1000}
	limit := s.Overcount(1e6, 1./16)
	require.InEpsilon(t, 2000, limit, 1e-9, "four rows at one half each: twice the mean")
	require.InEpsilon(t, 1./16, s.Exceeds(limit, 1e6), 1e-9)
	require.Equal(t, 1.0, s.Exceeds(1000, 1e6), "at the mean Markov says nothing")
}

// overs counts how often the overcount of a key reaches limit in a sketch of truly random hashing, over keys equal
// keys that make up total.
func overs(s errorbound.CountMin, keys int, total, limit float64, trials int) float64 {
	r := rand.New(rand.NewPCG(1, 2))
	over := 0
	for range trials {
		least := math.Inf(1)
		for range s.Rows {
			hits := 0
			for range keys {
				if r.IntN(s.Width) == 0 {
					hits++
				}
			}
			least = min(least, float64(hits)*total/float64(keys))
		}
		if least >= limit {
			over++
		}
	}
	return float64(over) / float64(trials)
}

// The stated delta holds for the proven shape and fails for the source's width on an input made for it: as many equal
// keys as there are columns, each just at the limit of eps*phi.
func TestProvenShapeKeepsDeltaWhereTheSourcesDoesNot(t *testing.T) {
	h := errorbound.HeavyHitters{Total: 6400, Phi: 200, Eps: 0.5, Delta: 1. / 16}
	const keys, trials = 64, 4000 // each key weighs 100 = eps*phi
	limit := h.Eps * h.Phi
	require.Greater(t, overs(h.Source(), keys, h.Total, limit, trials), 2*h.Delta)
	require.LessOrEqual(t, overs(h.Proven(), keys, h.Total, limit, trials), h.Delta)
	require.LessOrEqual(t, h.Proven().Exceeds(limit, h.Total), h.Delta)
}
