package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/worker"
)

// Options says how a job runs. The zero value tolerates no error: every item is backed up, and a failure may still cost the
// one item that a sender must be allowed (errorbound.Params.Overdraft).
type Options struct {
	// Theta, L, Gamma bound the error of all failures together: see errorbound.Params.
	errorbound.Params
	// Guarantee is what the job promises; default Approximate.
	Guarantee worker.Guarantee
	// Allocate is how Theta is divided among the workers of each operator; default Equal.
	Allocate Allocation
	// Batch is how many items a partition processes between two backups under MiniBatch and UpstreamBackup; default 65,536.
	Batch uint64
	// PipeSources reads every source like a pipe: it cannot go back, and what it has sent is at risk.
	PipeSources bool
	// Store keeps the backups. Nil means memory, which survives the failure of workers but not of the process. RunLocal
	// does not close it.
	Store backup.Store
	// Pin ties compute goroutines to cores by turns, where the system allows it: on Linux, to those that the process may
	// use; elsewhere each has only a thread of its own. It rarely helps where there are more busy goroutines than cores.
	Pin bool
	// Faults are failures to inject.
	Faults []Fault
	// Log takes what operators of the system may want to know; nil discards it.
	Log *slog.Logger
	// OnEvent is told of failures and recoveries as they happen, from the goroutine that runs RunLocal; may be nil.
	OnEvent func(Event)
	// OnProgress is told how much of the input has been read; total is 0 where it is not known. It is called from source
	// goroutines, once per slab, and must be cheap; may be nil.
	OnProgress func(done, total int64)
	// Scale is where changes of the number of workers are asked for, one after the other; may be nil. What is asked for when
	// the job has ended is not answered.
	Scale <-chan Scale

	rebuild uint64              // Config.Rebuild of the workers
	pace    pace                // of Allocate; the zero value is the usual one
	amnesia bool                // for tests: no incarnation is told what the one before it did, as between processes
	onStart func(slots []*slot) // for tests: called whenever the workers of a layout run; may be nil
}

// validate joins all faults of o but those of Faults.
func (o *Options) validate() error {
	err := o.Params.Validate()
	if !o.Guarantee.Known() {
		err = errors.Join(err, fmt.Errorf("controller: there is no guarantee number %d", o.Guarantee))
	}
	if int(o.Allocate) >= len(allocations) {
		err = errors.Join(err, fmt.Errorf("controller: there is no allocation number %d", o.Allocate))
	}
	return err
}

// watchEvery is how often a job is looked at for progress.
const watchEvery = 10 * time.Second

// graceTime is how long workers may take to end once they are told to; only user code can take longer.
const graceTime = 5 * time.Second

// drainTime is how long an interrupted job may take to finish with what it has read.
const drainTime = 1500 * time.Millisecond

// Event is a failure or a recovery.
type Event struct {
	Failure
	Recovered bool // the replacement runs; before that it is only known that the worker failed
}

// Failure is one failure of a worker and what became of it. The JSON names are part of the output of afstream run.
type Failure struct {
	Operator         string  `json:"operator"`
	Worker           int     `json:"worker"`
	AtItem           uint64  `json:"at_item"`           // items it had processed, in all its incarnations, as Fault.Items counts
	Epoch            uint64  `json:"epoch"`             // of the incarnation that failed
	Divergence       float64 `json:"divergence"`        // of its state from the last durable backup
	DivergenceBudget float64 `json:"divergence_budget"` // theta that a partition was held to when it failed
	RecoverySeconds  float64 `json:"recovery_seconds"`  // until the replacement ran
	Replayed         uint64  `json:"replayed"`          // items that the replacement was given again
	Lost             uint64  `json:"lost"`              // items that nobody could give it again
	Repeated         uint64  `json:"repeated"`          // items whose outputs were emitted again
}

// Result is what a job has done.
type Result struct {
	Items       uint64 // read by the sources
	Seconds     float64
	Interrupted bool // the context ended before the input did
	Failures    []Failure
	Unreached   []Fault // injected failures whose time never came
	Operators   []OperatorResult
}

// OperatorResult adds up the workers of one operator, all incarnations included.
type OperatorResult struct {
	Name         string
	Items        uint64 // processed, items processed again and punctuation included
	Emitted      uint64 // sent downstream, punctuation included
	Lost         uint64
	Repeated     uint64
	Duplicates   uint64 // received again and dropped
	Stale        uint64 // of an incarnation of a sender that had failed already, dropped
	Waits        uint64 // times that processing stopped for a backup
	PacesGivenUp uint64 // times that it went on without feedback that it waited for
	StateCommits uint64
	Marks        uint64 // positions made durable without a commit
	ItemCommits  uint64
	Bytes        uint64 // backed up
	Seconds      float64
	Feedback     uint64  // values delivered to it
	FeedbackLost uint64  // values it sent that were replaced by later ones or lost, or that died with it
	Handed       uint64  // values that its partitions have handed one another; see stream.Colleagues
	HandedLost   uint64  // of these, on their way when a worker died: lost, at most
	HandedTwice  uint64  // at most so many were handed over again after a failure although they had counted
	Theta        float64 // thresholds of a partition in its first incarnation
	L, Gamma     uint64
	// Shares are the parts of the operator's Theta in use by its workers at the end, and Changes is how often one was told
	// another; nil and 0 where Theta was divided equally all the time (Options.Allocate). The share of a worker that has
	// failed is smaller than it was: see errorbound.Series.
	Shares  []float64
	Changes uint64
}
