package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/ringbuf"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/threshold"
	"github.com/afstream/afstream/transport"
)

// ErrOperator is wrapped by the errors of Load about an operator whose abilities do not fit its job.
var ErrOperator = errors.New("operator cannot be made fault tolerant")

// Load makes an incarnation of a worker: it opens its operators, restores their state from the newest backup and
// reads their item logs. Loading fences the store: from then on the incarnations before it can save nothing more.
func Load(ctx context.Context, cfg Config) (*Worker, error) {
	w := &Worker{cfg: cfg, log: cfg.Log}
	w.undone.Store(int32(cfg.Node.Compute))
	if !cfg.Node.IsSink {
		w.down = &downstream{w: w, park: ringbuf.NewParker(), attached: ringbuf.NewMPSC[Output](64)}
	}
	if cfg.Node.IsSource {
		return w, w.loadSources()
	}
	w.replay = operatorReplay(&cfg)
	w.up = &upstream{
		w: w, park: ringbuf.NewParker(), attached: ringbuf.NewMPSC[Input](64),
		channels: make([][][]*inChannel, len(cfg.Node.Inputs)),
		logDone:  ringbuf.NewMPSC[logResult](cfg.Node.Compute),
	}
	for i := range cfg.Node.Compute {
		if err := w.loadOperator(ctx, i); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// operatorReplay is how the output of an operator can be had again.
func operatorReplay(cfg *Config) Replay {
	switch {
	case cfg.Guarantee == None:
		return Live
	case cfg.Node.EmitOnClose:
		return Retains
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
		Job: w.cfg.Job.Name, Incarnation: w.cfg.Job.Incarnation, Operator: w.cfg.Node.Name, Partition: c.index,
	}
	c.store = backup.OpenPartition(w.cfg.Store, key, w.cfg.Epoch)
}

// addLane connects a partition's exit to the downstream stage.
func (w *Worker) addLane(c *core) *lane {
	if w.replay == AtRisk {
		c.exit.sender = threshold.NewSender(w.budget.Gamma)
	}
	l := &lane{core: c, rewinds: ringbuf.NewSPSC[rewind](16)}
	for range c.exit.channels {
		l.channels = append(l.channels, &outChannel{})
	}
	w.down.lanes = append(w.down.lanes, l)
	return l
}

// load reads what the store has of a partition; nil if there is nothing or no store.
func (c *core) load() (*backup.Restored, error) {
	if c.store == nil {
		return nil, nil
	}
	r, err := c.store.Load()
	if err != nil {
		return nil, fmt.Errorf("restore %s partition %d: %w", c.w.cfg.Node.Name, c.index, err)
	}
	for _, damage := range r.Damaged {
		c.w.log.Warn("skipped a damaged backup", "operator", c.w.cfg.Node.Name, "partition", c.index, "err", damage)
	}
	if !r.Found {
		return nil, nil
	}
	return r, nil
}

func (w *Worker) loadSources() error {
	w.replay = AtRisk
	if w.cfg.Guarantee == None {
		w.replay = Live
	}
	w.budget = split(&w.cfg, stream.Measure{}, w.cfg.remembered(w.cfg.startLevel()))
	for i := range w.cfg.Node.Compute {
		if err := w.loadSource(i); err != nil {
			return fmt.Errorf("open %s: %w", w.cfg.name(), err)
		}
	}
	return nil
}

func (w *Worker) loadSource(i int) error {
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
	if r, ok := task.Source().(stream.Replayable); ok && w.replay != Live && !w.cfg.PipeSources {
		w.replay, s.seek = Rewinds, r
	}
	s.rewinds = w.addLane(&s.core).rewinds
	if s.seek == nil {
		if w.cfg.Before != nil {
			before := &w.cfg.Before.Partition[i]
			s.read, s.exit.level = before.Read, before.Level
			s.furthest.Store(s.read)
			if s.windows != nil {
				s.windows.Reopen(before.Level, before.Open, before.Read)
			}
		}
		return nil
	}
	if w.cfg.Before != nil {
		s.furthest.Store(w.cfg.Before.Partition[i].Read)
	}
	first := mark{position: s.seek.Position(), next: make([]uint64, len(s.exit.next))}
	r, err := s.load()
	if err != nil {
		return err
	}
	if r == nil {
		s.marks = []mark{first}
		return nil
	}
	if err := first.decode(r.Source); err != nil || len(r.Outputs) != len(s.exit.next) {
		return fmt.Errorf("restore %s: the backup is of another topology: %w", w.cfg.name(), err)
	}
	copy(first.next, r.Outputs)
	s.marks = []mark{first}
	s.furthest.Store(max(first.position.Item, s.furthest.Load()))
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
	if m, ok := o.task.Operator().(stream.Measurer); ok {
		o.measure = m.Measure()
	}
	o.k = w.cfg.remembered(w.cfg.startLevel())
	w.budget = split(&w.cfg, o.measure, o.k)
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
	if err := o.openBack(); err != nil {
		return err
	}
	w.up.arrivals = append(w.up.arrivals, &arrivals{machine: threshold.NewReceiver(w.budget.L)})
	return nil
}

// promise decides when the partition commits, from what its operator can do.
func (o *operator) promise() error {
	cfg := &o.w.cfg
	s := &o.state
	if t, ok := o.task.Operator().(stream.Thresholder); ok {
		t.SetTheta(o.w.budget.Theta)
	}
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
	case s.backup != nil && s.divergence == nil && (cfg.emits() || cfg.InputsAtRisk):
		return errors.New("BackupState without StateDivergence needs EmitOnClose and inputs that can be had again")
	}
	if cfg.Guarantee == MiniBatch {
		if cfg.InputsAtRisk {
			return errors.New("mini-batches need inputs that can be had again")
		}
		o.plan.whole, o.plan.every = true, cmp.Or(cfg.Batch, batchItems)
		return nil
	}
	if s.divergence != nil {
		o.policy = o.newPolicy(o.w.budget.Theta)
	}
	switch {
	case cfg.emits():
		o.marks = threshold.NewMarks(o.w.budget.L)
	case cfg.Node.IsSink && cfg.InputsAtRisk:
		if s.flush == nil {
			return errors.New("its input cannot be had again, and the sink has no Flush to make what it was given safe")
		}
		// What is acknowledged and what is flushed may both lag; each gets half.
		o.halved = true
		o.w.budget.L /= 2
		o.marks = threshold.NewMarks(o.w.budget.L)
	case o.policy != nil || s.flush != nil:
		o.plan.every = replayLimit
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

// restore brings back the state and the positions, and reads the item log.
func (o *operator) restore() error {
	r, err := o.load()
	if err != nil {
		return err
	}
	if r != nil {
		for _, in := range r.Inputs {
			for i := range o.inputs {
				if o.inputs[i].Channel == in.Channel {
					o.inputs[i].Position = in.Position
				}
			}
		}
		o.closed, o.pending = decodeClosing(r.Closing)
		if o.w.replay == Retains {
			if err := o.renumber(r.Outputs); err != nil {
				return err
			}
		}
		if err := o.restoreState(r); err != nil {
			return fmt.Errorf("restore state of %s partition %d: %w", o.w.cfg.Node.Name, o.index, err)
		}
	}
	if c, ok := o.task.Operator().(stream.Compensator); ok && o.w.cfg.Failures > 0 && o.policy != nil {
		o.compensate(c, r)
	}
	if err := o.readLog(); err != nil {
		return fmt.Errorf("read item log of %s partition %d: %w", o.w.cfg.Node.Name, o.index, err)
	}
	o.position()
	return nil
}

// renumber goes on with the output numbers of a commit. The window that was closed last has been counted already unless
// its close is still to run.
func (o *operator) renumber(outputs []uint64) error {
	n := len(o.exit.next)
	if len(outputs) != n+2 {
		return fmt.Errorf("restore %s partition %d: the backup has %d output channels, the topology %d",
			o.w.cfg.Node.Name, o.index, len(outputs)-2, n)
	}
	copy(o.exit.next, outputs)
	o.exit.windows, o.exit.level = outputs[n], outputs[n+1]
	o.task.Resume(o.exit.sent())
	if !o.pending {
		o.exit.level, o.exit.ended = o.closed.Number, o.closed.Last
		o.opened = append(o.opened, o.exit.next...)
	}
	return nil
}

// compensate tells the operator what may have been lost since its restored backup was made: usually by one failure,
// but an incarnation that fails before its first commit takes the compensation for the failures before it along.
func (o *operator) compensate(c stream.Compensator, r *backup.Restored) {
	first := uint64(0)
	if r != nil {
		first = r.Epoch - 1 // the failures before that incarnation
	}
	var theta float64
	var lost uint64
	for k := first; k < o.w.cfg.Failures; k++ {
		b := split(&o.w.cfg, o.measure, k)
		if o.w.cfg.Node.Forget != 0 { // its thresholds may have risen again
			b = split(&o.w.cfg, o.measure, 0)
		}
		theta += b.Theta
		if o.w.cfg.InputsAtRisk {
			lost += b.L
		}
	}
	c.Compensate(theta, lost)
}

// restoreState feeds the chunks of the backup to the operator. Commits may be cut anywhere, so pieces are joined until
// an element is whole.
func (o *operator) restoreState(r *backup.Restored) error {
	if o.state.restore == nil {
		return nil
	}
	reader := stream.NewStateReader(joinPieces(r.Chunks))
	if err := o.state.restore.RestoreState(reader); err != nil {
		return err
	}
	return reader.Err()
}

// joinPieces yields the elements of one commit at a time.
func joinPieces(chunks func() (backup.Chunk, error)) func() ([]byte, error) {
	var joined []byte
	return func() ([]byte, error) {
		joined = joined[:0]
		for {
			c, err := chunks()
			if err != nil {
				if err == io.EOF && len(joined) > 0 {
					return nil, io.ErrUnexpectedEOF
				}
				return nil, err
			}
			if c.End && len(joined) == 0 {
				return c.Data, nil
			}
			if joined = append(joined, c.Data...); c.End {
				return joined, nil
			}
		}
	}
}

// readLog takes the logged items above the committed positions, to be processed before anything else.
func (o *operator) readLog() error {
	if o.store == nil {
		return nil
	}
	return o.store.ScanLog(func(e backup.LogEntry) error {
		for i := range o.inputs {
			if o.inputs[i].Channel == e.Channel {
				return o.replay(i, e)
			}
		}
		return fmt.Errorf("channel %d is not in the topology", e.Channel)
	})
}

func (o *operator) replay(input int, e backup.LogEntry) error {
	edge, from := int(e.Channel>>32), int(uint32(e.Channel))
	d := delivery{
		Frame: transport.Frame{
			Kind: transport.Kind(e.Kind), Channel: transport.Channel{Edge: edge, From: from, To: o.index},
			Epoch: e.Epoch, First: e.First, Count: e.Count,
		},
		input: input, position: e.Epoch,
	}
	if p := o.inputs[input].Position; p.Epoch == e.Epoch && p.Seq > e.First {
		d.skip = int(min(p.Seq-e.First, uint64(e.Count)))
	}
	if d.Kind == transport.Punctuation {
		var err error
		if d.Window, err = decodeWindow(e.Items); err != nil {
			return err
		}
	} else {
		slab, err := o.w.cfg.Node.Inputs[edge].Decode(e.Items)
		if err != nil {
			return err
		}
		if slab.Len() != e.Count {
			return fmt.Errorf("entry of %d items holds %d", e.Count, slab.Len())
		}
		d.Slab = slab
	}
	o.log = append(o.log, d)
	return nil
}

// position tells the upstream stage what is here already: committed, or in the log.
func (o *operator) position() {
	part := o.index % o.w.cfg.Node.Compute
	at := make([]backup.Position, len(o.inputs))
	for i := range o.inputs {
		at[i] = o.inputs[i].Position
	}
	for i := range o.log {
		d := &o.log[i]
		if p := (backup.Position{Epoch: d.position, Seq: d.Next()}); at[d.input].Less(p) {
			at[d.input] = p
		}
	}
	for _, edge := range o.w.up.channels {
		for _, ch := range edge[part] {
			if ch != nil {
				ch.epoch, ch.next, ch.acked = at[ch.input].Epoch, at[ch.input].Seq, at[ch.input].Seq
				ch.level, ch.ended = o.closed.Number, o.closed.Last
			}
		}
	}
	for i := range o.log {
		if d := &o.log[i]; d.Kind == transport.Punctuation && d.Window.Last {
			o.w.up.channels[d.Channel.Edge][part][d.Channel.From].ended = true
		}
	}
	for i := range o.inputs {
		o.committed[i].Store(o.inputs[i].Seq)
	}
}
