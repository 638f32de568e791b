package experiments

import (
	"context"
	"fmt"

	"github.com/afstream/afstream/algorithms/logreg"
	"github.com/afstream/afstream/errorbound"
)

// learningTheta is the Theta of the experiments on learning: the Euclidean distance of the model.
const learningTheta = 10

// Convergence follows the loss of distributed logistic regression through 0, 4 and 8 failures of learners.
func Convergence() Experiment {
	failures := []int{0, 4, 8}
	return Experiment{
		Name:  "convergence",
		Title: "Convergence of logistic regression through failures",
		Question: "Four learners learn from parts of a stream and exchange their steps through a global model, bulk-synchronously: each waits " +
			"after 100 examples for the others. Does the model converge as well if learners fail, and how much later? Examples " +
			"have one of 16 categories in each of 16 groups, with labels drawn by a model, so that the least possible loss is known. The loss " +
			"is that of the first learner's model on 2,000 held-out examples. Theta = 10 bounds the Euclidean distance of the weights. " +
			"Examples can be made again, updates on their way to the model cannot: L and Gamma bound how many of those are lost.",
		Source: "The source took 35.4, 38.1 and 40.1 s to converge with 0, 4 and 8 failures, on 12 small machines over a real data set, with L = 2,000 and " +
			"Gamma = 1,000. Here all learners share the machine's cores and the data are made up.",
		Params:  []Column{failuresColumn, thetaColumn, learnersColumn, itemsColumn},
		Figures: learningColumns(),
		Errors:  []Column{lostColumn},
		Rate:    secondsColumn.Name,
		Cases: func(p Plan) []Case {
			var cases []Case
			for _, n := range failures {
				cases = append(cases, convergenceCase(learning{
					consistency: logreg.BulkSynchronous, learners: 4, failures: n, examples: p.Scale.Of(2_000_000), params: learningBudget(),
				}))
			}
			return against(cases, 0)
		},
		Plots: func(r Results) []Plot {
			p := lossPlot()
			for _, n := range failures {
				p.Lines = append(p.Lines, r.Where("failures", number(n)).lossCurve(fmt.Sprintf("%d failures", n)))
			}
			return []Plot{p}
		},
		Claims: func(r Results) []Claim {
			ratio := func(n int) float64 { return r.Where("failures", number(n)).Value(ratioName) }
			return []Claim{
				{What: "time to converge with 4 failures, by that without", Source: 38.1 / 35.4, Here: ratio(4), Unit: "%"},
				{What: "time to converge with 8 failures, by that without", Source: 40.1 / 35.4, Here: ratio(8), Unit: "%"},
			}
		},
	}
}

// learningBudget is what the source gives its experiments on convergence, and a Theta of which it does not tell.
func learningBudget() errorbound.Params {
	return errorbound.Params{Theta: learningTheta, L: 2000, Gamma: 1000}
}

func convergenceCase(l learning) Case {
	return Case{
		Params: []string{number(l.failures), decimal(l.params.Theta), number(l.learners), number(l.examples)},
		Run: func(ctx context.Context, seed uint64) (Result, error) {
			got, err := l.run(ctx, seed)
			if err != nil {
				return Result{}, err
			}
			return Result{Figures: got.figures(), Errors: []Measured{got.lost(l)}}, nil
		},
	}
}
