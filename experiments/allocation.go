package experiments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/state"
	"github.com/afstream/afstream/stream"
)

// Allocation compares equal shares of Theta with shares by load. It drives the ready states themselves, without the
// runtime, which does not divide by load yet.
func Allocation() Experiment {
	const theta = 10_000
	predictedColumn := Column{Name: "predicted_ratio", About: "backup work by that of equal shares, as errorbound.BackupWork has it"}
	return Experiment{
		Name:  "allocation",
		Title: "Dividing Theta: equal shares against shares by load (simulated)",
		Question: "Four workers count into 1024 counters each, whose sums are merged; they get unequal parts of the items. A worker backs up " +
			"when a counter has moved by its share of Theta. How many backups does it save to divide Theta by load, so that " +
			"their number is least for the same total (errorbound.Allocate)? Simulated: real states of package state are driven by one loop, " +
			"backups are durable at once, and nothing fails; the error is what would be lost if all workers failed at the worst of " +
			"the moments looked at.",
		Source: "The source divides Theta equally. Division by load is this project's own; the bound is the same for both.",
		Params: []Column{
			{Name: "loads", About: "parts of the items that the workers get"}, {Name: "shares", About: "how Theta is divided"},
			thetaColumn, itemsColumn,
		},
		Figures: []Column{commitsColumn, backedUpColumn, predictedColumn},
		Errors:  []Column{{Name: "state_divergence", About: "largest difference of a merged counter, if all workers failed now"}},
		Rate:    commitsColumn.Name,
		Cases: func(p Plan) []Case {
			items := p.Scale.Of(20_000_000)
			var cases []Case
			for _, loads := range [][]float64{{1, 1, 1, 1}, {8, 4, 2, 1}, {64, 16, 4, 1}, {1000, 1, 1, 1}} {
				equal := allocationCase(loads, equalShares, "equal", theta, items)
				byLoad := allocationCase(loads, loadShares, "by load", theta, items)
				equal.Baseline, byLoad.Baseline = equal.Params, equal.Params
				cases = append(cases, equal, byLoad)
			}
			return cases
		},
		Plots: func(r Results) []Plot {
			of := r.Where("shares", "by load")
			p := Plot{Name: "ratio", Title: "Backups with shares by load, by those with equal shares", X: Axis{Label: "loads"}, Y: Axis{Label: "ratio"}}
			measured, predicted := Line{Name: "measured"}, Line{Name: "predicted"}
			for i, s := range of.Summaries {
				p.X.Names = append(p.X.Names, s.Params[0])
				one := of.Where("loads", s.Params[0])
				measured.X, measured.Y = append(measured.X, float64(i)), append(measured.Y, one.Value(ratioName))
				predicted.X, predicted.Y = append(predicted.X, float64(i)), append(predicted.Y, one.Value(predictedColumn.Name))
			}
			p.Lines = []Line{measured, predicted}
			return []Plot{p}
		},
	}
}

// allocationFloor is the least share of a worker, by the equal one.
const allocationFloor = 0.1

func equalShares(loads []errorbound.Load) ([]float64, error) {
	shares := make([]float64, len(loads))
	for i := range shares {
		shares[i] = errorbound.Share(errorbound.Max, errorbound.Added, len(loads))
	}
	return shares, nil
}

func loadShares(loads []errorbound.Load) ([]float64, error) {
	return errorbound.Allocate(errorbound.Max, errorbound.Added, loads, allocationFloor)
}

