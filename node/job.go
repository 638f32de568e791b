package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/backup/copies"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// job is a job as this node knows it, whether it has workers of it or not. It belongs to the host's goroutine.
type job struct {
	record   *cluster.Job // never changed, but replaced
	revision uint64
	workers  map[place]*incarnation
	prepared *preparation // of those; nil before the first
	pipes    map[cluster.Connection]*pipe
}

// place is one worker through all its incarnations.
type place struct {
	operator string
	index    int
}

// change takes the new record of a job. A nil one was deleted.
func (h *host) change(id string, record *cluster.Job, revision uint64) {
	j := h.jobs[id]
	switch {
	case j != nil && revision < j.revision:
		return // a watch that begins anew may tell what is old
	case record == nil:
		if j != nil {
			h.drop(j)
		}
		return
	case record.State.Ended():
		record = &cluster.Job{ID: id, State: record.State} // nothing is assigned, and that is all there is to know
	}
	if j == nil {
		j = &job{workers: map[place]*incarnation{}, pipes: map[cluster.Connection]*pipe{}}
		h.jobs[id] = j
	}
	j.record, j.revision = record, revision
	h.reconcile(j)
}

// forget drops the jobs that have no record any more.
func (h *host) forget(told map[string]bool) {
	for id, j := range h.jobs {
		if !told[cluster.JobKey(id)] {
			h.drop(j)
		}
	}
}

// drop ends all that runs here of a job.
func (h *host) drop(j *job) {
	for at := range j.workers {
		h.end(j, at)
	}
	h.unprepare(j)
	delete(h.jobs, j.record.ID)
}

func (h *host) reconcileAll() {
	for _, j := range h.jobs {
		h.reconcile(j)
	}
}

// reconcile runs what is assigned to this session, ends what is not, and connects. Each incarnation runs once: one that has
// ended stays where it is.
func (h *host) reconcile(j *job) {
	wanted := map[place]*cluster.Worker{}
	for i := range j.record.Workers {
		if w := &j.record.Workers[i]; h.mine(w) {
			wanted[place{w.Operator, w.Index}] = w
		}
	}
	for at, c := range j.workers {
		if w := wanted[at]; w == nil || w.Epoch != c.epoch {
			h.end(j, at)
		}
	}
	if len(wanted) == 0 {
		h.unprepare(j)
		return
	}
	h.narrow(j)
	for i := range j.record.Workers {
		w := &j.record.Workers[i]
		if at := (place{w.Operator, w.Index}); wanted[at] != nil && j.workers[at] == nil {
			h.begin(j, at, w)
		}
	}
	for at, w := range wanted {
		h.obey(j.workers[at], w.Retire)
		h.hold(j.record, j.workers[at])
	}
	h.wire(j)
}

// mine says whether a worker is to run here.
func (h *host) mine(w *cluster.Worker) bool {
	return h.session != "" && w.Node == h.o.Name && w.Session == h.session && w.Epoch > 0
}

