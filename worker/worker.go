package worker

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/ringbuf"
	"github.com/afstream/afstream/threshold"
	"github.com/afstream/afstream/transport"
)

// Worker is one incarnation of one worker of an operator. Make it with Load, connect it with AttachInput and
// AttachOutput, then Run it. A worker is used once: its successor is another Worker with a higher epoch.
type Worker struct {
	cfg    Config
	log    *slog.Logger
	replay Replay
	level  uint64           // see Level
	budget threshold.Budget // of each partition

	operators []*operator // of an operator or sink
	sources   []*source   // of a source
	up        *upstream   // nil for sources
	down      *downstream // nil for sinks

	stats      *Stats       // apart, so that who keeps the counters does not keep the worker
	undone     atomic.Int32 // partitions that have not finished the stream
	unsettled  atomic.Int32 // partitions whose state is of an earlier layout
	halted     atomic.Bool
	closed     sync.Once
	draining   atomic.Bool
	fault      atomic.Pointer[error] // what ended the worker first
	retirement retirement
	pausing    pausing
	rebuilds   bool  // its states are made again from their inputs, or were at first
	unscalable error // why its operator cannot be scaled, nil if it can
}

// Replay says how the worker's output can be had again.
func (w *Worker) Replay() Replay { return w.replay }

// Budget returns the thresholds that each of the worker's partitions starts with.
func (w *Worker) Budget() threshold.Budget { return w.budget }

// Alpha returns the most that one item is known to add to the divergence of a partition, if a backup is due when the
// thresholds say so: 0 otherwise, and for a source. One above Budget().Theta makes each item wait for a backup of its own.
func (w *Worker) Alpha() float64 {
	if len(w.operators) == 0 || w.operators[0].policy == nil {
		return 0
	}
	return w.operators[0].measure.Alpha
}

// Level returns the last window that all partitions of the worker had closed, durably, when it was loaded.
func (w *Worker) Level() uint64 { return w.level }

// Stats returns the worker's counters.
func (w *Worker) Stats() *Stats { return w.stats }

// UpstreamParker is woken by what arrives; nil for a source.
func (w *Worker) UpstreamParker() *ringbuf.Parker {
	if w.up == nil {
		return nil
	}
	return w.up.park
}

// DownstreamParker is woken by acknowledgements; nil for a sink.
func (w *Worker) DownstreamParker() *ringbuf.Parker {
	if w.down == nil {
		return nil
	}
	return w.down.park
}

// AttachInput connects an incarnation of a sending worker, in place of the one before it. Before or during Run.
func (w *Worker) AttachInput(in Input) {
	w.up.attached.put(in)
	w.up.park.Wake()
}

// AttachOutput connects an incarnation of a receiving worker, in place of the one before it.
func (w *Worker) AttachOutput(out Output) {
	w.down.attached.put(out)
	w.down.park.Wake()
}

// Run runs the three stages and returns when all of them have ended: after Stop or Kill with nil, else with the error
// that ended the first of them.
func (w *Worker) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, w.Stop)
	defer stop()
	var stages sync.WaitGroup
	stage := func(run func() error) {
		stages.Go(func() {
			if err := run(); err != nil && !w.halted.Load() { // errors of a halted stage are the halt's own
				w.Fail(err)
			}
		})
	}
	for _, s := range w.sources {
		stage(func() error { return w.guard(s.place(), s.pinned(s.run)) })
	}
	for _, o := range w.operators {
		stage(func() error { return w.guard(o.place(), o.pinned(o.run)) })
	}
	if w.up != nil {
		stage(func() error { return w.guard("upstream", w.up.run) })
	}
	if w.down != nil {
		stage(func() error { return w.guard("downstream", w.down.run) })
	}
	stages.Wait()
	if err := w.fault.Load(); err != nil {
		return *err
	}
	return nil
}

// Fail ends the worker with an error, which Run returns if it is the first. Any goroutine may call it.
func (w *Worker) Fail(err error) {
	w.fault.CompareAndSwap(nil, &err)
	w.Stop()
}

// Stop ends the worker where it stands. Nothing is flushed or saved. A source that is read like a pipe stays open for
// the next incarnation: Close ends it.
func (w *Worker) Stop() {
	w.halted.Store(true)
	for _, s := range w.sources {
		s.park.Wake()
	}
	for _, o := range w.operators {
		o.park.Wake()
	}
	if w.up != nil {
		w.up.park.Wake()
	}
	if w.down != nil {
		w.down.park.Wake()
	}
}

// Kill ends the worker abruptly, as a failure would: its goroutines stop where they are, and all it holds in memory is
// lost. It is Stop by another name, since Stop saves nothing either.
func (w *Worker) Kill() { w.Stop() }

// Drain makes a source end its stream now, as if its input had ended here. One that is read like a pipe is closed, since
// its reading may block; one that can go back may still have to.
func (w *Worker) Drain() {
	w.draining.Store(true)
	if w.replay != Rewinds {
		w.Close()
	}
}

