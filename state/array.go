package state

import (
	"fmt"
	"iter"
	"math"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// Array is a fixed number of numbers that may go up and down: a vector of model weights, a histogram with removals. For
// sums that only grow [Counters] is cheaper.
//
// An update costs a few nanoseconds and allocates nothing. While theta is +Inf it costs one memory access, and the Array
// takes no memory but the numbers.
//
// Element i has a distance from the durable state and one from the state after the backup in flight: the difference, or
// with Options.PathLength the length of the path since. The norm makes one number of each. Under L1 and L2 adding up the
// distances anew for each update would cost more than the update. By the triangle inequality the divergence grows by at
// most the length of each step, so the lengths are added up instead, and the distances only when that bound comes near
// theta.
//
// Invariants, while tracked (theta finite):
//  1. list holds exactly the indices whose shadow is listed, each once: under Max the elements that are due for a
//     partial backup, under L1 and L2 at least all whose distance is not 0.
//  2. Under Max, calm is at least the distance of every element that is not listed, peak of every one that is.
//  3. Under L1 and L2, sums less removed are the totals of the distances (L2: of their squares) of all elements that are
//     not stale, to the two states; stale holds the others, each once, and they are listed.
type Array[T Number] struct {
	values  []T
	options Options

	theta      float64
	tracked    bool        // theta is finite
	dueAt      float64     // under Max, the distance from which on a partial backup writes an element
	nearAt     float64     // under L1 and L2, the divergence from which on it must be close
	shadows    []shadow[T] // nil if never tracked
	marks      []flags     // of each element: listed, flying, stale. Apart, since it is all that most updates look at
	paths      []path      // nil unless Options.PathLength
	list       []int
	calm, peak float64
	sums       [2]float64
	stale      []int      // elements that have changed since sums were made
	removed    [2]float64 // what sums hold of them
	slack      float64    // length of all steps since sums were made
	rounding   float64    // what the rounding of sums may hide
	flying     []int      // indices in the backup in flight
	changes    []change   // scratch of backups
	blind      bool       // was untracked: what is durable is not known until a backup of all elements is
}

// shadow is what a failure would leave of one element.
type shadow[T Number] struct{ durable, flight T }

// path is how far one element has gone since the durable backup, and since the one in flight.
type path struct{ durable, flight float64 }

// NewArray returns n zeros. It panics if n is negative, if o is not valid, or if o.Norm is Count, which says nothing
// about a fixed number of elements.
func NewArray[T Number](n int, o Options) *Array[T] {
	if err := o.Validate(); err != nil {
		panic(err)
	}
	if o.Norm == errorbound.Count {
		panic(fmt.Errorf("%w: an array cannot be measured by %v", ErrOptions, o.Norm))
	}
	return &Array[T]{values: make([]T, n), options: o}
}

// Len returns the number of elements.
func (a *Array[T]) Len() int { return len(a.values) }

// At returns element i. It panics if i is out of range.
func (a *Array[T]) At(i int) T { return a.values[i] }

// Values returns the elements themselves, to be read only: what is written to them escapes the divergence. It shows
// later changes.
func (a *Array[T]) Values() []T { return a.values }

// All yields every index with its element, in order.
func (a *Array[T]) All() iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		for i, v := range a.values {
			if !yield(i, v) {
				return
			}
		}
	}
}

// Add adds d, which may be negative, to element i. Integers wrap around. It panics if i is out of range.
func (a *Array[T]) Add(i int, d T) { a.Set(i, a.values[i]+d) }

// Set replaces element i. It panics if i is out of range.
func (a *Array[T]) Set(i int, v T) {
	if a.tracked {
		a.change(i, v)
		return
	}
	a.values[i] = v
}

// AddAll adds the elements of d one by one. The error wraps ErrLength; nothing has then been added.
func (a *Array[T]) AddAll(d []T) error { return a.addRange(0, len(a.values), d) }

func (a *Array[T]) addRange(from, to int, d []T) error {
	if len(d) != to-from {
		return fmt.Errorf("%w: %d and %d", ErrLength, to-from, len(d))
	}
	for i, x := range d {
		if x != 0 {
			a.Add(from+i, x)
		}
	}
	return nil
}

