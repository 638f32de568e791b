package experiments

import (
	"context"
	"fmt"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/job"
	"github.com/afstream/afstream/worker"
)

// budget is a setting of the thresholds. What they count is the experiment's own.
type budget struct {
	theta    float64
	l, gamma uint64
}

func (b budget) params(s errorbound.Series) errorbound.Params {
	return errorbound.Params{Theta: b.theta, L: b.l, Gamma: b.gamma, Series: s}
}

// failureCounts returns how many failures the experiments on accuracy inject.
func failureCounts() []int { return []int{0, 1, 2, 5, 10, 20} }

// HeavyHitter measures heavy hitters by count-min sketches: rate, precision, recall and error of the estimates, for two
// budgets and up to 20 failures of any worker.
func HeavyHitter() Experiment {
	loose, tight := budget{theta: 1000, l: 1000, gamma: 1000}, budget{theta: 100, l: 100, gamma: 1000}
	return Experiment{
		Name:  "heavy-hitter",
		Title: "Heavy hitters: throughput and accuracy under failures",
		Question: "What do two budgets cost while nothing fails, and what do failures cost then? Zipf-distributed keys (skew 1.1, " +
			"100,000 keys) are dealt to two count-min sketches of 4 x 8192 counters, which are merged; keys with more than 0.1% " +
			"of all items are reported. Failures strike workers drawn at random: source, sketches, merge or table. The " +
			"source is read like a pipe, so that what is in flight is at risk. Without a guarantee nothing is promised.",
		Source: "The source ran 10 senders and 1 receiver on 11 machines over 10^9 packets of a real trace, with 4 x 8000 counters, " +
			"and counted bytes. Its budgets are 10 times apart in Theta and L, as they are here; here items are counted, so that one " +
			"item changes a counter by 1 and not by up to 1500. All is one process here, and the machine has fewer cores than " +
			"the job has goroutines: compare ratios, not rates.",
		Params: []Column{guaranteeColumn, thetaColumn, lColumn, gammaColumn, failuresColumn, itemsColumn},
		Figures: []Column{
			rateColumn, struckColumn,
			{Name: "precision", About: "share of the reported keys that are heavy"},
			{Name: "recall", About: "share of the heavy keys that are reported"},
			{Name: "mean_relative_error", About: "of the estimates of the heavy keys that are reported"},
			commitsColumn, backedUpColumn, recoveryColumn,
		},
		Errors: []Column{
			stateColumn,
			{Name: "total_divergence", About: "how far the total weight is from that of a run without failures"},
			lostColumn, repeatedColumn,
		},
		Rate: rateColumn.Name,
		Cases: func(p Plan) []Case {
			items := p.Scale.Of(20_000_000)
			cases := []Case{heavyHitterCase(worker.None, budget{}, 0, items), heavyHitterCase(worker.None, budget{}, 10, items)}
			for _, b := range []budget{loose, tight} {
				for _, failures := range failureCounts() {
					cases = append(cases, heavyHitterCase(worker.Approximate, b, failures, items))
				}
			}
			return against(cases, 0)
		},
		Plots:  func(r Results) []Plot { return heavyHitterPlots(r, loose, tight) },
		Claims: func(r Results) []Claim { return heavyHitterClaims(r, loose, tight) },
	}
}