// Close closes the worker's sources and with that interrupts their reading. Closing again does nothing.
func (w *Worker) Close() {
	w.closed.Do(func() {
		for _, s := range w.sources {
			if err := w.guard("source", s.task.Close); err != nil {
				w.log.Debug("close source", "worker", w.cfg.name(), "err", err)
			}
		}
	})
}

// Items returns how many items the worker has processed, or read.
func (w *Worker) Items() uint64 {
	var n uint64
	for _, s := range w.sources {
		n += s.items.Load()
	}
	for _, o := range w.operators {
		n += o.items.Load()
	}
	return n
}

// Read returns how much of its input a source has read over all incarnations, without what it read again.
func (w *Worker) Read() uint64 {
	var n uint64
	for _, s := range w.sources {
		n += s.furthest.Load()
	}
	return n
}

func (w *Worker) partitionDone() {
	if w.undone.Add(-1) == 0 && w.cfg.OnDone != nil {
		w.cfg.OnDone()
	}
}

// Autopsy returns what is known of the worker after Run has returned.
func (w *Worker) Autopsy() *Autopsy {
	a := &Autopsy{Items: w.Items(), Retired: w.Retired()}
	for _, s := range w.sources {
		a.Partition = append(a.Partition, Remains{Emitted: s.exit.emitted(s.task.Buffered()), Read: s.furthest.Load(), Level: s.exit.level, Open: s.open(), Ended: s.exit.ended})
		if s.seek == nil {
			a.sources = append(a.sources, s.task.Source())
		}
	}
	for i, o := range w.operators {
		a.Feedback += o.feedbackLost()
		lost, twice := o.peers.cost()
		a.HandedLost, a.HandedTwice = a.HandedLost+lost, a.HandedTwice+twice
		r := Remains{Inputs: w.up.remains(i, o), Level: o.ends.level, Divergence: o.claimed, Theta: o.inForce}
		if o.exit != nil {
			r.Emitted = o.exit.emitted(o.task.Buffered())
		}
		a.Partition = append(a.Partition, r)
	}
	return a
}

// emitted returns the items emitted per output channel. Those still in open slabs have no number yet; they are counted
// on the first channel, since only their sum matters.
func (x *exit) emitted(buffered int) []uint64 {
	e := x.sent()
	if len(e) > 0 {
		e[0] += uint64(buffered)
	}
	return e
}

// remains returns how far the inputs of one partition had come: in this incarnation, or in one before it if nothing has
// arrived on a channel since that would have shown what the failure of that one had cost.
func (u *upstream) remains(part int, o *operator) []InputRemains {
	r := make([]InputRemains, len(o.inputs))
	for i, in := range o.inputs {
		r[i] = InputRemains{ProcessedEpoch: in.Epoch, Processed: in.Seq}
	}
	for _, edge := range u.channels {
		for _, ch := range edge[part] {
			if ch != nil {
				is := &r[ch.input]
				is.Epoch, is.Acked = further(ch.epoch, ch.acked, ch.before.Epoch, ch.before.Acked)
				is.ProcessedEpoch, is.Processed = further(is.ProcessedEpoch, is.Processed, ch.before.ProcessedEpoch, ch.before.Processed)
			}
		}
	}
	return r
}

// further returns the later of two positions, the second of which may be none.
func further(epoch, seq, otherEpoch, other uint64) (uint64, uint64) {
	if otherEpoch == noEpoch || (backup.Position{Epoch: otherEpoch, Seq: other}).Less(backup.Position{Epoch: epoch, Seq: seq}) {
		return epoch, seq
	}
	return otherEpoch, other
}

// each input channel of a partition, in the order of their dense numbers.
func (w *Worker) inputChannels(part int) []transport.Channel {
	var ids []transport.Channel
	for i, e := range w.cfg.Node.Inputs {
		for from := range e.From.Partitions() {
			if e.Reaches(from, part) {
				ids = append(ids, transport.Channel{Edge: i, From: from, To: part})
			}
		}
	}
	return ids
}

// Waiting says what each compute goroutine of the worker waits for, for whoever wonders why nothing moves.
func (w *Worker) Waiting() []string {
	var on []string
	for _, s := range w.sources {
		on = append(on, waits[s.waits.Load()])
	}
	for _, o := range w.operators {
		on = append(on, waits[o.waits.Load()])
	}
	return on
}

// Reading says whether a source of the worker is waiting for its input, as far as one can tell from outside.
func (w *Worker) Reading() bool {
	return slices.ContainsFunc(w.sources, func(s *source) bool { return s.waits.Load() == uint32(forNothing) })
}

// Halted says whether the worker was stopped or killed.
func (w *Worker) Halted() bool { return w.halted.Load() }

// Measurable says whether every source of the worker knows the size of its input.
func (w *Worker) Measurable() bool {
	for _, s := range w.sources {
		if s.progress == nil {
			return false
		}
		if _, total := s.progress.Progress(); total <= 0 {
			return false
		}
	}
	return true
}
