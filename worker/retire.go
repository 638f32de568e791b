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
	asked atomic.Bool
	quiet atomic.Bool  // the upstream stage takes in nothing more
	saved atomic.Int32 // partitions whose state is durable
	done  atomic.Bool  // all are
}

// Retire has the worker end as soon as nothing of it can be lost. Run then returns nil and Retired says true, unless a
// failure comes first. It may take as long as its receivers take to acknowledge, which must not be retiring themselves: who cannot wait calls
// Stop. Its successor has the next epoch and the same number of failures.
//
// Errors, with ErrCannotRetire: under None, where nothing can be saved; for a source that is read like a pipe; and for
// partitions that hand each other values, since these would be lost.
func (w *Worker) Retire() error {
	switch {
	case w.cfg.Store == nil:
		return errors.Join(ErrCannotRetire, errors.New("the job makes no backups"))
	case w.cfg.Node.IsSource && w.replay != Rewinds:
		return errors.Join(ErrCannotRetire, errors.New("its input is read like a pipe"))
	case slices.ContainsFunc(w.operators, func(o *operator) bool { return o.peers != nil }):
		return errors.Join(ErrCannotRetire, errors.New("its partitions hand each other values"))
	}
	w.retirement.asked.Store(true)
	if w.cfg.Node.IsSource { // whatever it has sent, its successor sends again under the same numbers
		w.retirement.done.Store(true)
		w.Stop()
		return nil
	}
	w.up.park.Wake()
	return nil
}

// Retired says whether the worker has ended by Retire and not otherwise.
func (w *Worker) Retired() bool { return w.retirement.done.Load() && w.fault.Load() == nil }

// quieten stops taking in what arrives, once that is asked for. A state that is being rebuilt is finished first: it is not
// what its marks say.
func (u *upstream) quieten() bool {
	r := &u.w.retirement
	if !r.asked.Load() || slices.ContainsFunc(u.w.operators, func(o *operator) bool { return o.rebuild.silent.Load() }) {
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
func (o *operator) retiring() bool { return o.w.retirement.quiet.Load() && o.in.Len() == 0 }

// retire makes the partition one that nothing can be lost of, and waits for the others. The last one ends the worker.
func (o *operator) retire() error {
	o.task.Flush()
	if o.exit != nil && o.exit.sender != nil {
		o.exit.awaitAcks(func() bool { return o.exit.sender.Unacked() == 0 })
	}
	// A sink that only its Close makes safe has to be given everything again.
	if !o.w.cfg.Node.IsSink || o.state.flush != nil {
		if err := o.commitWhole(); err != nil {
			return err
		}
	}
	if int(o.w.retirement.saved.Add(1)) == len(o.w.operators) {
		o.w.retirement.done.Store(true)
		o.w.Stop()
	}
	o.await(forTheEnd, func() bool { return false })
	return nil
}
