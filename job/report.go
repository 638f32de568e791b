package job

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/afstream/afstream/controller"
)

// Report is what a job has done: what every job tells of a run, what it found, A, and if it was verified, how that
// compares with a run without failures, V. Its JSON names are stable: programs read them.
type Report[A answer[V], V verification] struct {
	Summary
	Verify  *V `json:"verify,omitempty"` // nil if the job was not verified
	Outcome A  `json:"result"`
}

// Checks returns each figure that has a bound beside it, nil if the job was not verified.
func (r *Report[A, V]) Checks() []Check {
	if r.Verify == nil {
		return nil
	}
	return (*r.Verify).Checks()
}

// Summary is what every job tells of a run.
type Summary struct {
	Job            string    `json:"job"`
	Input          string    `json:"input"`
	Guarantee      string    `json:"guarantee"`
	Batch          uint64    `json:"batch,omitempty"` // items between two backups, if a number was set
	SourceReplay   bool      `json:"source_replay"`   // the input can be read again, and was where needed
	Interrupted    bool      `json:"interrupted"`
	Items          uint64    `json:"items"` // read, each once
	Seconds        Number    `json:"seconds"`
	ItemsPerSecond Number    `json:"items_per_second"`
	SkippedRows    int64     `json:"skipped_rows"` // bad rows that were left out
	IgnoredRows    int64     `json:"ignored_rows"` // rows without an item: packets that are not IP
	Theta          Number    `json:"theta"`        // as set; 0, and L 0 and Gamma 1, under guarantee error-free
	L              uint64    `json:"l"`
	Gamma          uint64    `json:"gamma"`
	Series         string    `json:"series"`
	Allocate       string    `json:"allocate"`
	Moves          uint64    `json:"allocate_moves"` // times that a worker was told another part of theta
	Compensate     bool      `json:"compensate"`     // what failures may have taken was added back
	Workers        int       `json:"workers"`
	Compute        int       `json:"compute"`
	Pinned         bool      `json:"pinned"` // compute goroutines were tied to cores, if the system allowed it
	Failures       []Failure `json:"failures"`
	Unreached      []string  `json:"unreached_failures"` // injected failures whose time never came
	Backups        Backups   `json:"backups"`
	Plan           *Plan     `json:"plan,omitempty"` // of a job that has a target
}

// Failure is controller.Failure with figures that JSON can always hold.
type Failure struct {
	Operator         string `json:"operator"`
	Worker           int    `json:"worker"`
	AtItem           uint64 `json:"at_item"`           // items the worker had processed, in all its incarnations
	Epoch            uint64 `json:"epoch"`             // of the incarnation that failed
	Divergence       Number `json:"divergence"`        // of its state from the last durable backup
	DivergenceBudget Number `json:"divergence_budget"` // what that could have been at most
	RecoverySeconds  Number `json:"recovery_seconds"`
	Replayed         uint64 `json:"replayed"`
	Lost             uint64 `json:"lost"`
}

// Backups adds up the backups of all workers.
type Backups struct {
	StateCommits uint64 `json:"state_commits"`
	Marks        uint64 `json:"marks"`        // positions made durable without a commit
	ItemCommits  uint64 `json:"item_commits"` // writes of items to the item log
	Bytes        uint64 `json:"bytes"`
	Seconds      Number `json:"seconds"` // from the start of each until it was durable, added up
}

// newReport makes the report of a run that left its result in got.
func newReport[R any, A answer[V], V verification](
	e *Engine, p program[R, A, V], plan *Plan, got *R, result *controller.Result,
) *Report[A, V] {
	return &Report[A, V]{Summary: e.summary(p.name, p.input, plan, result), Outcome: p.answer(got)}
}

func (e *Engine) summary(name string, in *origin, plan *Plan, result *controller.Result) Summary {
	p := e.thresholds()
	s := Summary{
		Job: name, Input: in.name, Guarantee: e.Guarantee.String(), Batch: e.Batch, SourceReplay: !e.PipeSources,
		Interrupted: result.Interrupted, Seconds: Number(result.Seconds),
		Theta: Number(p.Theta), L: p.L, Gamma: p.Gamma, Series: p.Series.String(), Allocate: e.Allocate.String(),
		Workers: e.Workers, Compute: e.Compute, Pinned: e.Pin, Plan: plan,
		Failures: make([]Failure, 0, len(result.Failures)), Unreached: []string{},
	}
	s.SkippedRows, s.IgnoredRows = in.rows.totals()
	s.read(result)
	for _, f := range result.Failures {
		s.Failures = append(s.Failures, failureOf(f))
	}
	for _, f := range result.Unreached {
		s.Unreached = append(s.Unreached, f.String())
	}
	for _, o := range result.Operators {
		s.Moves += o.Changes
		s.Backups.StateCommits += o.StateCommits
		s.Backups.Marks += o.Marks
		s.Backups.ItemCommits += o.ItemCommits
		s.Backups.Bytes += o.Bytes
		s.Backups.Seconds += Number(o.Seconds)
	}
	return s
}

// read fills in how many items were read.
func (s *Summary) read(result *controller.Result) {
	s.Items = result.Items
	if result.Seconds > 0 {
		s.ItemsPerSecond = Number(float64(result.Items) / result.Seconds)
	}
}

func failureOf(f controller.Failure) Failure {
	return Failure{
		Operator: f.Operator, Worker: f.Worker, AtItem: f.AtItem, Epoch: f.Epoch, Divergence: Number(f.Divergence),
		DivergenceBudget: Number(f.DivergenceBudget), RecoverySeconds: Number(f.RecoverySeconds),
		Replayed: f.Replayed, Lost: f.Lost,
	}
}

// WriteJSON writes the report as one indented JSON object.
func (r *Report[A, V]) WriteJSON(w io.Writer) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	if _, err := w.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
