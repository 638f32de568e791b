package job

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/afstream/afstream/algorithms/countmin"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// Accuracy is a wanted accuracy of the estimates of heavy-hitter, from which the job works out Theta, L, Gamma, the
// series and the shape of the sketches. See errorbound.HeavyHitterTarget for what is promised and how.
type Accuracy struct {
	// Error is the share of the total weight by which an estimate may be off, failures included. 0: no target is set.
	Error float64
	// Confidence is the probability, for each key, that its estimate is off by no more.
	Confidence float64
	// Failures is how many failures are expected. Injected ones count in any case.
	Failures uint64
	// Total is the total weight of the input. 0 means to find out: the number of generated items, or by reading the input
	// once before the job, which takes as long as reading it does. An input that can be read only once needs it.
	Total float64
	// Memory is how many bytes all sketches together may take, 0 for as many as keep each in a core's cache.
	Memory float64
	// Series are those to choose from, empty for all.
	Series []errorbound.Series
}

// PhaseMeasure is the reading of the input before a job that has a target and does not know how much there is.
const PhaseMeasure Phase = "measuring the input"

// Plan is how a target is kept, and what that is predicted to cost. Its JSON names are stable: programs read them.
type Plan struct {
	Job          string     `json:"job"`
	Error        Number     `json:"target_error"` // share of the total
	Confidence   Number     `json:"confidence"`
	Threshold    Number     `json:"threshold"`
	Items        Number     `json:"items"`
	Total        Number     `json:"total"` // weight
	Alpha        Number     `json:"alpha"` // 0: unknown
	SourceReplay bool       `json:"source_replay"`
	Compensate   bool       `json:"compensate"`
	Workers      int        `json:"workers"`
	Compute      int        `json:"compute"`
	Failures     uint64     `json:"expected_failures"`
	Theta        Number     `json:"theta"`
	L            uint64     `json:"l"`
	Gamma        uint64     `json:"gamma"`
	Series       string     `json:"series"`
	Rows         int        `json:"rows"`
	Width        int        `json:"width"`
	ErrorBound   Number     `json:"error_bound"`   // what is promised, at most Error
	SketchError  Number     `json:"sketch_error"`  // too high, with the confidence; share of the total
	FailureError Number     `json:"failure_error"` // by failures, certain; share of the total
	SureShare    Number     `json:"sure_share"`    // keys from here on are certain to be reported
	FalseShare   Number     `json:"false_share"`   // keys below are reported with probability 1-confidence at most
	Memory       Number     `json:"memory_bytes"`
	Cost         Forecast   `json:"cost"`
	Others       []Forecast `json:"other_series"`
	// Command runs the job with these settings: the program and its arguments. The program is called afstream unless
	// the caller says otherwise. The plan of a running job has none.
	Command []string `json:"command,omitempty"`
}

// Forecast is errorbound.Prediction with figures that JSON can always hold. Rates are those of one worker.
type Forecast struct {
	Series            string `json:"series"`
	FailuresPerWorker uint64 `json:"failures_per_worker"`
	FirstTheta        Number `json:"first_theta"` // of one partition, before its worker has failed
	LastTheta         Number `json:"last_theta"`  // after the expected failures
	BudgetLeft        Number `json:"budget_left"` // share of a worker's budget, after them
	ElementsPerSecond Number `json:"elements_per_second"`
	CommitsPerSecond  Number `json:"commits_per_second"`
	BytesPerSecond    Number `json:"bytes_per_second"`
	Slowdown          Number `json:"slowdown"` // part of the throughput
}

func forecastOf(p errorbound.Prediction) Forecast {
	return Forecast{
		Series: p.Series.String(), FailuresPerWorker: p.FailuresPerWorker, FirstTheta: Number(p.FirstTheta),
		LastTheta: Number(p.LastTheta), BudgetLeft: Number(p.BudgetLeft), ElementsPerSecond: Number(p.ElementsPerSecond),
		CommitsPerSecond: Number(p.CommitsPerSecond), BytesPerSecond: Number(p.BytesPerSecond), Slowdown: Number(p.Slowdown),
	}
}

