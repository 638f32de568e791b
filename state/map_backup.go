package state

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// BackupState implements stream.BackupState. A partial backup writes, under Max, the entries that changed by 1/2 theta
// or more, otherwise those that changed most until Options.Clear of the divergence is cleared; and all deletions.
// The key of an element is the string, or the integer in 8 bytes. Elements are written in the order of their keys.
func (m *Map[K, V]) BackupState(w *stream.StateWriter) error {
	m.ground()
	var slots []int
	m.complete = w.Whole() || !m.tracked
	if m.complete {
		slots = m.sorted()
	} else {
		slots = m.choose()
	}
	var key, value []byte
	for _, i := range slots {
		e := &m.entries[i]
		if !finite(e.value) {
			return fmt.Errorf("back up key %v, value %v: %w", e.key, e.value, ErrNotFinite)
		}
		key = encodeKey(key[:0], e.key)
		switch {
		case e.flags.has(present):
			value = encodeNumber(value[:0], e.value)
			w.Put(key, value)
		case !w.Whole():
			w.Delete(key)
		}
		e.flight = e.value
		e.flags = e.flags.to(flightPresent, e.flags.has(present)) | flying
		m.flying = append(m.flying, i)
	}
	m.measureList()
	return nil
}

// ground forgets a backup that did not become durable.
func (m *Map[K, V]) ground() {
	for _, i := range m.flying {
		e := &m.entries[i]
		e.flight, e.flags = 0, e.flags&^(flying|flightPresent)
		if !e.flags.has(listed) {
			m.release(i)
		}
	}
	m.flying = m.flying[:0]
}

// sortChanges is to changes what sortSlots is to slots.
//
//go:noinline
func sortChanges(changes []change, compare func(a, b change) int) { slices.SortFunc(changes, compare) }

// choose returns the slots that a partial backup writes.
func (m *Map[K, V]) choose() []int {
	if m.options.Norm == errorbound.Max {
		slots := slices.Clone(m.list)
		m.sortByKey(slots)
		return slots
	}
	changes, left := make([]change, 0, len(m.list)), 0.0
	for _, i := range m.list {
		d, _ := m.distances(&m.entries[i]) // nothing is in flight
		changes = append(changes, change{i, d})
		left += d
	}
	sortChanges(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(b.distance, a.distance), cmp.Compare(m.entries[a.slot].key, m.entries[b.slot].key))
	})
	goal := m.options.goal(left, m.theta)
	var slots []int
	for _, c := range changes { // all of them if left is NaN, so that the culprit is found
		if !(left <= goal) || !m.entries[c.slot].flags.has(present) {
			slots = append(slots, c.slot)
			left -= c.distance
		}
	}
	m.sortByKey(slots)
	return slots
}

// BackupDurable implements stream.BackupDurable, in time proportional to the number of changed entries, or of
// all after a whole backup.
func (m *Map[K, V]) BackupDurable() {
	for _, i := range m.flying {
		e := &m.entries[i]
		e.durable, e.flight = e.flight, 0
		e.flags = e.flags.to(stored, e.flags.has(flightPresent)) &^ (flying | flightPresent)
		if !e.flags.has(listed) {
			e.flags |= listed // looked at again just below
			m.list = append(m.list, i)
		}
	}
	m.flying = m.flying[:0]
	if m.complete {
		m.measureAll()
	} else {
		m.measureList()
	}
	m.complete = false
}

// RestoreState implements stream.RestoreState.
func (m *Map[K, V]) RestoreState(r *stream.StateReader) error {
	for r.Next() {
		key, err := decodeKey[K](r.Key())
		if err != nil {
			return err
		}
		if r.Deleted() {
			if i, ok := m.index[key]; ok {
				m.entries[i].flags = 0
				m.release(i)
			}
			continue
		}
		v, err := decodeNumber[V](r.Value())
		if err != nil {
			return err
		}
		e := &m.entries[m.slot(key)]
		e.value, e.durable, e.flags = v, v, present|stored
	}
	m.present = len(m.index)
	m.measureAll()
	return r.Err()
}

// AddState adds the values of another state to those of the same keys, for stream.MergeState.
func (m *Map[K, V]) AddState(r *stream.StateReader) error {
	for r.Next() {
		key, err := decodeKey[K](r.Key())
		if err != nil {
			return err
		}
		if r.Deleted() {
			continue
		}
		v, err := decodeNumber[V](r.Value())
		if err != nil {
			return err
		}
		m.Add(key, v)
	}
	return r.Err()
}
