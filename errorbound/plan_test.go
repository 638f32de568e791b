package errorbound_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/errorbound"
)

func drawWorkload(t *rapid.T) errorbound.Workload {
	w := errorbound.Workload{
		Items:    math.Round(math.Pow(10, rapid.Float64Range(3, 12).Draw(t, "items"))),
		Alpha:    rapid.SampledFrom([]float64{1, 2.5, 1500}).Draw(t, "alpha"),
		Pipe:     rapid.Bool().Draw(t, "pipe"),
		Workers:  rapid.IntRange(1, 8).Draw(t, "workers"),
		Compute:  rapid.IntRange(0, 2).Draw(t, "compute"),
		Failures: rapid.Uint64Range(0, 40).Draw(t, "failures"),
	}
	w.Weight = w.Alpha * rapid.Float64Range(0.01, 1).Draw(t, "weight")
	if rapid.Bool().Draw(t, "one series") {
		w.Series = []errorbound.Series{rapid.SampledFrom(allSeries).Draw(t, "series")}
	}
	return w
}

// What failures may cost is never more than the budget, and no window, tried much finer, costs 15% less.
func TestDivideAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorkload(t)
		most := w.Alpha * math.Pow(10, rapid.Float64Range(0, 9).Draw(t, "budget"))
		p, cost, err := w.Divide(most, 3)
		if err != nil {
			if !w.Pipe || float64(w.Failures)*w.Alpha < most {
				t.Fatalf("one item at a time costs less than the budget: %v", err)
			}
			return
		}
		if bound := w.FailureBound(p); bound > most || !(p.Theta > 0) {
			t.Fatalf("%+v costs up to %v of %v", p, bound, most)
		}
		if !w.Pipe && (p.L != 0 || p.Gamma != 0 || p.Theta < most*0.99) {
			t.Fatalf("nothing is at risk, theta is all: %+v", p)
		}
		for _, s := range allSeries {
			if len(w.Series) == 1 && s != w.Series[0] {
				continue
			}
			for window := 1.0; window <= 1<<22; window = math.Ceil(window * 1.03) {
				other := errorbound.Params{L: uint64(window) - uint64(window)/2, Gamma: uint64(window) / 2, Series: s}
				if !w.Pipe {
					other.L, other.Gamma = 0, 0
				}
				other.Theta = most - w.FailureBound(other)
				if !(other.Theta > 0) {
					break
				}
				if other.Theta >= 100 { // as Divide does: where a theta shrinks to little more than alpha, 1% can be much
					other.Theta = math.Floor(other.Theta)
				}
				if c := w.Predict(other, 3); overhead(c) < overhead(cost)*0.85-1e-6 {
					t.Fatalf("%+v costs %v, %+v only %v", p, overhead(cost), other, overhead(c))
				}
			}
		}
	})
}

// overhead is the added work as a part of the work itself.
func overhead(p errorbound.Prediction) float64 { return p.Slowdown / (1 - p.Slowdown) }

// counters are rows of counters backed up one by one: an element is written by a backup when it has grown by theta/2,
// and a backup begins when one has grown by 3/4 theta. It returns how many elements are written, and by how many backups.
func counters(rows, width int, theta float64, keys func() uint64, items int) (elements, commits int) {
	grown := make([]float64, rows*width)
	for range items {
		key, due := keys(), false
		for r := range rows {
			at := r*width + int(key*uint64(2*r+3)*0x9e3779b97f4a7c15>>32)%width
			grown[at]++
			due = due || grown[at] >= theta*3/4
		}
		if !due {
			continue
		}
		commits++
		for i, g := range grown {
			if g >= theta/2 {
				elements++
				grown[i] = 0
			}
		}
	}
	return elements, commits
}

// The prediction of element writes is a bound, and near enough for a stream of few keys, where all counters that grow
// are written again and again; skewed or long-tailed streams stay far below it.
func TestPredictionAgainstSimulatedCounters(t *testing.T) {
	const rows, width, items, theta = 3, 200, 200_000, 64.0
	w := errorbound.Workload{Items: items, Alpha: 1, Workers: 1, Costs: errorbound.Costs{ItemsPerSecond: 1e6}}
	cost := w.Predict(errorbound.Params{Theta: 2 * theta}, rows) // the first incarnation has half
	require.Equal(t, theta, cost.FirstTheta)
	perItem := cost.ElementsPerSecond / (1e6 * (1 - cost.Slowdown))
	r := rand.New(rand.NewPCG(1, 1))
	zipf := rand.NewZipf(r, 1.1, 1, 100_000)
	for name, c := range map[string]struct {
		keys     func() uint64
		least    float64 // part of the bound that is written at least
		heaviest float64 // share of the heaviest counter, 0: not told
	}{
		"one key":       {func() uint64 { return 7 }, 0.6, 1},
		"few keys":      {func() uint64 { return r.Uint64N(20) }, 0.6, 0.2},
		"skewed":        {zipf.Uint64, 0.1, 0.2},
		"uniform":       {r.Uint64, 0.3, 0.01},
		"one, unknown":  {func() uint64 { return 7 }, 0.6, 0},
		"skew, unknown": {zipf.Uint64, 0.1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w.Heaviest = c.heaviest
			cost := w.Predict(errorbound.Params{Theta: 2 * theta}, rows)
			commitsPerItem := cost.CommitsPerSecond / (1e6 * (1 - cost.Slowdown))
			elements, commits := counters(rows, width, theta, c.keys, items)
			require.LessOrEqual(t, float64(elements), perItem*items)
			require.GreaterOrEqual(t, float64(elements), c.least*perItem*items)
			require.LessOrEqual(t, float64(commits), commitsPerItem*items*1.01)
		})
	}
}

