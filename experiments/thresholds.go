package experiments

import (
	"context"
	"fmt"
	"math"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/job"
)

// unlimited is an L that no stream reaches.
const unlimited = 1_000_000_000_000

// Thresholds measures the rate of wordcount over Theta and L, up to unlimited.
func Thresholds() Experiment {
	thetas, ls := []float64{1, 10, 100, 1000, 10_000, math.Inf(1)}, []uint64{10, 1000, unlimited}
	return Experiment{
		Name:  "thresholds",
		Title: "Throughput over Theta and L",
		Question: "How much does a tighter bound cost while nothing fails? Words are items, counted by the worker of their hash; " +
			"Theta bounds the error of every count (Max norm) and L the words and blocks that failures of receivers may lose; Gamma is 1,000. " +
			"The text is read like a pipe. Rates are compared with unlimited Theta and L, where nothing is backed up but the end.",
		Source: "The source reports that Theta = 1 costs 33% and Theta = 10 costs 10% of the throughput on 11 machines over 15 GB of text. It " +
			"backs up when the divergence has exceeded Theta; here no item is processed that could exceed the share of Theta " +
			"that this incarnation may spend, half of it, which is why small values cost more: with Theta = 1 each word waits for a backup.",
		Params:  []Column{thetaColumn, lColumn, {Name: "bytes", Unit: "B", About: "length of the text"}},
		Figures: textColumns, Errors: textErrors, Rate: byteRateColumn.Name,
		Cases: func(p Plan) []Case {
			size := p.Scale.Of(20 << 20)
			params := func(theta float64, l uint64) []string { return []string{decimal(theta), number(l), number(size)} }
			var cases []Case
			for _, theta := range thetas {
				for _, l := range ls {
					cases = append(cases, Case{
						Params: params(theta, l), Baseline: params(math.Inf(1), unlimited),
						Run: func(ctx context.Context, seed uint64) (Result, error) {
							e := job.Engine{PipeSources: true, Workers: 2, Compute: 1, Seed: seed, Verify: true}
							e.Params = errorbound.Params{Theta: theta, L: l, Gamma: 1000}
							return runText(ctx, wordCount(true), e, size, seed)
						},
					})
				}
			}
			return cases
		},
		Plots: func(r Results) []Plot { return thresholdPlots(r, thetas, ls) },
		Claims: func(r Results) []Claim {
			cost := func(theta float64) float64 {
				return 1 - r.Where("theta", decimal(theta)).Where("l", number(uint64(1000))).Value(ratioName)
			}
			return []Claim{
				{What: "what Theta = 1 costs of the throughput, L 1,000", Source: 0.33, Here: cost(1), Unit: "%"},
				{What: "what Theta = 10 costs of the throughput, L 1,000", Source: 0.10, Here: cost(10), Unit: "%"},
			}
		},
	}
}

func thresholdPlots(r Results, thetas []float64, ls []uint64) []Plot {
	p := Plot{Name: "ratio", Title: "Throughput by that with unlimited thresholds", X: Axis{Label: "Theta"}, Y: Axis{Label: "ratio"}}
	for _, theta := range thetas {
		p.X.Names = append(p.X.Names, limit(theta))
	}
	for _, l := range ls {
		line := Line{Name: "L " + limit(float64(l))}
		for i, theta := range thetas {
			line.X = append(line.X, float64(i))
			line.Y = append(line.Y, r.Where("theta", decimal(theta)).Where("l", number(l)).Value(ratioName))
		}
		p.Lines = append(p.Lines, line)
	}
	return []Plot{p}
}

// limit returns a threshold for people.
func limit(f float64) string {
	if f >= unlimited {
		return "unlimited"
	}
	return fmt.Sprintf("%g", f)
}
