package controller

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/transport"
	"github.com/afstream/afstream/worker"
)

// pipeSlabs is the room of a connection between two workers.
const pipeSlabs = 32

// RunLocal runs a topology in this process until all its sinks have finished. When ctx ends the sources stop reading,
// what they have read is finished if that takes no longer than 1.5 s, and the result says Interrupted. An error is
// returned with the result so far.
func RunLocal(ctx context.Context, t *stream.Topology, o Options) (*Result, error) {
	nodes, err := t.Build()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(o.validate(), checkFaults(nodes, o.Faults)); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &run{o: o, nodes: nodes, events: make(chan ended), finished: make(chan *slot), hinted: map[*stream.Node]bool{}, topology: t, layout: 1, rests: make(chan struct{}, 1)}
	defer func(workers []int) { // the topology is the caller's
		for i, n := range nodes {
			n.Workers = workers[i]
		}
	}(numbersOfWorkers(nodes))
	if o.Guarantee != worker.None {
		if r.o.Store == nil {
			r.o.Store = backup.NewMemory()
			defer r.o.Store.Close()
		}
		incarnation, err := backup.NewIncarnation(r.o.Store, t.Name())
		if err != nil {
			return nil, fmt.Errorf("start job %q: %w", t.Name(), err)
		}
		r.job = worker.Job{Name: t.Name(), Incarnation: incarnation}
	}
	return r.run(ctx)
}

func numbersOfWorkers(nodes []*stream.Node) []int {
	workers := make([]int, len(nodes))
	for i, n := range nodes {
		workers[i] = n.Workers
	}
	return workers
}

// run is one job in this process. Everything but progress and the slots' current workers belongs to one goroutine.
type run struct {
	o         Options
	job       worker.Job
	nodes     []*stream.Node
	slots     []*slot
	byNode    map[*stream.Node][]*slot
	workers   sync.WaitGroup
	events    chan ended
	finished  chan *slot
	stop      context.CancelFunc
	faults    faultPlan
	progress  progress
	result    Result
	replaced  []replacement
	divisions []*division
	moved     uint64 // what had moved at the last look of watch
	hinted    map[*stream.Node]bool

	topology *stream.Topology
	layout   uint64               // see worker.Config
	former   map[*stream.Node]int // partitions in the layout before
	rests    chan struct{}        // a worker may have come to rest
	scaling  *scaling             // nil if the number of workers is not being changed
	round    uint64               // of coming to rest, the last one
}

// slot is one worker through all its incarnations.
type slot struct {
	node     *stream.Node
	index    int
	epoch    uint64
	failures uint64
	failedAt []uint64                      // windows closed when they struck
	failedIn []uint64                      // epochs that they ended
	current  atomic.Pointer[worker.Worker] // nil while it is down
	loaded   *worker.Worker
	replay   worker.Replay // how the output of its workers can be had again
	before   uint64        // items processed by earlier incarnations
	read     uint64        // input read, what was read again not counted twice
	done     bool
	totals   *OperatorResult
	division *division // of its operator's Theta, nil if that is equal
}

func (s *slot) name() string { return fmt.Sprintf("%s/%d", s.node.Name, s.index) }

// ended is the end of one incarnation.
type ended struct {
	slot *slot
	w    *worker.Worker
	err  error
}

// replacement remembers which incarnation took the place of which failure, to fill in what it had to catch up.
type replacement struct {
	failure int
	stats   *worker.Stats
}

func (r *run) run(ctx context.Context) (*Result, error) {
	runCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = stop
	started := time.Now()
	err := r.start(runCtx)
	if err == nil {
		started = time.Now()
		if o := r.o.onStart; o != nil {
			o(r.slots)
		}
		err = r.supervise(ctx, runCtx)
	}
	stop()
	for _, s := range r.slots {
		if s.loaded != nil {
			s.loaded.Close() // a source may be waiting for input
		}
	}
	if stuck := r.gather(); err == nil {
		err = stuck
	}
	r.result.Seconds = time.Since(started).Seconds()
	r.summarise()
	return &r.result, err
}

// gather waits for all workers to end. One that user code holds up for longer than graceTime is named and left behind.
func (r *run) gather() error {
	ended := make(chan struct{})
	go func() { r.workers.Wait(); close(ended) }()
	late := time.NewTimer(graceTime)
	defer late.Stop()
	for {
		select {
		case e := <-r.events:
			r.account(e.slot, e.w)
			e.slot.current.Store(nil)
		case <-ended:
			return nil
		case <-late.C:
			go func() { // nobody waits for them any more
				for range r.events {
				}
			}()
			go func() { <-ended; close(r.events) }()
			return r.stuck()
		}
	}
}

