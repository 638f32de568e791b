package experiments

import (
	"context"

	"github.com/afstream/afstream/algorithms/logreg"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/job"
	"github.com/afstream/afstream/worker"
)

// LogisticRegression measures online logistic regression: rate, log-loss, accuracy and area under the curve, for two
// budgets and up to 20 failures.
func LogisticRegression() Experiment {
	loose, tight := budget{theta: 10, l: 1000, gamma: 1000}, budget{theta: 1, l: 100, gamma: 1000}
	return Experiment{
		Name:  "logistic-regression",
		Title: "Online logistic regression: throughput and quality under failures",
		Question: "Two learners learn from parts of a stream and send their steps to a global model after every 1,000 examples, with no waiting. " +
			"What do the source's two budgets cost, and what do failures of workers drawn at random do to the predictions? Each example is " +
			"predicted before it is learned from. Theta bounds the Euclidean distance of the model. With several learners the order " +
			"in which they hear of each other changes the model as well, so its distance from that of another run has no bound; " +
			"the single learner by plain gradient descent has one. Examples are read like a pipe.",
		Source: "The source had 10 learners and 110 million tuples of a real data set, on which it reached an accuracy of 94.3% without failures. Here examples " +
			"are made up: one of 16 categories in each of 16 groups, with labels drawn by a model, so that no accuracy near 100% can " +
			"be reached. Compare what failures take from it.",
		Params: []Column{
			learnersColumn, {Name: "method", About: "how the size of a step is chosen"}, guaranteeColumn, thetaColumn, lColumn, gammaColumn,
			failuresColumn, itemsColumn,
		},
		Figures: []Column{
			rateColumn, struckColumn, {Name: "log_loss", About: "mean over all predictions"}, {Name: "accuracy", About: "share of right predictions"},
			{Name: "auc", About: "area under the receiver operating characteristic"},
			{Name: "loss_increase", About: "log-loss above that of the run without failures, as a share of it"},
			commitsColumn, logColumn, backedUpColumn, recoveryColumn,
		},
		Errors: []Column{stateColumn, lostColumn, repeatedColumn},
		Rate:   rateColumn.Name,
		Cases: func(p Plan) []Case {
			examples := p.Scale.Of(1_000_000)
			run := func(learners int, m logreg.Method, g worker.Guarantee, b budget, failures int) Case {
				return logisticCase(logisticRun{learners, m, g, b, failures, examples})
			}
			cases := []Case{run(2, logreg.AdaGrad, worker.None, budget{}, 0), run(2, logreg.AdaGrad, worker.None, budget{}, 10)}
			for _, b := range []budget{loose, tight} {
				for _, failures := range failureCounts() {
					cases = append(cases, run(2, logreg.AdaGrad, worker.Approximate, b, failures))
				}
			}
			return append(against(cases, 0), run(1, logreg.SGD, worker.Approximate, loose, 5))
		},
		Plots:  func(r Results) []Plot { return logisticPlots(r.Where("learners", "2"), loose, tight) },
		Claims: func(r Results) []Claim { return logisticClaims(r.Where("learners", "2"), loose, tight) },
	}
}

func logisticPlots(r Results, loose, tight budget) []Plot {
	failures := Axis{Label: "failures"}
	rates := Plot{Name: "rate", Title: "Throughput over failures", X: failures, Y: Axis{Label: "examples/s"}}
	accuracy := Plot{Name: "accuracy", Title: "Accuracy over failures", X: failures, Y: Axis{Label: "share", Fit: true}}
	for _, b := range []budget{loose, tight} {
		rates.Lines = append(rates.Lines, r.under(b).Line(b.String(), "failures", rateColumn.Name))
		accuracy.Lines = append(accuracy.Lines, r.under(b).Line(b.String(), "failures", "accuracy"))
	}
	none := r.Where("guarantee", worker.None.String())
	rates.Lines = append(rates.Lines, none.Line("no guarantee", "failures", rateColumn.Name))
	accuracy.Lines = append(accuracy.Lines, none.Line("no guarantee", "failures", "accuracy"))
	return []Plot{rates, accuracy}
}

func logisticClaims(r Results, loose, tight budget) []Claim {
	clean := r.Where("guarantee", worker.None.String()).Where("failures", "0").Value("accuracy")
	at := func(b budget, failures int, column string) float64 {
		return r.under(b).Where("failures", number(failures)).Value(column)
	}
	return []Claim{
		{What: "throughput under the larger budget, by that without a guarantee", Source: 1 - 0.006, Here: at(loose, 0, ratioName), Unit: "%"},
		{What: "accuracy without failures", Source: 0.943, Here: clean, Unit: "%"},
		{What: "accuracy after 10 failures by that without, larger budget", Source: 0.904 / 0.943, Here: at(loose, 10, "accuracy") / clean, Unit: "%"},
		{What: "accuracy after 10 failures by that without, smaller budget", Source: 0.929 / 0.943, Here: at(tight, 10, "accuracy") / clean, Unit: "%"},
	}
}

// logisticRun is a point of the experiment's grid.
type logisticRun struct {
	learners  int
	method    logreg.Method
	guarantee worker.Guarantee
	budget    budget
	failures  int
	examples  uint64
}

func logisticCase(l logisticRun) Case {
	method := "adagrad"
	if l.method == logreg.SGD {
		method = "sgd"
	}
	return Case{
		Params: []string{
			number(l.learners), method, l.guarantee.String(), decimal(l.budget.theta), number(l.budget.l), number(l.budget.gamma),
			number(l.failures), number(l.examples),
		},
		Run: func(ctx context.Context, seed uint64) (result Result, err error) {
			j := job.DefaultLogisticRegression()
			j.Params, j.Guarantee, j.Workers = l.budget.params(errorbound.Geometric), l.guarantee, l.learners
			j.PipeSources, j.Seed, j.Verify = true, seed, true
			if l.learners == 1 { // a failure of the model would take away the bound
				j.Faults = evenly("learn", l.failures)
			} else {
				j.RandomFaults = l.failures
			}
			j.Format, j.First = job.FormatLibsvm, 0
			j.Model = logreg.Options{Bits: weightBits, Method: l.method, MaxFeatures: groups, Every: 1000}
			err = withExamples(l.examples, seed, func(path string) error {
				j.Path = path
				r, err := j.Run(ctx)
				if err := unlessBound(err); err != nil {
					return err
				}
				result = logisticResult(r)
				return nil
			})
			return result, err
		},
	}
}

func logisticResult(r *job.LogisticRegressionReport) Result {
	v, q := r.Verify, r.Outcome.Quality
	return Result{
		Figures: []float64{
			float64(r.ItemsPerSecond), float64(len(r.Failures)), q.LogLoss, q.Accuracy, q.AUC, float64(v.LossIncrease),
			float64(r.Backups.StateCommits), float64(r.Backups.ItemCommits), float64(r.Backups.Bytes), longestRecovery(r.Failures),
		},
		Errors: []Measured{
			{float64(v.StateDivergence), float64(v.StateDivergenceBound)}, {float64(v.LostItems), float64(v.LostItemsBound)},
			{float64(v.DuplicatedItems), float64(v.DuplicatedBound)},
		},
	}
}
