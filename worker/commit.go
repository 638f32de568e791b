package worker

import (
	"fmt"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/threshold"
)

// obey starts or awaits a commit if the state's divergence, the marks or the length of a replay demand one.
func (o *operator) obey() error {
	if o.rebuild.silent.Load() {
		return nil // all that it has done is durable
	}
	if o.rebuild.tooFar() {
		return o.stopRebuilding()
	}
	for rounds := 0; o.policy != nil; rounds++ {
		action := o.policy.Decide(o.state.now())
		if action == threshold.Continue {
			break
		}
		if action == threshold.Wait {
			// What was processed during an earlier backup may need another; a partial one may not be enough.
			if rounds > 2 {
				return fmt.Errorf("back up state of %s partition %d: its divergence is still %v after it was saved whole, theta is %v",
					o.w.cfg.Node.Name, o.index, o.state.now(), o.policy.Theta())
			}
			if err := o.commitNow(rounds > 1); err != nil {
				return err
			}
			continue
		}
		if !o.mayBegin() {
			break
		}
		return o.begin(false)
	}
	due := o.plan.every > 0 && o.total-o.committedAt >= o.plan.every || o.peers != nil && o.peers.due() || o.rebuild.due()
	if !due && o.marks != nil && o.marks.Due() && (o.flushes || !o.marksAtOnce()) {
		done, err := o.mark()
		if err != nil {
			return err
		}
		due = !done
	}
	if due && o.plan.whole {
		return o.commitWhole()
	}
	if due && o.mayBegin() {
		return o.begin(false)
	}
	return nil
}

// mayMark says whether a mark without a commit would do. Now and then it does not, so that a commit clears the item log if there may
// be something in it; it never does for a sink that counts, whose state must not lag behind its position.
func (o *operator) mayMark() bool {
	return !o.w.cfg.Guarantee.batches() && !o.counts() && o.unlogged < marksBetween && (!o.rebuild.on() || o.rebuild.placed)
}

// marksAtOnce says whether mark will make the position durable without a commit. Nothing is then gained by a mark before the
// window is used up, which markIfFull makes; a commit has to begin earlier, for it takes a while. So has the mark that a sink's
// acknowledgements wait for.
func (o *operator) marksAtOnce() bool { return o.marksAlone && o.mayMark() }

// markIfFull makes a mark if the window of the marks is used up, and that can be done at once.
func (o *operator) markIfFull() error {
	if o.marks == nil || o.marks.Gate() > o.total || !o.marksAtOnce() {
		return nil
	}
	_, err := o.mark()
	return err
}

// mark makes the position durable at once, if it may and the store can do that (backup.Marker), and says whether it has. What the
// state lacks is within theta, as with a commit of the position alone.
func (o *operator) mark() (bool, error) {
	if !o.mayMark() {
		return false, nil
	}
	if err := o.flush(); err != nil {
		return false, err
	}
	ok, err := o.store.Mark(o.inputs)
	if err != nil {
		return false, err
	}
	if o.marksAlone = ok; !ok {
		o.unlogged = marksBetween // there is no use in trying, and flushing, again before the next commit
		return false, nil
	}
	o.w.stats.Marks.Add(1)
	o.markedAt = o.total
	o.marks.Committed(o.total)
	if o.rebuild.on() { // no item log to be cleared, and senders go by the place
		return true, nil
	}
	if o.logged.Load() > o.clearedTo {
		o.unlogged++
	}
	o.durable(o.inputs, o.handled)
	return true, nil
}

// flush makes what a sink was given safe before its position is.
func (o *operator) flush() error {
	if o.state.flush == nil || o.closed.Last { // its Close has made everything final
		return nil
	}
	if err := o.state.flush.Flush(); err != nil {
		return fmt.Errorf("flush %s partition %d: %w", o.w.cfg.Node.Name, o.index, err)
	}
	return nil
}

// durable tells upstream which positions are.
func (o *operator) durable(inputs []backup.Input, handled uint64) {
	o.covered.Store(handled)
	for i, in := range inputs {
		o.committed[i].Store(in.Seq)
	}
	o.w.up.park.Wake()
}

// commitNow waits until the commit under way is durable, or makes one. The caller looks again at what it waits for: the
// commit that was under way may not have been enough.
func (o *operator) commitNow(whole bool) error {
	o.w.stats.Waits.Add(1)
	if o.flight.phase.Load() == noFlight {
		o.await(forReceivers, o.mayBegin)
		if err := o.begin(whole); err != nil {
			return err
		}
	}
	o.land()
	return o.settle()
}