// stuck names the workers that have not ended.
func (r *run) stuck() error {
	var names []string
	for _, s := range r.slots {
		if s.current.Load() != nil {
			names = append(names, s.name())
		}
	}
	return fmt.Errorf("%s did not end within %v of being told to: user code holds them up", strings.Join(names, ", "), graceTime)
}

// start loads, connects and runs the first incarnation of every worker.
func (r *run) start(ctx context.Context) error {
	r.byNode = make(map[*stream.Node][]*slot)
	r.result.Operators = make([]OperatorResult, len(r.nodes))
	for i, n := range r.nodes {
		r.result.Operators[i].Name = n.Name
		for index := range n.Workers {
			s := &slot{node: n, index: index, totals: &r.result.Operators[i]}
			r.slots = append(r.slots, s)
			r.byNode[n] = append(r.byNode[n], s)
		}
	}
	r.faults.plan(r.slots, r.o.Faults)
	r.progress.init(r.nodes)
	for _, s := range r.slots {
		if err := r.load(ctx, s, nil); err != nil {
			return err
		}
		budget := s.loaded.Budget()
		s.totals.Theta, s.totals.L, s.totals.Gamma = budget.Theta, budget.L, budget.Gamma
	}
	if err := r.faults.check(r.slots); err != nil {
		return err
	}
	r.divide()
	r.connectAll()
	r.launchAll(ctx)
	return nil
}

// connectAll connects all workers with each other.
func (r *run) connectAll() {
	for _, s := range r.slots {
		for _, e := range s.node.Outputs {
			for _, to := range r.byNode[e.To] {
				connect(e, s, to, nil)
			}
		}
	}
	for _, s := range r.slots {
		r.connectBack(s)
	}
}

func (r *run) launchAll(ctx context.Context) {
	for _, s := range r.slots {
		r.launch(ctx, s)
	}
}

// connectBack leads the feedback of a worker, sent and received, to the present incarnations of its neighbours.
func (r *run) connectBack(s *slot) {
	for _, e := range s.node.BackOut {
		for _, to := range r.byNode[e.To] {
			if to.loaded != nil {
				worker.ConnectBack(e, s.loaded, to.loaded)
			}
		}
	}
	for _, e := range s.node.BackIn {
		for _, from := range r.byNode[e.From] {
			if from.loaded != nil {
				worker.ConnectBack(e, from.loaded, s.loaded)
			}
		}
	}
}

// load makes the next incarnation of a worker, its epoch and failure count durable first.
func (r *run) load(ctx context.Context, s *slot, before *worker.Autopsy) error {
	s.epoch++
	if r.o.Store != nil {
		owner := fmt.Sprintf("%s/%s/%s/worker-%d", r.job.Name, r.job.Incarnation, s.node.Name, s.index)
		record := backup.WorkerRecord{Epoch: s.epoch, Failures: s.failures}
		if err := backup.SaveIncarnation(r.o.Store, owner, record); err != nil {
			return fmt.Errorf("start %s: %w", s.name(), err)
		}
	}
	dead := before
	if before != nil && before.Retired {
		dead = nil
	}
	grant, err := s.division.grant(r.o.Store, s, dead)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.name(), err)
	}
	if r.o.amnesia {
		before = nil
	}
	w, err := worker.Load(ctx, worker.Config{
		Job: r.job, Node: s.node, Index: s.index, Epoch: s.epoch, Failures: s.failures, FailedAt: s.failedAt, FailedIn: s.failedIn, Grant: grant,
		Guarantee: r.o.Guarantee, Params: r.o.Params, Batch: r.o.Batch, Rebuild: r.o.rebuild, PipeSources: r.o.PipeSources, Store: r.o.Store, Log: r.o.Log,
		Pin: r.o.Pin, PinFirst: r.partitionsBefore(s.node),
		InputsAtRisk: r.inputsAtRisk(s), InputsRewind: r.inputsRewind(s), Before: before, KillAt: r.faults.killAt(s), Layout: r.layout, Former: r.former[s.node],
		OnProgress: func(part int, done, total int64) { r.read(s.node, part, done, total) },
		OnDone:     func() { r.sinkDone(ctx, s) },
		OnRest:     r.rested,
	})
	if err != nil {
		return err
	}
	s.loaded, s.replay = w, w.Replay()
	r.hint(s)
	return nil
}

// partitionsBefore returns how many partitions the operators before n have: neighbours, which work at the same time, are
// then tied to different cores if there are enough.
func (r *run) partitionsBefore(n *stream.Node) int {
	total := 0
	for _, before := range r.nodes {
		if before == n {
			break
		}
		total += before.Partitions()
	}
	return total
}

// senders yields the workers that send to s.
func (r *run) senders(s *slot) iter.Seq[*slot] {
	return func(yield func(*slot) bool) {
		for _, e := range s.node.Inputs {
			for _, from := range r.byNode[e.From] {
				if !yield(from) {
					return
				}
			}
		}
	}
}

