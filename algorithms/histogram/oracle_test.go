package histogram

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/caio/go-tdigest/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/internal/statetest"
)

// distributions are numbers of every kind, 20,000 of each and the same in every run.
func distributions() map[string][]float64 {
	r := rand.New(rand.NewPCG(11, 0))
	all := map[string][]float64{}
	for name, draw := range map[string]func() float64{
		"uniform":     func() float64 { return 1 + 99*r.Float64() },
		"exponential": func() float64 { return 10 * r.ExpFloat64() },
		"normal":      r.NormFloat64,
		"heavy tail":  func() float64 { return math.Pow(r.Float64(), -1.5) },
		"two peaks":   func() float64 { return float64(r.IntN(2))*1000 + r.NormFloat64() },
	} {
		for range 20_000 {
			all[name] = append(all[name], draw())
		}
	}
	return all
}

// rankError returns by how much the rank of v among the numbers is off the rank of quantile q, as a share of them.
func rankError(exact *Exact, q, v float64) float64 {
	less, notLarger := exact.Rank(v)
	want := q * float64(exact.Total()-1)
	return max(float64(less)-want, want-float64(notLarger), 0) / float64(exact.Total())
}

// TestQuantilesOfTheOracle: the rank error of ours is at most what the layout allows on these numbers, computed exactly
// (much where half of all numbers are within eps of one another: the layout bounds the error of the value, a t-digest that
// of the rank); that of the t-digest is small; so one is off from the other by no more than both.
func TestQuantilesOfTheOracle(t *testing.T) {
	const eps = 0.005
	for name, numbers := range distributions() {
		var exact Exact
		digest, err := tdigest.New(tdigest.Compression(200))
		require.NoError(t, err)
		c := New(rel(t, eps, 1e-9, 1e12))
		for _, x := range numbers {
			exact.Add(x)
			require.NoError(t, digest.Add(x))
			require.NoError(t, c.Process(x, nil))
		}
		worst, worstOracle := 0.0, 0.0
		for _, q := range []float64{0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999} {
			ours, ok := c.Histogram().Quantile(q)
			require.True(t, ok)
			theirs := digest.Quantile(q)
			mine, other := rankError(&exact, q, ours), rankError(&exact, q, theirs)
			require.LessOrEqual(t, mine, allowed(&exact, q, eps), "%s, quantile %v", name, q)
			require.LessOrEqual(t, other, 0.01, "%s, quantile %v", name, q)
			require.LessOrEqual(t, apart(&exact, ours, theirs), mine+other+1e-3, "%s, quantile %v", name, q)
			worst, worstOracle = max(worst, mine), max(worstOracle, other)
		}
		t.Logf("%-12s largest rank error: histogram %.5f, t-digest %.5f", name, worst, worstOracle)
	}
}

// allowed returns the rank error of the worst value that is within eps of the exact quantile.
func allowed(exact *Exact, q, eps float64) float64 {
	x := exact.Quantile(q)
	return max(rankError(exact, q, x-eps*math.Abs(x)), rankError(exact, q, x+eps*math.Abs(x))) + 1/float64(exact.Total())
}

// apart returns what share of the numbers lies between two values.
func apart(exact *Exact, a, b float64) float64 {
	_, low := exact.Rank(min(a, b))
	high, _ := exact.Rank(max(a, b))
	return float64(max(high, low)-low) / float64(exact.Total())
}

// TestMergeLaws: histograms are merged as the numbers that they count.
func TestMergeLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := rapid.SampledFrom([]Layout{equi(t, 0, 10, 7), rel(t, 0.1, 0.1, 100)}).Draw(t, "layout")
		numbers := rapid.SliceOfN(rapid.Float64Range(-200, 200), 0, 30)
		a, b, c := numbers.Draw(t, "a"), numbers.Draw(t, "b"), numbers.Draw(t, "c")
		merge := func(parts ...Histogram) Histogram {
			m := NewMerge(l)
			for _, part := range parts {
				require.NoError(t, m.Process(part, nil))
			}
			return m.sum
		}
		statetest.MergeLaws(t, merge, of(t, l, slices.Concat(a, b, c)...), of(t, l, a...), of(t, l, b...), of(t, l, c...))
	})
}
