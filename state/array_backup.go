package state

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// BackupState implements stream.BackupState. A whole backup writes all elements but zeros; a partial one, under Max,
// those that changed by 1/2 theta or more, otherwise those that changed most until Options.Clear of the divergence is
// cleared. The key of an element is the 8 bytes of its index. A whole backup is in order.
func (a *ArrayWith[T, B]) BackupState(w *stream.StateWriter) error { return a.BackupWith(w, nil) }

// BackupWith is BackupState for a state that keeps another number beside each element, which does not count as distance:
// the value of an element then has 16 bytes, of which beside returns the last 8 as a little-endian number. RestoreState
// does not know them.
func (a *ArrayWith[T, B]) BackupWith(w *stream.StateWriter, beside func(i int) uint64) error {
	if !a.tracked {
		return a.writeAll(w, beside)
	}
	a.ground()
	var err error
	left := 0.0
	if a.complete = w.Whole() || a.blind; a.complete {
		a.measureListed()
		err = a.writeAll(w, beside)
		a.flying = append(a.flying, a.changed()...)
	} else if left, err = a.choose(); err == nil {
		for _, i := range a.flying {
			err = cmp.Or(err, a.write(w, i, beside))
		}
	}
	if err != nil {
		a.flying = a.flying[:0] // nothing has taken off
		return err
	}
	a.takeOff(left)
	return nil
}

// changed returns the elements whose backup changes anything: under L1 and L2 those that are listed, unless it is not known what
// is durable.
func (a *ArrayWith[T, B]) changed() []int {
	if a.options.Norm != errorbound.Max && !a.blind {
		return a.listed.appendTo(a.members[:0])
	}
	all := make([]int, len(a.elements))
	for i := range all {
		all[i] = i
	}
	return all
}

// takeOff notes what a backup has just written, and the total of the distances that it has left.
func (a *ArrayWith[T, B]) takeOff(left float64) {
	for _, i := range a.flying {
		e := &a.elements[i]
		a.landed[i], e.saved = e.saved, e.value
		a.aloft.add(i)
		if a.paths != nil {
			a.paths[i].flight = 0
		}
	}
	a.sums[1] = left
}