// PlanHeavyHitter plans the job heavy-hitter for a target. The error wraps ErrSettings and errorbound.ErrPlan.
func PlanHeavyHitter(t errorbound.HeavyHitterTarget) (*Plan, error) {
	p, _, err := planHeavyHitter(t)
	return p, err
}

func planHeavyHitter(t errorbound.HeavyHitterTarget) (*Plan, *errorbound.HeavyHitterPlan, error) {
	t.Workers, t.Compute = max(t.Workers, 1), max(t.Compute, 1)
	p, err := t.Plan()
	if err == nil && p.Sketch.Rows*p.Sketch.Width > countmin.MaxCells {
		err = fmt.Errorf("%w: a sketch of %d x %d counters is too large: want a larger error", errorbound.ErrPlan,
			p.Sketch.Rows, p.Sketch.Width)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrSettings, err)
	}
	plan := &Plan{
		Job: HeavyHitterName, Error: Number(t.Error), Confidence: Number(t.Confidence), Threshold: Number(t.Threshold),
		Items: Number(t.Items), Total: Number(t.Total()), Alpha: Number(t.Alpha), SourceReplay: !t.Pipe,
		Compensate: t.Compensated, Workers: t.Workers, Compute: t.Compute, Failures: t.Failures,
		Theta: Number(p.Theta), L: p.L, Gamma: p.Gamma, Series: p.Series.String(),
		Rows: p.Sketch.Rows, Width: p.Sketch.Width,
		ErrorBound: Number(p.Bound(t.Compensated)), SketchError: Number(p.SketchError), FailureError: Number(p.FailureError),
		SureShare: Number(p.SureShare), FalseShare: Number(p.FalseShare), Memory: Number(p.Memory),
		Cost: forecastOf(p.Cost), Others: make([]Forecast, 0, len(p.Others)),
	}
	for _, o := range p.Others {
		plan.Others = append(plan.Others, forecastOf(o))
	}
	plan.Command = plan.command()
	return plan, &p, nil
}

// command returns a command line with all settings. Counted items are made up; weights have to come from somewhere.
func (p *Plan) command() []string {
	exact := func(n Number) string { return strconv.FormatFloat(float64(n), 'f', -1, 64) }
	args := []string{"afstream", "run", p.Job}
	if p.Total == p.Items && p.Items == Number(math.Trunc(float64(p.Items))) && p.Items < 1<<53 {
		args = append(args, "--items", exact(p.Items))
	} else {
		args = append(args, "--input", "FILE", "--weight", "COLUMN")
	}
	args = append(args, "--workers", strconv.Itoa(p.Workers), "--compute", strconv.Itoa(p.Compute),
		"--threshold", exact(p.Threshold), "--rows", strconv.Itoa(p.Rows), "--width", strconv.Itoa(p.Width),
		"--theta", exact(p.Theta), "--l", strconv.FormatUint(p.L, 10), "--gamma", strconv.FormatUint(p.Gamma, 10),
		"--series", p.Series)
	if p.Alpha > 0 {
		args = append(args, "--alpha", exact(p.Alpha))
	}
	if !p.SourceReplay {
		args = append(args, "--source-replay=false")
	}
	if p.Compensate {
		args = append(args, "--compensate")
	}
	return args
}

// WriteJSON writes the plan as one indented JSON object.
func (p *Plan) WriteJSON(w io.Writer) error {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("encode plan: %w", err)
	}
	if _, err := w.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	return nil
}

// targetFaults returns what is wrong with a target beside what the planner finds.
func (h *HeavyHitter) targetFaults() []error {
	if h.Target.Error == 0 {
		return nil
	}
	var faults []error
	if h.Guarantee != worker.Approximate {
		faults = append(faults, fmt.Errorf("guarantee %v has no thresholds to be planned: it cannot have a target", h.Guarantee))
	}
	if !(h.Target.Total >= 0 && !math.IsInf(h.Target.Total, 1)) {
		faults = append(faults, fmt.Errorf("total %v of the target: want a number of at least 0", h.Target.Total))
	}
	return faults
}

