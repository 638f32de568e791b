package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/worker"
)

// incarnation is one incarnation of a worker that is assigned to this session.
type incarnation struct {
	h        *host
	job      string
	place    place
	epoch    uint64
	failures uint64
	failedAt []uint64
	former   int      // partitions of the operator in the layout before that of prepared
	failedIn []uint64 // not nil: that would mean that every epoch before had failed
	prepared *preparation
	log      *slog.Logger
	cancel   context.CancelCauseFunc
	ended    chan struct{} // closed when its goroutines have ended
	wires    *wirer
	finished atomic.Bool                      // it has finished the stream, durably
	named    atomic.Pointer[map[place]uint64] // epochs that the record names for who sends it feedback

	// What follows is the host's.
	phase           cluster.Phase
	w               *worker.Worker // while it runs
	post            *postman       // while it runs; nil if it sends no feedback
	level           uint64
	err             error
	retire          bool             // the record asks for it
	asked           bool             // the worker was told
	cannot          error            // what it said to that
	scaling, heeded scaling          // what the record wants, and what the worker was told
	counts          cluster.Counters // once it has ended
}

// predecessorTime is how long an incarnation waits for one before it on the same node. Two at a time are harmless to state,
// but not to the files of a sink.
const predecessorTime = time.Second

func (c *incarnation) name() string { return fmt.Sprintf("%s/%d", c.place.operator, c.place.index) }

func (c *incarnation) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// run is the incarnation's life, on a goroutine of its own.
func (c *incarnation) run(ctx context.Context, before []<-chan struct{}) {
	defer close(c.ended)
	c.awaitEnd(ctx, before)
	w, err := c.load(ctx)
	if err != nil {
		c.h.do(func() { c.unloaded(err) })
		return
	}
	defer w.Close()
	stop := context.AfterFunc(ctx, w.Close) // a source may be waiting for input
	defer stop()
	unsubscribe, err := c.takeMail(w)
	if err != nil {
		c.h.do(func() { c.unloaded(err) })
		return
	}
	defer unsubscribe()
	var helpers sync.WaitGroup
	post := c.newPostman(w)
	if post != nil {
		helpers.Go(func() { post.run(ctx) })
	}
	helpers.Go(func() { c.wires.run(ctx, c, w) })
	c.h.do(func() { c.loaded(w, post) })
	err = w.Run(ctx)
	c.h.do(func() { c.stopped(err) })
	c.cancel(errAssigned)
	helpers.Wait()
}

// awaitEnd waits for incarnations before this one, but not for ever.
func (c *incarnation) awaitEnd(ctx context.Context, before []<-chan struct{}) {
	late := time.NewTimer(predecessorTime)
	defer late.Stop()
	for _, ended := range before {
		select {
		case <-ended:
		case <-ctx.Done():
			return
		case <-late.C:
			c.log.Warn("the incarnation before does not end: user code, or a backup server, holds it up")
			return
		}
	}
}

