package errorbound_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/errorbound"
)

func TestValidateJoinsAllFaults(t *testing.T) {
	require.NoError(t, errorbound.Params{}.Validate(), "the zero value is the strictest budget")
	require.NoError(t, errorbound.Params{Theta: math.Inf(1)}.Validate(), "never back up")
	for _, theta := range []float64{math.NaN(), -1, math.Inf(-1)} {
		err := errorbound.Params{Theta: theta, Series: 7}.Validate()
		require.ErrorIs(t, err, errorbound.ErrParams)
		require.ErrorContains(t, err, "theta")
		require.ErrorContains(t, err, "series(7)")
	}
}

func TestBoundsAsStated(t *testing.T) {
	p := errorbound.Params{Theta: 1e5, L: 1e3, Gamma: 500}
	require.Equal(t, 1e5+1e3*1500, p.StateBound(1500), "the paper's example: 1.6 MB")
	require.Equal(t, 500+1e3*2.5, p.LossBound(2.5))
	require.Equal(t, 5.0, errorbound.Params{Theta: 5}.StateBound(math.Inf(1)), "no item, no effect")
	require.Equal(t, math.Inf(1), errorbound.Params{Theta: math.Inf(1)}.StateBound(1))
}

// "add Theta/2^k + L*alpha/2^k to every counter after the k-th recovery"
func TestCompensationIsThePapersAndStaysUnderTheBound(t *testing.T) {
	p := errorbound.Params{Theta: 100, L: 10}
	require.Zero(t, p.Compensation(0, 3))
	for k := uint64(1); k < 20; k++ {
		require.InEpsilon(t, (100+10*3)/math.Pow(2, float64(k)), p.Compensation(k, 3), 1e-12)
	}
	for _, s := range allSeries {
		p.Series = s
		sum := 0.0
		for k := uint64(1); k < 1000; k++ {
			sum += p.Compensation(k, 3)
			require.LessOrEqual(t, sum, p.StateBound(3)*(1+1e-12))
		}
	}
	p.Theta = math.Inf(1)
	require.Equal(t, math.Inf(1), p.Compensation(5000, 1))
}

func TestOverdraftAgainstPlainSummation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := errorbound.Params{
			Gamma:  rapid.Uint64Range(0, 3000).Draw(t, "gamma"),
			Series: rapid.SampledFrom(allSeries).Draw(t, "series"),
		}
		n := rapid.IntRange(1, 9).Draw(t, "n")
		failures := rapid.Uint64Range(0, 200).Draw(t, "failures")
		var sum uint64
		for k := range failures {
			sum += uint64(n) * max(1, p.Series.Grant(p.Gamma, k)/uint64(n))
		}
		want := sum - min(sum, p.Gamma)
		if got := p.Overdraft(n, failures); got != want {
			t.Fatalf("%d, want %d", got, want)
		}
	})
}

func TestOverdraftAtTheEdges(t *testing.T) {
	p := errorbound.Params{Gamma: 1000}
	require.Zero(t, p.Overdraft(1, 0))
	require.Zero(t, p.Overdraft(1, 15))
	require.Equal(t, uint64(1), p.Overdraft(1, 16))
	require.Zero(t, errorbound.Params{Gamma: 1000, Series: errorbound.Telescoping}.Overdraft(1, 60))
	require.Equal(t, uint64(3), errorbound.Params{}.Overdraft(3, 1), "gamma 0: one item per partition and failure")
	require.Equal(t, uint64(math.MaxUint64), errorbound.Params{}.Overdraft(2, math.MaxUint64), "saturates")
	require.Equal(t, uint64(2), errorbound.Params{}.Overdraft(-3, 2), "n below 1 is 1")
}

// Pipelines: a loss at stage i of m is worth beta^(m-i) at the end.
func TestStageSharesKeepTheBoundAtTheEnd(t *testing.T) {
	for _, beta := range []float64{-1, 0, 0.5, 1, 2, 100, math.NaN()} {
		for m := 1; m <= 6; m++ {
			sum, paper := 0.0, 0.0
			for i := 1; i <= m; i++ {
				worth := math.Pow(max(1, beta), float64(m-i))
				if math.IsNaN(beta) {
					worth = 1
				}
				share := errorbound.StageShare(i, m, beta)
				require.LessOrEqual(t, share, 1.0)
				sum += share * worth
				paper += 1 / (2 * worth) * worth
			}
			require.InEpsilon(t, 1, sum, 1e-9, "beta %v, %d stages", beta, m)
			require.InEpsilon(t, float64(m)/2, paper, 1e-9, "the paper's first incarnations add up to m/2")
		}
	}
	require.Equal(t, errorbound.StageShare(1, 3, 2), errorbound.StageShare(-5, 3, 2))
	require.Equal(t, errorbound.StageShare(3, 3, 2), errorbound.StageShare(9, 3, 2))
}

// Equal weights make the number of backups least: no other split of the same budget backs up less often.
func TestEqualStageWeightsAreBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.IntRange(1, 6).Draw(t, "stages")
		beta := rapid.Float64Range(1, 10).Draw(t, "beta")
		other := rapid.SliceOfN(rapid.Float64Range(0.01, 1), m, m).Draw(t, "weights")
		total := 0.0
		for _, w := range other {
			total += w
		}
		var equal, unequal float64 // backups per item that enters the pipeline
		for i := 1; i <= m; i++ {
			items := math.Pow(beta, float64(i-1))
			equal += items / errorbound.StageShare(i, m, beta)
			unequal += items / (other[i-1] / total / math.Pow(beta, float64(m-i)))
		}
		if equal > unequal*(1+1e-9) {
			t.Fatalf("equal weights cost %v, weights %v cost %v", equal, other, unequal)
		}
	})
}
