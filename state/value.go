package state

import (
	"fmt"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// Value is one number; its divergence is the absolute difference. The zero Value holds 0 and is ready for use.
//
// It needs no theta: its divergence is exact and costs nothing to keep. How much one item can change it only its user
// knows, so Measure says unknown; an embedding operator that knows replaces Measure.
type Value[T Number] struct {
	value, durable, flight T
	flying                 bool
}

// valueKey is the key of the one element.
const valueKey = "value"

// Value returns the number.
func (v *Value[T]) Value() T { return v.value }

// Set replaces the number.
func (v *Value[T]) Set(x T) { v.value = x }

// Add adds d, which may be negative, and returns the new number. Integers wrap around.
func (v *Value[T]) Add(d T) T {
	v.value += d
	return v.value
}

// Measure implements stream.Measurer: numbers that are added up downstream, alpha unknown. With one number all norms
// but Count are the same.
func (v *Value[T]) Measure() stream.Measure {
	return stream.Measure{Norm: errorbound.Max, Combine: errorbound.Added}
}

// StateDivergence implements stream.StateDivergence: the difference to the durable number or to the one in flight,
// whichever is larger.
func (v *Value[T]) StateDivergence() float64 {
	d := difference(v.value, v.durable)
	if v.flying {
		d = max(d, difference(v.value, v.flight))
	}
	return d
}

// BackupState implements stream.BackupState.
func (v *Value[T]) BackupState(w *stream.StateWriter) error {
	if !finite(v.value) {
		return fmt.Errorf("back up value %v: %w", v.value, ErrNotFinite)
	}
	w.Put([]byte(valueKey), encodeNumber(nil, v.value))
	v.flight, v.flying = v.value, true
	return nil
}

// BackupDurable implements stream.BackupDurable.
func (v *Value[T]) BackupDurable() {
	if v.flying {
		v.durable, v.flying = v.flight, false
	}
}

// RestoreState implements stream.RestoreState.
func (v *Value[T]) RestoreState(r *stream.StateReader) error {
	for r.Next() {
		x, err := v.element(r)
		if err != nil {
			return err
		}
		v.value, v.durable = x, x
	}
	return r.Err()
}

func (v *Value[T]) element(r *stream.StateReader) (T, error) {
	switch {
	case string(r.Key()) != valueKey:
		return 0, fmt.Errorf("%w: unknown element %q", stream.ErrState, r.Key())
	case r.Deleted():
		return 0, nil
	}
	return decodeNumber[T](r.Value())
}

// AddState adds the number of another state, for stream.MergeState.
func (v *Value[T]) AddState(r *stream.StateReader) error {
	for r.Next() {
		x, err := v.element(r)
		if err != nil {
			return err
		}
		v.Add(x)
	}
	return r.Err()
}
