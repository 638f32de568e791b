package job

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/afstream/afstream/algorithms/countmin"
	"github.com/afstream/afstream/algorithms/heavyhitter"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// HeavyHitterName is the name of the job and of its topology.
const HeavyHitterName = "heavy-hitter"

// HeavyHitter finds the keys that make up more than a given share of a stream. Its operators are trace (the source),
// sketch (a count-min sketch per partition), merge (adds them up) and table (takes the result).
//
// Start from DefaultHeavyHitter: the zero value is not valid.
type HeavyHitter struct {
	Engine

	// Input is what to read; an empty Path means the generator.
	Input connector.KeyedOptions
	// Generator makes the input if there is no Input.Path. Its items weigh 1 each; 0 items are not allowed.
	Generator connector.ZipfOptions

	// Threshold is the share of the total weight from which on a key is reported, 1e-6 to 1. Default 0.01. The smaller,
	// the more keys: a share of t has room for 1/t.
	Threshold float64
	// Rows and Width are the shape of each sketch, default 4 and 8192. More rows make a large overcount less likely, a
	// larger width makes overcounts smaller: total weight / Width on average in a row. Memory: 33 bytes a counter.
	Rows, Width int
	// Alpha is the most that one item weighs, in the unit of the weights; an item above it fails the job. 0 means to find
	// out: 1 where items are counted, 65535 for bytes of packets, else unknown, and then the divergence is looked at
	// after each item instead of each run of items, which is slower.
	Alpha float64
	// Compensate makes a recovered sketch add to every counter what the failure may have lost, so that no heavy hitter
	// is missed; estimates are then too high by up to Theta + L*Alpha instead of too low.
	Compensate bool

	// Workers is how many workers run the sketch, default 2; each is a unit of failure. Compute is how many goroutines
	// with a sketch of their own each of them has, default 1. More than there are cores does not help.
	Workers, Compute int

	// Verify runs the input again without failures, counts it exactly and compares: it takes about three times as long
	// as the job, and 150 bytes of memory a key. The input must be one that can be read again.
	Verify bool
}

// DefaultHeavyHitter returns the job with all defaults: the packet trace that comes with the program, by source
// address, under Theta 10,000, L 1,000 and Gamma 1,000.
func DefaultHeavyHitter() HeavyHitter {
	return HeavyHitter{
		Engine:    Engine{Params: errorbound.Params{Theta: 10_000, L: 1_000, Gamma: 1_000}},
		Input:     connector.KeyedOptions{Path: connector.Builtin + "cip.pcap"},
		Generator: connector.ZipfOptions{Items: 10_000_000, Keys: 100_000, S: 1.1},
		Threshold: 0.01,
		Rows:      4,
		Width:     8192,
		Workers:   2,
		Compute:   1,
	}
}

// maxPartitions bounds Workers*Compute: each partition holds a sketch, and a share of Theta.
const maxPartitions = 1024

// validate returns all faults of the settings, joined, wrapping ErrSettings.
func (h *HeavyHitter) validate() error {
	faults := append(h.Engine.faults(), h.inputFaults()...)
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(h.Workers >= 1 && h.Workers <= maxPartitions, "%d workers: want 1 to %d", h.Workers, maxPartitions)
	check(h.Compute >= 1 && h.Compute <= maxPartitions/max(h.Workers, 1),
		"%d compute goroutines a worker: want 1 to %d", h.Compute, maxPartitions/max(h.Workers, 1))
	check(h.Rows >= 1 && h.Rows <= countmin.MaxRows, "%d rows: want 1 to %d", h.Rows, countmin.MaxRows)
	widest := countmin.MaxCells / min(max(h.Rows, 1), countmin.MaxRows)
	check(h.Width >= 1 && h.Width <= widest, "width %d: want 1 to %d", h.Width, widest)
	check(h.Alpha >= 0 && !math.IsInf(h.Alpha, 1), "alpha %v: want a number of at least 0", h.Alpha)
	check(h.Threshold >= 1e-6 && h.Threshold <= 1, "threshold %v: want a share from 0.000001 to 1", h.Threshold)
	if len(faults) == 0 { // what else the operators may object to: they panic on it
		if err := h.options(h.Alpha, nil).Validate(); err != nil {
			faults = append(faults, err)
		}
	}
	check(h.Guarantee != worker.None || !h.Compensate, "guarantee none has nothing to compensate for")
	return settingsError(faults)
}

