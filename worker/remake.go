package worker

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/afstream/afstream/transport"
)

// This file holds what the guarantees UpstreamBackup and MiniBatch add to the stages, for operators that emit as they
// process. What such an operator has emitted dies with it, so its inputs must stay with whoever sent them until its
// receivers have committed what it made of them. Hence its own commits wait:
//
//	I8   a durable position of such a partition covers no item whose outputs a receiver has not committed
//
// A commit is made at once and held back until then, while processing goes on. Somebody who waits for one says so to its
// receivers (a Blocked frame), which commit what they have and, if that has to wait for receivers of theirs, say it on.
// A receiver without receivers can always commit, so nobody waits for ever.

// maxPatience bounds how long somebody who waits for his receivers' commits waits until he says so again.
const maxPatience = 100 * time.Millisecond

// remake is what a compute goroutine has of that. It belongs to it, but for the atomics.
type remake struct {
	heldUntil   []uint64        // per output channel, what the receivers have to commit before the commit that is held
	taken       []uint64        // per input channel, deliveries that the position covers
	flightTaken []uint64        // taken at the commit under way
	covered     []atomic.Uint64 // taken at the last durable commit, for upstream
	demand      atomic.Bool     // a sender waits for a commit
}

func (r *remake) init(inputs, outputs int) {
	r.heldUntil = make([]uint64, outputs)
	r.taken, r.flightTaken = make([]uint64, inputs), make([]uint64, inputs)
	r.covered = make([]atomic.Uint64, inputs)
}

// hold keeps the commit that was just made until the receivers have committed what was emitted before it.
func (o *operator) hold() {
	copy(o.remake.heldUntil, o.exit.next)
	o.phase.Store(held)
	if !o.release() {
		o.exit.demand()
	}
}

// release hands the held commit, if there is one and it need not wait any more, to the store.
func (o *operator) release() bool {
	if !o.releasable() {
		return false
	}
	o.commit(&o.next)
	return true
}

// releasable says whether there is a held commit that need not wait any more.
func (o *operator) releasable() bool {
	if o.phase.Load() != held {
		return false
	}
	for ordinal, end := range o.remake.heldUntil {
		if o.exit.reach[ordinal] && o.exit.committed[ordinal].Load() < end {
			return false
		}
	}
	return true
}

// awaitReceivers waits until no commit is held.
func (o *operator) awaitReceivers() {
	for patience := logPatience; o.phase.Load() == held && !o.release(); patience = min(2*patience, maxPatience) {
		o.exit.demand()
		o.awaitFor(forReceivers, patience, o.releasable)
	}
}

// demanded says whether a sender waits for a commit and something can be done about it.
func (o *operator) demanded() bool { return o.remake.demand.Load() && o.phase.Load() != flying }

// answer makes the commit that a sender waits for. Where none can be made yet it is forgotten: the sender asks again.
func (o *operator) answer() error {
	if !o.demanded() {
		return nil
	}
	o.remake.demand.Store(false)
	switch {
	case o.phase.Load() == held:
		o.exit.demand()
	case o.total == o.flightAt || !o.mayBegin():
	case o.plan.whole:
		return o.commitWhole()
	default:
		return o.begin(false)
	}
	return nil
}

// demand asks all receivers to commit what they have.
func (x *exit) demand() {
	x.each(func(ordinal int) { x.push(ordinal, transport.Frame{Kind: transport.Blocked}) })
}

// owed is what upstream remembers of the deliveries of one channel that are not durable yet: once the partition has
// made so many of them durable, everything before position is.
type owed struct {
	deliveries uint64
	position   uint64
}

// safe tells, for a channel of a sender that makes its output again, how much of it the receiver has made durable. The
// sender numbers anew in each incarnation, so it is counted in deliveries, which go on.
type safe struct {
	handed   uint64 // deliveries passed to compute
	owed     []owed // oldest first
	position uint64 // everything before is durable
}

// hand takes note of a delivery after which the channel has come to position.
func (s *safe) hand(position uint64) {
	s.handed++
	s.owed = append(s.owed, owed{s.handed, position})
}

// skip takes note that everything up to position was dropped, because it had been handed over before.
func (s *safe) skip(position uint64) {
	if n := len(s.owed); n > 0 {
		s.owed[n-1].position = position
		return
	}
	s.position = position
}

// renumber begins with another incarnation of the sender: nothing of it is here, and what was of the last still counts.
func (s *safe) renumber() {
	s.position = 0
	for i := range s.owed {
		s.owed[i].position = 0
	}
}

// durable returns the position up to which everything is durable, if so many deliveries are.
func (s *safe) durable(deliveries uint64) uint64 {
	n := 0
	for n < len(s.owed) && s.owed[n].deliveries <= deliveries {
		s.position = s.owed[n].position
		n++
	}
	s.owed = slices.Delete(s.owed, 0, n)
	return s.position
}
