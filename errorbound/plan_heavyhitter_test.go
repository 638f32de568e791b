package errorbound_test

import (
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/errorbound"
)

// planned is the target of the command line's example.
func planned() errorbound.HeavyHitterTarget {
	return errorbound.HeavyHitterTarget{
		Workload: errorbound.Workload{Items: 1e9, Alpha: 1, Workers: 4, Failures: 10},
		Error:    0.001, Confidence: 0.99, Threshold: 0.01,
	}
}

func TestPlanOfTheExample(t *testing.T) {
	p, err := planned().Plan()
	require.NoError(t, err)
	require.Equal(t, errorbound.Params{Theta: 1e6}, p.Params, "nothing is lost on the way, theta is all of the error")
	require.Equal(t, errorbound.CountMin{Rows: 2, Width: 10_000}, p.Sketch, "sqrt(100)/0.001 wide: fits the cache")
	require.InEpsilon(t, 0.001, p.Bound(false), 1e-9)
	require.InEpsilon(t, 0.011, p.SureShare, 1e-9)
	require.InEpsilon(t, 0.008, p.FalseShare, 1e-9)
	require.Equal(t, uint64(3), p.Cost.FailuresPerWorker)
	require.Equal(t, 1e6/2/4, p.Cost.FirstTheta)
	require.Equal(t, 1e6/16/4, p.Cost.LastTheta)
	require.Less(t, p.Cost.Slowdown, 0.05)
	require.Len(t, p.Others, 1)
	require.Equal(t, errorbound.Telescoping, p.Others[0].Series)
	require.Greater(t, p.Others[0].Slowdown, p.Cost.Slowdown, "three failures a worker are too few for it")
}

// Whatever is asked for: the promise is within the target, the memory within the limit, and no other number of rows
// that fits would have cost less.
func TestPlanKeepsTheTarget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		target := errorbound.HeavyHitterTarget{
			Workload:    drawWorkload(t),
			Error:       math.Pow(10, rapid.Float64Range(-5, -1).Draw(t, "error")),
			Confidence:  rapid.Float64Range(0.5, 0.9999).Draw(t, "confidence"),
			Threshold:   0.1,
			Compensated: rapid.Bool().Draw(t, "compensated"),
			Memory:      rapid.SampledFrom([]float64{0, 1e7, 1e9}).Draw(t, "memory"),
		}
		p, err := target.Plan()
		if err != nil {
			if !target.Pipe && target.Memory == 0 {
				t.Fatalf("nothing stands in the way: %v", err)
			}
			return // TestPlanErrors says when that is right
		}
		total, delta := target.Total(), 1-target.Confidence
		if b := p.Bound(target.Compensated); b > target.Error*(1+1e-9) {
			t.Fatalf("promises %v for %v", b, target.Error)
		}
		if x := p.Sketch.Exceeds(p.SketchError*total*(1+1e-9), total); x > delta*(1+1e-6) {
			t.Fatalf("%+v is over with probability %v, not %v", p.Sketch, x, delta)
		}
		if target.FailureBound(p.Params) > p.FailureError*total*(1+1e-9) {
			t.Fatalf("failures cost more than %v", p.FailureError)
		}
		if target.Memory > 0 && p.Memory > target.Memory {
			t.Fatalf("%v bytes, allowed are %v", p.Memory, target.Memory)
		}
		target.Norm, target.Combine = errorbound.Max, errorbound.Added
		for rows := 1; rows < p.Sketch.Rows && !target.Compensated && target.Memory > 0; rows++ {
			bytes := 33 * float64(rows) * math.Ceil(math.Pow(delta, -1/float64(rows))/target.Error)
			spare := 100 * (4/target.Threshold + 64)
			if parts := float64(target.Workers*max(target.Compute, 1) + 1); parts*(bytes+spare) <= target.Memory {
				t.Fatalf("%d rows fit and cost less than %d", rows, p.Sketch.Rows)
			}
		}
	})
}

// The promise itself, on simulated sketches of truly random hashing from which failures take away what they may, at the
// counters where it hurts most: every estimate is at most the failures' part too low, and too high by more than the
// sketch's part for no more keys than the confidence says.
func TestPromiseOnSimulatedSketches(t *testing.T) {
	const keys, items = 2000, 200_000
	r := rand.New(rand.NewPCG(3, 4))
	zipf := rand.NewZipf(r, 1.05, 1, keys-1)
	exact := make([]float64, keys)
	for range items {
		exact[zipf.Uint64()]++
	}
	for _, compensated := range []bool{false, true} {
		target := planned()
		target.Items, target.Error, target.Threshold, target.Confidence = items, 0.01, 0.05, 0.9
		target.Compensated = compensated
		p, err := target.Plan()
		require.NoError(t, err)
		require.InEpsilon(t, target.Error, p.Bound(compensated), 0.02, "nothing of the error is given away")
		over, trials := 0, 20
		for range trials {
			for key, e := range faultyEstimates(r, p, exact, compensated) {
				require.GreaterOrEqual(t, e-exact[key], -p.FailureError*items)
				if compensated {
					require.GreaterOrEqual(t, e, exact[key], "compensated estimates are never too low")
				}
				if e-exact[key] > target.Error*items {
					over++
				}
			}
		}
		require.LessOrEqual(t, float64(over), (1-target.Confidence)*keys*float64(trials))
	}
}

