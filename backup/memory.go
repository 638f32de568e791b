package backup

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
)

// NewMemory returns a store that lives as long as the process: for tests, and for jobs that only need to survive the
// failure of a worker, not of its process. Apply calls done before it returns.
//
// Costs: Apply copies the batch; Scan sorts the keys that are new since the last Scan.
func NewMemory() Store {
	return &memoryStore{values: map[string][]byte{}, fences: map[string]uint64{}, marks: map[string][]byte{}, notes: map[string][]byte{}}
}

// memoryStore keeps values in a map and their order in a slice that is brought up to date by the next Scan only:
// backups are written thousands of times for each time they are read, so writers must not pay for the order.
type memoryStore struct {
	mu     sync.Mutex
	closed bool
	values map[string][]byte // values are replaced, never changed, so a snapshot is a list of references
	fences map[string]uint64
	marks  map[string][]byte
	notes  map[string][]byte
	sorted []string // in order; may hold keys deleted since, never one twice
	fresh  []string // put since the last Scan, unordered, may repeat keys of sorted that were deleted in between
}

func (m *memoryStore) Apply(b *Batch, done func(error)) { done(m.apply(b, nil)) }

func (m *memoryStore) ApplyNoted(b *Batch, notes []Entry, done func(error)) { done(m.apply(b, notes)) }

func (m *memoryStore) apply(b *Batch, notes []Entry) error {
	if err := errors.Join(b.check(), checkNotes(notes)); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	if min := m.fences[b.Owner]; b.Epoch < min {
		return fencedError(b.Owner, b.Epoch, min)
	}
	for _, e := range b.Puts {
		if _, ok := m.values[string(e.Key)]; !ok {
			m.fresh = append(m.fresh, string(e.Key))
		}
		m.values[string(e.Key)] = bytes.Clone(e.Value)
	}
	for _, k := range b.Deletes {
		delete(m.values, string(k))
	}
	m.note(notes)
	if len(m.fresh) > 2*len(m.values)+1024 { // keys that come and go must not pile up between scans
		m.order()
	}
	return nil
}

func (m *memoryStore) note(notes []Entry) {
	for _, n := range notes {
		if len(n.Value) > 0 {
			m.notes[string(n.Key)] = bytes.Clone(n.Value)
		} else {
			delete(m.notes, string(n.Key))
		}
	}
}

func (m *memoryStore) Notes(fn func(key, value []byte) error) error {
	m.mu.Lock()
	notes, closed := maps.Clone(m.notes), m.closed
	m.mu.Unlock()
	if closed {
		return ErrClosed
	}
	for _, k := range slices.Sorted(maps.Keys(notes)) {
		if err := fn([]byte(k), notes[k]); err != nil {
			return err
		}
	}
	return nil
}

func (m *memoryStore) Fence(owner string, epoch uint64) error {
	if err := checkOwner(owner); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	if min := m.fences[owner]; epoch < min {
		return fencedError(owner, epoch, min)
	}
	m.fences[owner] = epoch
	return nil
}

// Mark implements Marker.
func (m *memoryStore) Mark(owner string, epoch uint64, record []byte) (bool, error) {
	if err := checkOwner(owner); err != nil {
		return false, err
	}
	if len(record) > MaxMarkBytes {
		return false, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false, ErrClosed
	}
	if oldest := m.fences[owner]; epoch < oldest {
		return false, fencedError(owner, epoch, oldest)
	}
	m.marks[owner] = append(m.marks[owner][:0], record...)
	return true, nil
}

// ReadMark implements Marker.
func (m *memoryStore) ReadMark(owner string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	return bytes.Clone(m.marks[owner]), nil
}

// DropMarks implements Marker.
func (m *memoryStore) DropMarks(prefix string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	maps.DeleteFunc(m.marks, func(owner string, _ []byte) bool { return strings.HasPrefix(owner, prefix) })
	return nil
}

func (m *memoryStore) Scan(prefix []byte, fn func(key, value []byte) error) error {
	snapshot, err := m.snapshot(string(prefix))
	if err != nil {
		return err
	}
	for i := range snapshot {
		if err := fn(snapshot[i].Key, snapshot[i].Value); err != nil {
			return err
		}
	}
	return nil
}

func (m *memoryStore) snapshot(prefix string) ([]Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	m.order()
	var list []Entry
	for _, k := range m.sorted[sort.SearchStrings(m.sorted, prefix):] {
		if len(k) < len(prefix) || k[:len(prefix)] != prefix {
			break
		}
		if v, ok := m.values[k]; ok {
			list = append(list, Entry{Key: []byte(k), Value: v})
		}
	}
	return list, nil
}

// order merges fresh into sorted and drops what was deleted.
func (m *memoryStore) order() {
	if len(m.fresh) == 0 && len(m.sorted) <= 2*len(m.values)+1024 {
		return
	}
	slices.Sort(m.fresh)
	merged := make([]string, 0, len(m.values))
	add := func(k string) {
		if _, ok := m.values[k]; ok && (len(merged) == 0 || merged[len(merged)-1] != k) {
			merged = append(merged, k)
		}
	}
	i := 0
	for _, k := range m.fresh {
		for i < len(m.sorted) && m.sorted[i] <= k {
			add(m.sorted[i])
			i++
		}
		add(k)
	}
	for ; i < len(m.sorted); i++ {
		add(m.sorted[i])
	}
	m.sorted, m.fresh = merged, m.fresh[:0]
}

func (m *memoryStore) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.values, m.marks, m.notes, m.sorted, m.fresh = nil, nil, nil, nil, nil
	return nil
}

func fencedError(owner string, epoch, oldest uint64) error {
	return fmt.Errorf("epoch %d of %q, oldest allowed is %d: %w", epoch, owner, oldest, ErrFenced)
}
