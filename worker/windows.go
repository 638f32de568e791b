package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/afstream/afstream/stream"
)

// alignment tells when a window is complete: when every input channel has delivered punctuation of its number or a
// higher one. It is pure.
type alignment struct {
	levels []uint64 // per dense input channel, the number of the last window it has ended
	level  uint64   // the last complete window
	last   uint64   // the highest number that ended a stream
}

// streamEnded is the level of a channel, or of a partition, whose stream has ended.
const streamEnded = ^uint64(0)

// note takes punctuation of one channel, in any order and as often as it comes, and returns the window that is complete
// now, if there is a new one.
func (a *alignment) note(input int, w stream.Window) (complete stream.Window, ok bool) {
	to := w.Number
	if w.Last {
		a.last = max(a.last, w.Number)
		to = streamEnded
	}
	if to <= a.levels[input] {
		return stream.Window{}, false
	}
	a.levels[input] = to
	least := slices.Min(a.levels)
	if least <= a.level {
		return stream.Window{}, false
	}
	if least == streamEnded {
		return stream.Window{Number: max(a.last, a.level+1), Last: true}, true
	}
	return stream.Window{Number: least}, true
}

// passed takes note that w is closed.
func (a *alignment) passed(w stream.Window) {
	a.level = w.Number
	if w.Last {
		a.level = streamEnded
	}
	for i := range a.levels {
		a.levels[i] = max(a.levels[i], a.level)
	}
}

// punctuation takes note of one end on one channel, and closes the window that it completes.
func (o *operator) punctuation(d delivery) error {
	if !d.repeated {
		if d.accounted && o.gate.Load() <= o.handled {
			o.await(forAcks, func() bool { return o.gate.Load() > o.handled })
		}
		if err := o.markIfFull(); err != nil {
			return err
		}
		for o.marks != nil && o.marks.Gate() <= o.total {
			if err := o.commitNow(false); err != nil {
				return err
			}
		}
		o.moved(d, d.Next(), 1)
		o.publish()
	}
	w, complete := o.ends.note(d.input, d.Window)
	if !complete {
		return nil
	}
	if err := o.meet(w); err != nil {
		return err
	}
	return o.close(w)
}

// close ends a window for this partition. An operator that emits only here commits its exact state first, so that the
// close can be run again with the same outcome; any other commits afterwards. Either way the end is repeated after a
// failure (run, forward).
func (o *operator) close(w stream.Window) error {
	if checkInvariants && o.rebuild.silent.Load() {
		return fmt.Errorf("%s partition %d: I9: window %d is closed before the state is rebuilt", o.w.cfg.Node.Name, o.index, w.Number)
	}
	o.closed = w
	if o.w.replay == Retains {
		o.pending = true
		if err := o.commitWhole(); err != nil {
			return err
		}
		return o.finish(w)
	}
	if err := o.closeWindow(w); err != nil {
		return err
	}
	if o.exit != nil && o.w.replay != Remakes {
		o.exit.punctuate(w)
	}
	if err := o.commitWhole(); err != nil {
		return err
	}
	if o.w.replay == Remakes { // only now: made again, an item might go where the window has ended
		o.exit.punctuate(w)
	}
	o.passed(w)
	return nil
}

func (o *operator) closeWindow(w stream.Window) error {
	if err := o.task.CloseWindow(w); err != nil {
		return fmt.Errorf("close %s partition %d: %w", o.w.cfg.Node.Name, o.index, err)
	}
	o.task.Flush()
	return nil
}

// finish runs the close of an operator that emits only there, from the commit made for it. After a failure it runs again.
func (o *operator) finish(w stream.Window) error {
	if err := o.closeWindow(w); err != nil {
		return err
	}
	o.exit.punctuate(w)
	o.pending, o.stale = false, true
	o.opened = append(o.opened[:0], o.exit.next...)
	o.passed(w)
	return nil
}

// passed lets the next window in.
func (o *operator) passed(w stream.Window) {
	o.ends.passed(w)
	o.peers.passed(o.ends.level)
	o.claimed = 0
	if w.Last {
		o.w.partitionDone()
	} else {
		o.raise(w.Number)
	}
	o.aligned.Store(o.ends.level)
	o.w.up.park.Wake()
}

// forward repeats, in a recovered operator that cannot run closes again, the punctuation of the last window it closed:
// what its predecessor sent may have died with it.
func (o *operator) forward() error {
	if o.closed.Number == 0 {
		return nil
	}
	switch {
	case o.exit == nil:
	case o.w.replay == Retains:
		o.exit.each(o.exit.notice)
	default:
		o.exit.punctuate(o.closed)
	}
	o.passed(o.closed)
	return nil
}

// encodeClosing packs the last closed window into a commit: its number, whether the stream ended with it, and whether
// its close is still to run.
func encodeClosing(w stream.Window, pending bool) uint64 {
	c := w.Number << 2
	if w.Last {
		c |= 2
	}
	if pending {
		c |= 1
	}
	return c
}

func decodeClosing(c uint64) (w stream.Window, pending bool) {
	return stream.Window{Number: c >> 2, Last: c&2 != 0}, c&1 != 0
}

var errWindow = errors.New("malformed punctuation")

// appendWindow writes punctuation into an item log.
func appendWindow(dst []byte, w stream.Window) []byte {
	return binary.LittleEndian.AppendUint64(dst, encodeClosing(w, false))
}

func decodeWindow(b []byte) (stream.Window, error) {
	if len(b) != 8 {
		return stream.Window{}, fmt.Errorf("%w: %d bytes", errWindow, len(b))
	}
	w, pending := decodeClosing(binary.LittleEndian.Uint64(b))
	if pending || w.Number == 0 {
		return stream.Window{}, errWindow
	}
	return w, nil
}