// SetAll replaces all elements. The error wraps ErrLength; nothing has then been replaced.
func (a *Array[T]) SetAll(v []T) error {
	if len(v) != len(a.values) {
		return fmt.Errorf("%w: %d and %d", ErrLength, len(a.values), len(v))
	}
	for i, x := range v {
		if x != a.values[i] {
			a.Set(i, x)
		}
	}
	return nil
}

// Reset makes every element zero, as at the start of a window. The change counts as divergence like any other.
func (a *Array[T]) Reset() {
	for i, v := range a.values {
		if v != 0 {
			a.Set(i, 0)
		}
	}
}

// AddAt adds d[k] to element at[k] for every k: one sparse step, such as one of stochastic gradient descent. Under L2 it
// is cheaper than as many calls of Add, and the divergence grows by the length of the step at once. It panics if the two
// are of different lengths, or if the indices do not ascend strictly or are out of range.
func (a *Array[T]) AddAt(at []uint32, d []T) {
	if len(at) != len(d) {
		panic(fmt.Errorf("%w: %d indices and %d numbers", ErrLength, len(at), len(d)))
	}
	if !a.tracked {
		for k, i := range at {
			a.values[i] += d[k]
		}
		return
	}
	squares, sum, next := 0.0, 0.0, 0
	plain := a.paths == nil && a.options.Norm != errorbound.Max && isFloat[T]()
	for k, i := range at {
		if int(i) < next {
			panic(fmt.Errorf("state: index %d after %d", i, next-1))
		}
		next = int(i) + 1
		var step float64
		if plain && a.marks[i].has(stale) { // move, with nothing left to do but the step
			old := a.values[i]
			a.values[i] = old + d[k]
			step = difference(a.values[i], old) // not d[k], which is rounded on the way
		} else {
			step = a.move(int(i), a.values[i]+d[k])
		}
		squares += step * step
		sum += step
	}
	if a.options.Norm == errorbound.L2 {
		sum = math.Sqrt(squares)
	}
	a.slack += sum
}

// change gives element i a new value and keeps the divergence up to date.
func (a *Array[T]) change(i int, v T) { a.slack += a.move(i, v) }

// move gives element i a new value and returns how far it went. Under L1 and L2 the caller adds a bound of all its moves
// to slack.
func (a *Array[T]) move(i int, v T) (step float64) {
	s := &a.shadows[i]
	if a.options.Norm != errorbound.Max && !a.marks[i].has(stale) {
		a.touch(i, s)
	}
	step = difference(v, a.values[i])
	a.values[i] = v
	if a.paths != nil {
		a.extend(i, step)
	}
	if a.options.Norm == errorbound.Max {
		d, f := a.distances(i, s)
		a.note(i, s, max(d, f))
	}
	return step
}

// touch makes element i stale, under L1 and L2: what sums hold of it will have to be replaced.
func (a *Array[T]) touch(i int, s *shadow[T]) {
	d, f := a.distances(i, s)
	a.removed[0] += d
	a.removed[1] += f
	a.rounded(d + f)
	a.stale = append(a.stale, i)
	if !a.marks[i].has(listed) {
		a.list = append(a.list, i)
	}
	a.marks[i] |= stale | listed
}

// refresh makes sums exact again.
func (a *Array[T]) refresh() {
	for k := range a.sums {
		a.sums[k] -= a.removed[k]
	}
	for _, i := range a.stale {
		s := &a.shadows[i]
		a.marks[i] &^= stale
		d, f := a.distances(i, s)
		a.sums[0] += d
		a.sums[1] += f
		a.rounded(d + f)
	}
	a.stale, a.removed, a.slack = a.stale[:0], [2]float64{}, 0
}

// extend makes the path of element i longer. It rounds up: a path must not come out too short, however many its steps.
func (a *Array[T]) extend(i int, step float64) {
	p := &a.paths[i]
	p.durable = (p.durable + step) * (1 + 0x1p-52)
	p.flight = (p.flight + step) * (1 + 0x1p-52)
}

// distances returns how far element i is from the durable state and from the state after the backup in flight, as the
// norm adds it up.
func (a *Array[T]) distances(i int, s *shadow[T]) (toDurable, toFlight float64) {
	if a.paths != nil {
		toDurable, toFlight = a.paths[i].durable, a.paths[i].flight
	} else {
		toDurable = difference(a.values[i], s.durable)
		if a.marks[i].has(flying) {
			toFlight = difference(a.values[i], s.flight)
		}
	}
	if !a.marks[i].has(flying) {
		toFlight = toDurable
	}
	if a.options.Norm == errorbound.L2 {
		return toDurable * toDurable, toFlight * toFlight
	}
	return toDurable, toFlight
}

