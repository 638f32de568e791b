package aggregate

import (
	"errors"
	"fmt"
	"math"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// ErrOptions is wrapped by the errors of Options.Validate.
var ErrOptions = errors.New("aggregate: invalid options")

// Measure is what an item adds to the divergence of its key; see the package comment.
type Measure uint8

// Measures.
const (
	ByCount Measure = iota // 1
	BySum                  // the absolute of its value
)

// Options describe a job over items of type T. All operators of it must be given the same. The functions are called
// for each item, with a pointer that is valid during the call only; they must not change the item, nor depend on
// anything else.
type Options[T any] struct {
	// Key returns what the item is aggregated by. Required.
	Key func(item *T) connector.Key

	// Hash returns Key(item).Hash(), and must return nothing else, for items that bring it along; nil means to compute it.
	Hash func(item *T) uint64

	// Value returns what is aggregated; nil means 1 for each item. NaN and infinities are errors.
	Value func(item *T) float64

	// Keep returns whether the item is aggregated at all; nil means that all are.
	Keep func(item *T) bool

	// Measure and Norm say how divergence is measured: by count or by sum, under errorbound.Max or errorbound.L1.
	Measure Measure
	Norm    errorbound.Norm

	// Combine says how the input is partitioned: errorbound.Disjoint if all items of a key go to the same partition,
	// errorbound.Added, the zero value, if not. Assemble sets it by itself.
	Combine errorbound.Combine

	// Alpha is the largest absolute value of an item, for BySum; an item above it is an error, since the bounds would not
	// hold. 0 means unknown: any value is taken, and the runtime looks at the divergence after each item, which is slow.
	Alpha float64
}

// Validate returns all faults of o, joined, each wrapping ErrOptions.
func (o Options[T]) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...))
		}
	}
	check(o.Key != nil, "no key function")
	check(o.Measure <= BySum, "measure %d, want 0 (by count) or 1 (by sum)", o.Measure)
	check(o.Norm == errorbound.Max || o.Norm == errorbound.L1, "norm %v, want max or l1", o.Norm)
	check(o.Combine <= errorbound.Disjoint, "%v", o.Combine)
	check(o.Alpha >= 0 && o.Alpha <= math.MaxFloat64, "alpha %v, want a finite number >= 0", o.Alpha)
	return errors.Join(faults...)
}

// hash returns the hash of the item's key.
func (o *Options[T]) hash(item *T) uint64 {
	if o.Hash != nil {
		return o.Hash(item)
	}
	key := o.Key(item)
	return key.Hash()
}

// alpha is the most that one item adds to the divergence, 0 if unknown.
func (o Options[T]) alpha() float64 {
	if o.Measure == ByCount {
		return 1
	}
	return o.Alpha
}

// limit is the largest absolute value that an item may have.
func (o Options[T]) limit() float64 {
	if o.Measure == BySum && o.Alpha > 0 {
		return o.Alpha
	}
	return math.MaxFloat64
}

// Bound returns by how much the answer can be off in the measure and norm of o, after any number of failures within p:
// Theta + L*alpha, and Theta alone where the source can be read again. ByCount, that is how many items are missing from
// an aggregate; BySum, by how much a sum is off. Under Max it holds for each key, under L1 for all keys together.
func Bound[T any](p errorbound.Params, o Options[T]) float64 { return p.StateBound(o.alpha()) }

// Assemble adds an operator "aggregate" of the given number of workers to the topology of in, with the items
// partitioned by key. Rows come by key within each partition. It panics if o is not valid.
func Assemble[T any](in stream.Stream[T], o Options[T], workers int) stream.Stream[Row] {
	o.Combine = errorbound.Disjoint
	if err := o.Validate(); err != nil {
		panic(err)
	}
	return stream.Then(in, "aggregate", func() *Aggregate[T] { return New(o) },
		stream.HashUint64(func(item T) uint64 { return o.hash(&item) }), stream.Workers(workers), stream.EmitOnClose())
}