// begin starts an incarnation, which waits for those before it.
func (h *host) begin(j *job, at place, w *cluster.Worker) {
	if j.prepared == nil || j.prepared.failed() || j.prepared.layout != j.record.Layout {
		h.unprepare(j)
		j.prepared = h.prepare(j.record)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	c := &incarnation{
		h: h, job: j.record.ID, place: at, epoch: w.Epoch, failures: w.Failures, failedAt: slices.Clone(w.FailedAt),
		failedIn: append([]uint64{}, w.FailedIn...), former: former(j.record, w.Operator),
		prepared: j.prepared, log: h.logOf(j.record.ID, w),
		phase: cluster.Loading, cancel: cancel, ended: make(chan struct{}), wires: newWirer(),
	}
	var before []<-chan struct{}
	for e := range h.ending {
		if e.job == c.job && e.place == at {
			before = append(before, e.ended)
		}
	}
	c.prepared.users++
	j.workers[at] = c
	h.changed = true
	h.tasks.Go(func() {
		c.run(ctx, before)
		h.do(func() { h.gone(c) })
	})
}

// former returns how many partitions an operator had in the layout before that of the record.
func former(record *cluster.Job, operator string) int {
	for i := range record.Spec.Operators {
		if o := &record.Spec.Operators[i]; o.Name == operator {
			return record.FormerWorkers(o) * o.Compute
		}
	}
	return 0
}

// end tells an incarnation to end, and forgets it.
func (h *host) end(j *job, at place) {
	c := j.workers[at]
	delete(j.workers, at)
	h.ending[c] = true
	c.cancel(errAssigned)
	h.changed = true
	maps.DeleteFunc(j.pipes, func(_ cluster.Connection, p *pipe) bool { return p.sender == c || p.receiver == c })
}

// errAssigned is why an incarnation ends that is told to.
var errAssigned = errors.New("it is not assigned here any more")

// gone takes note that the goroutines of an incarnation have ended.
func (h *host) gone(c *incarnation) {
	delete(h.ending, c)
	h.leave(c.prepared)
}

// preparation is what all workers of a job need. Fields but users are written before ready is closed, and never after.
type preparation struct {
	users  int    // incarnations, and the job itself; the host's
	layout uint64 // of the job's state, with the numbers of workers that it has there
	cancel context.CancelFunc
	ready  chan struct{}

	err     error
	blue    *Blueprint
	nodes   []*stream.Node
	job     worker.Job
	store   backup.Store  // nil if the job backs up nothing
	copies  *copies.Store // the same, if it is of several servers
	release func()        // of store; nil if there is none
}

// isReady says whether there is anything to wait for.
func (p *preparation) isReady() bool {
	select {
	case <-p.ready:
		return true
	default:
		return false
	}
}

// failed says whether there is no use in waiting for it.
func (p *preparation) failed() bool { return p.isReady() && p.err != nil }

// node returns an operator by its name.
func (p *preparation) node(operator string) *stream.Node {
	i := slices.IndexFunc(p.nodes, func(n *stream.Node) bool { return n.Name == operator })
	return p.nodes[i] // agree has compared
}

// prepare begins to prepare a job.
func (h *host) prepare(record *cluster.Job) *preparation {
	ctx, cancel := context.WithCancel(context.Background())
	p := &preparation{users: 1, layout: record.Layout, cancel: cancel, ready: make(chan struct{})}
	h.tasks.Go(func() {
		p.err = guard(func() error { return h.makeReady(ctx, record, p) })
		close(p.ready)
		h.do(func() {
			if j := h.jobs[record.ID]; j != nil && j.prepared == p {
				h.narrow(j) // the record may have changed meanwhile
			}
		})
	})
	return p
}

// unprepare has what was prepared for a job cleaned up once nobody uses it. Nobody waits for it any more.
func (h *host) unprepare(j *job) {
	if j.prepared != nil {
		j.prepared.cancel()
		h.giveUp(j.prepared)
		h.leave(j.prepared)
		j.prepared = nil
	}
}

func (h *host) leave(p *preparation) {
	if p.users--; p.users > 0 {
		return
	}
	h.tasks.Go(func() {
		<-p.ready
		if p.release != nil {
			p.release()
		}
	})
}

func (h *host) makeReady(ctx context.Context, record *cluster.Job, p *preparation) error {
	program, err := h.program(record.Spec)
	if err != nil {
		return err
	}
	if p.blue, err = program.Build(ctx, record.Spec.Args); err != nil {
		return fmt.Errorf("build %s: %w", record.Spec.Name, err)
	}
	if p.nodes, err = build(p.blue.Topology, record); err != nil {
		return hopeless(err)
	}
	if err := agree(record.Spec, p.nodes); err != nil {
		return hopeless(err)
	}
	p.job = worker.Job{Name: record.Spec.Name, Incarnation: record.ID}
	if len(record.Spec.Backups) == 0 {
		if p.blue.Guarantee != worker.None {
			return hopeless(fmt.Errorf("guarantee %v needs a backup server, and the job names none", p.blue.Guarantee))
		}
		return nil
	}
	if err := h.openStore(ctx, record, p); err != nil {
		return err
	}
	if p.blue.Keep != nil {
		p.blue.Keep(p.store, p.job)
	}
	return nil
}

// program finds what a job is of.
func (h *host) program(spec cluster.Spec) (Program, error) {
	for _, p := range h.o.Programs {
		switch {
		case p.Name != spec.Name:
		case p.Version != spec.Version:
			return p, hopeless(fmt.Errorf("node %s carries version %q of %s, the job is of version %q", h.o.Name, p.Version, p.Name, spec.Version))
		default:
			return p, nil
		}
	}
	return Program{}, hopeless(fmt.Errorf("node %s carries no program %q", h.o.Name, spec.Name))
}

// build makes the operators of a job, with the numbers of workers that the record says once it has been scaled.
func build(t *stream.Topology, record *cluster.Job) ([]*stream.Node, error) {
	if record.Layout > 1 {
		for _, o := range record.Spec.Operators {
			if err := t.Resize(o.Name, o.Workers); err != nil {
				return nil, err
			}
		}
	}
	return t.Build()
}

// agree says where a topology is not what the controller takes it for.
func agree(spec cluster.Spec, nodes []*stream.Node) error {
	built := make([]cluster.Operator, len(nodes))
	for i, n := range nodes {
		built[i] = cluster.Operator{Name: n.Name, Workers: n.Workers, Compute: n.Compute, Source: n.IsSource, Sink: n.IsSink}
	}
	if !slices.Equal(built, spec.Operators) {
		return fmt.Errorf("%s %s makes a topology here that is not the job's: %+v, not %+v: run one build of the program everywhere",
			spec.Name, strings.Join(spec.Args, " "), built, spec.Operators)
	}
	return nil
}

// hopelessError is an error that trying again would not change.
type hopelessError struct{ error }

func (e hopelessError) Unwrap() error { return e.error }

func hopeless(err error) error { return hopelessError{err} }

func isHopeless(err error) bool {
	var h hopelessError
	return errors.As(err, &h) || errors.Is(err, worker.ErrOperator) || errors.Is(err, ErrArguments)
}

// guard turns a panic of user code into an error.
func guard(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", worker.ErrPanic, r)
		}
	}()
	return f()
}

