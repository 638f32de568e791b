package worker

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/ringbuf"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/threshold"
	"github.com/afstream/afstream/transport"
)

// delivery is a frame on its way from upstream to compute.
type delivery struct {
	transport.Frame
	input     int    // dense number of the input channel
	position  uint64 // the epoch that its positions are counted in, see connection.numbering
	skip      int    // leading items that the partition already has
	accounted bool   // the channel is at risk: the items count in the order of arrival that acks follow
	repeated  bool   // punctuation sent again: it moves no position
}

// none says that the delivery is the zero one.
func (d *delivery) none() bool { return d.Count == 0 && d.Window.Number == 0 }

// operator is one compute goroutine and its partition. Fields without atomics belong to that goroutine; before Run
// they belong to Load.
type operator struct {
	core
	task    stream.Task
	state   state
	in      *ringbuf.SPSC[delivery]
	inputs  []backup.Input // position per dense input channel
	ends    alignment
	remake  remake
	rebuild rebuild
	log     []delivery // to be replayed before anything else

	mail     []stream.Mailbox // feedback that arrives, per way back
	posts    []stream.Post    // feedback that is sent
	pacer    stream.Pacer     // nil if it takes items at any time
	patience time.Duration    // how long it may wait for feedback the next time; 0 = paceLimit
	peers    *peers           // nil unless it was built with Colleagues

	policy  *threshold.Backup // nil: nothing diverges
	marks   *threshold.Marks  // nil unless the operator emits, or flushes, as it processes, and that must not come twice
	repeats bool              // what is processed again is emitted again, and that counts
	plan    plan
	measure stream.Measure
	k       uint64        // failures that count against the budget
	flushes bool          // of a sink whose input is at risk: what it was given is safe when it is flushed
	closed  stream.Window // the last window that was closed, or is about to be
	pending bool          // its close is still to run: it starts from the commit that is being made
	stale   bool          // a close has changed the state since the last commit, which no divergence tells
	opened  []uint64      // Retains: position per output channel after the last close; 0 before the first
	next    backup.Commit
	writer  *stream.StateWriter
	partial bool    // the commit under way holds elements
	claimed float64 // divergence when items last counted as processed; I1 is about this
	share

	stepping bool    // process looks at the divergence on the way, and stops when it is above most
	most     float64 // set by granted

	handled     uint64 // accounted items processed
	total       uint64 // items processed
	committedAt uint64 // total at the last durable commit
	markedAt    uint64 // total at the last mark
	marksAlone  bool   // the last mark needed no commit
	unlogged    int    // marks since the last durable commit that left something in the item log
	// clearedTo is handled at the last durable commit. Nothing before it is in the item log, but what was on its way there when the
	// commit began: that is below its position, so nobody replays it, and goes with the next commit.
	clearedTo     uint64
	flightAt      uint64 // total at the commit under way
	flightHandled uint64 // handled at the commit under way
	flightInputs  []backup.Input
	full          atomic.Bool     // upstream waits for room in the ring
	processed     atomic.Uint64   // = handled, for upstream
	gate          atomic.Uint64   // handled may go up to here, from upstream
	wanted        atomic.Uint64   // upstream waits for processed to reach this
	limit         atomic.Uint64   // l, when it has risen, for upstream
	aligned       atomic.Uint64   // number of the last closed window, for upstream
	covered       atomic.Uint64   // handled at the last durable commit or mark, for upstream
	logged        atomic.Uint64   // what comes after it is not in the item log, in terms of handled; from upstream
	quiet         atomic.Uint64   // the round in which all channels have said that nothing more comes, from upstream
	committed     []atomic.Uint64 // per dense input channel, for upstream
}

// plan is when a partition commits, apart from what its divergence demands.
type plan struct {
	never bool   // guarantee None
	every uint64 // start a commit after so many items; 0 = never for that reason
	whole bool   // each saves the whole state, and is waited for
	// unsure: each saves the whole state because a part of it might leave out what has changed, and there is no policy
	// that would notice.
	unsure bool
}