func TestPredictionAtTheEdges(t *testing.T) {
	w := errorbound.Workload{Items: 1e6, Alpha: 10, Weight: 5, Workers: 2}
	cost := w.Predict(errorbound.Params{Theta: 1}, 4)
	perItem := cost.ElementsPerSecond / (errorbound.DefaultCosts().ItemsPerSecond * (1 - cost.Slowdown))
	require.InEpsilon(t, 4, perItem, 1e-9, "theta below alpha: each item is backed up, and no more than once")
	require.Greater(t, cost.Slowdown, 0.99)
	cost = w.Predict(errorbound.Params{Theta: math.Inf(1)}, 4)
	require.Zero(t, cost.Slowdown, "never back up")
	require.Zero(t, cost.ElementsPerSecond)
	w.Failures = 2001
	cost = w.Predict(errorbound.Params{Theta: 1e9}, 4)
	require.Equal(t, uint64(1001), cost.FailuresPerWorker)
	require.Zero(t, cost.BudgetLeft, "the geometric series has underflowed")
	require.Less(t, cost.Slowdown, 1.0)
}

// The closed forms of what a series costs, and where the other one becomes the better.
func TestMeanShrink(t *testing.T) {
	for _, s := range allSeries {
		sum := 0.0
		for k := range uint64(60) {
			sum += 1 / s.Term(k)
			require.InEpsilon(t, sum/float64(k+1), s.MeanShrink(k), 1e-9)
		}
	}
	for failures := range uint64(100) {
		geometricIsBest := errorbound.Geometric.MeanShrink(failures) <= errorbound.Telescoping.MeanShrink(failures)
		require.Equal(t, failures <= 4, geometricIsBest, "%d failures", failures)
	}
}

// The planner's choice is that of the closed forms while thetas are large against an item.
func TestSeriesOfThePlan(t *testing.T) {
	for failures := range uint64(12) {
		w := errorbound.Workload{Items: 1e12, Alpha: 1, Workers: 1, Failures: failures}
		p, cost, err := w.Divide(1e9, 4)
		require.NoError(t, err)
		want := errorbound.Geometric
		if failures > 4 {
			want = errorbound.Telescoping
		}
		require.Equal(t, want, p.Series, "%d failures", failures)
		require.Equal(t, want, cost.Series)
		require.InEpsilon(t, 1e9*want.Term(failures), cost.LastTheta, 1e-9)
	}
}

func TestWorkloadFaults(t *testing.T) {
	good := errorbound.Workload{Items: 10}
	for name, change := range map[string]func(w *errorbound.Workload){
		"items":        func(w *errorbound.Workload) { w.Items = math.NaN() },
		"weight":       func(w *errorbound.Workload) { w.Weight = -1 },
		"alpha":        func(w *errorbound.Workload) { w.Alpha = math.Inf(1) },
		"above alpha":  func(w *errorbound.Workload) { w.Weight, w.Alpha = 3, 2 },
		"workers":      func(w *errorbound.Workload) { w.Workers = -1 },
		"partitions":   func(w *errorbound.Workload) { w.Workers, w.Compute = 1000, 1001 },
		"failures":     func(w *errorbound.Workload) { w.Failures = math.MaxUint64 },
		"unknown":      func(w *errorbound.Workload) { w.Pipe = true },
		"series(9)":    func(w *errorbound.Workload) { w.Series = []errorbound.Series{9} },
		"heaviest":     func(w *errorbound.Workload) { w.Heaviest = 2 },
		"per second":   func(w *errorbound.Workload) { w.Costs.CommitsPerSecond = math.NaN() },
		"error budget": nil,
	} {
		w, most := good, 100.0
		if change == nil {
			most = 0
		} else {
			change(&w)
		}
		_, _, err := w.Divide(most, 1)
		require.ErrorIs(t, err, errorbound.ErrPlan, name)
		require.ErrorContains(t, err, name)
	}
	_, _, err := errorbound.Workload{Items: 1e6, Alpha: 10, Pipe: true, Failures: 10}.Divide(99, 1)
	require.ErrorContains(t, err, "read the input from a file")
}
