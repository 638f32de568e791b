package state

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/afstream/afstream/stream"
)

// BackupState implements stream.BackupState. A whole backup writes all sums but zeros; a partial one those that are
// due, and those of SetAlways. The key of an element is the 8 bytes of its index.
func (c *Counters) BackupState(w *stream.StateWriter) error {
	if c.poisoned {
		return fmt.Errorf("back up %d sums: %w", len(c.cells), ErrNotFinite)
	}
	c.flight, c.complete, c.unstales = c.flight[:0], false, false
	if w.Whole() || c.stale || c.untracked {
		c.backupAll(w)
		return nil
	}
	for _, i := range c.due {
		v := c.cells[i].value
		w.PutUint64(uint64(i), math.Float64bits(v))
		c.flight = append(c.flight, flown{i, v})
	}
	for _, i := range c.always {
		if v := c.cells[i].value; c.mark[i] < due && v != c.durable[i] {
			w.PutUint64(uint64(i), math.Float64bits(v))
			c.flight = append(c.flight, flown{i, v})
		}
	}
	return nil
}

// backupAll writes what is needed to replace every sum, and remembers it if that is of use.
func (c *Counters) backupAll(w *stream.StateWriter) {
	c.complete, c.unstales = true, true
	zeros := c.stale && !w.Whole() // older elements stay unless they are overwritten
	for i := range c.cells {
		if v := c.cells[i].value; v != 0 || zeros {
			w.PutUint64(uint64(i), math.Float64bits(v))
		}
	}
	if c.untracked {
		c.durable, c.snapshot, c.unknown = nil, nil, true
		return
	}
	if c.snapshot == nil {
		c.snapshot = make([]float64, len(c.cells))
	}
	c.copyTo(c.snapshot)
}

// BackupDurable implements stream.BackupDurable. After a partial backup it takes time in proportion to the number of
// sums that are due.
func (c *Counters) BackupDurable() {
	if c.unstales {
		c.stale = false
	}
	switch {
	case !c.complete:
		c.settle()
	case c.snapshot != nil:
		c.durable, c.snapshot = c.snapshot, c.durable
		c.classify()
	default: // it was untracked when the backup was taken
		c.unknown = true
		c.track()
	}
	c.flight, c.complete, c.unstales = c.flight[:0], false, false
}

// settle takes over what the partial backup in flight wrote.
func (c *Counters) settle() {
	for _, f := range c.flight {
		c.durable[f.index] = f.value
		if c.mark[f.index] < due {
			c.reset(f.index)
			c.place(f.index)
		}
	}
	left := c.due
	c.due, c.peak = c.due[:0], 0
	for _, i := range left { // place appends to the same array, never beyond what has been read
		c.reset(i)
		c.place(i)
	}
}

// reset makes sum i clean, to be placed anew.
func (c *Counters) reset(i int) {
	c.count[c.mark[i]]--
	c.count[clean]++
	c.mark[i] = clean
}

// RestoreState implements stream.RestoreState.
func (c *Counters) RestoreState(r *stream.StateReader) error {
	return c.RestoreWith(r, func(r *stream.StateReader) error {
		return fmt.Errorf("%w: key of %d bytes, want an index of 8", stream.ErrState, len(r.Key()))
	})
}

// RestoreWith is RestoreState for a state that saves more than its Counters in one backup: elements whose key does not
// have 8 bytes are given to other.
func (c *Counters) RestoreWith(r *stream.StateReader, other func(*stream.StateReader) error) error {
	for r.Next() {
		if len(r.Key()) != 8 {
			if err := other(r); err != nil {
				return err
			}
			continue
		}
		if err := c.restore(r); err != nil {
			return err
		}
	}
	if c.untracked {
		c.durable, c.snapshot, c.unknown, c.intact = nil, nil, false, true
	} else {
		c.copyTo(c.durable)
	}
	c.classify()
	return r.Err()
}

func (c *Counters) restore(r *stream.StateReader) error {
	index, v, err := c.element(r)
	if err == nil {
		c.cells[index].value = v
	}
	return err
}

// element reads one sum.
func (c *Counters) element(r *stream.StateReader) (index uint64, v float64, err error) {
	index = binary.LittleEndian.Uint64(r.Key())
	if index >= uint64(len(c.cells)) {
		return 0, 0, fmt.Errorf("%w: index %d of %d sums", stream.ErrState, index, len(c.cells))
	}
	if !r.Deleted() {
		_, bits, err := r.Uint64()
		if err != nil {
			return 0, 0, err
		}
		v = math.Float64frombits(bits)
	}
	if !(v >= 0 && v <= math.MaxFloat64) {
		return 0, 0, fmt.Errorf("%w: sum %d is %v", stream.ErrState, index, v)
	}
	return index, v, nil
}

// AddState adds the sums of another state, for stream.MergeState.
func (c *Counters) AddState(r *stream.StateReader) error {
	return c.AddStateWith(r, func(r *stream.StateReader) error {
		return fmt.Errorf("%w: key of %d bytes, want an index of 8", stream.ErrState, len(r.Key()))
	})
}

// AddStateWith is to AddState what RestoreWith is to RestoreState.
func (c *Counters) AddStateWith(r *stream.StateReader, other func(*stream.StateReader) error) error {
	for r.Next() {
		if len(r.Key()) != 8 {
			if err := other(r); err != nil {
				return err
			}
			continue
		}
		index, v, err := c.element(r)
		if err != nil {
			return err
		}
		c.Add(int(index), v)
	}
	return r.Err()
}
