package aggregate

import (
	"math"

	"github.com/afstream/afstream/connector"
)

// Exact keeps all values of each key and computes the aggregates at the end, to check what a job reports. It takes 8
// bytes per item, and may not be used by two goroutines at once.
type Exact[T any] struct {
	options Options[T]
	values  map[connector.Key][]float64
}

// NewExact returns an Exact of no items. It panics if o is not valid; see Options.Validate.
func NewExact[T any](o Options[T]) *Exact[T] {
	if err := o.Validate(); err != nil {
		panic(err)
	}
	return &Exact[T]{options: o, values: map[connector.Key][]float64{}}
}

// Add takes one item.
func (e *Exact[T]) Add(item T) {
	if e.options.Keep != nil && !e.options.Keep(&item) {
		return
	}
	v := 1.0
	if e.options.Value != nil {
		v = e.options.Value(&item)
	}
	key := e.options.Key(&item)
	e.values[key] = append(e.values[key], v)
}

// Len returns the number of keys.
func (e *Exact[T]) Len() int { return len(e.values) }

// At returns the aggregates of key, zero if it has no items.
func (e *Exact[T]) At(key connector.Key) Aggregates {
	var a Aggregates
	for _, v := range e.values[key] {
		a.merge(&Aggregates{Count: 1, Sum: v, Min: v, Max: v})
	}
	return a
}

// Quality says how far rows are from the exact ones.
type Quality struct {
	// MaxCountError and SumCountError are the largest difference of a count and the sum of the differences.
	MaxCountError uint64 `json:"max_count_error"`
	SumCountError uint64 `json:"sum_count_error"`
	// MaxSumError and SumSumError are the same for sums.
	MaxSumError float64 `json:"max_sum_error"`
	SumSumError float64 `json:"sum_sum_error"`
	// MaxMeanError is the largest difference of a mean, over the keys that have a row.
	MaxMeanError float64 `json:"max_mean_error"`
	// Missing is how many keys have no row, Extra how many rows have no key. WrongMin and WrongMax are how many rows tell
	// another least or largest value.
	Missing  int `json:"missing"`
	Extra    int `json:"extra"`
	WrongMin int `json:"wrong_min"`
	WrongMax int `json:"wrong_max"`
	// Keys and Reported are the numbers of keys and of rows.
	Keys     int `json:"keys"`
	Reported int `json:"reported"`
}

// Compare checks rows, at most one per key, against the exact aggregates.
func Compare[T any](rows []Row, exact *Exact[T]) Quality {
	q := Quality{Keys: exact.Len(), Reported: len(rows)}
	seen := make(map[connector.Key]bool, len(rows))
	for _, r := range rows {
		seen[r.Key] = true
		want := exact.At(r.Key)
		q.note(r.Aggregates, want)
		if want.Count == 0 {
			q.Extra++
			continue
		}
		q.MaxMeanError = max(q.MaxMeanError, math.Abs(r.Mean()-want.Mean()))
		if r.Min != want.Min {
			q.WrongMin++
		}
		if r.Max != want.Max {
			q.WrongMax++
		}
	}
	for key := range exact.values {
		if !seen[key] {
			q.Missing++
			q.note(Aggregates{}, exact.At(key))
		}
	}
	return q
}

// note adds the errors of one key.
func (q *Quality) note(got, want Aggregates) {
	d := max(got.Count, want.Count) - min(got.Count, want.Count)
	q.MaxCountError = max(q.MaxCountError, d)
	q.SumCountError += d
	s := math.Abs(got.Sum - want.Sum)
	q.MaxSumError = max(q.MaxSumError, s)
	q.SumSumError += s
}
