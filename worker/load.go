package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/ringbuf"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/threshold"
)

// ErrOperator is wrapped by the errors of Load about an operator whose abilities do not fit its job.
var ErrOperator = errors.New("operator cannot be made fault tolerant")

// Load makes an incarnation of a worker: it opens its operators, restores their state from the newest backup and
// reads their item logs. Loading fences the store: from then on the incarnations before it can save nothing more.
// When it fails, what it had opened is closed.
func Load(ctx context.Context, cfg Config) (*Worker, error) {
	w := &Worker{cfg: cfg, log: cfg.Log, stats: &Stats{}}
	_, w.unscalable = cfg.Node.Division(nil)
	w.undone.Store(int32(cfg.Node.Compute))
	if err := w.guard("is being loaded", func() error { return w.load(ctx) }); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *Worker) load(ctx context.Context) error {
	if !w.cfg.Node.IsSink {
		w.down = &downstream{w: w, park: ringbuf.NewParker()}
	}
	if w.cfg.Node.IsSource {
		return w.loadSources()
	}
	w.replay = ReplayOf(w.cfg.Node, w.cfg.Guarantee)
	w.up = &upstream{w: w, park: ringbuf.NewParker(), channels: make([][][]*inChannel, len(w.cfg.Node.Inputs))}
	for i := range w.cfg.Node.Compute {
		if err := w.loadOperator(ctx, i); err != nil {
			return err
		}
	}
	w.seatPeers()
	return nil
}

// ReplayOf says how the output of an operator can be had again, before any of its workers is loaded. Of a source it
// supposes that it can go back, as Worker.Replay knows once it was opened.
func ReplayOf(n *stream.Node, g Guarantee) Replay {
	switch {
	case g == None:
		return Live
	case n.IsSource:
		return Rewinds
	case n.EmitOnClose:
		return Retains
	case g.batches() && emits(n):
		return Remakes
	}
	return AtRisk
}

// init sets up what all partitions have.
func (c *core) init(w *Worker, i int) {
	c.w, c.index, c.park = w, w.cfg.partition(i), ringbuf.NewParker()
	if w.cfg.Store == nil {
		return
	}
	key := backup.PartitionKey{
		Job: w.cfg.Job.Name, Incarnation: w.cfg.Job.Incarnation, Operator: w.cfg.Node.Name, Partition: c.index, Layout: w.cfg.Layout,
	}
	c.store = backup.OpenPartition(w.cfg.Store, key, w.cfg.Epoch)
}

// addLane connects a partition's exit to the downstream stage.
func (w *Worker) addLane(c *core) *lane {
	c.exit.lazy = !w.cfg.Node.IsSource || w.replay == Rewinds // a pipe may make its reader wait at any time
	if w.replay == AtRisk {
		c.exit.sender = threshold.NewSender(w.budget.Gamma)
		if w.budget.Gamma < smallWindow { // its receivers would be told only when there is no credit left
			c.exit.lazy = false
			c.park.WatchClosely()
			w.down.park.WatchClosely()
		}
	}
	l := &lane{core: c, rewinds: ringbuf.NewSPSC[rewind](16)}
	for range c.exit.channels {
		l.channels = append(l.channels, &outChannel{})
	}
	w.down.lanes = append(w.down.lanes, l)
	return l
}

func (w *Worker) loadSources() error {
	w.budget = split(&w.cfg, stream.Measure{}, w.cfg.remembered(w.cfg.startLevel()))
	w.replay = ReplayOf(w.cfg.Node, w.cfg.Guarantee)
	for i := range w.cfg.Node.Compute {
		if err := w.openSource(i); err != nil {
			return fmt.Errorf("open %s: %w", w.cfg.name(), err)
		}
	}
	for i, s := range w.sources {
		if err := w.loadSource(i, s); err != nil {
			return fmt.Errorf("restore %s: %w", w.cfg.name(), err)
		}
		w.restored(i, s.exit.level)
	}
	return nil
}

// restored takes note of the window that a partition had closed when its backup was made.
func (w *Worker) restored(i int, level uint64) {
	if i == 0 || level < w.level {
		w.level = level
	}
}

// openSource makes one partition of a source. If one of them cannot go back, all are read like pipes.
func (w *Worker) openSource(i int) error {
	s := &source{}
	s.init(w, i)
	s.exit = newExit(&s.core)
	var running any
	if w.cfg.Before != nil && len(w.cfg.Before.sources) > i {
		running = w.cfg.Before.sources[i]
	}
	task, err := w.cfg.Node.NewSource(s.index, s.exit, running)
	if err != nil {
		return err
	}
	s.task = task
	w.sources = append(w.sources, s)
	s.progress, _ = task.Source().(stream.Progresser)
	s.windows, _ = task.(stream.WindowedTask)
	if _, ok := task.Source().(stream.Replayable); w.replay == Rewinds && (!ok || w.cfg.PipeSources) {
		w.replay = AtRisk
	}
	return nil
}