// rounded accounts for the rounding of one update of sums by terms of size v; see Map.rounded.
func (a *Array[T]) rounded(v float64) {
	v += a.sums[0] + a.sums[1]
	if isFloat[T]() || v > 1<<53 {
		a.rounding += v * 0x1p-51
	}
}

// note lists element i if its distance demands it.
func (a *Array[T]) note(i int, s *shadow[T], d float64) {
	if a.marks[i].has(listed) {
		a.peak = max(a.peak, d)
		return
	}
	if d == 0 || a.options.Norm == errorbound.Max && d < a.dueAt { // so that NaN is due
		a.calm = max(a.calm, d)
		return
	}
	a.marks[i] |= listed
	a.list = append(a.list, i)
	a.peak = max(a.peak, d)
}

// Measure implements stream.Measurer, as configured.
func (a *Array[T]) Measure() stream.Measure {
	return stream.Measure{Alpha: a.options.Alpha, Norm: a.options.Norm, Combine: a.options.Combine}
}

// SetTheta implements stream.Thresholder. It takes time in proportion to Len. If theta was +Inf, StateDivergence stays
// +Inf until a backup of all elements is durable, which is what the next one is.
func (a *Array[T]) SetTheta(theta float64) {
	a.theta, a.tracked = theta, !math.IsInf(theta, 1)
	a.dueAt = levelEnds(theta, a.options.Alpha)[quiet]
	// A little below where the runtime starts a backup. Nearer to 0 elements would be made stale again for nothing.
	a.nearAt = max(0, min(theta*11/16, theta-2*a.options.Alpha))
	if !a.tracked {
		a.blind = true
		return
	}
	if a.shadows == nil {
		a.shadows, a.marks = make([]shadow[T], len(a.values)), make([]flags, len(a.values))
	}
	if a.paths == nil && a.options.PathLength {
		a.paths = make([]path, len(a.values))
		for i, v := range a.values { // as if it had gone straight to where it is
			a.paths[i].durable = difference(v, a.shadows[i].durable)
		}
	}
	a.measureAll()
}

// StateDivergence implements stream.StateDivergence in amortised constant time. Under L1 and L2 it is an upper bound up to
// 11/16 theta, or as far as two items fit below theta, and beyond that at most 1/8 theta too large. Under Max it is exact once an element has changed by more than
// 1/2 theta, and until then the largest change seen.
func (a *Array[T]) StateDivergence() float64 {
	if !a.tracked || a.blind {
		return math.Inf(1)
	}
	if a.options.Norm == errorbound.Max {
		return max(a.calm, a.peak)
	}
	d := a.settled() + a.slack
	if d > a.nearAt && a.slack > a.theta/16 {
		a.refresh()
		d = a.settled()
	}
	if isFloat[T]() || d > 1<<53 {
		d += a.slack * 0x1p-30 // what adding up a billion steps may have rounded off
	}
	return d
}

// settled returns the divergence that sums tell.
func (a *Array[T]) settled() float64 {
	total := max(0, a.sums[0], a.sums[1]) + a.rounding
	if a.options.Norm == errorbound.L2 {
		return math.Sqrt(total)
	}
	return total
}

// measureAll makes the list and the divergence anew from all elements.
func (a *Array[T]) measureAll() {
	a.calm = 0
	a.list = a.list[:0]
	for i := range a.shadows {
		a.marks[i] |= listed
		a.list = append(a.list, i)
	}
	a.measureList()
}

// measureList makes the list and the divergence anew from the elements that are listed.
func (a *Array[T]) measureList() {
	old := a.list
	a.list, a.peak, a.sums, a.rounding = a.list[:0], 0, [2]float64{}, 0
	a.stale, a.removed, a.slack = a.stale[:0], [2]float64{}, 0
	for _, i := range old { // note appends to the same array, never beyond what has been read
		s := &a.shadows[i]
		a.marks[i] &^= listed | stale
		d, f := a.distances(i, s)
		a.sums[0] += d
		a.sums[1] += f
		a.rounded(d + f)
		a.note(i, s, max(d, f))
	}
}