// watch follows the records of all jobs until ctx ends.
func (h *host) watch(ctx context.Context) {
	for failing := false; ctx.Err() == nil; {
		told, synced := map[string]bool{}, false
		err := h.o.Records.Watch(ctx, cluster.JobPrefix, func(r cluster.Record) {
			if !synced {
				told[r.Key] = true
			}
			h.read(r)
		}, func() {
			synced = true
			h.do(func() { h.forget(told) })
		})
		if err == nil {
			return
		}
		if !failing {
			h.o.Log.Warn("the records of jobs cannot be watched", "node", h.o.Name, "err", err)
		}
		failing = !synced
		if !sleep(ctx, h.o.Beat) {
			return
		}
	}
}

// read passes a record on to the host.
func (h *host) read(r cluster.Record) {
	id := strings.TrimPrefix(r.Key, cluster.JobPrefix)
	if r.Value == nil {
		h.do(func() { h.change(id, nil, r.Revision) })
		return
	}
	record, err := cluster.DecodeJob(r.Value)
	if err == nil && record.ID != id {
		err = fmt.Errorf("%w: it is of job %q", cluster.ErrRecord, record.ID)
	}
	if err != nil {
		h.o.Log.Warn("a record of a job makes no sense here", "key", r.Key, "err", err)
		return
	}
	h.do(func() { h.change(id, record, r.Revision) })
}
