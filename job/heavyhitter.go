package job

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/afstream/afstream/algorithms/countmin"
	"github.com/afstream/afstream/algorithms/heavyhitter"
	"github.com/afstream/afstream/algorithms/spacesaving"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// HeavyHitterName is the name of the job and of its topology.
const HeavyHitterName = "heavy-hitter"

// HeavyHitter finds the keys that make up more than a given share of a stream. Its operators are trace (the source),
// sketch (Workers of them, with a sketch of the Method per partition), merge (adds them up) and table (takes the result).
// Verifying it takes about three times as long as the job, and 150 bytes of memory a key.
//
// Start from DefaultHeavyHitter: the zero value is not valid.
type HeavyHitter struct {
	Engine

	KeyedItems

	// Threshold is the share of the total weight from which on a key is reported, 1e-6 to 1. Default 0.01. The smaller,
	// the more keys: a share of t has room for 1/t.
	Threshold float64
	// Method is CountMin or SpaceSaving; the empty one is CountMin.
	Method Method
	// Rows and Width are the shape of each sketch of CountMin, default 4 and 8192. More rows make a large overcount less likely, a
	// larger width makes overcounts smaller: total weight / Width on average in a row. Memory: 33 bytes a counter, 16 if
	// nothing goes by divergence (mini-batch, none).
	Rows, Width int
	// Capacity is how many keys each partition counts under SpaceSaving, which alone allows to set it: 1/Threshold to
	// spacesaving.MaxCapacity, at about 150 bytes each. No estimate is more than the total weight / Capacity too high. 0
	// means 10/Threshold.
	Capacity int
	// Alpha is the most that one item weighs, in the unit of the weights; an item above it fails the job. 0 means to find
	// out: 1 where items are counted, 65535 for bytes of packets, else unknown, and then the divergence is looked at
	// after each item instead of each run of items, which is slower.
	Alpha float64
	// Compensate makes a recovered sketch add to every counter what the failure may have lost, so that no heavy hitter
	// is missed; estimates are then too high by up to Theta + L*Alpha instead of too low.
	Compensate bool

	// Target, if its Error is not 0, is the accuracy that is wanted. Run then works out Params, Rows and Width and
	// ignores what they are set to.
	Target Accuracy
}

// DefaultHeavyHitter returns the job with all defaults: the packet trace that comes with the program, by source
// address, under Theta 10,000, L 1,000 and Gamma 1,000.
func DefaultHeavyHitter() HeavyHitter {
	return HeavyHitter{
		Engine:     Engine{Params: errorbound.Params{Theta: 10_000, L: 1_000, Gamma: 1_000}, Workers: 2, Compute: 1},
		KeyedItems: defaultItems(),
		Threshold:  0.01,
		Rows:       4,
		Width:      8192,
	}
}

// validate returns all faults of the settings, joined, wrapping ErrSettings.
func (h *HeavyHitter) validate() error {
	faults := slices.Concat(h.Engine.faults(), h.inputFaults(), h.targetFaults(), h.methodFaults())
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
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
	check(h.Guarantee == worker.Approximate || !h.Compensate, "guarantee %v has nothing to compensate for", h.Guarantee)
	return settingsError(faults)
}

func (h *HeavyHitter) options(alpha float64, merged func(stream.Window, *countmin.Sketch) error) heavyhitter.Options {
	return heavyhitter.Options{
		Rows: h.Rows, Width: h.Width, Threshold: h.Threshold, Alpha: alpha, Compensate: h.Compensate, OnMerged: merged,
	}
}

// merged is where the topology leaves its result.
type merged struct {
	rows connector.Collector[heavyhitter.Row]

	mu        sync.Mutex
	cells     []float64             // of the merged sketch; nil until it was merged, and under SpaceSaving
	estimates spacesaving.Estimates // of SpaceSaving
	total     float64
	vault     connector.Vault // where else they go, nil if nowhere
}

// sketched is what keep keeps, for who is not in this process.
type sketched struct {
	Cells []float64
	Total float64
}

