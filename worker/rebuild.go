package worker

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/stream"
)

// This file holds what is done for operators that are stream.Rebuildable. Where all their inputs can be read again, a commit
// holds no rows of the state but a place: positions of the inputs, from which on the items make the state again. Marks go on
// as ever, so after a failure a partition begins at the place and is silent until all its inputs have come to
// their marks:
//
//	I9   what the newest durable commit holds of the state, and the items from its place on, make the state; and the senders can
//	     read these again
//
// The order between the inputs may be another one while it is silent. So nothing beyond a mark is let in before all have come
// to theirs (hold.go): of an item beyond its mark and one before it, nobody could say whether the output that they
// have in common was emitted. Nothing waits for that either, since two partitions that wait for each other's items could stop a
// source for good: what comes too early is dropped, and asked for again afterwards.

// Shares of what may be replayed: how many items lie between two places that a partition remembers, and by how many the place
// has to move on for a commit to be made of it.
const (
	placesRemembered = 256
	placesCommitted  = 64
)

// rebuild is what a partition has to do with that. Fields without atomics belong to the compute goroutine, or to Load.
type rebuild struct {
	op      stream.Rebuildable // nil if the state is backed up
	given   uint64             // items that this instance was given
	places  []place            // oldest first; the first is what the next commit names
	flight  place              // of the commit under way
	durable place              // of the newest durable commit
	saving  bool               // the commit under way holds the whole state
	placed  bool               // the newest durable commit names a place; until then there are no marks
	limit   uint64             // items to be replayed at most
	target  []uint64           // per input channel, what was processed before; not changed after Load
	silent  atomic.Bool        // not all inputs have come to their targets
}

// place is where a partition has been: positions of its inputs, and what it had been given by then.
type place struct {
	given  uint64
	inputs []uint64
}

// on says whether the state is rebuilt, and not backed up.
func (r *rebuild) on() bool { return r.op != nil }

// rebuildable returns the operator if its state need not be backed up: if it says so, and what it depends on is its items
// alone, and all of these can be read again. Guarantee Approximate alone has marks that come often enough.
func (o *operator) rebuildable() stream.Rebuildable {
	cfg := &o.w.cfg
	op, ok := o.task.Operator().(stream.Rebuildable)
	if _, compensates := o.task.Operator().(stream.Compensator); !ok || compensates || o.state.backup == nil {
		return nil
	}
	if cfg.Guarantee != Approximate || !cfg.InputsRewind || !o.repeats || len(cfg.Node.BackIn) > 0 || cfg.Node.NewDesk != nil {
		return nil
	}
	if _, ok := op.OldestItem(); !ok {
		return nil
	}
	return op
}

// restore begins at the place of the restored commit, nil if there was none, and not at the positions of the marks.
func (r *rebuild) restore(o *operator, from *backup.Restored) {
	if !r.on() {
		return
	}
	r.limit = cmp.Or(o.w.cfg.Rebuild, replayLimit)
	r.target = r.here(o).inputs
	// After the end of the stream there is nothing to rebuild, and commits of a state that was backed up have no place.
	if r.placed = from != nil && len(from.Outputs) == len(o.inputs); r.placed && !o.closed.Last {
		for i := range o.inputs {
			o.inputs[i].Seq = min(o.inputs[i].Seq, from.Outputs[i])
		}
	}
	r.durable = r.here(o)
	r.places = []place{r.durable}
	r.silent.Store(!r.caughtUp(o))
	o.task.Mute(r.silent.Load())
}

// here returns where the partition is.
func (r *rebuild) here(o *operator) place {
	p := place{given: r.given}
	for i := range o.inputs {
		p.inputs = append(p.inputs, o.inputs[i].Seq)
	}
	return p
}

// mark returns up to where an input was processed before this incarnation, 0 where that plays no part.
func (r *rebuild) mark(input int) uint64 {
	if r.target == nil {
		return 0
	}
	return r.target[input]
}

func (r *rebuild) caughtUp(o *operator) bool {
	for i := range o.inputs {
		if o.inputs[i].Seq < r.target[i] {
			return false
		}
	}
	return true
}

// replayed takes note of items that were processed before. What they emitted is behind a mark; with the last of them the
// partition goes on as ever.
func (o *operator) replayed() {
	o.marks.Committed(o.total)
	o.markedAt = o.total
	if o.rebuild.caughtUp(o) {
		o.task.Mute(false)
		o.rebuild.silent.Store(false)
		o.w.up.park.Wake()
	}
}

// passed takes note of n items that were given to the operator. Now and then it remembers where that was, and forgets the places
// that the state does not need any more.
func (r *rebuild) passed(o *operator, n int) {
	r.given += uint64(n)
	if !r.on() || r.given-r.places[len(r.places)-1].given < max(r.limit/placesRemembered, 1) {
		return
	}
	r.places = append(r.places, r.here(o))
	oldest, _ := r.op.OldestItem()
	gone := 0
	for gone+1 < len(r.places) && r.places[gone+1].given <= oldest {
		gone++
	}
	r.places = slices.Delete(r.places, 0, gone)
}

// due says whether a commit should be made because the place has moved on.
func (r *rebuild) due() bool {
	return r.on() && r.places[0].given-r.durable.given >= max(r.limit/placesCommitted, 1)
}

// tooFar says whether a failure would have to replay more than there may be.
func (r *rebuild) tooFar() bool { return r.on() && r.given-r.places[0].given > r.limit }

// stopRebuilding makes the state durable as a whole and backs it up from then on, as that of any other operator.
func (o *operator) stopRebuilding() error {
	o.land()
	if err := o.settle(); err != nil {
		return err
	}
	o.rebuild.op, o.next.Outputs = nil, nil
	o.follow(o.w.budget.Theta)
	return o.commitWhole()
}

// follow begins to watch the divergence of the state.
func (o *operator) follow(theta float64) {
	if t, ok := o.task.Operator().(stream.Thresholder); ok {
		t.SetTheta(theta)
	}
	if o.state.divergence != nil {
		o.policy = o.newPolicy(theta)
	}
}

// begun fixes the place that a commit names, and says whether the commit holds the state: the whole of it at the end of a window,
// but that of the stream, and where the store needs that. The state is then rebuilt from there.
func (r *rebuild) begun(o *operator, whole bool) (saving bool) {
	r.flight, r.saving = r.places[0], whole && !o.closed.Last
	if r.saving {
		r.flight = r.here(o)
	}
	o.next.Outputs = append(o.next.Outputs[:0], r.flight.inputs...)
	return r.saving
}

// settled takes note that the commit is durable: the senders need keep nothing before its place.
func (r *rebuild) settled(o *operator) {
	r.durable, r.placed = r.flight, true
	if r.saving {
		r.places = slices.DeleteFunc(r.places, func(p place) bool { return p.given <= r.durable.given })
		r.places = slices.Insert(r.places, 0, r.durable)
	}
	for i, seq := range r.durable.inputs {
		o.committed[i].Store(seq)
	}
	o.w.up.park.Wake()
}

// valid checks what of I9 can be seen here.
func (r *rebuild) valid(o *operator) error {
	if !r.on() {
		return nil
	}
	for i := range o.inputs {
		if at := o.inputs[i].Seq; r.durable.inputs[i] > at || r.silent.Load() && at > r.target[i] {
			return fmt.Errorf("%s partition %d: I9: channel %d is at %d, its place at %d, its mark at %d, silent: %v",
				o.w.cfg.Node.Name, o.index, i, at, r.durable.inputs[i], r.target[i], r.silent.Load())
		}
	}
	return nil
}
