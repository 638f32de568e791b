package experiments

import (
	"context"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// Allocation compares equal shares of Theta with shares by load.
func Allocation() Experiment {
	const theta = 10_000
	predictedColumn := Column{Name: "predicted_ratio", About: "backup work without failures by that of equal shares, as errorbound.BackupWork has it for the true loads"}
	movedColumn := Column{Name: "shares_moved", About: "times that a worker was told another share"}
	return Experiment{
		Name:  "allocation",
		Title: "Dividing Theta: equal shares against shares by load",
		Question: "Four workers count into 1024 counters each, whose sums are merged; they get unequal parts of the items, which they are not " +
			"told. A worker backs up when a counter has moved by its share of Theta. How many backups, and bytes, does it save if the " +
			"controller measures the loads while the job runs and divides Theta by them, so that the same total costs least? With four " +
			"failures each worker fails once, evenly spread over the input, which can be read again.",
		Source: "The source divides Theta equally. Division by load is this project's own; the bound is the same for both. What is measured " +
			"falls short of what is predicted by the time before the loads are known, a fifth of a second or so, which is much of a small run, " +
			"by the rule that nothing is moved for less than a tenth, and by what a busier worker's backups hold more.",
		Params: []Column{
			{Name: "loads", About: "parts of the items that the workers get"}, {Name: "shares", About: "how Theta is divided"},
			failuresColumn, thetaColumn, itemsColumn,
		},
		Figures: []Column{commitsColumn, backedUpColumn, movedColumn, predictedColumn, struckColumn, rateColumn},
		Errors:  []Column{{Name: "state_divergence", About: "largest difference of a merged counter to an exact count"}, lostColumn},
		Rate:    commitsColumn.Name,
		Cases: func(p Plan) []Case {
			items := p.Scale.Of(60_000_000)
			var cases []Case
			for _, loads := range [][]float64{{1, 1, 1, 1}, {8, 4, 2, 1}, {64, 16, 4, 1}, {1000, 1, 1, 1}} {
				for _, failures := range []int{0, len(loads)} {
					equal := allocationCase(loads, controller.Equal, failures, theta, items)
					byCost := allocationCase(loads, controller.ByCost, failures, theta, items)
					equal.Baseline, byCost.Baseline = equal.Params, equal.Params
					cases = append(cases, equal, byCost)
				}
			}
			return cases
		},
		Plots: func(r Results) []Plot {
			of := r.Where("shares", controller.ByCost.String())
			p := Plot{Name: "ratio", Title: "Backups with shares by load, by those with equal shares", X: Axis{Label: "loads"}, Y: Axis{Label: "ratio"}}
			clean, failing, predicted := Line{Name: "no failures"}, Line{Name: "4 failures"}, Line{Name: "predicted"}
			for i, s := range of.Where("failures", "0").Summaries {
				x, one := float64(i), of.Where("loads", s.Params[0])
				p.X.Names = append(p.X.Names, s.Params[0])
				clean.X, clean.Y = append(clean.X, x), append(clean.Y, one.Where("failures", "0").Value(ratioName))
				failing.X, failing.Y = append(failing.X, x), append(failing.Y, one.Where("failures", "4").Value(ratioName))
				predicted.X, predicted.Y = append(predicted.X, x), append(predicted.Y, one.Where("failures", "0").Value(predictedColumn.Name))
			}
			p.Lines = []Line{clean, failing, predicted}
			return []Plot{p}
		},
	}
}

// allocationCase counts items that are dealt to as many workers as there are parts, in proportion to these.
func allocationCase(parts []float64, how controller.Allocation, failures int, theta float64, items uint64) Case {
	text := ""
	for i, part := range parts {
		if i > 0 {
			text += ":"
		}
		text += decimal(part)
	}
	return Case{
		Params: []string{text, how.String(), number(failures), decimal(theta), number(items)},
		Run: func(ctx context.Context, seed uint64) (Result, error) {
			predicted, err := predictedRatio(parts, how)
			if err != nil {
				return Result{}, err
			}
			z := connector.ZipfOptions{Items: items, Keys: 100_000, S: 1.1, Seed: seed}
			open, err := newDealer(z, parts)
			if err != nil {
				return Result{}, err
			}
			var sums connector.Collector[counterSum]
			t := stream.New("allocation")
			dealt := stream.From(t, "keys", open)
			counted := stream.Then(dealt, "count", newDealtCounts, stream.Workers(len(parts)), stream.EmitOnClose(), byWorker())
			stream.To(counted, "sums", connector.Collect(&sums))
			r, err := runStored(ctx, t, controller.Options{
				Params: errorbound.Params{Theta: theta}, Allocate: how, Faults: eachOnce("count", failures),
			})
			if err != nil {
				return Result{}, err
			}
			worst, err := worstSum(ctx, open, sums.Items())
			if err != nil {
				return Result{}, err
			}
			return allocationResult(r, predicted, Measured{Value: worst, Bound: theta}), nil
		},
	}
}

// allocationFloor is the least share of a worker by the equal one, as the controller has it.
const allocationFloor = 0.1

// predictedRatio is the backup work by that of equal shares if the loads were known from the start.
func predictedRatio(parts []float64, how controller.Allocation) (float64, error) {
	if how == controller.Equal {
		return 1, nil
	}
	loads, equal := make([]errorbound.Load, len(parts)), make([]float64, len(parts))
	for i, part := range parts {
		loads[i] = errorbound.Load{Rate: part, Cost: 1}
		equal[i] = errorbound.Share(errorbound.Max, errorbound.Added, len(parts))
	}
	shares, err := errorbound.Allocate(errorbound.Max, errorbound.Added, loads, allocationFloor)
	if err != nil {
		return 0, err
	}
	return errorbound.BackupWork(loads, shares) / errorbound.BackupWork(loads, equal), nil
}

func allocationResult(r *controller.Result, predicted float64, worst Measured) Result {
	var commits, written, moved, lost float64
	for _, o := range r.Operators {
		lost += float64(o.Lost)
		if o.Name == "count" {
			commits, written, moved = float64(o.StateCommits), float64(o.Bytes), float64(o.Changes)
		}
	}
	return Result{
		Figures: []float64{commits, written, moved, predicted, float64(len(r.Failures)), float64(r.Items) / r.Seconds},
		Errors:  []Measured{worst, {Value: lost, Bound: 0}},
	}
}

// eachOnce returns a failure of each of the first n workers of an operator, which cut the input into n+1 equal parts.
func eachOnce(operator string, n int) []controller.Fault {
	faults := evenly(operator, n)
	for i := range faults {
		faults[i].Worker = i
	}
	return faults
}