// writeAll writes what is needed to replace every element.
func (a *ArrayWith[T, B]) writeAll(w *stream.StateWriter, beside func(int) uint64) error {
	if a.tracked && a.options.Norm != errorbound.Max && w.Whole() { // without a look at what was never anything but 0
		a.members = a.used.appendTo(a.members[:0])
		for _, i := range a.members {
			if err := a.writeOne(w, i, beside); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range a.elements {
		if err := a.writeOne(w, i, beside); err != nil {
			return err
		}
	}
	return nil
}

// writeOne is write, but that a whole backup has no zeros. In a partial one an older element would stay.
func (a *ArrayWith[T, B]) writeOne(w *stream.StateWriter, i int, beside func(int) uint64) error {
	if a.elements[i].value == 0 && w.Whole() {
		return nil
	}
	return a.write(w, i, beside)
}

func (a *ArrayWith[T, B]) write(w *stream.StateWriter, i int, beside func(int) uint64) error {
	v := a.elements[i].value
	if !finite(v) {
		return fmt.Errorf("back up element %d, value %v: %w", i, v, ErrNotFinite)
	}
	if beside != nil {
		w.PutUint64s(uint64(i), numberBits(v), beside(i))
		return nil
	}
	w.PutUint64(uint64(i), numberBits(v))
	return nil
}

// ground forgets a backup that did not become durable.
func (a *ArrayWith[T, B]) ground() {
	for _, i := range a.flying {
		a.elements[i].saved, a.level = a.landed[i], math.Inf(1)
	}
	a.land()
}

// land says that nothing is in flight any more.
func (a *ArrayWith[T, B]) land() {
	clear(a.aloft)
	a.flying = a.flying[:0]
}

// choose makes flying the elements that a partial backup writes, and returns the total of the distances of the others under L1
// and L2. The error wraps ErrNotFinite.
func (a *ArrayWith[T, B]) choose() (left float64, err error) {
	if a.options.Norm == errorbound.Max {
		a.measureListed()
		a.flying = a.listed.appendTo(a.flying)
		return 0, nil
	}
	total := a.sums[0]
	near, enough := a.gatherFar(total)
	if !enough {
		total, near = a.gather(), 0
	}
	if total-total != 0 { // say which one it is
		for _, i := range a.members {
			if v := a.elements[i].value; !finite(v) {
				return 0, fmt.Errorf("back up element %d, value %v: %w", i, v, ErrNotFinite)
			}
		}
	}
	s := largest(a.changes, total, a.options.goal(total, a.theta))
	if a.plain {
		a.raise(s.least, enough)
	}
	for _, c := range a.changes {
		if s.takes(c.distance) {
			a.flying = append(a.flying, c.slot)
			continue
		}
		if left += c.distance; a.plain && c.distance >= a.level {
			a.far.add(c.slot)
		}
	}
	return left + near, nil
}

// gatherFar collects the changes of the elements that are far from what is saved, and returns the total of all others; enough
// says that a backup need not look at those. So it usually is: in a model some hundred weights go most of the way.
func (a *ArrayWith[T, B]) gatherFar(total float64) (near float64, enough bool) {
	goal := a.options.goal(total, a.theta)
	if !a.plain || math.IsInf(a.level, 1) || !(a.rounding < goal/16) { // which only gather makes smaller
		return 0, false
	}
	a.changes = a.changes[:0]
	a.members = a.far.appendTo(a.members[:0])
	near = total
	for _, i := range a.members {
		d := a.away(i)
		near -= d
		a.changes = append(a.changes, change{i, d})
	}
	if !(near <= goal) {
		return 0, false
	}
	a.sums[1] = total
	a.rounded(2 * total * float64(len(a.changes)))
	return max(0, near), true
}

// raise sets the level from which on the next partial backup looks at elements: well below the least of those that this one
// has chosen. If only far ones were looked at, it does not fall, for others may be above it.
func (a *ArrayWith[T, B]) raise(least float64, onlyFar bool) {
	level := least / 2
	if onlyFar {
		level = max(level, a.level)
	}
	a.level = level
	clear(a.far)
}

// gather is measureListed under L1 and L2 while nothing is in flight: it also collects the changes, and returns their total.
// A pass of its own for that would cost as much again, for the elements lie far apart in memory.
func (a *ArrayWith[T, B]) gather() (total float64) {
	a.changes, a.rounding = a.changes[:0], 0
	a.members = a.listed.appendTo(a.members[:0])
	a.used.addAll(a.listed)
	for _, i := range a.members {
		d := a.away(i)
		if d == 0 && a.elements[i].here() { // the square of a difference may be 0
			a.listed.remove(i)
			continue
		}
		total += d
		a.changes = append(a.changes, change{i, d})
	}
	a.sums = [2]float64{total, total}
	a.rounded(total * float64(len(a.changes)))
	return total
}

// BackupDurable implements stream.BackupDurable, in a bit of time for each element of the Array, and under Max, or where few
// others have changed, in time proportional to the number of those that are due or in the backup.
func (a *ArrayWith[T, B]) BackupDurable() {
	if !a.tracked {
		return
	}
	if a.paths != nil {
		for _, i := range a.flying {
			a.paths[i].durable = a.paths[i].flight
		}
	}
	if a.options.Norm == errorbound.Max {
		a.listed.addAll(a.aloft) // looked at again just below
	}
	a.sums[0] = a.sums[1] // what was in flight is what is durable
	if a.complete {
		a.calm, a.blind, a.complete = 0, false, false
	}
	flown := len(a.flying)
	a.land()
	// Under Max so that the peak goes down, else to leave no rounding, if that costs little.
	if few := a.listed.count() <= 2*flown; few || a.options.Norm == errorbound.Max {
		a.measureListed()
	}
}

// RestoreState implements stream.RestoreState.
func (a *ArrayWith[T, B]) RestoreState(r *stream.StateReader) error {
	return a.restoreWith(r, func(r *stream.StateReader) error {
		return fmt.Errorf("%w: key of %d bytes, want an index of 8", stream.ErrState, len(r.Key()))
	})
}

// restoreWith is RestoreState for a state that saves more than its Array: elements whose key does not have 8 bytes are
// given to other.
func (a *ArrayWith[T, B]) restoreWith(r *stream.StateReader, other func(*stream.StateReader) error) error {
	for r.Next() {
		if len(r.Key()) != 8 {
			if err := other(r); err != nil {
				return err
			}
			continue
		}
		if err := a.restore(r); err != nil {
			return err
		}
	}
	a.ground()
	for i := range a.elements { // SetTheta may come later, after a compensation
		e := &a.elements[i]
		e.saved = e.value
	}
	a.paths = nil
	if a.tracked {
		a.SetTheta(a.theta)
	}
	return r.Err()
}

func (a *ArrayWith[T, B]) restore(r *stream.StateReader) error {
	index, v, err := a.element(r)
	if err == nil {
		a.elements[index].value, a.written = v, true
	}
	return err
}

// element reads one element.
func (a *ArrayWith[T, B]) element(r *stream.StateReader) (index uint64, v T, err error) {
	index = binary.LittleEndian.Uint64(r.Key())
	if index >= uint64(len(a.elements)) {
		return 0, 0, fmt.Errorf("%w: index %d of %d elements", stream.ErrState, index, len(a.elements))
	}
	if !r.Deleted() {
		v, err = decodeNumber[T](r.Value())
	}
	return index, v, err
}

// AddState adds the elements of another state one by one, for stream.MergeState.
func (a *ArrayWith[T, B]) AddState(r *stream.StateReader) error {
	return a.addStateWith(r, func(r *stream.StateReader) error {
		return fmt.Errorf("%w: key of %d bytes, want an index of 8", stream.ErrState, len(r.Key()))
	})
}

// addStateWith is to AddState what restoreWith is to RestoreState.
func (a *ArrayWith[T, B]) addStateWith(r *stream.StateReader, other func(*stream.StateReader) error) error {
	for r.Next() {
		if len(r.Key()) != 8 {
			if err := other(r); err != nil {
				return err
			}
			continue
		}
		index, v, err := a.element(r)
		if err != nil {
			return err
		}
		a.Add(int(index), v)
	}
	return r.Err()
}
