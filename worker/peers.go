package worker

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/threshold"
)

// peers is what one partition has to do with the others of its worker: the values it hands them and they hand it, and
// the windows they end together. Fields without atomics belong to the compute goroutine; before Run they belong to Load.
//
// Levels number windows as in alignment: a level is that of the last window ended, streamEnded that of the stream.
//
// Invariants, per partition; a value counts once its receiver is within theta again, or has dropped it:
//
//	P1   handed over - counted <= max(gamma, 1)                  what a failure can lose
//	P2   handed over since the last commit <= max(l, 1)          what a failure can hand over twice
//	P3   a value counts before its receiver closes the window that its giver handed it over in
type peers struct {
	o        *operator
	desk     stream.Desk
	finisher stream.Finisher   // nil if it keeps nothing back
	all      []*peers          // of the worker, by compute goroutine
	sender   *threshold.Sender // P1
	marks    *threshold.Marks  // P2
	durable  []uint64          // per peer, values handed over at the last durable commit
	flying   []uint64          // at the commit begun last

	levels  []uint64 // per peer, of the ends taken
	closed  uint64   // of the partition
	meeting uint64   // what the partition waits for its peers to end; 0 = nothing
	silent  bool     // it has told its peers so, and hands nothing over until the window is closed

	counted []atomic.Uint64 // per peer, the values of it that count
	wants   atomic.Bool     // it waits for its peers to take something
}

// partsGamma says whether what the operator emits shares its gamma with what it hands over: each gets half.
func (c *Config) partsGamma() bool {
	return c.Node.NewDesk != nil && ReplayOf(c.Node, c.Guarantee) == AtRisk
}

// halve takes the half of gamma that is left to the items, or to the values.
func (c *Config) halve(b threshold.Budget) threshold.Budget {
	if c.partsGamma() {
		b.Gamma /= 2
	}
	return b
}

// mayHandOver refuses an operator whose peers could cost more than any threshold bounds.
func (o *operator) mayHandOver() error {
	cfg := &o.w.cfg
	switch {
	case cfg.Node.NewDesk == nil || cfg.Guarantee == None:
		return nil
	case cfg.Guarantee != Approximate:
		return fmt.Errorf("guarantee %v cannot cover Colleagues: what one partition has handed over is in no common backup "+
			"with what the other has taken; use %v", cfg.Guarantee, Approximate)
	case o.state.divergence == nil || o.state.backup == nil:
		return errors.New("a stream.Colleague needs StateDivergence, BackupState and RestoreState: else a failure would lose all that a " +
			"partition was handed")
	}
	return nil
}

// openDesk gives the operator its peers, if it was built with them. Its state is restored.
func (o *operator) openDesk() error {
	cfg := &o.w.cfg
	if cfg.Node.NewDesk == nil {
		return nil
	}
	n := cfg.Node.Compute
	b := o.w.budget
	o.peers = &peers{
		o: o, sender: threshold.NewSender(b.Gamma), marks: threshold.NewMarks(b.L), silent: true,
		durable: make([]uint64, n), flying: make([]uint64, n), levels: make([]uint64, n), counted: make([]atomic.Uint64, n),
	}
	o.peers.finisher, _ = o.task.Operator().(stream.Finisher)
	var err error
	if o.peers.desk, err = cfg.Node.NewDesk(o.task.Operator(), o.index%n, n, o.peers); err != nil {
		return fmt.Errorf("operator %q: %w: %w", cfg.Node.Name, ErrOperator, err)
	}
	return nil
}

// seatPeers joins the partitions of the worker, once all are loaded, and takes note of what the failure before has cost.
func (w *Worker) seatPeers() {
	if w.cfg.Node.NewDesk == nil {
		return
	}
	var all []*peers
	var desks []stream.Desk
	for _, o := range w.operators {
		all, desks = append(all, o.peers), append(desks, o.peers.desk)
	}
	for _, p := range all {
		p.all = all
		p.desk.Seat(desks)
	}
	if before := w.cfg.Before; before != nil {
		w.stats.HandedLost.Add(before.HandedLost)
		w.stats.HandedTwice.Add(before.HandedTwice)
	}
}

// Credit implements stream.Granter.
func (p *peers) Credit() uint64 {
	switch {
	case p.silent:
		return 0
	case p.o.plan.never:
		return math.MaxUint64
	}
	p.note()
	return min(p.sender.Credit(), p.marks.Gate()-p.sender.Emits())
}

// Gave implements stream.Granter.
func (p *peers) Gave(to int) { p.all[to].o.park.Wake() }