// run is the compute goroutine.
func (o *operator) run() error {
	if err := o.settleDown(); err != nil {
		return err
	}
	o.rejoin()
	if o.pending { // a close that a failure interrupted, or of which it is not known whether its outputs arrived
		o.exit.each(o.exit.notice) // of the window before it
		if err := o.finish(o.closed); err != nil {
			return err
		}
	} else if err := o.forward(); err != nil {
		return err
	}
	for i := range o.log {
		o.w.stats.Replayed.Add(uint64(o.log[i].Count - o.log[i].skip))
		if o.repeats {
			o.w.stats.Repeated.Add(o.again(&o.log[i]))
		}
		if err := o.take(o.log[i]); err != nil {
			return err
		}
	}
	o.log = nil
	for {
		d, ok := o.in.TryPop()
		if !ok {
			var err error
			if d, err = o.idle(); err != nil {
				return err
			}
			if d.none() {
				continue
			}
		}
		if o.full.Load() && o.full.Swap(false) {
			o.w.up.park.Wake()
		}
		if err := o.take(d); err != nil {
			return err
		}
	}
}

// again returns how many items of a logged delivery the incarnation before had processed. What it had processed beyond
// the log is counted where it arrives again, see upstream.first.
func (o *operator) again(d *delivery) uint64 {
	if o.w.cfg.Before == nil {
		return 0
	}
	before := o.w.cfg.Before.Partition[o.index%o.w.cfg.Node.Compute].Inputs[d.input]
	from := d.First + uint64(d.skip)
	switch {
	case before.ProcessedEpoch == noEpoch || before.ProcessedEpoch < d.position:
		return 0
	case before.ProcessedEpoch > d.position:
		return d.Next() - from
	}
	return min(max(before.Processed, from), d.Next()) - from
}

// idle waits for a delivery. What the emitter holds goes out first: latency before throughput when there is nothing
// else to do. It returns an empty delivery when a commit ended instead.
func (o *operator) idle() (d delivery, err error) {
	o.task.Flush()
	o.await(forItems, func() bool {
		var ok bool
		d, ok = o.in.TryPop()
		return ok || o.flight.phase.Load() == landed || o.releasable() || o.demanded() || o.hasMail() || o.told.Load() != nil || o.retiring() || o.pauseDue()
	})
	if d.none() && o.retiring() {
		return d, o.retire()
	}
	if err := o.collect(); err != nil {
		return d, err
	}
	if err := o.settle(); err != nil {
		return d, err
	}
	if err := o.reshare(); err != nil || !d.none() {
		return d, err
	}
	if err := o.pause(); err != nil {
		return d, err
	}
	return d, o.answer()
}

func (o *operator) take(d delivery) error {
	if o.w.halted.Load() { // what is in the ring may be a lot of work
		return errHalted
	}
	o.unrest()
	if d.Kind == transport.Punctuation {
		return o.punctuation(d)
	}
	for i := d.skip; i < d.Count; {
		n, err := o.pace(d.Count - i)
		if err != nil {
			return err
		}
		if n, err = o.allowance(d, n); err != nil {
			return err
		}
		if n, err = o.process(d, i, n); err != nil {
			return fmt.Errorf("%s partition %d: %w", o.w.cfg.Node.Name, o.index, err)
		}
		i += n
		o.moved(d, d.First+uint64(i), n)
		o.rebuild.passed(o, n)
		if err := o.obey(); err != nil {
			return err
		}
		if checkInvariants {
			if err := o.valid(); err != nil {
				return err
			}
		}
		o.publish()
		if o.policy != nil {
			o.claimed = o.policy.Divergence(o.state.now())
		}
	}
	d.Release()
	return o.answer()
}

// process hands over n items, or those of them that the divergence allows, and returns how many.
func (o *operator) process(d delivery, from, n int) (int, error) {
	port := o.w.cfg.Node.Inputs[d.Channel.Edge].Port
	if o.stepping {
		return o.task.ProcessUntil(port, d.Slab, from, from+n, o.most, o.measure.Alpha)
	}
	return n, o.task.Process(port, d.Slab, from, from+n)
}

