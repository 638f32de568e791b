package experiments

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// PartialBackup measures what it saves to back up only the elements that changed most instead of whole states.
func PartialBackup() Experiment {
	const keys = 10_000
	writtenColumn := Column{Name: "bytes_per_commit", Unit: "B", About: "of states"}
	return Experiment{
		Name:  "partial-backup",
		Title: "Partial against whole backups of a state",
		Question: "Items are counted by key (10,000 keys) in two workers, whose keys are disjoint, and no count may be off by more " +
			"than Theta, 1/2000 of the items, after four failures. The operator either embeds state.Map, which backs up the counts that moved most, or it is " +
			"written by hand and backs up all its counts whenever one has moved by theta. How many bytes does each write, for keys " +
			"from uniform to very skewed?",
		Source: "The source describes partial backups, as lists of keys and values, without a figure for them. With uniform keys " +
			"all counts move alike, and a partial backup has the least to leave out.",
		Params: []Column{
			{Name: "backups", About: "partial: state.Map; whole: by hand"}, {Name: "skew", About: "the r-th key has a share in proportion to 1/r^skew"},
			thetaColumn, failuresColumn, itemsColumn,
		},
		Figures: []Column{rateColumn, struckColumn, commitsColumn, backedUpColumn, writtenColumn},
		Errors:  []Column{stateColumn, lostColumn},
		Rate:    rateColumn.Name,
		Cases: func(p Plan) []Case {
			items := p.Scale.Of(20_000_000)
			theta := float64(items / 2000) // so that whole backups write as much at every scale, about a gigabyte
			var cases []Case
			for _, skew := range []float64{0, 0.8, 1.1, 1.5} {
				z := connector.ZipfOptions{Items: items, Keys: keys, S: skew}
				whole := partialBackupCase("whole", z, theta, newWholeCounts)
				partial := partialBackupCase("partial", z, theta, newPartialCounts)
				whole.Baseline, partial.Baseline = whole.Params, whole.Params
				cases = append(cases, whole, partial)
			}
			return cases
		},
		Plots: func(r Results) []Plot {
			written := Plot{Name: "bytes", Title: "Bytes backed up over the skew of the keys", X: Axis{Label: "skew"}, Y: Axis{Label: "bytes", Log: true}}
			rates := Plot{Name: "rate", Title: "Throughput over the skew of the keys", X: Axis{Label: "skew"}, Y: Axis{Label: "items/s"}}
			for _, how := range []string{"whole", "partial"} {
				of := r.Where("backups", how)
				written.Lines = append(written.Lines, of.Line(how, "skew", backedUpColumn.Name))
				rates.Lines = append(rates.Lines, of.Line(how, "skew", rateColumn.Name))
			}
			return []Plot{written, rates}
		},
	}
}

func partialBackupCase[Op stream.Operator[connector.Keyed, keyCount]](
	how string, z connector.ZipfOptions, theta float64, newOperator func() Op,
) Case {
	const failures = 4
	return Case{
		Params: []string{how, decimal(z.S), decimal(theta), number(failures), number(z.Items)},
		Run: func(ctx context.Context, seed uint64) (Result, error) {
			z.Seed = seed
			open, err := connector.Zipf(z)
			if err != nil {
				return Result{}, err
			}
			var counts connector.Collector[keyCount]
			t := stream.New("partial-backup")
			keyed := stream.From(t, "keys", open)
			counted := stream.Then(keyed, "count", newOperator, stream.Workers(2), stream.EmitOnClose(),
				stream.HashUint64(func(k connector.Keyed) uint64 { return k.Hash }))
			stream.To(counted, "counts", connector.Collect(&counts))
			r, err := runStored(ctx, t, controller.Options{
				Params: errorbound.Params{Theta: theta}, Faults: evenly("count", failures),
			})
			if err != nil {
				return Result{}, err
			}
			worst, err := worstCount(ctx, open, counts.Items())
			if err != nil {
				return Result{}, err
			}
			return partialBackupResult(r, Measured{Value: worst, Bound: theta}), nil
		},
	}
}

func partialBackupResult(r *controller.Result, worst Measured) Result {
	var commits, written, lost float64
	for _, o := range r.Operators {
		lost += float64(o.Lost)
		if o.Name == "count" {
			commits, written = float64(o.StateCommits), float64(o.Bytes)
		}
	}
	return Result{
		Figures: []float64{float64(r.Items) / r.Seconds, float64(len(r.Failures)), commits, written, written / commits},
		Errors:  []Measured{worst, {Value: lost, Bound: 0}},
	}
}

// runStored runs a topology with its backups in a temporary directory, on the disk, where those of a real job are.
func runStored(ctx context.Context, t *stream.Topology, o controller.Options) (_ *controller.Result, err error) {
	dir, err := os.MkdirTemp("", "afstream-")
	if err != nil {
		return nil, fmt.Errorf("make temporary directory for backups: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store, err := backup.OpenBadger(dir, backup.BadgerOptions{Logger: o.Log})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	o.Store = store
	return controller.RunLocal(ctx, t, o)
}

// worstCount returns the largest difference of any count to that of the input, counted in one loop.
func worstCount(ctx context.Context, open stream.NewSource[connector.Keyed], got []keyCount) (float64, error) {
	left := make(map[uint64]int64)
	if err := each(ctx, open, func(item connector.Keyed) { left[item.Hash]++ }); err != nil {
		return 0, err
	}
	for _, c := range got {
		left[c.Key] -= c.Count
	}
	worst := 0.0
	for _, d := range left {
		worst = max(worst, math.Abs(float64(d)))
	}
	return worst, nil
}
