package state

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// BackupState implements stream.BackupState. A whole backup writes all elements but zeros; a partial one, under Max,
// those that changed by 1/2 theta or more, otherwise those that changed most until Options.Clear of the divergence is
// cleared. The key of an element is the 8 bytes of its index. A whole backup is in order.
func (a *Array[T]) BackupState(w *stream.StateWriter) error {
	if !a.tracked {
		return a.writeAll(w)
	}
	a.ground()
	var err error
	if a.complete = w.Whole() || a.blind; a.complete {
		a.measureList()
		err = a.writeAll(w)
		a.flying = append(a.flying, a.changed()...)
	} else {
		a.flying, err = a.choose(a.flying)
		for _, i := range a.flying {
			err = cmp.Or(err, a.write(w, i))
		}
	}
	if err != nil {
		a.flying = a.flying[:0]
		return err
	}
	a.takeOff()
	return nil
}

// changed returns the elements whose backup changes anything: under L1 and L2 those that are listed, unless it is not known what
// is durable.
func (a *Array[T]) changed() []int {
	if a.options.Norm != errorbound.Max && !a.blind {
		return a.list
	}
	all := make([]int, len(a.values))
	for i := range all {
		all[i] = i
	}
	return all
}

// takeOff notes what a backup has just written.
func (a *Array[T]) takeOff() {
	for _, i := range a.flying {
		s := &a.shadows[i]
		_, before := a.distances(i, s)
		s.flight = a.values[i]
		a.marks[i] |= flying
		if a.paths != nil {
			a.paths[i].flight = 0
		}
		a.sums[1] -= before
		a.rounded(before)
	}
}

// writeAll writes what is needed to replace every element.
func (a *Array[T]) writeAll(w *stream.StateWriter) error {
	for i, v := range a.values {
		if v == 0 && w.Whole() {
			continue // in a partial backup an older element would stay
		}
		if err := a.write(w, i); err != nil {
			return err
		}
	}
	return nil
}

func (a *Array[T]) write(w *stream.StateWriter, i int) error {
	v := a.values[i]
	if !finite(v) {
		return fmt.Errorf("back up element %d, value %v: %w", i, v, ErrNotFinite)
	}
	w.PutUint64(uint64(i), numberBits(v))
	return nil
}

// ground forgets a backup that did not become durable.
func (a *Array[T]) ground() {
	for _, i := range a.flying {
		a.marks[i] &^= flying
	}
	a.flying = a.flying[:0]
}

// choose appends the elements that a partial backup writes to dst, under Max in order. The error wraps ErrNotFinite.
func (a *Array[T]) choose(dst []int) ([]int, error) {
	if a.options.Norm == errorbound.Max {
		a.measureList()
		dst = append(dst, a.list...)
		slices.Sort(dst)
		return dst, nil
	}
	left := a.gather()
	if left-left != 0 { // say which one it is
		for _, i := range a.list {
			if v := a.values[i]; !finite(v) {
				return dst, fmt.Errorf("back up element %d, value %v: %w", i, v, ErrNotFinite)
			}
		}
	}
	for _, c := range largest(a.changes, left, a.options.goal(left, a.theta)) {
		dst = append(dst, c.slot)
	}
	return dst, nil
}

// gather is measureList under L1 and L2 while nothing is in flight: it also collects the changes, and returns their total.
// A pass of its own for that would cost as much again, for the elements lie far apart in memory.
func (a *Array[T]) gather() (total float64) {
	a.changes, a.sums, a.rounding = a.changes[:0], [2]float64{}, 0
	kept := a.list[:0]
	for _, i := range a.list {
		d, _ := a.distances(i, &a.shadows[i])
		if d == 0 {
			a.marks[i] &^= listed
			continue
		}
		total += d
		kept = append(kept, i)
		a.changes = append(a.changes, change{i, d})
	}
	a.list = kept
	a.sums = [2]float64{total, total}
	a.rounded(total * float64(len(kept)))
	return total
}

// BackupDurable implements stream.BackupDurable, in time proportional to the number of elements in the backup, under Max also to
// that of the elements that are due.
func (a *Array[T]) BackupDurable() {
	if !a.tracked {
		return
	}
	for _, i := range a.flying {
		s := &a.shadows[i]
		oldDurable, oldFlight := a.distances(i, s)
		s.durable = s.flight
		a.marks[i] &^= flying
		if a.paths != nil {
			a.paths[i].durable = a.paths[i].flight
		}
		d, _ := a.distances(i, s)
		a.sums[0] += d - oldDurable
		a.sums[1] += d - oldFlight
		a.rounded(2*d + oldDurable + oldFlight)
		if a.options.Norm == errorbound.Max && !a.marks[i].has(listed) {
			a.enlist(i) // looked at again just below
		}
	}
	if a.complete {
		a.calm, a.blind, a.complete = 0, false, false
	}
	flown := len(a.flying)
	a.flying = a.flying[:0]
	// Under Max so that the peak goes down, else to leave no rounding, if that costs little.
	if few := len(a.list) <= 2*flown; a.options.Norm == errorbound.Max || few {
		a.measureList()
	}
}

// RestoreState implements stream.RestoreState.
func (a *Array[T]) RestoreState(r *stream.StateReader) error {
	return a.restoreWith(r, func(r *stream.StateReader) error {
		return fmt.Errorf("%w: key of %d bytes, want an index of 8", stream.ErrState, len(r.Key()))
	})
}

// restoreWith is RestoreState for a state that saves more than its Array: elements whose key does not have 8 bytes are
// given to other.
func (a *Array[T]) restoreWith(r *stream.StateReader, other func(*stream.StateReader) error) error {
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
	if a.shadows == nil { // SetTheta may come later, after a compensation
		a.shadows, a.marks = make([]shadow[T], len(a.values)), make([]flags, len(a.values))
	}
	for i, v := range a.values {
		a.shadows[i] = shadow[T]{durable: v}
		a.marks[i] = 0
	}
	a.paths, a.flying = nil, a.flying[:0]
	if a.tracked {
		a.SetTheta(a.theta)
	}
	return r.Err()
}

func (a *Array[T]) restore(r *stream.StateReader) error {
	index, v, err := a.element(r)
	if err == nil {
		a.values[index] = v
	}
	return err
}

// element reads one element.
func (a *Array[T]) element(r *stream.StateReader) (index uint64, v T, err error) {
	index = binary.LittleEndian.Uint64(r.Key())
	if index >= uint64(len(a.values)) {
		return 0, 0, fmt.Errorf("%w: index %d of %d elements", stream.ErrState, index, len(a.values))
	}
	if !r.Deleted() {
		v, err = decodeNumber[T](r.Value())
	}
	return index, v, err
}

// AddState adds the elements of another state one by one, for stream.MergeState.
func (a *Array[T]) AddState(r *stream.StateReader) error {
	return a.addStateWith(r, func(r *stream.StateReader) error {
		return fmt.Errorf("%w: key of %d bytes, want an index of 8", stream.ErrState, len(r.Key()))
	})
}

// addStateWith is to AddState what restoreWith is to RestoreState.
func (a *Array[T]) addStateWith(r *stream.StateReader, other func(*stream.StateReader) error) error {
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