// shortRun is the length of a run below which it pays to read the divergence within longer ones.
const shortRun = 32

// granted returns how many of n items may be processed, by the divergence. If that is few it lets process look at the divergence
// on the way instead, since alpha is what the worst one adds.
func (o *operator) granted(n int) int {
	o.stepping = false
	d := o.state.now()
	run := o.policy.Run(d, n)
	if run < min(n, shortRun) && o.task.Steps() {
		if o.most, o.stepping = o.policy.Until(d); o.stepping {
			return n
		}
	}
	return run
}

// moved takes note of n processed items, the last of them just before position next of its channel.
func (o *operator) moved(d delivery, next uint64, n int) {
	p := &o.inputs[d.input].Position
	p.Epoch, p.Seq = d.position, next
	o.total += uint64(n)
	if next == d.Next() {
		o.remake.taken[d.input]++
	}
	if o.marks != nil {
		o.marks.Processed(o.total)
	}
	if o.rebuild.silent.Load() {
		o.replayed()
	}
	if d.accounted {
		o.handled += uint64(n)
	}
}

// valid checks I1, or I9, once the items just processed are about to count.
func (o *operator) valid() error {
	if o.policy == nil {
		return o.rebuild.valid(o)
	}
	if err := o.policy.Valid(o.state.now()); err != nil {
		return fmt.Errorf("%s partition %d: %w", o.w.cfg.Node.Name, o.index, err)
	}
	return nil
}

// publish lets upstream and the outside see the progress. It comes after obey: items count as processed only when the
// divergence they caused is within theta, or durable.
func (o *operator) publish() {
	o.items.Store(o.total)
	if o.processed.Load() != o.handled {
		o.processed.Store(o.handled)
		if o.handled >= o.wanted.Load() {
			o.w.up.park.Wake()
		}
	}
}

// allowance returns how many of the next n items may be processed now, at least one. It waits where an invariant
// leaves no room: I2 for acknowledgements, I1 for the state, and the marks for outputs that would come twice.
func (o *operator) allowance(d delivery, n int) (int, error) {
	for {
		if err := o.settle(); err != nil {
			return 0, err
		}
		if err := o.reshare(); err != nil {
			return 0, err
		}
		limit := uint64(n)
		if d.accounted {
			if limit = min(limit, o.gate.Load()-o.handled); limit == 0 {
				o.task.Flush()
				o.await(forAcks, func() bool { return o.gate.Load() > o.handled })
				continue
			}
		}
		if o.marks != nil && !o.rebuild.silent.Load() {
			if err := o.markIfFull(); err != nil {
				return 0, err
			}
			limit = min(limit, o.marks.Gate()-o.total)
		}
		if o.plan.whole {
			limit = min(limit, max(o.committedAt+o.plan.every, o.total+1)-o.total)
		}
		run := int(limit)
		if run > 0 && o.policy != nil {
			run = o.granted(run)
		}
		if run > 0 {
			return o.cutAtFault(run), nil
		}
		if err := o.commitNow(false); err != nil {
			return 0, err
		}
	}
}

// state is what an operator can do about its state.
type state struct {
	divergence stream.StateDivergence
	backup     stream.BackupState
	restore    stream.RestoreState
	durable    stream.BackupDurable
	flush      stream.Flusher
}

func abilities(op any) state {
	var s state
	s.divergence, _ = op.(stream.StateDivergence)
	s.backup, _ = op.(stream.BackupState)
	s.restore, _ = op.(stream.RestoreState)
	s.durable, _ = op.(stream.BackupDurable)
	s.flush, _ = op.(stream.Flusher)
	return s
}

// now returns the divergence, NaN (exceeded) where it is negative: a distance cannot be. A state that cannot tell is
// committed at closes only, where it does not matter.
func (s *state) now() float64 {
	if s.divergence == nil {
		return 0
	}
	d := s.divergence.StateDivergence()
	if d < 0 {
		return math.NaN()
	}
	return d
}

// partial says whether any commit may take elements along: a self-accounting state writes only what changed most.
func (s *state) partial() bool { return s.durable != nil }