// loadSource lets a source go on where its predecessor was: from the committed waypoint if it can go back, else where the
// pipe stands.
func (w *Worker) loadSource(i int, s *source) error {
	l := w.addLane(&s.core)
	s.rewinds = l.rewinds
	var before Remains
	if w.cfg.Before != nil {
		before = w.cfg.Before.Partition[i]
		s.furthest.Store(before.Read)
	}
	if w.replay != Rewinds {
		s.base, s.read, s.exit.level = before.Read, before.Read, before.Level
		if before.Ended {
			s.exit.level-- // the end of the stream is still to be sent, under the same number
		}
		if s.windows != nil {
			s.windows.Reopen(s.exit.level, before.Open, before.Read)
		}
		return nil
	}
	s.seek = s.task.Source().(stream.Replayable)
	first := waypoint{position: s.seek.Position(), next: make([]uint64, len(s.exit.next))}
	s.waypoints = []waypoint{first}
	s.owed = make([]uint64, len(s.exit.next))
	r, err := s.load()
	if r == nil && err == nil {
		return s.adopt()
	}
	if err != nil {
		return err
	}
	if err := first.decode(r.Source); err != nil {
		return fmt.Errorf("position of the source in the backup: %w", err)
	}
	if n := len(s.exit.next); len(r.Outputs) != n {
		return fmt.Errorf("the backup has %d output channels, the topology %d: use another --backup-dir", len(r.Outputs), n)
	}
	copy(first.next, r.Outputs)
	for ordinal, ch := range l.channels {
		ch.sent = first.next[ordinal] // which the receivers have committed
	}
	s.waypoints[0] = first
	s.furthest.Store(max(first.position.Item+first.skip, before.Read))
	return s.start(first)
}

func (w *Worker) loadOperator(ctx context.Context, i int) error {
	o := &operator{in: ringbuf.NewSPSC[delivery](ringSlabs), writer: stream.NewStateWriter(nil, true)}
	o.init(w, i)
	if !w.cfg.Node.IsSink {
		o.exit = newExit(&o.core)
	}
	var err error
	if o.task, err = w.cfg.Node.NewTask(o.index, o.exit); err != nil {
		return fmt.Errorf("open %s: %w", w.cfg.name(), err)
	}
	if open, ok := o.task.Operator().(stream.Opener); ok {
		at := stream.Placement{Operator: w.cfg.Node.Name, Partition: o.index, Partitions: w.cfg.Node.Partitions(), Epoch: w.cfg.Epoch}
		if err := open.Open(ctx, at); err != nil {
			return fmt.Errorf("open %s: %w", w.cfg.name(), err)
		}
	}
	o.state = abilities(o.task.Operator())
	_, w.unscalable = w.cfg.Node.Division(o.task.Operator())
	if m, ok := o.task.Operator().(stream.Measurer); ok {
		o.measure = m.Measure()
	}
	o.k = w.cfg.remembered(w.cfg.startLevel())
	w.budget = w.cfg.halve(split(&w.cfg, o.measure, o.k))
	w.budget.Theta = w.cfg.thetaAfter(w.cfg.Failures, o.measure, w.budget.Theta)
	if err := o.promise(); err != nil {
		return fmt.Errorf("operator %q: %w: %w", w.cfg.Node.Name, ErrOperator, err)
	}
	if o.exit != nil {
		w.addLane(&o.core)
	}
	w.operators = append(w.operators, o)
	o.listen(i)
	if err := o.restore(); err != nil {
		return err
	}
	level := o.closed.Number
	if o.pending {
		level-- // this close is still to run
	}
	w.restored(i, level)
	if err := o.openBack(); err != nil {
		return err
	}
	if err := o.openDesk(); err != nil {
		return err
	}
	w.up.arrivals = append(w.up.arrivals, &arrivals{machine: o.receiver()})
	return nil
}

