package experiments

import (
	"context"

	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
)

// Series measures what many failures of one worker leave of a budget, and of the rate, under either decay series.
func Series() Experiment {
	const theta = 10_000
	leftColumn := Column{Name: "theta_left", About: "what the incarnation after the last failure may spend of theta"}
	return Experiment{
		Name:  "series",
		Title: "Decay series: geometric against telescoping",
		Question: "The k-th incarnation of a worker may spend a share a_k of the budget, and all shares together are at most 1. " +
			"The geometric series 1/2, 1/4, 1/8, ... halves what is left with each failure, the telescoping one 1/2, 1/6, 1/12, ... falls as " +
			"1/k^2. What does a job still get done after many failures of the same worker? One count-min sketch fails again and " +
			"again, evenly spread over the input, which can be read again.",
		Source: "The source has the geometric series only, and at most 10 failures. The telescoping one is this project's own; the " +
			"bound is the same for both.",
		Params:  []Column{{Name: "series", About: "how the budget is spread over failures"}, failuresColumn, thetaColumn, itemsColumn},
		Figures: []Column{rateColumn, struckColumn, leftColumn, commitsColumn, backedUpColumn},
		Errors:  []Column{stateColumn, lostColumn},
		Rate:    rateColumn.Name,
		Cases: func(p Plan) []Case {
			items := p.Scale.Of(4_000_000)
			var cases []Case
			for _, failures := range []int{0, 4, 8, 12, 16, 20} {
				for _, s := range []errorbound.Series{errorbound.Geometric, errorbound.Telescoping} {
					c := seriesCase(s, failures, theta, items)
					c.Baseline = seriesParams(s, 0, theta, items)
					cases = append(cases, c)
				}
			}
			return cases
		},
		Plots: func(r Results) []Plot {
			rates := Plot{Name: "rate", Title: "Throughput over failures of one worker", X: Axis{Label: "failures"}, Y: Axis{Label: "items/s", Log: true}}
			left := Plot{Name: "theta", Title: "What is left of theta", X: Axis{Label: "failures"}, Y: Axis{Label: "items", Log: true}}
			written := Plot{Name: "backups", Title: "Bytes backed up", X: Axis{Label: "failures"}, Y: Axis{Label: "bytes", Log: true}}
			for _, s := range []errorbound.Series{errorbound.Geometric, errorbound.Telescoping} {
				of := r.Where("series", s.String())
				rates.Lines = append(rates.Lines, of.Line(s.String(), "failures", rateColumn.Name))
				left.Lines = append(left.Lines, of.Line(s.String(), "failures", leftColumn.Name))
				written.Lines = append(written.Lines, of.Line(s.String(), "failures", backedUpColumn.Name))
			}
			return []Plot{rates, left, written}
		},
	}
}

func seriesParams(s errorbound.Series, failures int, theta float64, items uint64) []string {
	return []string{s.String(), number(failures), decimal(theta), number(items)}
}

func seriesCase(s errorbound.Series, failures int, theta float64, items uint64) Case {
	return Case{
		Params: seriesParams(s, failures, theta, items),
		Run: func(ctx context.Context, seed uint64) (Result, error) {
			h := generatedHeavyHitter(items, seed)
			h.Params = errorbound.Params{Theta: theta, Series: s} // nothing is at risk but the state
			h.Workers = 1
			h.Faults = evenly("sketch", failures)
			r, err := h.Run(ctx)
			if err := unlessBound(err); err != nil {
				return Result{}, err
			}
			v := r.Verify
			return Result{
				Figures: []float64{
					float64(r.ItemsPerSecond), float64(len(r.Failures)), theta * s.Term(uint64(len(r.Failures))),
					float64(r.Backups.StateCommits), float64(r.Backups.Bytes),
				},
				Errors: []Measured{
					{float64(v.StateDivergence), float64(v.StateDivergenceBound)}, {float64(v.LostItems), float64(v.LostItemsBound)},
				},
			}, nil
		},
	}
}

// evenly returns n failures of the first worker of an operator that cut the input into n+1 equal parts.
func evenly(operator string, n int) []controller.Fault {
	faults := make([]controller.Fault, n)
	for i := range faults {
		faults[i] = controller.Fault{Operator: operator, Share: float64(i+1) / float64(n+1)}
	}
	return faults
}