func allocationCase(
	parts []float64, divide func([]errorbound.Load) ([]float64, error), name string, theta float64, items uint64,
) Case {
	text := ""
	loads, total := make([]errorbound.Load, len(parts)), 0.0
	for i, part := range parts {
		loads[i] = errorbound.Load{Rate: part, Cost: 1}
		total += part
		if i > 0 {
			text += ":"
		}
		text += decimal(part)
	}
	return Case{
		Params: []string{text, name, decimal(theta), number(items)},
		Run: func(ctx context.Context, seed uint64) (Result, error) {
			shares, err := divide(loads)
			if err != nil {
				return Result{}, err
			}
			equal, err := equalShares(loads)
			if err != nil {
				return Result{}, err
			}
			grant := theta * errorbound.Geometric.Term(0) // nothing has failed yet
			s := newBackupSimulation(shares, grant)
			if err := s.run(ctx, parts, total, items, seed); err != nil {
				return Result{}, err
			}
			predicted := errorbound.BackupWork(loads, shares) / errorbound.BackupWork(loads, equal)
			return Result{
				Figures: []float64{float64(s.commits), float64(s.bytes), predicted}, Errors: []Measured{{s.worst, grant}},
			}, nil
		},
	}
}

// simulatedCounters is how many counters each simulated worker has.
const simulatedCounters = 1024

// backupSimulation is some workers that count and back up, without a runtime.
type backupSimulation struct {
	workers []simulatedWorker
	writer  *stream.StateWriter
	commits int
	bytes   int
	worst   float64 // largest difference of a merged counter between what is and what is backed up
}

type simulatedWorker struct {
	counters *state.Counters
	theta    float64
	durable  [simulatedCounters]float64
}

func newBackupSimulation(shares []float64, theta float64) *backupSimulation {
	s := &backupSimulation{workers: make([]simulatedWorker, len(shares)), writer: stream.NewStateWriter(nil, false)}
	for i := range s.workers {
		w := &s.workers[i]
		w.counters, w.theta = state.NewCounters(simulatedCounters), theta*shares[i]
		w.counters.SetAlpha(1)
		w.counters.SetTheta(w.theta)
	}
	return s
}

// lookEvery is after how many items the simulation compares all counters with their backups.
const lookEvery = 10_000

// run deals Zipf-distributed items to the workers at random, in proportion to their parts.
func (s *backupSimulation) run(ctx context.Context, parts []float64, total float64, items, seed uint64) (err error) {
	open, err := connector.Zipf(connector.ZipfOptions{Items: items, Keys: 100_000, S: 1.1, Seed: seed})
	if err != nil {
		return err
	}
	source, err := open(0, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	rng := rand.New(rand.NewPCG(seed, 0))
	slab := make([]connector.Keyed, stream.SlabItems)
	for seen := 0; ; {
		n, err := source.Read(slab)
		for _, item := range slab[:n] {
			at, i := rng.Float64()*total, 0
			for ; i < len(parts)-1 && at >= parts[i]; i++ {
				at -= parts[i]
			}
			if err := s.count(&s.workers[i], int(item.Hash%simulatedCounters)); err != nil {
				return err
			}
			if seen++; seen%lookEvery == 0 {
				s.look()
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}

// count adds an item, after a backup if the state could otherwise diverge too far.
func (s *backupSimulation) count(w *simulatedWorker, counter int) error {
	if w.counters.StateDivergence()+1 > w.theta {
		if err := s.backUp(w); err != nil {
			return err
		}
	}
	w.counters.Add(counter, 1)
	return nil
}

func (s *backupSimulation) backUp(w *simulatedWorker) error {
	s.writer.Reset(false)
	if err := w.counters.BackupState(s.writer); err != nil {
		return err
	}
	written := s.writer.Bytes()
	s.commits++
	s.bytes += len(written)
	r := stream.NewStateReader(func() ([]byte, error) {
		b := written
		if written = nil; b == nil {
			return nil, io.EOF
		}
		return b, nil
	})
	for r.Next() {
		at, bits, err := r.Uint64()
		if err != nil {
			return err
		}
		if at >= simulatedCounters {
			return fmt.Errorf("%w: counter %d in a backup", stream.ErrState, at)
		}
		w.durable[at] = math.Float64frombits(bits)
	}
	w.counters.BackupDurable()
	return r.Err()
}

func (s *backupSimulation) look() {
	for i := range simulatedCounters {
		d := 0.0
		for j := range s.workers {
			d += s.workers[j].counters.At(i) - s.workers[j].durable[i]
		}
		s.worst = max(s.worst, math.Abs(d))
	}
}
