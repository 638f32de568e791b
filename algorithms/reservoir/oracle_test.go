//go:build invariants

package reservoir

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/stat/distuv"
	"gonum.org/v1/gonum/stat/sampleuv"
)

// TestSurvival: the approximation is good enough where it decides.
func TestSurvival(t *testing.T) {
	for _, k := range []float64{7, 25, 49, 99} {
		for x := k; ; x++ {
			want := distuv.ChiSquared{K: k}.Survival(x)
			if want < improbable {
				break
			}
			require.InEpsilon(t, math.Log(want), math.Log(survival(x, k)), 0.07, "%v of %v", x, k)
		}
	}
}

// same returns the p-value of two counts of equally many draws from one distribution.
func same(a, b []float64) float64 {
	square := 0.0
	for i := range a {
		if d := a[i] - b[i]; d != 0 {
			square += d * d / (a[i] + b[i])
		}
	}
	return survival(square, float64(len(a)-1))
}

// TestSamplerOfTheOracle: larger samples, for which there is no formula, have each item as often as those of gonum's
// sampler without replacement, which draws one item after another from a tree of weights; and the test can tell a wrong
// sampler. Again deviations are smaller than the test takes them for.
func TestSamplerOfTheOracle(t *testing.T) {
	const n, runs = 100, 3000
	for _, size := range []int{5, 40, 90} {
		oracle := func(weight func(*number) float64) []float64 {
			r := rand.New(rand.NewPCG(uint64(size), 1))
			samples := make([][]number, runs)
			for run := range samples {
				s := sampleuv.NewWeighted(expected(n, func(i int) float64 { x := number(i); return weight(&x) }), r)
				for range size {
					i, ok := s.Take()
					require.True(t, ok)
					samples[run] = append(samples[run], number(i))
				}
			}
			return tally(samples, n)
		}
		equal := func(*number) float64 { return 1 }
		plain := tally(draw(t, Options[number]{Size: size}, n, runs), n)
		byWeight := tally(draw(t, Options[number]{Size: size, Weight: weighted}, n, runs), n)
		require.Greater(t, same(plain, oracle(equal)), improbable, fmt.Sprintf("samples of %d", size))
		require.Greater(t, same(byWeight, oracle(weighted)), improbable, fmt.Sprintf("weighted samples of %d", size))
		require.Less(t, same(byWeight, oracle(equal)), improbable)
		require.Less(t, same(plain, oracle(weighted)), improbable)
	}
}