// land waits until the commit under way has ended.
func (o *operator) land() {
	o.awaitReceivers()
	o.awaitFlight()
}

// mayBegin says whether a commit can be started: none is under way, and the one that a close may have to be run again
// from is no longer needed, because the receivers have committed what the close emitted.
func (o *operator) mayBegin() bool {
	if o.flight.phase.Load() != noFlight {
		return false
	}
	for ordinal, end := range o.opened {
		if o.exit.reach[ordinal] && o.exit.committed[ordinal].Load() < end {
			return false
		}
	}
	return true
}

// begin starts a commit of the position and of the state: whole if asked for or if the store needs it, else the
// elements that changed most, or none. A commit of the position alone is sound, since the elements that it leaves out
// lag by no more than theta, and it is how a mark is made where the store keeps none beside the commits, and when
// marksBetween were. mayBegin must hold.
func (o *operator) begin(whole bool) error {
	if err := o.flush(); err != nil {
		return err
	}
	if o.w.replay == Remakes {
		o.task.Flush() // what it emitted of the items that the commit covers
	}
	whole = whole || o.stale || o.plan.unsure || o.store.NeedWhole()
	saving := o.state.backup != nil && (whole || o.due())
	if o.rebuild.on() {
		saving = o.rebuild.begun(o, whole)
		whole = saving
	}
	o.next.Whole, o.next.Elements, o.partial = whole && !saving, nil, false
	if saving {
		before := o.state.now()
		o.writer.Reset(whole)
		if err := o.state.backup.BackupState(o.writer); err != nil {
			return fmt.Errorf("back up state of %s partition %d: %w", o.w.cfg.Node.Name, o.index, err)
		}
		o.next.Whole, o.next.Elements, o.partial = whole, o.writer.Bytes(), true
		if o.policy != nil {
			o.policy.Started(before, o.state.now())
		}
	}
	if o.w.replay == Retains {
		o.next.Outputs = append(append(o.next.Outputs[:0], o.exit.next...), o.exit.windows, o.exit.level)
	}
	o.next.Closing = encodeClosing(o.closed, o.pending)
	o.flightAt, o.flightHandled = o.total, o.handled
	copy(o.flightInputs, o.inputs)
	copy(o.remake.flightTaken, o.remake.taken)
	o.next.Inputs = o.flightInputs
	o.peers.begun()
	if o.w.replay == Remakes {
		o.hold()
	} else {
		o.commit(&o.next)
	}
	return nil
}

// due says whether the state has diverged enough for a commit to take elements along. If not, a commit of the position
// alone will do. A state that can only be saved as a whole waits until it must be.
func (o *operator) due() bool {
	switch d := o.state.now(); {
	case o.policy == nil:
		return true
	case o.state.partial():
		return o.policy.Pays(d)
	default:
		return o.policy.Decide(d) != threshold.Continue
	}
}

// settle takes note of a commit that has become durable.
func (o *operator) settle() error {
	o.release()
	ended, err := o.settled()
	if !ended || err != nil {
		return err
	}
	if o.partial {
		before := o.diverged()
		if o.state.durable != nil {
			o.state.durable.BackupDurable()
		}
		if o.policy != nil {
			o.policy.Durable(o.state.now())
		}
		o.saved(o.bytes, before, o.diverged())
		o.stale = o.stale && !o.next.Whole
	}
	o.committedAt, o.unlogged, o.clearedTo = o.flightAt, 0, o.flightHandled
	o.rest.landed()
	if o.marks != nil {
		o.marks.Committed(o.flightAt)
	}
	o.peers.committed()
	for i, n := range o.remake.flightTaken {
		o.remake.covered[i].Store(n)
	}
	if o.rebuild.on() {
		o.rebuild.settled(o)
	} else if o.flightAt >= o.markedAt { // otherwise a mark has gone further meanwhile
		o.durable(o.flightInputs, o.flightHandled)
	}
	return nil
}

// commitWhole makes the state durable as a whole, as at the end of a window: a state may hold more than its divergence
// sees.
func (o *operator) commitWhole() error {
	if o.plan.never {
		return nil
	}
	for !o.mayBegin() {
		o.awaitReceivers()
		o.await(forReceivers, func() bool { return o.flight.phase.Load() == landed || o.mayBegin() })
		if err := o.settle(); err != nil {
			return err
		}
	}
	if err := o.begin(o.state.backup != nil); err != nil {
		return err
	}
	o.land()
	return o.settle()
}
