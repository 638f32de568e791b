package distinct

import (
	"math"

	"github.com/afstream/afstream/connector"
)

// Exact keeps all keys, to check what a job reports, and the sketch that they make. It may not be used by two goroutines
// at once. The zero Exact is not valid; see NewExact.
type Exact struct {
	keys  map[connector.Key]struct{}
	count *Count
}

// NewExact returns an Exact of no keys, to be compared with sketches of a precision. It panics if that is out of range.
func NewExact(precision int) *Exact {
	return &Exact{keys: map[connector.Key]struct{}{}, count: New(precision)}
}

// Add takes one item.
func (e *Exact) Add(item connector.Keyed) {
	e.keys[item.Key] = struct{}{}
	_ = e.count.Process(item, nil) // never fails
}

// Len returns the number of different keys.
func (e *Exact) Len() int { return len(e.keys) }

// Quality says how far a sketch is from the exact one, and its estimate from the number of keys.
type Quality struct {
	// RelativeError is (estimate - keys) / keys, 0 if there are none.
	RelativeError float64 `json:"relative_error"`
	// Loss is what the estimate without failures is above this one, relative to this one; the standard error plays no part
	// in it. It is 0 if there is nothing to be relative to.
	Loss float64 `json:"loss"`
	// LowRegisters is how many registers are lower than without failures: the Count norm. HighRegisters are higher, which
	// no failure can explain.
	LowRegisters  int     `json:"low_registers"`
	HighRegisters int     `json:"high_registers"`
	Keys          int     `json:"keys"`
	Estimate      float64 `json:"estimate"`
}

// Compare checks a sketch, which must have the precision of exact.
func Compare(s Sketch, exact *Exact) Quality {
	q := Quality{Keys: exact.Len(), Estimate: s.Estimate()}
	for i, want := range exact.count.registers {
		switch got := s.registers[i]; {
		case got < want:
			q.LowRegisters++
		case got > want:
			q.HighRegisters++
		}
	}
	if q.Keys > 0 {
		q.RelativeError = (q.Estimate - float64(q.Keys)) / float64(q.Keys)
	}
	if q.Estimate > 0 && !math.IsInf(q.Estimate, 1) {
		q.Loss = (exact.count.Sketch().Estimate() - q.Estimate) / q.Estimate
	}
	return q
}
