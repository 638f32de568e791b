package errorbound_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/errorbound"
)

func TestBudgetsOfTargets(t *testing.T) {
	f, err := errorbound.CountBudget(500)
	require.NoError(t, err)
	require.Equal(t, 500.0, f)

	f, err = errorbound.JoinBudget(1e6, 100, 0.99)
	require.NoError(t, err)
	require.InEpsilon(t, 100, f, 1e-9, "100 items of 100 pairs each are 1% of a million")
	w := errorbound.Workload{Items: 1e6, Alpha: 1, Norm: errorbound.Count, Combine: errorbound.Disjoint, Pipe: true, Workers: 2, Failures: 4}
	p, _, err := w.Divide(f, 1)
	require.NoError(t, err)
	require.LessOrEqual(t, p.StateBound(1)+float64(p.Gamma), f)

	f, err = errorbound.SampleJoinBudget(1e6, 1, 0.1)
	require.NoError(t, err)
	require.InEpsilon(t, 1.1, math.Sqrt(1e6/(1e6-f)), 1e-9, "z/sqrt(n-x) is a tenth wider than z/sqrt(n)")

	for _, call := range []func() (float64, error){
		func() (float64, error) { return errorbound.CountBudget(0) },
		func() (float64, error) { return errorbound.JoinBudget(0, 1, 0.5) },
		func() (float64, error) { return errorbound.JoinBudget(1, math.NaN(), 0.5) },
		func() (float64, error) { return errorbound.JoinBudget(1, 1, 1) },
		func() (float64, error) { return errorbound.SampleJoinBudget(1, 1, 0) },
		func() (float64, error) { return errorbound.LearningBudget(0, 1, 1) },
		func() (float64, error) { return errorbound.LearningBudget(1, math.Inf(1), 1) },
		func() (float64, error) { return errorbound.LearningBudget(1, 1, -1) },
	} {
		_, err := call()
		require.ErrorIs(t, err, errorbound.ErrPlan)
	}
}

// learner is online logistic regression by projected gradient steps of 1/sqrt(t).
type learner struct{ w [2]float64 }

const radius = 3.0

func (l *learner) project() {
	if size := math.Hypot(l.w[0], l.w[1]); size > radius {
		l.w[0], l.w[1] = l.w[0]*radius/size, l.w[1]*radius/size
	}
}

func logLoss(w, x [2]float64, y float64) float64 {
	return math.Log1p(math.Exp(-y * (w[0]*x[0] + w[1]*x[1])))
}

func (l *learner) learn(x [2]float64, y float64, t int) {
	slope := -y / (1 + math.Exp(y*(l.w[0]*x[0]+l.w[1]*x[1])))
	for i := range l.w {
		l.w[i] -= slope * x[i] / math.Sqrt(float64(t))
	}
	l.project()
}

// Failures that move the model away from the best one, by distances that add up to the budget, make the mean loss worse
// by no more than asked for; and late failures, which cost most, do make it measurably worse.
func TestLearningBudgetOnSimulatedFailures(t *testing.T) {
	const examples, excess = 20_000, 0.05
	budget, err := errorbound.LearningBudget(examples, 2*radius, excess)
	require.NoError(t, err)
	best := [2]float64{1.5, -1}
	for _, failures := range []int{1, 10, 100} {
		r := rand.New(rand.NewPCG(5, uint64(failures)))
		var clean, faulty learner
		var lossClean, lossFaulty float64
		for step := 1; step <= examples; step++ {
			x := [2]float64{r.NormFloat64(), r.NormFloat64()}
			y := -1.0
			if r.Float64() < 1/(1+math.Exp(-(best[0]*x[0]+best[1]*x[1]))) {
				y = 1
			}
			lossClean, lossFaulty = lossClean+logLoss(clean.w, x, y), lossFaulty+logLoss(faulty.w, x, y)
			clean.learn(x, y, step)
			faulty.learn(x, y, step)
			if (step+examples/failures/2)%(examples/failures) == 0 {
				away := math.Hypot(faulty.w[0]-best[0], faulty.w[1]-best[1]) + 1e-9
				for i := range faulty.w {
					faulty.w[i] += (faulty.w[i] - best[i]) / away * budget / float64(failures)
				}
				faulty.project()
			}
		}
		worse := (lossFaulty - lossClean) / examples
		require.LessOrEqual(t, worse, excess, "%d failures", failures)
		require.Positive(t, worse, "%d failures", failures)
	}
}
