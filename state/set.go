package state

import (
	"iter"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// Set holds keys; its divergence is the number of keys that are in one of two states and not in the other. The zero
// Set is empty and ready for use. Costs are those of Map.
type Set[K Key] struct {
	keys Map[K, uint8]
	set  bool // keys has its norm
}

// Configure sets the options, of which Norm is ignored. It must be called before the Set is used, and panics if they
// are not valid.
func (s *Set[K]) Configure(o Options) {
	o.Norm = errorbound.Count
	s.keys.Configure(o)
	s.set = true
}

// state returns the Map behind the Set.
func (s *Set[K]) state() *Map[K, uint8] {
	if !s.set {
		s.Configure(Options{})
	}
	return &s.keys
}

// Add adds key and reports whether it is new.
func (s *Set[K]) Add(key K) bool {
	m := s.state()
	if s.Has(key) {
		return false
	}
	m.Put(key, 0)
	return true
}

// Has reports whether key is in the set.
func (s *Set[K]) Has(key K) bool {
	_, ok := s.keys.Lookup(key)
	return ok
}

// Delete removes key and reports whether it was there.
func (s *Set[K]) Delete(key K) bool {
	if !s.Has(key) {
		return false
	}
	s.state().Delete(key)
	return true
}

// Len returns the number of keys.
func (s *Set[K]) Len() int { return s.keys.Len() }

// All yields all keys in order. It sorts, and allocates 8 bytes a key. The Set must not be changed meanwhile.
func (s *Set[K]) All() iter.Seq[K] {
	return func(yield func(K) bool) {
		for key := range s.keys.All() {
			if !yield(key) {
				return
			}
		}
	}
}

// Reset removes all keys, as at the start of a window. The change counts as divergence like any other.
func (s *Set[K]) Reset() { s.state().Reset() }

// Measure implements stream.Measurer, as configured; the norm is Count.
func (s *Set[K]) Measure() stream.Measure { return s.state().Measure() }

// SetTheta implements stream.Thresholder. It takes time in proportion to the number of keys.
func (s *Set[K]) SetTheta(theta float64) { s.state().SetTheta(theta) }

// StateDivergence implements stream.StateDivergence, exactly and in constant time.
func (s *Set[K]) StateDivergence() float64 { return s.state().StateDivergence() }

// BackupState implements stream.BackupState; see Map.BackupState.
func (s *Set[K]) BackupState(w *stream.StateWriter) error { return s.state().BackupState(w) }

// BackupDurable implements stream.BackupDurable.
func (s *Set[K]) BackupDurable() { s.state().BackupDurable() }

// RestoreState implements stream.RestoreState.
func (s *Set[K]) RestoreState(r *stream.StateReader) error { return s.state().RestoreState(r) }

// AddState adds the keys of another state, for stream.MergeState.
func (s *Set[K]) AddState(r *stream.StateReader) error { return s.state().AddState(r) }