func (h *HeavyHitter) options(alpha float64, merged func(stream.Window, *countmin.Sketch)) heavyhitter.Options {
	return heavyhitter.Options{
		Rows: h.Rows, Width: h.Width, Threshold: h.Threshold, Alpha: alpha, Compensate: h.Compensate, OnMerged: merged,
	}
}

// answer is where a topology leaves its result.
type answer struct {
	rows connector.Collector[heavyhitter.Row]

	mu    sync.Mutex
	cells []float64 // of the merged sketch; nil until it was merged
	total float64
}

// merged keeps a copy of the merged sketch. A close that is run again after a failure replaces it.
func (a *answer) merged(_ stream.Window, s *countmin.Sketch) {
	p := s.Params()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cells = s.AppendCells(a.cells[:0], 0, p.Rows*p.Width)
	a.total = s.Total()
}

// topology builds the job over a source whose items weigh at most alpha; its result goes to a.
func (h *HeavyHitter) topology(open stream.NewSource[connector.Keyed], alpha float64, a *answer) *stream.Topology {
	o := h.options(alpha, a.merged)
	t := stream.New(HeavyHitterName)
	trace := stream.From(t, "trace", open)
	sketches := stream.Then(trace, "sketch", func() *heavyhitter.Sketch { return heavyhitter.NewSketch(o) },
		stream.Shuffle(), stream.Workers(h.Workers), stream.Compute(h.Compute), stream.EmitOnClose())
	rows := stream.Then(sketches, "merge", func() *heavyhitter.Merge { return heavyhitter.NewMerge(o) }, stream.EmitOnClose())
	stream.To(rows, "table", connector.Collect(&a.rows))
	return t
}

// Run runs the job until its input ends. Errors wrap ErrSettings if nothing was run; ErrInterrupted and ErrBound come
// with a report, other errors without.
//
// When ctx ends, the job finishes what it has read if that takes no longer than 1.5 s, and reports it.
func (h HeavyHitter) Run(ctx context.Context) (*Report, error) {
	if err := h.validate(); err != nil {
		return nil, err
	}
	in, err := h.openInput()
	if err != nil {
		return nil, err
	}
	if h.Alpha > 0 {
		in.alpha = h.Alpha
	}
	if !in.replayable {
		h.PipeSources = true
		if h.Verify {
			return nil, fmt.Errorf("%w: verify has to read the input again, and %s can be read only once: write it to a file first",
				ErrSettings, in.name)
		}
	}
	var a answer
	result, err := h.Engine.run(ctx, h.topology(in.counted, in.alpha, &a), in.replayable)
	if result == nil || err != nil && !result.Interrupted {
		return nil, explain(err)
	}
	report := h.report(in, &a, result)
	if result.Interrupted {
		return report, interrupted(err, "after %s items", group(result.Items))
	}
	if !h.Verify {
		return report, nil
	}
	report.Verify, err = h.verify(ctx, in, &a, result)
	if ctx.Err() != nil {
		report.Interrupted, report.Verify = true, nil
		return report, interrupted(nil, "before it was verified")
	}
	if err != nil {
		return nil, err
	}
	return report, report.Verify.err()
}

// interrupted makes the error of an interrupted job. Why it did not finish what it had read, if so, is err.
func interrupted(err error, format string, args ...any) error {
	when := fmt.Errorf("%w "+format, append([]any{ErrInterrupted}, args...)...)
	if err == nil {
		return when
	}
	return errors.Join(when, err)
}

// explain adds the remedy to errors whose package cannot know it.
func explain(err error) error {
	if errors.Is(err, heavyhitter.ErrWeight) {
		return fmt.Errorf("%w: alpha is the most that one item may weigh: give a larger one", err)
	}
	return err
}

// losses adds up what all operators lost or repeated.
func losses(result *controller.Result) (lost, repeated uint64) {
	for _, o := range result.Operators {
		lost += o.Lost
		repeated += o.Repeated
	}
	return lost, repeated
}