func heavyHitterCase(g worker.Guarantee, b budget, failures int, items uint64) Case {
	return Case{
		Params: []string{g.String(), decimal(b.theta), number(b.l), number(b.gamma), number(failures), number(items)},
		Run: func(ctx context.Context, seed uint64) (Result, error) {
			h := generatedHeavyHitter(items, seed)
			h.Threshold = 0.001
			h.Params, h.Guarantee = b.params(errorbound.Geometric), g
			h.PipeSources, h.RandomFaults, h.Seed = true, failures, seed
			r, err := h.Run(ctx)
			if err := unlessBound(err); err != nil {
				return Result{}, err
			}
			v := r.Verify
			return Result{
				Figures: []float64{
					float64(r.ItemsPerSecond), float64(len(r.Failures)), v.Precision, v.Recall, v.MeanRelativeError,
					float64(r.Backups.StateCommits), float64(r.Backups.Bytes), longestRecovery(r.Failures),
				},
				Errors: []Measured{
					{float64(v.StateDivergence), float64(v.StateDivergenceBound)},
					{float64(v.TotalDivergence), float64(v.TotalDivergenceBound)},
					{float64(v.LostItems), float64(v.LostItemsBound)},
					{float64(v.DuplicatedItems), float64(v.DuplicatedBound)},
				},
			}, nil
		},
	}
}

// generatedHeavyHitter is the job over keys that are made up, to be verified.
func generatedHeavyHitter(items, seed uint64) job.HeavyHitter {
	h := job.DefaultHeavyHitter()
	h.Input = connector.KeyedOptions{}
	h.Generator = connector.ZipfOptions{Items: items, Keys: 100_000, S: 1.1, Seed: seed}
	h.Verify = true
	return h
}

// under keeps the cases of a budget.
func (r Results) under(b budget) Results {
	return r.Where("guarantee", worker.Approximate.String()).Where("theta", decimal(b.theta)).Where("l", number(b.l))
}

func (b budget) String() string { return fmt.Sprintf("Theta %g, L %d", b.theta, b.l) }

func heavyHitterPlots(r Results, budgets ...budget) []Plot {
	failures := Axis{Label: "failures"}
	rates := Plot{Name: "rate", Title: "Throughput over failures", X: failures, Y: Axis{Label: "items/s"}}
	errs := Plot{Name: "divergence", Title: "Largest error of a counter over failures", X: failures, Y: Axis{Label: "items", Log: true}}
	quality := Plot{Name: "precision", Title: "Precision and recall over failures", X: failures, Y: Axis{Label: "share", Fit: true}}
	for _, b := range budgets {
		of := r.under(b)
		rates.Lines = append(rates.Lines, of.Line(b.String(), "failures", rateColumn.Name))
		bound := of.Line("bound, "+b.String(), "failures", "state_divergence_bound")
		bound.Dashed = true
		errs.Lines = append(errs.Lines, of.Line(b.String(), "failures", "state_divergence"), bound)
		quality.Lines = append(quality.Lines, of.Line("precision, "+b.String(), "failures", "precision"),
			of.Line("recall, "+b.String(), "failures", "recall"))
	}
	none := r.Where("guarantee", worker.None.String())
	rates.Lines = append(rates.Lines, none.Line("no guarantee", "failures", rateColumn.Name))
	errs.Lines = append(errs.Lines, none.Line("no guarantee", "failures", "state_divergence"))
	return []Plot{rates, errs, quality}
}

func heavyHitterClaims(r Results, loose, tight budget) []Claim {
	at := func(b budget, failures int, column string) float64 {
		return r.under(b).Where("failures", number(failures)).Value(column)
	}
	none := r.Where("guarantee", worker.None.String()).Where("failures", "0")
	return []Claim{
		{What: "throughput without a guarantee, items/s", Source: 308e6, Here: none.Value(rateColumn.Name)},
		{What: "throughput under the larger budget, by that without a guarantee", Source: 1 - 0.047, Here: at(loose, 0, ratioName), Unit: "%"},
		{What: "throughput under the smaller budget, by that without a guarantee", Source: 1 - 0.15, Here: at(tight, 0, ratioName), Unit: "%"},
		{What: "precision without failures", Source: 0.989, Here: none.Value("precision"), Unit: "%"},
		{What: "precision after 10 failures, larger budget", Source: 0.928, Here: at(loose, 10, "precision"), Unit: "%"},
		{What: "precision after 10 failures, smaller budget", Source: 0.955, Here: at(tight, 10, "precision"), Unit: "%"},
	}
}
