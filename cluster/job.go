package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

var (
	// ErrRecord is wrapped by errors about records and beats that cannot be read.
	ErrRecord = errors.New("cluster: cannot read")

	// ErrTooLarge is wrapped by the error of Job.CheckSize.
	ErrTooLarge = errors.New("cluster: job is too large")
)

// State is what has become of a job.
type State string

// States, in this order; a job that is Finished, Failed or Cancelled stays so.
const (
	Queued    State = "queued"    // not all of its workers have a node yet
	Running   State = "running"   // each has one, or had
	Finished  State = "finished"  // its sinks have finished the stream, durably
	Failed    State = "failed"    // Job.Why says why
	Cancelled State = "cancelled" // somebody wished so
)

// Ended says whether nothing can change any more.
func (s State) Ended() bool { return s == Finished || s == Failed || s == Cancelled }

// Operator is what a controller knows of an operator.
type Operator struct {
	Name    string `json:"name"`
	Workers int    `json:"workers"`
	Compute int    `json:"compute"` // goroutines of each worker
	Source  bool   `json:"source,omitempty"`
	Sink    bool   `json:"sink,omitempty"`
}

// Spec is what a job is.
type Spec struct {
	Name      string     `json:"name"`    // of a program that nodes carry
	Version   string     `json:"version"` // of the program; only nodes that carry just that one are given workers
	Args      []string   `json:"args"`    // flags for it
	Operators []Operator `json:"operators"`
	Backups   []string   `json:"backups,omitempty"`  // names of the backup servers, of which each has all; empty if the job backs up nothing
	Locality  []string   `json:"locality,omitempty"` // nodes to prefer
}

// Never, as a level at which a worker failed, is what will never be forgotten: nobody knows it yet.
const Never = uint64(math.MaxUint64)

// Worker says where one worker shall run, and as what.
type Worker struct {
	Operator string `json:"operator"`
	Index    int    `json:"index"`
	// Node and Session say in which process; empty as long as there is none.
	Node    string `json:"node,omitempty"`
	Session string `json:"session,omitempty"`
	// Epoch is its incarnation, from 1; 0 if it never had a node. Each pair of worker and epoch is given to one session,
	// once.
	Epoch uint64 `json:"epoch"`
	// Failures are those that it has to reckon with, each with the last window that the worker had closed durably, plus
	// one, or Never.
	Failures uint64   `json:"failures"`
	FailedAt []uint64 `json:"failed_at,omitempty"`
	FailedIn []uint64 `json:"failed_in,omitempty"` // the epoch that each of them ended, 0 if it was in an earlier layout; epochs that ended otherwise cost nothing
	// Retire asks its session to end it so that nothing is lost; once it is Retired, its successor costs nothing. Taken back, it
	// asks for the worker to go on, if there is still time.
	Retire bool     `json:"retire,omitempty"`
	Done   bool     `json:"done,omitempty"` // it has finished the stream, durably
	Past   Counters `json:"past"`           // of its earlier incarnations, as far as they were known
}

// Name is how messages call the worker.
func (w *Worker) Name() string { return fmt.Sprintf("%s/%d", w.Operator, w.Index) }

// Counters are what a worker has done, as in worker.Stats and controller.OperatorResult.
type Counters struct {
	Items        uint64 `json:"items,omitempty"` // processed, or read
	Read         uint64 `json:"read,omitempty"`  // of a source: over all incarnations, what was read again not counted twice
	Emitted      uint64 `json:"emitted,omitempty"`
	Replayed     uint64 `json:"replayed,omitempty"`
	Duplicates   uint64 `json:"duplicates,omitempty"`
	Stale        uint64 `json:"stale,omitempty"`
	StateCommits uint64 `json:"state_commits,omitempty"`
	Marks        uint64 `json:"marks,omitempty"`
	ItemCommits  uint64 `json:"item_commits,omitempty"`
	Bytes        uint64 `json:"bytes,omitempty"`
	Nanoseconds  uint64 `json:"nanoseconds,omitempty"` // of backups
	Feedback     uint64 `json:"feedback,omitempty"`
	Waits        uint64 `json:"waits,omitempty"`
}