// aim works out the settings that keep the target and takes them.
func (h *HeavyHitter) aim(ctx context.Context, in *keyedInput) (*Plan, error) {
	size, err := h.measure(ctx, in)
	if err != nil {
		return nil, err
	}
	t, weight := h.Target, size.total/size.items
	if in.alpha > 0 {
		weight = min(weight, in.alpha) // equal weights have a mean that rounding may put above them
	}
	plan, p, err := planHeavyHitter(errorbound.HeavyHitterTarget{
		Workload: errorbound.Workload{
			Items: size.items, Weight: weight, Alpha: in.alpha, Pipe: h.PipeSources,
			Workers: h.Workers, Compute: h.Compute, Series: t.Series,
			Failures: max(t.Failures, uint64(len(h.Faults)+h.RandomFaults)),
		},
		Error: t.Error, Confidence: t.Confidence, Threshold: h.Threshold, Compensated: h.Compensate, Memory: t.Memory,
	})
	if err != nil {
		return nil, err
	}
	h.Params, h.Rows, h.Width = p.Params, p.Sketch.Rows, p.Sketch.Width
	plan.Command = nil // it is being run
	return plan, nil
}

// extent is how much there is in an input.
type extent struct{ items, total, largest float64 }

// measure finds out how much there is to come: the total that is given, the items of the generator, or what a first
// reading finds. That also finds the largest weight, which makes the job faster if it was not known.
func (h *HeavyHitter) measure(ctx context.Context, in *keyedInput) (extent, error) {
	if h.Target.Total > 0 {
		weight := 1.0
		if in.alpha > 0 {
			weight = in.alpha
		}
		return extent{items: max(1, h.Target.Total/weight), total: h.Target.Total}, nil
	}
	if h.Input.Path == "" {
		n := float64(h.Generator.Items)
		return extent{items: n, total: n}, nil
	}
	if !in.replayable {
		return extent{}, fmt.Errorf("%w: %s can be read only once, so that the target error, a share of its total weight,"+
			" is not known before: give the total of the target, or write it to a file first", ErrSettings, in.name)
	}
	if h.Runner != nil {
		return extent{}, fmt.Errorf("%w: the target error is a share of the total weight of %s, which a cluster does not read beforehand:"+
			" give the total of the target", ErrSettings, in.name)
	}
	e, err := readExtent(ctx, in.open, h.progress(PhaseMeasure))
	if err != nil {
		return e, err
	}
	if h.Alpha == 0 && e.largest > 0 {
		in.alpha = e.largest
	}
	if e.largest == 0 { // no weight at all: any plan will do
		e.items = max(e.items, 1)
		e.total = e.items
	}
	return e, nil
}

// readExtent reads the whole input. A ctx that ends makes an error that wraps ErrInterrupted.
func readExtent(ctx context.Context, open stream.NewSource[connector.Keyed], progress func(done, total int64)) (e extent, err error) {
	source, err := open(0, 1)
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	size, _ := source.(stream.Progresser)
	slab := make([]connector.Keyed, stream.SlabItems)
	for ctx.Err() == nil {
		n, err := source.Read(slab)
		for i := range slab[:n] {
			e.total += slab[i].Weight
			e.largest = max(e.largest, slab[i].Weight)
		}
		e.items += float64(n)
		if progress != nil && size != nil {
			progress(size.Progress())
		}
		if err == io.EOF {
			return e, nil
		}
		if err != nil {
			return e, err
		}
	}
	return e, interrupted(nil, "while the input was measured")
}

// WriteText writes the plan for people.
func (p *Plan) WriteText(w io.Writer) error {
	var b bytes.Buffer
	for _, write := range []func(*bytes.Buffer) error{p.writeSettings, p.writeCosts} {
		if err := write(&b); err != nil {
			return err
		}
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	return nil
}