// note brings the machines up to date. They may lag behind what was granted, never behind what is decided by them.
func (p *peers) note() {
	handed := p.handed()
	p.sender.Emitted(handed - p.sender.Emits())
	p.sender.Acked(p.taken())
	p.marks.Processed(handed)
	if checkInvariants && !p.o.plan.never {
		if err := errors.Join(p.sender.Valid(), p.marks.Valid()); err != nil {
			panic(fmt.Errorf("what was handed over to peers: %w", err))
		}
	}
}

// handed returns how many values the partition has handed over.
func (p *peers) handed() uint64 {
	n := uint64(0)
	for to := range p.all {
		n += p.desk.Handed(to)
	}
	return n
}

// taken returns how many of the partition's values count at its peers.
func (p *peers) taken() uint64 {
	self, n := p.self(), uint64(0)
	for _, q := range p.all {
		n += q.counted[self].Load()
	}
	return n
}

func (p *peers) self() int { return p.o.index % len(p.all) }

// due says whether a commit should begin so that more can be handed over.
func (p *peers) due() bool {
	if p.o.plan.never {
		return false
	}
	p.note()
	return p.marks.Due()
}

// begun takes note of a commit that is being made.
func (p *peers) begun() {
	if p == nil {
		return
	}
	for to := range p.flying {
		p.flying[to] = p.desk.Handed(to)
	}
}

// committed takes note that it is durable: after a failure what was handed over before it is not handed over again.
func (p *peers) committed() {
	if p == nil {
		return
	}
	p.note()
	copy(p.durable, p.flying)
	handed := uint64(0)
	for _, n := range p.durable {
		handed += n
	}
	p.marks.Committed(handed)
}

// raise gives back what forgotten failures had taken.
func (p *peers) raise(b threshold.Budget) {
	if p != nil {
		p.sender.Raise(b.Gamma)
		p.marks.Raise(b.L)
	}
}

// waiting says whether a peer has handed over something that may be taken now.
func (p *peers) waiting() bool {
	for from := range p.all {
		if p.open(from) && p.desk.Waiting(from) > 0 {
			return true
		}
	}
	return false
}

// open says whether what comes from a peer next belongs to the partition's present window, or to an earlier one. What
// a peer hands over after it has ended that waits in its ring until the window is closed.
func (p *peers) open(from int) bool { return p.levels[from] <= p.closed || p.levels[from] < p.meeting }

// collect gives the operator what lies there, but not what comes meanwhile: items must have their turn.
func (p *peers) collect() error {
	for from := range p.all {
		for n := p.desk.Waiting(from); n > 0 && p.open(from); n-- {
			if err := p.take(from); err != nil {
				return err
			}
		}
	}
	return nil
}

// take takes one value or end of a peer. A value of a window that is closed here was in the backup made for that: its
// giver comes from an older one and hands it over again.
func (p *peers) take(from int) error {
	o, drop := p.o, p.levels[from] < p.closed
	if !drop {
		if err := o.makeRoom(); err != nil {
			return err
		}
	}
	end, err := p.desk.Take(from, drop)
	switch {
	case err != nil:
		return fmt.Errorf("%s partition %d: value of peer %d: %w", o.w.cfg.Node.Name, o.index, from, err)
	case end > 0:
		p.levels[from] = max(p.levels[from], end)
	case drop:
		o.w.stats.Duplicates.Add(1)
		p.counted[from].Add(1)
	default:
		if err := o.changed(); err != nil {
			return err
		}
		o.w.stats.Handed.Add(1)
		p.counted[from].Add(1)
	}
	if giver := p.all[from]; giver.wants.Load() && giver.wants.Swap(false) {
		giver.o.park.Wake()
	}
	return nil
}

// makeRoom waits for a backup if the state may not change before it, I1.
func (o *operator) makeRoom() error {
	if err := o.settle(); err != nil {
		return err
	}
	for o.policy != nil && o.policy.Run(o.state.now(), 1) == 0 {
		if err := o.commitNow(false); err != nil {
			return err
		}
	}
	return nil
}

// changed sees to it that a state that was changed between items is within theta again.
func (o *operator) changed() error {
	if err := o.obey(); err != nil {
		return err
	}
	if o.policy != nil {
		o.claimed = o.policy.Divergence(o.state.now())
	}
	if checkInvariants {
		return o.valid()
	}
	return nil
}

// cost returns how many values the worker's death has lost, and how many its successor hands over again although they
// had counted, each at most. Of what was on its way, what the giver makes of items above its last commit comes again;
// but it may have passed on what it was handed itself.
func (p *peers) cost() (lost, twice uint64) {
	if p == nil || p.all == nil {
		return 0, 0
	}
	for to, q := range p.all {
		handed, counted := p.desk.Handed(to), q.counted[p.self()].Load()
		lost += handed - counted
		if !p.o.plan.never { // otherwise nothing comes again
			twice += counted - min(counted, p.durable[to])
		}
	}
	return lost, twice
}
