package experiments

import (
	"context"
	"fmt"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/job"
	"github.com/afstream/afstream/worker"
)

// Join measures a windowed join of two streams: rate and completeness, for two budgets and up to 20 failures.
func Join() Experiment {
	loose, tight := budget{theta: 1000, l: 1000, gamma: 1000}, budget{theta: 100, l: 100, gamma: 1000}
	return Experiment{
		Name:  "join",
		Title: "Online join: throughput and completeness under failures",
		Question: "Flights as they arrive are joined with those that depart from the same airport within half an hour, by two workers. What do two " +
			"budgets cost, and how many of the pairs are missing after failures of workers drawn at random? The state is the rows " +
			"that may still find a partner; Theta counts rows. A row that is lost costs up to as many pairs as any row has, which is " +
			"why the bound is far above what is measured. Both inputs are read like pipes.",
		Source: "The source ran a ripple join over 10% samples, 2 machines sending to 9, and reports the error of its estimate: 9.1% without failures, 11.3% " +
			"with the larger budget at 5.2% of the throughput, and 10.6% with the smaller at 12%. A join that finds every pair has no error " +
			"without failures; here the share of missing pairs is what failures cost.",
		Params: []Column{guaranteeColumn, thetaColumn, lColumn, gammaColumn, failuresColumn, {Name: "flights", About: "rows of each input"}},
		Figures: []Column{
			rateColumn, struckColumn,
			{Name: "completeness", About: "share of the pairs that was found"}, {Name: "pairs", About: "that there are"},
			commitsColumn, logColumn, backedUpColumn, recoveryColumn,
		},
		Errors: []Column{{Name: "missing_pairs", About: "pairs that were not found"}, lostColumn, repeatedColumn},
		Rate:   rateColumn.Name,
		Cases: func(p Plan) []Case {
			flights := p.Scale.Of(200_000)
			cases := []Case{joinCase(worker.None, budget{}, 0, flights), joinCase(worker.None, budget{}, 10, flights)}
			for _, b := range []budget{loose, tight} {
				for _, failures := range failureCounts() {
					cases = append(cases, joinCase(worker.Approximate, b, failures, flights))
				}
			}
			return against(cases, 0)
		},
		Plots:  func(r Results) []Plot { return joinPlots(r, loose, tight) },
		Claims: func(r Results) []Claim { return joinClaims(r, loose, tight) },
	}
}

func joinPlots(r Results, loose, tight budget) []Plot {
	failures := Axis{Label: "failures"}
	rates := Plot{Name: "rate", Title: "Throughput over failures", X: failures, Y: Axis{Label: "rows/s"}}
	missing := Plot{Name: "missing", Title: "Missing pairs over failures", X: failures, Y: Axis{Label: "pairs", Log: true}}
	for _, b := range []budget{loose, tight} {
		of := r.under(b)
		rates.Lines = append(rates.Lines, of.Line(b.String(), "failures", rateColumn.Name))
		bound := of.Line("bound, "+b.String(), "failures", "missing_pairs_bound")
		bound.Dashed = true
		missing.Lines = append(missing.Lines, of.Line(b.String(), "failures", "missing_pairs"), bound)
	}
	none := r.Where("guarantee", worker.None.String())
	rates.Lines = append(rates.Lines, none.Line("no guarantee", "failures", rateColumn.Name))
	missing.Lines = append(missing.Lines, none.Line("no guarantee", "failures", "missing_pairs"))
	return []Plot{rates, missing}
}

func joinClaims(r Results, loose, tight budget) []Claim {
	at := func(b budget, failures int, column string) float64 {
		return r.under(b).Where("failures", number(failures)).Value(column)
	}
	return []Claim{
		{What: "throughput under the larger budget, by that without a guarantee", Source: 1 - 0.052, Here: at(loose, 0, ratioName), Unit: "%"},
		{What: "throughput under the smaller budget, by that without a guarantee", Source: 1 - 0.12, Here: at(tight, 0, ratioName), Unit: "%"},
		{What: "error added by 10 failures, larger budget (here: missing pairs)", Source: 0.113 - 0.091, Here: 1 - at(loose, 10, "completeness"), Unit: "%"},
		{What: "error added by 10 failures, smaller budget (here: missing pairs)", Source: 0.106 - 0.091, Here: 1 - at(tight, 10, "completeness"), Unit: "%"},
	}
}

func joinCase(g worker.Guarantee, b budget, failures int, flights uint64) Case {
	return Case{
		Params: []string{g.String(), decimal(b.theta), number(b.l), number(b.gamma), number(failures), number(flights)},
		Run: func(ctx context.Context, seed uint64) (result Result, err error) {
			j := job.DefaultJoin()
			j.Params, j.Guarantee = b.params(errorbound.Geometric), g
			j.PipeSources, j.RandomFaults, j.Seed, j.Verify = true, failures, seed, true
			err = withFlights(flights, seed, func(path string) error {
				j.Path = path
				r, err := j.Run(ctx)
				if err := unlessBound(err); err != nil {
					return err
				}
				result, err = joinResult(r)
				return err
			})
			return result, err
		},
	}
}

func joinResult(r *job.JoinReport) (Result, error) {
	v := r.Verify
	if v.Expected == 0 {
		return Result{}, fmt.Errorf("%w: there is no pair to be found", ErrExperiment)
	}
	return Result{
		Figures: []float64{
			float64(r.ItemsPerSecond), float64(len(r.Failures)), 1 - float64(v.Missing)/float64(v.Expected), float64(v.Expected),
			float64(r.Backups.StateCommits), float64(r.Backups.ItemCommits), float64(r.Backups.Bytes), longestRecovery(r.Failures),
		},
		Errors: []Measured{
			{float64(v.Missing), float64(v.MissingBound)}, {float64(v.LostItems), float64(v.LostItemsBound)},
			{float64(v.DuplicatedItems), float64(v.DuplicatedBound)},
		},
	}, nil
}