// Add adds o to c, but for Read, of which the larger one stays.
func (c *Counters) Add(o Counters) {
	c.Items += o.Items
	c.Read = max(c.Read, o.Read)
	c.Emitted += o.Emitted
	c.Replayed += o.Replayed
	c.Duplicates += o.Duplicates
	c.Stale += o.Stale
	c.StateCommits += o.StateCommits
	c.Marks += o.Marks
	c.ItemCommits += o.ItemCommits
	c.Bytes += o.Bytes
	c.Nanoseconds += o.Nanoseconds
	c.Feedback += o.Feedback
	c.Waits += o.Waits
}

// Incident is something that went wrong in a job, and what was done.
type Incident struct {
	At       time.Time `json:"at"`
	Operator string    `json:"operator,omitempty"`
	Worker   int       `json:"worker"`
	Epoch    uint64    `json:"epoch,omitempty"`    // that ended
	Node     string    `json:"node,omitempty"`     // where it had been
	What     string    `json:"what"`               // one line
	Stack    string    `json:"stack,omitempty"`    // of a panic
	Failure  bool      `json:"failure,omitempty"`  // it cost a part of the error budget
	AtItem   uint64    `json:"at_item,omitempty"`  // items processed in all its incarnations, as far as was known
	Recovery float64   `json:"recovery,omitempty"` // seconds from when it was noticed until the next incarnation ran; 0 if that has not been yet
}

// maxHistory is how many incidents a record keeps: the last ones.
const maxHistory = 200

