//go:build invariants

package histogram

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/stat"
)

// TestExactAgainstGonum: Exact and the counts of an equi-width layout, which other tests compare with, are gonum's.
func TestExactAgainstGonum(t *testing.T) {
	l := equi(t, -10, 2000, 500)
	for name, numbers := range distributions() {
		var exact Exact
		for _, x := range numbers {
			exact.Add(x)
		}
		sorted := slices.Sorted(slices.Values(numbers))
		for _, q := range []float64{0, 0.001, 0.1, 0.5, 0.9, 0.999, 1} {
			// gonum's is the number of rank ceil(p*n)-1: half a number on from where rank floor(q*(n-1)) begins it is ours.
			p := (math.Floor(q*float64(len(numbers)-1)) + 0.5) / float64(len(numbers))
			require.Equal(t, stat.Quantile(p, stat.Empirical, sorted, nil), exact.Quantile(q), "%s, quantile %v", name, q)
		}
		dividers := []float64{math.Inf(-1)}
		for bin := 1; bin < l.Bins(); bin++ {
			low, _ := l.Bounds(bin)
			dividers = append(dividers, low)
		}
		h := of(t, l, numbers...)
		for bin, want := range stat.Histogram(nil, append(dividers, math.Inf(1)), sorted, nil) {
			require.EqualValues(t, want, h.Count(bin), "%s, bin %d", name, bin)
		}
	}
}
