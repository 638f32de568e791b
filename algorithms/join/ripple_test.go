package join

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/internal/thorough"
)

// population is both inputs of a join, with the sum over all pairs.
type population struct {
	rows [2][]Sample
	sum  float64
}

func newPopulation(seed uint64, n int, keys uint64) *population {
	r := rand.New(rand.NewPCG(seed, 5))
	p := &population{}
	totals := [2]map[uint64]float64{{}, {}}
	for side := range p.rows {
		for range n {
			s := Sample{r.Uint64N(keys) * r.Uint64N(2), r.Float64() + 0.5}
			p.rows[side] = append(p.rows[side], s)
			totals[side][s.Key] += s.Value
		}
	}
	for key, l := range totals[0] {
		p.sum += l * totals[1][key]
	}
	return p
}

// sample feeds a Bernoulli sample to a new Ripple.
func (p *population) sample(t *testing.T, o RippleOptions, r *rand.Rand) *Ripple {
	ripple := NewRipple(o)
	for side, rate := range []float64{o.LeftRate, o.RightRate} {
		for _, s := range p.rows[side] {
			if r.Float64() < rate {
				require.NoError(t, ripple.add(s, side))
			}
		}
	}
	return ripple
}

// TestRippleIsExactOnEverything: with rates of 1 nothing is estimated.
func TestRippleIsExactOnEverything(t *testing.T) {
	p := newPopulation(1, 500, 20)
	e := p.sample(t, RippleOptions{1, 1, 0.95}, rand.New(rand.NewPCG(1, 1))).Estimate()
	require.InEpsilon(t, p.sum, e.Sum, 1e-12)
	require.Zero(t, e.Half)
	require.Equal(t, [2]uint64{500, 500}, [2]uint64{e.Left, e.Right})
}

// TestRippleInterval: the interval holds the truth about as often as it says, the estimate has no bias, and the
// estimated variance is the variance of the estimate.
func TestRippleInterval(t *testing.T) {
	runs := float64(thorough.Number(600, 1500))
	p := newPopulation(2, 2000, 30)
	for _, o := range []RippleOptions{{0.1, 0.1, 0.95}, {0.3, 0.05, 0.8}, {1, 0.1, 0.9}} {
		r := rand.New(rand.NewPCG(9, 9))
		hits, sum, squares, halves := 0.0, 0.0, 0.0, 0.0
		for range int(runs) {
			ripple := p.sample(t, o, r)
			e := ripple.Estimate()
			if math.Abs(e.Sum-p.sum) <= e.Half {
				hits++
			}
			d := e.Sum/p.sum - 1
			sum += d
			squares += d * d
			halves += math.Pow(e.Half/ripple.z/p.sum, 2)
		}
		deviation := math.Sqrt(squares / runs)
		t.Logf("%+v: coverage %.3f, bias %.4f, deviation %.4f, estimated %.4f", o, hits/runs, sum/runs, deviation, math.Sqrt(halves/runs))
		require.InDelta(t, o.Confidence, hits/runs, 0.035)
		require.Less(t, math.Abs(sum/runs), 4*deviation/math.Sqrt(runs))
		require.InEpsilon(t, deviation, math.Sqrt(halves/runs), 0.06)
	}
}

// TestRippleNarrows: the interval shrinks as samples come in, with about the root of their number.
func TestRippleNarrows(t *testing.T) {
	p := newPopulation(3, 20_000, 50)
	var last float64
	for _, rate := range []float64{0.02, 0.08, 0.32} {
		e := p.sample(t, RippleOptions{rate, rate, 0.95}, rand.New(rand.NewPCG(4, 4))).Estimate()
		if last > 0 {
			require.InDelta(t, 2, last/e.Half, 0.6)
		}
		last = e.Half
	}
}

// TestRippleCrash: after a failure at any point the sampled rows that are gone are at most what StateDivergence says.
func TestRippleCrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := RippleOptions{0.5, 0.5, 0.9}
		theta := rapid.SampledFrom([]float64{1, 3, 20}).Draw(t, "theta")
		r := NewRipple(o)
		r.SetTheta(theta)
		s := statetest.NewStore(r)
		for range rapid.IntRange(0, 100).Draw(t, "n") {
			s.Room(t, theta, 1)
			sample := Sample{rapid.Uint64Range(0, 5).Draw(t, "key"), rapid.Float64Range(-2, 2).Draw(t, "value")}
			require.NoError(t, r.add(sample, rapid.IntRange(0, 1).Draw(t, "side")))
			s.Draw(t)
			if rapid.IntRange(0, 19).Draw(t, "window") == 0 { // it ends: the runtime makes the whole state durable
				r.reset()
				s.Save(t, rapid.Bool().Draw(t, "whole"))
				require.Empty(t, r.keys)
			}
			restored := NewRipple(o)
			require.NoError(t, restored.RestoreState(statetest.Reader(s.Durable()...)))
			lost := r.rows[0] + r.rows[1] - restored.rows[0] - restored.rows[1]
			require.LessOrEqual(t, float64(lost), r.StateDivergence())
			for key, k := range restored.keys {
				require.LessOrEqual(t, k.count[0], r.keys[key].count[0])
			}
		}
		s.Save(t, true)
		require.Zero(t, r.StateDivergence())
		restored := NewRipple(o)
		require.NoError(t, restored.RestoreState(statetest.Reader(s.Durable()...)))
		require.InDelta(t, r.Estimate().Sum, restored.Estimate().Sum, 1e-9)
		require.InDelta(t, r.both, restored.both, 1e-9)
	})
}

func TestRippleRejects(t *testing.T) {
	require.ErrorIs(t, RippleOptions{0, 2, 1}.Validate(), ErrOptions)
	require.Panics(t, func() { NewRipple(RippleOptions{}) })
	r := NewRipple(RippleOptions{1, 1, 0.9})
	require.ErrorIs(t, r.ProcessLeft(Sample{1, math.NaN()}, nil), ErrSample)
	require.ErrorIs(t, r.ProcessRight(Sample{1, math.Inf(1)}, nil), ErrSample)
	require.Equal(t, math.Inf(1), r.Estimate().Half)
	require.Equal(t, math.Inf(1), r.StateDivergence())
	require.Equal(t, 1.0, r.Measure().Alpha)
}

func FuzzRippleRestore(f *testing.F) {
	o := RippleOptions{0.5, 0.5, 0.9}
	r := NewRipple(o)
	require.NoError(f, r.add(Sample{1, 2}, 0))
	require.NoError(f, r.add(Sample{1, -3}, 1))
	statetest.Restore[*Ripple]{
		Fresh: func() *Ripple { return NewRipple(o) }, View: func(r *Ripple) any { return r.rows },
	}.Fuzz(f, r)
}
