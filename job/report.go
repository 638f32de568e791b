package job

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
)

// Report is what a job has done. Its JSON names are stable: programs read them.
type Report struct {
	Job            string        `json:"job"`
	Input          string        `json:"input"`
	Guarantee      string        `json:"guarantee"`
	SourceReplay   bool          `json:"source_replay"` // the input can be read again, and was where needed
	Interrupted    bool          `json:"interrupted"`
	Items          uint64        `json:"items"` // read, each once
	Seconds        Number        `json:"seconds"`
	ItemsPerSecond Number        `json:"items_per_second"`
	SkippedRows    int64         `json:"skipped_rows"` // bad rows that were left out
	IgnoredRows    int64         `json:"ignored_rows"` // rows without an item: packets that are not IP
	Theta          Number        `json:"theta"`
	L              uint64        `json:"l"`
	Gamma          uint64        `json:"gamma"`
	Series         string        `json:"series"`
	Compensate     bool          `json:"compensate"`
	Workers        int           `json:"workers"`
	Compute        int           `json:"compute"`
	Failures       []Failure     `json:"failures"`
	Unreached      []string      `json:"unreached_failures"` // injected failures whose time never came
	Backups        Backups       `json:"backups"`
	Verify         *Verification `json:"verify,omitempty"`
	Outcome        Outcome       `json:"result"`
}

// Failure is controller.Failure with figures that JSON can always hold.
type Failure struct {
	Operator         string `json:"operator"`
	Worker           int    `json:"worker"`
	AtItem           uint64 `json:"at_item"`           // items the worker had processed in this incarnation
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
	ItemCommits  uint64 `json:"item_commits"` // writes of items to the item log
	Bytes        uint64 `json:"bytes"`
	Seconds      Number `json:"seconds"` // from the start of each until it was durable, added up
}

// Outcome is what the job found.
type Outcome struct {
	HeavyHitters []HeavyKey `json:"heavy_hitters"` // heaviest first
	Threshold    Number     `json:"threshold"`     // share of the total
	Total        Number     `json:"total"`         // weight of all items, as far as failures left it
}

// HeavyKey is one heavy hitter.
type HeavyKey struct {
	Rank     int           `json:"rank"`
	Key      connector.Key `json:"key"`
	Estimate Number        `json:"estimate"`
	Share    Number        `json:"share"`
}

func (h *HeavyHitter) report(in *input, a *answer, result *controller.Result) *Report {
	r := &Report{
		Job: HeavyHitterName, Input: in.name, Guarantee: h.Guarantee.String(), SourceReplay: !h.PipeSources,
		Interrupted: result.Interrupted, Items: result.Items, Seconds: Number(result.Seconds),
		Theta: Number(h.Theta), L: h.L, Gamma: h.Gamma, Series: h.Series.String(), Compensate: h.Compensate,
		Workers: h.Workers, Compute: h.Compute,
		Failures: make([]Failure, 0, len(result.Failures)), Unreached: []string{},
		Outcome: Outcome{HeavyHitters: []HeavyKey{}, Threshold: Number(h.Threshold), Total: Number(a.total)},
	}
	r.SkippedRows, r.IgnoredRows = in.rows.totals()
	if result.Seconds > 0 {
		r.ItemsPerSecond = Number(float64(result.Items) / result.Seconds)
	}
	for _, f := range result.Failures {
		r.Failures = append(r.Failures, failureOf(f))
	}
	for _, f := range result.Unreached {
		r.Unreached = append(r.Unreached, f.String())
	}
	for _, o := range result.Operators {
		r.Backups.StateCommits += o.StateCommits
		r.Backups.ItemCommits += o.ItemCommits
		r.Backups.Bytes += o.Bytes
		r.Backups.Seconds += Number(o.Seconds)
	}
	for _, row := range a.rows.Items() {
		r.Outcome.HeavyHitters = append(r.Outcome.HeavyHitters, HeavyKey{
			Rank: row.Rank, Key: row.Key, Estimate: Number(row.Estimate), Share: Number(row.Share),
		})
	}
	return r
}

func failureOf(f controller.Failure) Failure {
	return Failure{
		Operator: f.Operator, Worker: f.Worker, AtItem: f.AtItem, Epoch: f.Epoch, Divergence: Number(f.Divergence),
		DivergenceBudget: Number(f.DivergenceBudget), RecoverySeconds: Number(f.RecoverySeconds),
		Replayed: f.Replayed, Lost: f.Lost,
	}
}

// WriteJSON writes the report as one indented JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	if _, err := w.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