// Names of the notes that tell of the merged sketches.
const (
	noteSketch    = "merge-sketch"
	noteEstimates = "merge-estimates"
)

// keepEstimates is keep for SpaceSaving.
func (m *merged) keepEstimates(_ stream.Window, e spacesaving.Estimates) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.estimates, m.total = e, e.Total()
	if m.vault == nil {
		return nil
	}
	return connector.SaveNote(m.vault, noteEstimates, 0, e)
}

// keep keeps a copy of the merged sketch. A close that is run again after a failure replaces it.
func (m *merged) keep(_ stream.Window, s *countmin.Sketch) error {
	p := s.Params()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cells = s.AppendCells(m.cells[:0], 0, p.Rows*p.Width)
	m.total = s.Total()
	if m.vault == nil {
		return nil
	}
	return connector.SaveNote(m.vault, noteSketch, 0, sketched{Cells: m.cells, Total: m.total})
}

// Keep implements Results.
func (m *merged) Keep(v connector.Vault) {
	m.rows.Keep(v)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.vault = v
}

// Recall implements Results.
func (m *merged) Recall(v connector.Vault, sink string) error {
	var sketches connector.Collector[sketched]
	var estimates connector.Collector[spacesaving.Estimates]
	err := errors.Join(m.rows.Recall(v, sink), sketches.Recall(v, noteSketch), estimates.Recall(v, noteEstimates))
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range sketches.Items() {
		m.cells, m.total = s.Cells, s.Total
	}
	for _, e := range estimates.Items() {
		m.estimates, m.total = e, e.Total()
	}
	return nil
}

// topology builds the job over a source whose items weigh at most alpha; its result goes to m.
func (h *HeavyHitter) topology(open stream.NewSource[connector.Keyed], alpha float64, m *merged) *stream.Topology {
	t := stream.New(HeavyHitterName)
	trace := stream.From(t, "trace", open)
	if h.Method == SpaceSaving {
		stream.To(h.summarised(trace, alpha, m), "table", connector.Collect(&m.rows))
		return t
	}
	o := h.options(alpha, m.keep)
	sketches := stream.Then(trace, "sketch", func() *heavyhitter.Sketch { return heavyhitter.NewSketch(o) },
		stream.Shuffle(), stream.Workers(h.Workers), stream.Compute(h.Compute), stream.EmitOnClose())
	rows := stream.Then(sketches, "merge", func() *heavyhitter.Merge { return heavyhitter.NewMerge(o) }, stream.EmitOnClose())
	stream.To(rows, "table", connector.Collect(&m.rows))
	return t
}

// Run runs the job until its input ends. Errors wrap ErrSettings if nothing was run; ErrInterrupted and ErrBound come
// with a report, other errors without.
//
// When ctx ends, the job finishes what it has read if that takes no longer than 1.5 s, and reports it.
func (h HeavyHitter) Run(ctx context.Context) (*HeavyHitterReport, error) {
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
	var plan *Plan
	p := program[merged, HeavyKeys, HeavyHitterVerification]{
		name: HeavyHitterName, input: &in.origin,
		build:  func(m *merged) *stream.Topology { return h.topology(in.counted, in.alpha, m) },
		answer: h.answer,
		verify: func(ctx context.Context, got, clean *merged, result *controller.Result) (*HeavyHitterVerification, uint64, error) {
			return h.verify(ctx, in, plan, got, clean, result)
		},
	}
	if h.Target.Error != 0 {
		p.prepare = func(ctx context.Context) (_ *Plan, err error) {
			plan, err = h.aim(ctx, in)
			return plan, err
		}
	}
	report, err := run(ctx, &h.Engine, p)
	if report != nil {
		report.Compensate = h.Compensate
	}
	return report, explain(err)
}

// explain adds the remedy to errors whose package cannot know it.
func explain(err error) error {
	if errors.Is(err, heavyhitter.ErrWeight) || errors.Is(err, spacesaving.ErrWeight) {
		return fmt.Errorf("%w: alpha is the most that one item may weigh: give a larger one", err)
	}
	return err
}