// faultyEstimates returns the estimates of all keys. Each counter has lost a random part of all that failures may take;
// with compensation, all of it was added.
func faultyEstimates(r *rand.Rand, p errorbound.HeavyHitterPlan, exact []float64, compensated bool) []float64 {
	estimates := make([]float64, len(exact))
	for i := range estimates {
		estimates[i] = math.Inf(1)
	}
	for range p.Sketch.Rows {
		row, column := make([]float64, p.Sketch.Width), make([]int, len(exact))
		for key, w := range exact {
			column[key] = r.IntN(len(row))
			row[column[key]] += w
		}
		for i := range row {
			row[i] -= p.Theta * math.Ceil(2*r.Float64()) / 2 // all or half of it
			if compensated {
				row[i] += p.Theta
			}
		}
		for key := range exact {
			estimates[key] = min(estimates[key], row[column[key]])
		}
	}
	return estimates
}

func TestPlanErrors(t *testing.T) {
	for want, change := range map[string]func(t *errorbound.HeavyHitterTarget){
		"error 0: want a share":            func(t *errorbound.HeavyHitterTarget) { t.Error = 0 },
		"error NaN":                        func(t *errorbound.HeavyHitterTarget) { t.Error = math.NaN() },
		"confidence 1: want":               func(t *errorbound.HeavyHitterTarget) { t.Confidence = 1 },
		"threshold 0":                      func(t *errorbound.HeavyHitterTarget) { t.Threshold = 0 },
		"above the threshold":              func(t *errorbound.HeavyHitterTarget) { t.Error = 0.02 },
		"memory -1":                        func(t *errorbound.HeavyHitterTarget) { t.Memory = -1 },
		"items 0":                          func(t *errorbound.HeavyHitterTarget) { t.Items = 0 },
		"allow more memory":                func(t *errorbound.HeavyHitterTarget) { t.Memory = 1e4 },
		"MB at least: allow":               func(t *errorbound.HeavyHitterTarget) { t.Error = 1e-9 },
		"alpha is unknown":                 func(t *errorbound.HeavyHitterTarget) { t.Alpha, t.Pipe = 0, true },
		"read the input from a file":       func(t *errorbound.HeavyHitterTarget) { t.Pipe, t.Items = true, 1000 },
		"it is above alpha 1, the most th": func(t *errorbound.HeavyHitterTarget) { t.Weight = 2 },
	} {
		target := planned()
		change(&target)
		_, err := target.Plan()
		require.ErrorIs(t, err, errorbound.ErrPlan, want)
		require.ErrorContains(t, err, want)
	}
}

// The error about memory names a figure that is enough, and not much more than is.
func TestLeastMemoryIsEnough(t *testing.T) {
	figure := regexp.MustCompile(`take ([0-9.]+) MB at least`)
	for _, compensated := range []bool{false, true} {
		for _, e := range []float64{0.01, 0.001, 0.00003} {
			target := planned()
			target.Compensated, target.Error, target.Memory = compensated, e, 1e4
			_, err := target.Plan()
			require.ErrorIs(t, err, errorbound.ErrPlan)
			found := figure.FindStringSubmatch(err.Error())
			require.Len(t, found, 2, err.Error())
			megabytes, err := strconv.ParseFloat(found[1], 64)
			require.NoError(t, err)
			target.Memory = megabytes * 1e6
			p, err := target.Plan()
			require.NoError(t, err)
			require.LessOrEqual(t, p.Memory, target.Memory)
			target.Memory *= 0.98
			_, err = target.Plan()
			require.Error(t, err)
		}
	}
}

func TestPipePlan(t *testing.T) {
	target := planned()
	target.Pipe = true
	p, err := target.Plan()
	require.NoError(t, err)
	require.Positive(t, p.L)
	require.Positive(t, p.Gamma)
	require.LessOrEqual(t, p.Theta+float64(p.L+p.Gamma), 1e6)
	require.Greater(t, p.Theta+float64(p.L+p.Gamma+p.Overdraft(1, 10)), 0.99e6, "and nothing is given away")
}
