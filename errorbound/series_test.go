package errorbound_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/errorbound"
)

var allSeries = []errorbound.Series{errorbound.Geometric, errorbound.Telescoping}

func TestSeriesFirstTerms(t *testing.T) {
	for k, want := range []float64{1. / 2, 1. / 4, 1. / 8, 1. / 16} {
		require.Equal(t, want, errorbound.Geometric.Term(uint64(k)))
	}
	for k, want := range []float64{1. / 2, 1. / 6, 1. / 12, 1. / 20} {
		require.InEpsilon(t, want, errorbound.Telescoping.Term(uint64(k)), 1e-15)
	}
	require.Equal(t, 1./2048, errorbound.Geometric.Term(10), "after ten failures the paper's series is nearly spent")
	require.Equal(t, 1./132, errorbound.Telescoping.Term(10), "and the other one is not")
}

func TestSeriesNeverSpendsMoreThanTheWhole(t *testing.T) {
	for _, s := range allSeries {
		sum, previous := 0.0, math.Inf(1)
		for k := uint64(0); k < 2000; k++ {
			term := s.Term(k)
			require.GreaterOrEqual(t, term, 0.0)
			require.LessOrEqual(t, term, previous, "%v grows at %d", s, k)
			previous = term
			sum += term
			require.InDelta(t, sum, s.Spent(k), 1e-12, "%v: the closed form at %d", s, k)
			require.LessOrEqual(t, s.Spent(k), 1.0)
		}
	}
}

func TestSeriesAtTheEndOfTime(t *testing.T) {
	for _, s := range allSeries {
		for _, k := range []uint64{62, 63, 64, 1074, 1100, 1101, math.MaxUint32 - 1, math.MaxUint32, math.MaxUint64} {
			require.False(t, math.IsNaN(s.Term(k)))
			require.GreaterOrEqual(t, s.Term(k), 0.0)
			require.LessOrEqual(t, s.Spent(k), 1.0)
			require.Less(t, s.Grant(math.MaxUint64, k), uint64(1)<<59)
		}
		require.Zero(t, s.Grant(math.MaxUint64, math.MaxUint64))
	}
}

// Grant is floor(total/d) for the whole divisor d of the term, checked against unbounded integers.
func TestGrantIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Uint64().Draw(t, "total")
		k := rapid.Uint64Range(0, 1<<34).Draw(t, "k")
		if rapid.Bool().Draw(t, "small") {
			k %= 80
		}
		a, b := new(big.Int).SetUint64(k), new(big.Int).SetUint64(k)
		d := new(big.Int).Mul(a.Add(a, big.NewInt(1)), b.Add(b, big.NewInt(2)))
		want := new(big.Int).Div(new(big.Int).SetUint64(total), d)
		if got := errorbound.Telescoping.Grant(total, k); got != want.Uint64() {
			t.Fatalf("telescoping: %d, want %v", got, want)
		}
		want = new(big.Int).Rsh(new(big.Int).SetUint64(total), uint(min(k, 100)+1))
		if got := errorbound.Geometric.Grant(total, k); got != want.Uint64() {
			t.Fatalf("geometric: %d, want %v", got, want)
		}
	})
}

func TestNamesParseBack(t *testing.T) {
	for _, s := range allSeries {
		got, err := errorbound.ParseSeries(s.String())
		require.NoError(t, err)
		require.Equal(t, s, got)
	}
	for _, n := range allNorms {
		got, err := errorbound.ParseNorm(n.String())
		require.NoError(t, err)
		require.Equal(t, n, got)
	}
	_, err := errorbound.ParseSeries("Geometric")
	require.ErrorContains(t, err, `series "Geometric"`)
	_, err = errorbound.ParseNorm("l3")
	require.ErrorContains(t, err, `norm "l3"`)
	require.Equal(t, "series(9)", errorbound.Series(9).String())
	require.Equal(t, "norm(9)", errorbound.Norm(9).String())
	require.Equal(t, "combine(9)", errorbound.Combine(9).String())
	require.Equal(t, []string{"added", "disjoint"},
		[]string{errorbound.Added.String(), errorbound.Disjoint.String()})
}
