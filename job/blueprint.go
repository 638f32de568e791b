package job

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// ErrCaptured is wrapped by the error of a Run whose Engine.Runner is that of [Capture].
var ErrCaptured = errors.New("captured before it was run")

// Results is where a sink leaves what it found. A connector.Collector is one.
type Results interface {
	// Keep has sinks that are opened from now on leave it in v.
	Keep(v connector.Vault)
	// Recall takes from v what the sink of that name, which has ended, has left there.
	Recall(v connector.Vault, sink string) error
}

// Blueprint is a job that is made and not run: its topology, how it is to be run, and where its results go.
type Blueprint struct {
	Topology  *stream.Topology
	Guarantee worker.Guarantee
	Params    errorbound.Params
	Batch     uint64 // items between two backups, for guarantees that go by that
	Pin       bool
	// Pipe says that an input is read like a pipe: it can or may not be read again.
	Pipe bool
	// Results are those of sinks, by name. Other sinks see to what they are given themselves.
	Results map[string]Results
}

// Keep has the sinks of the job, from now on, leave their results in v.
func (b *Blueprint) Keep(v connector.Vault) {
	for _, r := range b.Results {
		r.Keep(v)
	}
}

// Recall takes the results of the job, which has ended elsewhere, from v.
func (b *Blueprint) Recall(v connector.Vault) error {
	for sink, r := range b.Results {
		if err := r.Recall(v, sink); err != nil {
			return err
		}
	}
	return nil
}

// Operators is what a controller knows of the job. The error wraps ErrSettings.
func (b *Blueprint) Operators() ([]cluster.Operator, error) {
	nodes, err := b.Topology.Build()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSettings, err)
	}
	operators := make([]cluster.Operator, 0, len(nodes))
	for _, n := range nodes {
		operators = append(operators, cluster.Operator{Name: n.Name, Workers: n.Workers, Compute: n.Compute, Source: n.IsSource, Sink: n.IsSink})
	}
	return operators, nil
}

// Runner runs what a job has made, in place of controller.RunLocal in this process; see Engine.Runner.
type Runner func(ctx context.Context, b *Blueprint) (*controller.Result, error)

// Capture returns a Runner that puts the blueprint into b and runs nothing: Run ends with ErrCaptured.
func Capture(b **Blueprint) Runner {
	return func(_ context.Context, made *Blueprint) (*controller.Result, error) {
		*b = made
		return nil, ErrCaptured
	}
}

// Recalled returns a Runner for a job that has been run elsewhere, with that result, and has left what it found in v. The
// report is then that of the run there, and with Verify set it is compared with a run here.
func Recalled(v connector.Vault, result *controller.Result) Runner {
	return func(_ context.Context, b *Blueprint) (*controller.Result, error) {
		if err := b.Recall(v); err != nil {
			return nil, err
		}
		return result, nil
	}
}

// ResultOf is what the record of a finished job in a cluster tells of it. What failures have lost or repeated is known
// only where a job runs in one process, so such figures are 0.
func ResultOf(j *cluster.Job) *controller.Result {
	r := &controller.Result{Interrupted: j.State != cluster.Finished}
	if !j.Started.IsZero() && j.Ended.After(j.Started) {
		r.Seconds = j.Ended.Sub(j.Started).Seconds()
	}
	for _, o := range j.Spec.Operators {
		total := controller.OperatorResult{Name: o.Name}
		for i := range j.Workers {
			w := &j.Workers[i]
			if w.Operator != o.Name {
				continue
			}
			if o.Source {
				r.Items += w.Past.Read
			}
			add(&total, w.Past)
			r.Failures = append(r.Failures, failuresOf(j, w)...)
		}
		r.Operators = append(r.Operators, total)
	}
	return r
}

func add(o *controller.OperatorResult, c cluster.Counters) {
	o.Items += c.Items
	o.Emitted += c.Emitted
	o.Duplicates += c.Duplicates
	o.Stale += c.Stale
	o.Waits += c.Waits
	o.StateCommits += c.StateCommits
	o.Marks += c.Marks
	o.ItemCommits += c.ItemCommits
	o.Bytes += c.Bytes
	o.Seconds += float64(c.Nanoseconds) / 1e9
	o.Feedback += c.Feedback
}

// failuresOf returns the failures of a worker. The history may have forgotten some, which count nevertheless.
func failuresOf(j *cluster.Job, w *cluster.Worker) []controller.Failure {
	var all []controller.Failure
	for _, i := range j.History {
		if i.Failure && i.Operator == w.Operator && i.Worker == w.Index {
			all = append(all, controller.Failure{
				Operator: i.Operator, Worker: i.Worker, AtItem: i.AtItem, Epoch: i.Epoch, RecoverySeconds: i.Recovery,
			})
		}
	}
	if missing := int(w.Failures) - len(all); missing > 0 {
		forgotten := slices.Repeat([]controller.Failure{{Operator: w.Operator, Worker: w.Index}}, missing)
		all = append(forgotten, all...)
	}
	return all
}

// RunTopology runs a topology as e says, wherever that is, for jobs that are not among those of this package. results are
// the collectors of its sinks, by the names of these. The errors are those of the Run of a job.
func (e *Engine) RunTopology(ctx context.Context, t *stream.Topology, results map[string]Results) (*controller.Result, error) {
	if err := settingsError(e.faults()); err != nil {
		return nil, err
	}
	return e.run(ctx, t, results, true)
}

// blueprint is what a Runner is given.
func (e *Engine) blueprint(t *stream.Topology, results map[string]Results) *Blueprint {
	return &Blueprint{
		Topology: t, Guarantee: e.Guarantee, Params: e.Params, Batch: e.batch(), Pin: e.Pin, Pipe: e.PipeSources, Results: results,
	}
}

// resultsOf returns the results of a topology that leaves all of them, of its one sink, in one place. R is that place.
func resultsOf[R any](t *stream.Topology, into *R) (map[string]Results, error) {
	nodes, err := t.Build()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSettings, err)
	}
	results := map[string]Results{}
	for _, n := range nodes {
		if r, ok := any(into).(Results); ok && n.IsSink {
			results[n.Name] = r
		}
	}
	return results, nil
}