// inputsAtRisk says whether a sender of s cannot send again what it has sent.
func (r *run) inputsAtRisk(s *slot) bool {
	for from := range r.senders(s) {
		if from.replay == worker.AtRisk {
			return true
		}
	}
	return false
}

// inputsRewind says whether all senders of s are sources that can be read again.
func (r *run) inputsRewind(s *slot) bool {
	for from := range r.senders(s) {
		if from.replay != worker.Rewinds {
			return false
		}
	}
	return true
}

// sinkDone reports that a worker has finished the stream. Only sinks matter: a job is done when they are.
func (r *run) sinkDone(ctx context.Context, s *slot) {
	if !s.node.IsSink {
		return
	}
	select {
	case r.finished <- s:
	case <-ctx.Done():
	}
}

func (r *run) launch(ctx context.Context, s *slot) {
	w := s.loaded
	s.current.Store(w)
	r.workers.Go(func() {
		err := w.Run(ctx)
		r.events <- ended{slot: s, w: w, err: err}
	})
}

// connect makes a new connection between the present incarnations of two workers. emitted is what the sender's
// previous one had emitted, if it failed just now.
func connect(e *stream.Edge, from, to *slot, emitted [][]uint64) {
	sender, receiver := from.loaded, to.loaded
	if sender == nil || receiver == nil {
		return
	}
	out, in := transport.Pipe(pipeSlabs, sender.DownstreamParker(), receiver.UpstreamParker())
	receiver.AttachInput(worker.Input{
		Edge: worker.InputOf(e), Sender: from.index, Epoch: from.epoch, Replay: sender.Replay(), In: in, Emitted: emitted,
	})
	sender.AttachOutput(worker.Output{Edge: worker.OutputOf(e), Receiver: to.index, Out: out})
}

// supervise waits for workers to end until all sinks have finished.
func (r *run) supervise(ctx, runCtx context.Context) error {
	sinks := 0
	for _, s := range r.slots {
		if s.node.IsSink {
			sinks++
		}
	}
	interrupt, deadline := ctx.Done(), (<-chan time.Time)(nil)
	watch := time.NewTicker(watchEvery)
	defer watch.Stop()
	balance := (<-chan time.Time)(nil)
	if len(r.divisions) > 0 {
		t := time.NewTicker(r.pace().every)
		defer t.Stop()
		balance = t.C
	}
	defer r.endScaling()
	for sinks > 0 {
		scales := r.o.Scale
		if r.scaling != nil {
			scales = nil // one after the other
		}
		select {
		case s := <-scales:
			r.scale(s)
		case <-r.rests:
			if err := r.look(runCtx); err != nil {
				return err
			}
		case s := <-r.finished:
			if !s.done {
				s.done = true
				sinks--
			}
		case e := <-r.events:
			if err := r.handle(runCtx, e); err != nil {
				return err
			}
			r.nextRound() // if the workers are coming to rest
			r.rested()    // the new one may have nothing left to save
		case <-watch.C:
			r.watch()
		case now := <-balance:
			if err := r.rebalance(now); err != nil {
				return err
			}
		case <-interrupt:
			interrupt, deadline = nil, time.After(drainTime)
			r.result.Interrupted = true
			if r.scaling != nil && !r.scaling.settles {
				r.giveUp(errors.New("the job is being interrupted"))
			}
			r.drain()
		case <-deadline:
			return fmt.Errorf("interrupted: the job did not finish what it had read within %v; %s", drainTime, r.busy())
		}
	}
	return nil
}

// watch says what everybody waits for if nothing has moved since the last look.
func (r *run) watch() {
	moved := uint64(0)
	for _, s := range r.slots {
		if s.loaded != nil {
			moved += s.before + s.loaded.Items() + s.loaded.Stats().StateCommits.Load() + s.loaded.Stats().Marks.Load()
		}
	}
	if moved == r.moved {
		level := slog.LevelWarn
		if slices.ContainsFunc(r.slots, func(s *slot) bool { return s.loaded != nil && s.loaded.Reading() }) {
			level = slog.LevelInfo // there is nothing to do
		}
		for _, s := range r.slots {
			if s.loaded != nil {
				r.o.Log.Log(context.Background(), level, "no progress", "operator", s.node.Name, "worker", s.index, "waits_for", s.loaded.Waiting())
			}
		}
	}
	r.moved = moved
}

// busy says what is not idle.
func (r *run) busy() string {
	var on []string
	for _, s := range r.slots {
		if s.loaded != nil {
			on = append(on, fmt.Sprintf("%s waits for %s", s.name(), strings.Join(s.loaded.Waiting(), ", ")))
		}
	}
	return strings.Join(on, "; ")
}

// drain ends the stream at the sources.
func (r *run) drain() {
	for _, s := range r.slots {
		if s.node.IsSource && s.loaded != nil {
			s.loaded.Drain()
		}
	}
}