// load makes the worker. Its epoch and failures are durable first, in the backup store as in the record.
func (c *incarnation) load(ctx context.Context) (*worker.Worker, error) {
	p := c.prepared
	select {
	case <-p.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if p.err != nil {
		return nil, p.err
	}
	if p.blue.Guarantee == worker.None && c.failures > 0 && p.node(c.place.operator).IsSource {
		return nil, hopeless(fmt.Errorf("source %s was running, and would begin again at the start of its input: guarantee %v saves no position; "+
			"submit the job again, with another guarantee if it has to survive that", c.name(), worker.None))
	}
	if p.store != nil {
		owner := fmt.Sprintf("%s/%s/%s/worker-%d", p.job.Name, p.job.Incarnation, c.place.operator, c.place.index)
		if err := backup.SaveIncarnation(p.store, owner, backup.WorkerRecord{Epoch: c.epoch, Failures: c.failures}); err != nil {
			return nil, err
		}
	}
	cfg := c.config()
	w, err := worker.Load(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if got := w.Replay(); got != worker.ReplayOf(cfg.Node, cfg.Guarantee) {
		w.Close()
		return nil, hopeless(fmt.Errorf("source %s cannot go back in its input (it is no stream.Replayable), so its items would be lost with its node: "+
			"use an input that can be read again, or guarantee %v", c.place.operator, worker.None))
	}
	return w, nil
}

func (c *incarnation) config() worker.Config {
	p := c.prepared
	node, first := p.node(c.place.operator), 0
	for _, n := range p.nodes[:slices.Index(p.nodes, node)] {
		first += n.Partitions()
	}
	risky, rewind := false, true
	for _, e := range node.Inputs {
		replay := worker.ReplayOf(e.From, p.blue.Guarantee)
		risky, rewind = risky || replay == worker.AtRisk, rewind && replay == worker.Rewinds
	}
	store := p.store
	if p.blue.Guarantee == worker.None {
		store = nil // it is there for the results alone
	}
	return worker.Config{
		Job: p.job, Node: node, Index: c.place.index, Epoch: c.epoch, Failures: c.failures, FailedAt: c.failedAt, FailedIn: c.failedIn,
		Guarantee: p.blue.Guarantee, Params: p.blue.Params, Batch: p.blue.Batch, InputsAtRisk: risky, InputsRewind: rewind, Store: store, Log: c.log,
		Pin: p.blue.Pin, PinFirst: first, Layout: p.layout, Former: c.former,
		OnRest: func() {
			c.h.rested.Store(true)
			c.h.wake()
		},
		OnDone: func() {
			c.finished.Store(true)
			c.h.wake()
		},
	}
}

// current says whether the incarnation is still assigned here.
func (c *incarnation) current() bool {
	j := c.h.jobs[c.job]
	return j != nil && j.workers[c.place] == c
}

// loaded takes the worker, which is about to run.
func (c *incarnation) loaded(w *worker.Worker, post *postman) {
	c.w, c.post, c.phase, c.level = w, post, cluster.Working, w.Level()
	c.h.changed = true
	if c.current() {
		c.log.Info("worker runs")
		c.h.obey(c, c.retire)
		c.h.hold(c.h.jobs[c.job].record, c)
		c.h.wire(c.h.jobs[c.job])
	}
}

func (c *incarnation) unloaded(err error) {
	c.phase, c.err, c.h.changed = cluster.Unloaded, err, true
	if c.current() {
		c.tell("worker cannot be loaded", err)
	}
}

// stopped takes note that the worker has ended; of one that ends since it is assigned no more nobody hears. One that has retired
// needs its connections no more: all that it sent has arrived or can be sent again, and of acknowledgements that are lost its
// successor says what they said.
func (c *incarnation) stopped(err error) {
	retired := c.w.Retired()
	c.counts = counters(c.w)
	c.w, c.post = nil, nil
	if retired {
		c.phase, c.h.changed = cluster.Retired, true
		c.log.Info("worker has ended without loss")
		return
	}
	if err == nil {
		err = errAssigned
	}
	c.phase, c.err, c.h.changed = cluster.Broken, err, true
	if c.current() {
		c.tell("worker failed", err)
	}
}

// tell logs an error. That of a worker which was replaced before it could know is none.
func (c *incarnation) tell(what string, err error) {
	level := slog.LevelWarn
	if errors.Is(err, backup.ErrFenced) || errors.Is(err, backup.ErrStale) {
		level = slog.LevelDebug
	}
	c.log.Log(context.Background(), level, what, "err", err)
}

// status is what the incarnation does.
func (c *incarnation) status() cluster.Status {
	s := cluster.Status{
		Job: c.job, Operator: c.place.operator, Index: c.place.index, Epoch: c.epoch, Phase: c.phase, Level: c.level, Counters: c.counts,
	}
	if c.w != nil {
		s.Counters, s.WaitsFor, s.Rest = counters(c.w), c.w.Waiting(), c.rest()
		if c.finished.Load() {
			s.Phase = cluster.Done
		}
	}
	if c.w != nil && c.cannot != nil {
		s.Error = oneLine(c.cannot)
	}
	if c.err != nil {
		s.Error = firstLine(c.err)
		s.Hopeless = isHopeless(c.err)
		var p *worker.Panic
		if errors.As(c.err, &p) {
			s.Stack = p.Stack[:min(len(p.Stack), maxStack)]
		}
	}
	return s
}

// oneLine is the text of joined errors.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", ": ") }

// Limits of texts in a beat, which is one message for all workers of the node. Records keep no more of them.
const (
	maxLine  = 1 << 10
	maxStack = 8 << 10
)

// firstLine is what others are told of an error.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.ToValidUTF8(line[:min(len(line), maxLine)], "")
}

func counters(w *worker.Worker) cluster.Counters {
	s := w.Stats()
	return cluster.Counters{
		Items: w.Items(), Read: w.Read(), Emitted: s.Emitted.Load(), Replayed: s.Replayed.Load(), Duplicates: s.Duplicates.Load(),
		Stale: s.Stale.Load(), StateCommits: s.StateCommits.Load(), Marks: s.Marks.Load(), ItemCommits: s.ItemCommits.Load(),
		Bytes: s.Bytes.Load(), Nanoseconds: s.Nanoseconds.Load(), Feedback: s.Feedback.Load(), Waits: s.Waits.Load(),
	}
}
