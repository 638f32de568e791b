package errorbound_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/errorbound"
)

var allNorms = []errorbound.Norm{errorbound.Max, errorbound.L1, errorbound.L2, errorbound.Count}

// measure is the norm of a vector of differences.
func measure(n errorbound.Norm, v []float64) float64 {
	var most, sum, squares, count float64
	for _, x := range v {
		most, sum, squares = max(most, math.Abs(x)), sum+math.Abs(x), squares+x*x
		if x != 0 {
			count++
		}
	}
	return map[errorbound.Norm]float64{errorbound.Max: most, errorbound.L1: sum, errorbound.L2: math.Sqrt(squares),
		errorbound.Count: count}[n]
}

func TestShareTable(t *testing.T) {
	for _, n := range allNorms {
		require.Equal(t, 0.25, errorbound.Share(n, errorbound.Added, 4), "added, %v", n)
		for _, parts := range []int{-1, 0, 1} {
			require.Equal(t, 1.0, errorbound.Share(n, errorbound.Added, parts))
			require.Equal(t, 1.0, errorbound.Share(n, errorbound.Disjoint, parts))
		}
	}
	require.Equal(t, 1.0, errorbound.Share(errorbound.Max, errorbound.Disjoint, 4))
	require.Equal(t, 0.5, errorbound.Share(errorbound.L2, errorbound.Disjoint, 4))
	require.Equal(t, 0.25, errorbound.Share(errorbound.L1, errorbound.Disjoint, 4))
	require.Equal(t, 0.25, errorbound.Share(errorbound.Count, errorbound.Disjoint, 4))
}

// If each part diverges by at most its share, the whole diverges by at most theta; and a share is not smaller than it
// must be: parts that diverge by exactly their share in the same direction reach theta.
func TestShareBoundsTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		norm := rapid.SampledFrom(allNorms).Draw(t, "norm")
		combine := rapid.SampledFrom([]errorbound.Combine{errorbound.Added, errorbound.Disjoint}).Draw(t, "combine")
		n := rapid.IntRange(1, 6).Draw(t, "parts")
		keys := rapid.IntRange(1, 5).Draw(t, "keys")
		const theta = 60.0 // a multiple of every n, so that Count shares are whole
		share := theta * errorbound.Share(norm, combine, n)
		if norm == errorbound.Count {
			keys = 70
		}
		var whole []float64
		if combine == errorbound.Added {
			whole = make([]float64, keys)
		}
		for range n {
			part := drawWithin(t, norm, keys, share)
			for k, x := range part {
				if combine == errorbound.Added {
					whole[k] += x
				}
			}
			if combine == errorbound.Disjoint {
				whole = append(whole, part...)
			}
		}
		if d := measure(norm, whole); d > theta*(1+1e-9) {
			t.Fatalf("%v %v: %d parts within %v make a whole of %v", norm, combine, n, share, d)
		}
	})
}

// drawWithin draws a vector of norm limit, or less.
func drawWithin(t *rapid.T, norm errorbound.Norm, keys int, limit float64) []float64 {
	v := rapid.SliceOfN(rapid.Float64Range(-1, 1), keys, keys).Draw(t, "part")
	if norm == errorbound.Count {
		for k := int(limit); k < keys; k++ {
			v[k] = 0
		}
		return v
	}
	if size := measure(norm, v); size > 1e-100 {
		for k := range v {
			v[k] *= limit / size
		}
	}
	return v
}

func TestShareIsTight(t *testing.T) {
	const theta, n = 12.0, 3
	for _, norm := range allNorms {
		share := theta * errorbound.Share(norm, errorbound.Added, n)
		require.InEpsilon(t, theta, n*share, 1e-12, "added, %v: n equal vectors add up to theta", norm)
	}
	share := theta * errorbound.Share(errorbound.L2, errorbound.Disjoint, n)
	require.InEpsilon(t, theta, measure(errorbound.L2, []float64{share, share, share}), 1e-12)
	share = theta * errorbound.Share(errorbound.Max, errorbound.Disjoint, n)
	require.Equal(t, theta, measure(errorbound.Max, []float64{share, share, share}))
}