// Job is all that is agreed on about one job.
type Job struct {
	ID        string    `json:"id"`
	Spec      Spec      `json:"spec"`
	State     State     `json:"state"`
	Why       string    `json:"why,omitempty"`
	Term      uint64    `json:"term"` // of the controller that wrote it last; 0 for whoever submitted it
	Submitted time.Time `json:"submitted"`
	Started   time.Time `json:"started,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	// View is those of Spec.Backups that count. It only shrinks, and never to nothing: a server that was lost does not come
	// back, see package backup/copies.
	View []string `json:"view,omitempty"`
	// Layout numbers the divisions of the job's state among partitions, from 1; 0 stands for 1. Epochs of workers of a later
	// layout are beyond all earlier ones.
	Layout    uint64     `json:"layout,omitempty"`
	Scaling   *Scaling   `json:"scaling,omitempty"` // the last change of the number of workers that was asked for; nil if there was none
	Workers   []Worker   `json:"workers"`           // by operator in the order of Spec, then by index
	History   []Incident `json:"history,omitempty"`
	Incidents int        `json:"incidents"`         // how many there were, those that History has no more included
	Cleared   bool       `json:"cleared,omitempty"` // it has ended, and nothing but this record and its results is left of it
}

// NewJob returns the record of a job that is submitted now.
func NewJob(id string, spec Spec, now time.Time) *Job {
	j := &Job{ID: id, Spec: spec, State: Queued, Submitted: now, View: slices.Clone(spec.Backups)}
	for _, o := range spec.Operators {
		for i := range o.Workers {
			j.Workers = append(j.Workers, Worker{Operator: o.Name, Index: i})
		}
	}
	return j
}

// Note adds an incident to the history.
func (j *Job) Note(i Incident) {
	j.Incidents++
	j.History = append(j.History, i)
	if n := len(j.History); n > maxHistory {
		j.History = slices.Delete(j.History, 0, n-maxHistory)
	}
}

// Worker returns one worker, nil if there is none of that name.
func (j *Job) Worker(operator string, index int) *Worker {
	for i := range j.Workers {
		if w := &j.Workers[i]; w.Operator == operator && w.Index == index {
			return w
		}
	}
	return nil
}

// Clone returns a copy that shares nothing that changes.
func (j *Job) Clone() *Job {
	c := *j
	c.View = slices.Clone(j.View)
	c.Spec.Operators = slices.Clone(j.Spec.Operators)
	if j.Scaling != nil {
		s := *j.Scaling
		c.Scaling = &s
	}
	c.Workers = slices.Clone(j.Workers)
	for i := range c.Workers {
		c.Workers[i].FailedAt = slices.Clone(c.Workers[i].FailedAt)
		c.Workers[i].FailedIn = slices.Clone(c.Workers[i].FailedIn)
	}
	c.History = slices.Clone(j.History)
	return &c
}

// Encode returns the record's value.
func (j *Job) Encode() []byte { return encode(j) }

// maxWorkers is what a job may have: as many partitions as job.Engine allows, and some operators more.
const maxWorkers = 1 << 14

// DecodeJob reads a record, and checks that its parts fit each other.
func DecodeJob(value []byte) (*Job, error) {
	j := &Job{}
	if err := decode("a job", value, j); err != nil {
		return nil, err
	}
	if err := j.check(); err != nil {
		return nil, fmt.Errorf("%w a job: %w", ErrRecord, err)
	}
	return j, nil
}

func (j *Job) check() error {
	if err := CheckName("job", j.ID); err != nil {
		return err
	}
	if err := j.checkView(); err != nil {
		return err
	}
	if err := j.checkScaling(); err != nil {
		return err
	}
	next := 0
	for _, o := range j.Spec.Operators {
		if o.Name == "" || o.Workers < 1 || o.Compute < 1 || o.Workers > maxWorkers {
			return fmt.Errorf("operator %q with %d workers of %d", o.Name, o.Workers, o.Compute)
		}
		for i := range o.Workers {
			if next >= len(j.Workers) || j.Workers[next].Operator != o.Name || j.Workers[next].Index != i {
				return fmt.Errorf("worker %s/%d is not where it belongs", o.Name, i)
			}
			next++
		}
	}
	if next != len(j.Workers) {
		return fmt.Errorf("%d workers for %d places", len(j.Workers), next)
	}
	for i := range j.Workers {
		w := &j.Workers[i]
		if uint64(len(w.FailedAt)) != w.Failures || uint64(len(w.FailedIn)) != w.Failures {
			return fmt.Errorf("worker %s has %d failures at %d places in %d epochs", w.Name(), w.Failures, len(w.FailedAt), len(w.FailedIn))
		}
		before := uint64(0)
		for _, epoch := range w.FailedIn {
			if epoch > w.Epoch || epoch <= before && (epoch > 0 || before > 0) { // those of earlier layouts are 0, and come first
				return fmt.Errorf("worker %s of epoch %d failed in epochs %v", w.Name(), w.Epoch, w.FailedIn)
			}
			before = epoch
		}
	}
	return nil
}

// Fail notes that the worker's incarnation has failed. The level at which that was is not known yet.
func (w *Worker) Fail() {
	w.Failures++
	w.FailedAt, w.FailedIn = append(w.FailedAt, Never), append(w.FailedIn, w.Epoch)
}

func (j *Job) checkView() error {
	for i, name := range j.Spec.Backups {
		if err := CheckName("backup server", name); err != nil {
			return err
		}
		if slices.Contains(j.Spec.Backups[:i], name) {
			return fmt.Errorf("backup server %q is named twice", name)
		}
	}
	for i, name := range j.View {
		if !slices.Contains(j.Spec.Backups, name) || slices.Contains(j.View[:i], name) {
			return fmt.Errorf("view %q of backup servers %q", j.View, j.Spec.Backups)
		}
	}
	if len(j.View) == 0 && len(j.Spec.Backups) > 0 {
		return fmt.Errorf("none of the backup servers %q counts", j.Spec.Backups)
	}
	return nil
}

// What a record may need. It is one message, of which NATS takes 1 MiB unless it is told otherwise.
const (
	maxRecord  = 1 << 20
	forHistory = 384 << 10 // with the texts cut as controllers do
	forWorker  = 1 << 9    // what a worker's part grows by: its node, counters, and some failures
)

// CheckSize reports with ErrTooLarge if the record of a job that is submitted leaves too little room for what is to be added to it.
func (j *Job) CheckSize() error {
	bytes := len(j.Encode())
	for _, w := range j.Workers {
		bytes += forWorker + len(w.Operator)
	}
	if bytes > maxRecord-forHistory {
		return fmt.Errorf("%w: %d workers and %d bytes of flags and names make a record of %d bytes, want at most %d: use fewer workers",
			ErrTooLarge, len(j.Workers), len(encode(j.Spec)), bytes, maxRecord-forHistory)
	}
	return nil
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("cluster: %T cannot be encoded: %v", v, err)) // there is nothing in it that could not be
	}
	return b
}

func decode(what string, value []byte, v any) error {
	if err := json.Unmarshal(value, v); err != nil {
		return fmt.Errorf("%w %s: %w", ErrRecord, what, err)
	}
	return nil
}
