package worker

import (
	"errors"
	"slices"
	"sync/atomic"
)

// This file holds how a worker ends without costing anything, so that a successor elsewhere can go on: it takes in nothing
// more, processes what it has taken in, waits until nothing that it emitted is at risk, and saves its whole state. What it
// has not taken in is not acknowledged, and stays with whoever sent it.

// ErrCannotRetire is wrapped by the errors of Retire.
var ErrCannotRetire = errors.New("worker cannot end without loss")

// retirement is how far that has come.
type retirement struct {
	phase atomic.Uint32
	quiet atomic.Bool  // the upstream stage takes in nothing more, as long as it is asked not to
	saved atomic.Int32 // partitions whose state is durable
}

// Phases of a retirement, in this order, but of the last two there is only one.
const (
	unasked   uint32 = iota
	told             // the worker is to end
	calledOff        // it was, and goes on
	retired          // nothing of it can be lost, and it ends
)

// off says whether the worker is to go on.
func (r *retirement) off() bool { return r.phase.Load() == calledOff }

// Retire has the worker end as soon as nothing of it can be lost. Run then returns nil and Retired says true, unless a
// failure comes first. It may take as long as its receivers take to acknowledge, which must not be retiring themselves: who
// cannot wait calls CallOff, or Stop. Its successor has the next epoch and the same number of failures.
//
// Errors, with ErrCannotRetire: under None, where nothing can be saved; for a source that is read like a pipe; for
// partitions that hand each other values, since these would be lost; and after CallOff. Asking again does nothing.
func (w *Worker) Retire() error {
	switch {
	case w.cfg.Store == nil:
		return errors.Join(ErrCannotRetire, errors.New("the job makes no backups"))
	case w.cfg.Node.IsSource && w.replay != Rewinds:
		return errors.Join(ErrCannotRetire, errors.New("its input is read like a pipe"))
	case slices.ContainsFunc(w.operators, func(o *operator) bool { return o.peers != nil }):
		return errors.Join(ErrCannotRetire, errors.New("its partitions hand each other values"))
	}
	if w.cfg.Node.IsSource { // whatever it has sent, its successor sends again under the same numbers
		w.retirement.phase.Store(retired)
		w.Stop()
		return nil
	}
	if !w.retirement.phase.CompareAndSwap(unasked, told) && w.retirement.off() {
		// A partition may not have seen yet that it was called off, and would take the second time for the first.
		return errors.Join(ErrCannotRetire, errors.New("it was called off before"))
	}
	w.up.park.Wake()
	return nil
}

// CallOff has a worker go on that was asked to retire, and says whether it does: otherwise it has retired.
func (w *Worker) CallOff() bool {
	if !w.retirement.phase.CompareAndSwap(told, calledOff) {
		return w.retirement.phase.Load() != retired
	}
	w.up.park.Wake()
	for _, o := range w.operators {
		o.park.Wake()
	}
	return true
}

// Retired says whether the worker has ended by Retire and not otherwise.
func (w *Worker) Retired() bool { return w.retirement.phase.Load() == retired && w.fault.Load() == nil }

// quieten stops taking in what arrives, once that is asked for and as long as it is. A state that is being rebuilt is finished
// first: it is not what its marks say.
func (u *upstream) quieten() bool {
	r := &u.w.retirement
	if p := r.phase.Load(); p != told && p != retired || slices.ContainsFunc(u.w.operators, func(o *operator) bool { return o.rebuild.silent.Load() }) {
		return false
	}
	if !r.quiet.Swap(true) {
		for _, o := range u.w.operators {
			o.park.Wake()
		}
	}
	return true
}

// retiring says whether all that the partition will ever be given has been processed.
func (o *operator) retiring() bool {
	r := &o.w.retirement
	return r.quiet.Load() && !r.off() && o.in.Len() == 0
}

// retire makes the partition one that nothing can be lost of, and waits for the others. The last one ends the worker. If it is
// called off the partition goes on as if nothing had been: it has only made a commit more.
func (o *operator) retire() error {
	r := &o.w.retirement
	o.task.Flush()
	if o.exit != nil && o.exit.sender != nil {
		o.exit.awaitAcks(func() bool { return o.exit.sender.Unacked() == 0 || r.off() })
	}
	if r.off() {
		return nil
	}
	// A sink that only its Close makes safe has to be given everything again.
	if !o.w.cfg.Node.IsSink || o.state.flush != nil {
		if err := o.commitWhole(); err != nil {
			return err
		}
	}
	if int(r.saved.Add(1)) == len(o.w.operators) && r.phase.CompareAndSwap(told, retired) {
		o.w.Stop()
	}
	o.await(forTheEnd, r.off)
	return nil
}
