package reservoir

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/afstream/afstream/stream"
)

// countsKey is the key of the element that holds the number of the next item, how many were seen in this window, and
// what they weigh. The keys of entries are the 8 bytes of their numbers.
const (
	countsKey = "seen"
	countsLen = 24
)

// BackupState implements stream.BackupState: the entries that are new and the numbers of those that went, or, in a
// whole backup, all entries.
func (s *Sample[T]) BackupState(w *stream.StateWriter) error {
	s.goneFlying, s.inFlight, s.seenFlying = len(s.gone), true, s.seen
	var key, counts [countsLen]byte
	if !w.Whole() {
		for _, number := range s.gone {
			w.Delete(binary.BigEndian.AppendUint64(key[:0], number))
		}
	}
	binary.LittleEndian.PutUint64(counts[:], s.number)
	binary.LittleEndian.PutUint64(counts[8:], s.seen)
	binary.LittleEndian.PutUint64(counts[16:], math.Float64bits(s.weight))
	w.Put([]byte(countsKey), counts[:])
	var value []byte
	for i := range s.drawn {
		d := &s.drawn[i]
		if d.saved == durable && !w.Whole() {
			continue
		}
		var err error
		value = binary.LittleEndian.AppendUint64(value[:0], math.Float64bits(d.priority))
		if value, err = appendItem(value, &d.item); err != nil {
			return fmt.Errorf("back up entry: %w", err)
		}
		w.Put(binary.BigEndian.AppendUint64(key[:0], d.number), value)
		if d.saved == fresh {
			d.saved = flying
		}
	}
	return nil
}

// BackupDurable implements stream.BackupDurable, in time proportional to Size.
func (s *Sample[T]) BackupDurable() {
	if !s.inFlight {
		return
	}
	s.inFlight, s.seenDurable = false, s.seenFlying
	s.gone = append(s.gone[:0], s.gone[s.goneFlying:]...)
	s.goneFlying = 0
	for i := range s.drawn {
		if d := &s.drawn[i]; d.saved == flying {
			d.saved = durable
			s.unsaved--
		}
	}
}

// RestoreState implements stream.RestoreState. Of a sample that is larger than Options.Size it keeps the smallest
// priorities. The error wraps stream.ErrState.
func (s *Sample[T]) RestoreState(r *stream.StateReader) error {
	found := map[uint64]drawn[T]{}
	for r.Next() {
		if string(r.Key()) == countsKey {
			if err := s.restoreCounts(r); err != nil {
				return err
			}
			continue
		}
		if len(r.Key()) != 8 {
			return fmt.Errorf("%w: unknown element %q", stream.ErrState, r.Key())
		}
		number := binary.BigEndian.Uint64(r.Key())
		if r.Deleted() {
			delete(found, number)
			continue
		}
		d := drawn[T]{number: number, saved: durable}
		if err := d.restore(r.Value()); err != nil {
			return err
		}
		found[number] = d
	}
	if err := r.Err(); err != nil {
		return err
	}
	for number := range found {
		if number >= s.number {
			return fmt.Errorf("%w: an entry is item %d of %d", stream.ErrState, number, s.number)
		}
	}
	s.fill(found)
	return nil
}

func (s *Sample[T]) restoreCounts(r *stream.StateReader) error {
	v := r.Value()
	if len(v) != countsLen {
		return fmt.Errorf("%w: counts of %d bytes", stream.ErrState, len(v))
	}
	s.number, s.seen = binary.LittleEndian.Uint64(v), binary.LittleEndian.Uint64(v[8:])
	s.weight = math.Float64frombits(binary.LittleEndian.Uint64(v[16:]))
	if s.number > maxSeen || s.seen > s.number || !isSum(s.weight) {
		return fmt.Errorf("%w: item %d, seen %d, weight %v", stream.ErrState, s.number, s.seen, s.weight)
	}
	s.seenDurable = s.seen
	return nil
}

func (d *drawn[T]) restore(value []byte) error {
	if len(value) < 8 {
		return fmt.Errorf("%w: entry of %d bytes", stream.ErrState, len(value))
	}
	d.priority = math.Float64frombits(binary.LittleEndian.Uint64(value))
	if !isSum(d.priority) {
		return fmt.Errorf("%w: priority %v", stream.ErrState, d.priority)
	}
	if err := decodeItem(value[8:], &d.item); err != nil {
		return fmt.Errorf("%w: %w", stream.ErrState, err)
	}
	return nil
}

// fill makes the heap of the entries found, in any order: what is emitted is sorted.
func (s *Sample[T]) fill(found map[uint64]drawn[T]) {
	for _, d := range found {
		if len(s.drawn) < s.options.Size {
			s.drawn = append(s.drawn, d)
			s.up(len(s.drawn) - 1)
			continue
		}
		if d.priority < s.drawn[0].priority {
			s.drawn[0], d = d, s.drawn[0]
			s.down(0)
		}
		s.forget(&d)
	}
	s.raiseBar()
}