// promise decides when the partition commits, from what its operator can do.
func (o *operator) promise() error {
	cfg := &o.w.cfg
	s := &o.state
	if t, ok := o.task.Operator().(stream.Thresholder); ok {
		t.SetTheta(o.w.budget.Theta)
	}
	if err := o.mayHandOver(); err != nil {
		return err
	}
	_, harmless := o.task.Operator().(stream.Idempotent)
	o.repeats = cfg.emits() && !harmless
	if cfg.Guarantee == None {
		o.plan.never = true
		return nil
	}
	switch {
	case (s.backup == nil) != (s.restore == nil):
		return errors.New("BackupState and RestoreState come in pairs")
	case s.divergence != nil && s.backup == nil:
		return errors.New("StateDivergence needs BackupState and RestoreState")
	case cfg.Node.EmitOnClose && s.backup == nil:
		return errors.New("EmitOnClose needs BackupState and RestoreState: a close is run again from its backup")
	case s.backup != nil && s.divergence == nil && !o.counts() && !cfg.Guarantee.batches() && (cfg.emits() || cfg.InputsAtRisk):
		return errors.New("BackupState without StateDivergence needs EmitOnClose and inputs that can be had again")
	}
	if cfg.Node.IsSink && cfg.Node.Windowed && s.flush == nil {
		return errors.New("its results are committed window by window, and the sink has no Flush to make them safe")
	}
	if cfg.Guarantee.batches() {
		return o.promiseBatches(cmp.Or(cfg.Batch, batchItems))
	}
	if o.rebuild.op = o.rebuildable(); o.rebuild.on() {
		o.w.rebuilds = true
		if t, ok := o.task.Operator().(stream.Thresholder); ok {
			t.SetTheta(math.Inf(1)) // nothing need be tracked
		}
	} else if s.divergence != nil {
		o.policy = o.newPolicy(o.w.budget.Theta)
	}
	switch {
	case o.repeats:
		o.marks = threshold.NewMarks(o.w.budget.L)
	case cfg.Node.IsSink && cfg.InputsAtRisk:
		if s.flush == nil {
			return errors.New("its input cannot be had again, and the sink has no Flush to make what it was given safe")
		}
		o.flushes = true
		o.marks = threshold.NewMarks(o.w.budget.L)
	case o.policy != nil || s.flush != nil || harmless:
		o.plan.every = replayLimit
	}
	return nil
}

// receiver makes the machine that acknowledges what is at risk.
func (o *operator) receiver() *threshold.Receiver {
	if o.flushes {
		return threshold.NewSinkReceiver(o.w.budget.L)
	}
	return threshold.NewReceiver(o.w.budget.L)
}

// counts says that the operator is a sink whose state tells how much of what it has flushed counts: it goes with each
// position that becomes durable, so that what was flushed for a commit that a failure prevented can be taken back.
func (o *operator) counts() bool {
	return o.w.cfg.Node.IsSink && o.state.flush != nil && o.state.backup != nil && o.state.divergence == nil
}

// promiseBatches is promise for the guarantees that do not go by divergence.
func (o *operator) promiseBatches(batch uint64) error {
	cfg := &o.w.cfg
	_, told := o.task.Operator().(stream.Thresholder) // theta is 0, so it saves all that has changed
	o.plan.unsure = cfg.Guarantee == UpstreamBackup && o.state.divergence != nil && !told
	switch {
	case cfg.InputsAtRisk:
		return fmt.Errorf("guarantee %v needs inputs that can be had again", cfg.Guarantee)
	case cfg.Node.IsSink && o.state.flush == nil:
		if cfg.fed() {
			return errors.New("its items are committed as they come, and the sink has no Flush to make them safe")
		} // else only its Close makes them so
	case cfg.Guarantee == MiniBatch:
		o.plan.whole, o.plan.every = true, batch
	case cfg.emits() || cfg.Node.IsSink:
		o.marks = threshold.NewMarks(2 * batch) // it begins a commit after half of them, and stops where that is not durable
	default:
		o.plan.every = batch
	}
	return nil
}

// listen makes the partition's input channels.
func (o *operator) listen(part int) {
	w := o.w
	ids := w.inputChannels(o.index)
	o.inputs = make([]backup.Input, len(ids))
	o.flightInputs = make([]backup.Input, len(ids))
	o.committed = make([]atomic.Uint64, len(ids))
	outputs := 0
	if o.exit != nil {
		outputs = len(o.exit.next)
	}
	o.remake.init(len(ids), outputs)
	o.ends.levels = make([]uint64, len(ids))
	for i, e := range w.cfg.Node.Inputs {
		w.up.channels[i] = append(w.up.channels[i], make([]*inChannel, e.From.Partitions()))
	}
	for i, id := range ids {
		o.inputs[i].Channel = channelID(id)
		ch := &inChannel{id: id, input: i}
		ch.before.ProcessedEpoch, ch.before.Epoch = noEpoch, noEpoch
		if w.cfg.Before != nil {
			ch.before = w.cfg.Before.Partition[part].Inputs[i]
		}
		w.up.channels[id.Edge][part][id.From] = ch
	}
}
