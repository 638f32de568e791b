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
// It takes twice the size of a number for each element, since what its last backup has lies beside it: what an update of
// a large array costs is what it misses in the caches, else it is a few nanoseconds. While theta is finite it takes the
// size of another number and four bits. Nothing is allocated by an update.
type Array[T Number] = ArrayWith[T, struct{}]

// ArrayWith is an Array that keeps a B beside each number for its owner, where it costs no access of its own. It is neither
// measured nor, by BackupState, backed up.
//
// Element i has a distance from the durable state and one from the state after the backup in flight: the difference, or
// with Options.PathLength the length of the path since. The norm makes one number of each. Under L1 and L2 an update takes
// the distance that its element had out of the total and puts the new one in. A bound by the lengths of the steps, as the
// triangle inequality has it, would need no memory beside the value; but steps of a model cancel, so it would have to be
// made good from all elements that have changed many times for each backup, which costs more.
//
// Invariants, while tracked (theta finite):
//  1. listed holds, under Max, exactly the elements that are due for a partial backup, and under L1 and L2 at least all whose
//     distance is not 0 or whose value is not the saved one. aloft holds exactly the elements of flying.
//  2. Under Max, calm is at least the distance of every element that is not listed, peak of every one that is.
//  3. Under L1 and L2, used and listed together hold at least all elements that are not 0.
//  4. Under L1 and L2, sums are the totals of the distances (L2: of their squares) of all elements to the two states, but
//     for rounding.
//  5. Where plain, far holds at least all elements that are away from saved by level or more, as the norm adds it up, and at all.
type ArrayWith[T Number, B any] struct {
	elements []element[T, B]
	options  Options

	theta      float64
	tracked    bool    // theta is finite
	plain      bool    // distances are differences of floats that are added up
	dueAt      float64 // under Max, the distance from which on a partial backup writes an element
	landed     []T     // of each element that is flying: what the durable state has; nil if never tracked
	paths      []path  // nil unless Options.PathLength
	listed     bitset  // nil if never tracked, as are used and aloft
	used       bitset
	far        bitset  // where plain, what partial backups look at first
	level      float64 // +Inf if far is not known
	calm, peak float64
	sums       [2]float64
	rounding   float64  // what the rounding of sums may hide
	flying     []int    // indices in the backup in flight, ascending
	aloft      bitset   // the same
	complete   bool     // the last backup holds all elements
	members    []int    // scratch of backups: those of listed
	changes    []change // scratch of backups
	blind      bool     // was untracked: what is durable is not known until a backup of all elements is
	written    bool     // not all elements are 0 as they were made
}

// element is one number, what its last backup has for it, durable or in flight, and what the owner keeps beside it.
type element[T Number, B any] struct {
	beside       B // first, for at the end a B of no size would take some
	value, saved T
}

// here says whether the element is as its last backup has it.
func (e *element[T, B]) here() bool { return e.value == e.saved }

// path is how far one element has gone since the durable backup, and since the one in flight.
type path struct{ durable, flight float64 }

// NewArray returns n zeros. It panics if n is negative, if o is not valid, or if o.Norm is Count, which says nothing
// about a fixed number of elements.
func NewArray[T Number](n int, o Options) *Array[T] { return NewArrayWith[T, struct{}](n, o) }

// NewArrayWith is NewArray for an ArrayWith.
func NewArrayWith[T Number, B any](n int, o Options) *ArrayWith[T, B] {
	if err := o.Validate(); err != nil {
		panic(err)
	}
	if o.Norm == errorbound.Count {
		panic(fmt.Errorf("%w: an array cannot be measured by %v", ErrOptions, o.Norm))
	}
	return &ArrayWith[T, B]{elements: make([]element[T, B], n), options: o}
}

// Len returns the number of elements.
func (a *ArrayWith[T, B]) Len() int { return len(a.elements) }

// At returns element i. It panics if i is out of range.
func (a *ArrayWith[T, B]) At(i int) T { return a.elements[i].value }

// Beside returns what is kept beside element i. It panics if i is out of range.
func (a *ArrayWith[T, B]) Beside(i int) *B { return &a.elements[i].beside }

// Values returns a copy of all elements.
func (a *ArrayWith[T, B]) Values() []T { return a.values(0, len(a.elements)) }

func (a *ArrayWith[T, B]) values(from, to int) []T {
	v := make([]T, to-from)
	for i := range v {
		v[i] = a.elements[from+i].value
	}
	return v
}

// All yields every index with its element, in order.
func (a *ArrayWith[T, B]) All() iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		for i := range a.elements {
			if !yield(i, a.elements[i].value) {
				return
			}
		}
	}
}

// Add adds d, which may be negative, to element i. Integers wrap around. It panics if i is out of range.
func (a *ArrayWith[T, B]) Add(i int, d T) { a.Set(i, a.elements[i].value+d) }

// Set replaces element i. It panics if i is out of range.
func (a *ArrayWith[T, B]) Set(i int, v T) {
	if a.tracked {
		a.move(i, v)
		return
	}
	a.elements[i].value, a.written = v, true
}

// AddAll adds the elements of d one by one. The error wraps ErrLength; nothing has then been added.
func (a *ArrayWith[T, B]) AddAll(d []T) error { return a.addRange(0, len(a.elements), d) }

func (a *ArrayWith[T, B]) addRange(from, to int, d []T) error {
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
func (a *ArrayWith[T, B]) SetAll(v []T) error {
	if len(v) != len(a.elements) {
		return fmt.Errorf("%w: %d and %d", ErrLength, len(a.elements), len(v))
	}
	for i, x := range v {
		if x != a.elements[i].value {
			a.Set(i, x)
		}
	}
	return nil
}

// Reset makes every element zero, as at the start of a window. The change counts as divergence like any other.
func (a *ArrayWith[T, B]) Reset() {
	for i := range a.elements {
		if a.elements[i].value != 0 {
			a.Set(i, 0)
		}
	}
}

// AddAt adds d[k] to element at[k] for every k: one sparse step, such as one of stochastic gradient descent. Under L2 it
// is cheaper than as many calls of Add. It panics if the two are of different lengths, or if an index is out of range.
func (a *ArrayWith[T, B]) AddAt(at []uint32, d []T) {
	if len(at) != len(d) {
		panic(fmt.Errorf("%w: %d indices and %d numbers", ErrLength, len(at), len(d)))
	}
	switch {
	case !a.tracked:
		a.written = true
		for k, i := range at {
			a.elements[i].value += d[k]
		}
	case a.plain && a.options.Norm == errorbound.L2 && len(a.flying) == 0:
		a.addSquares(at, d)
	default:
		for k, i := range at {
			a.move(int(i), a.elements[i].value+d[k])
		}
	}
}

// addSquares is AddAt for the case that counts, floats under L2 with no backup in flight: move, written out, with one account
// of the rounding for all.
func (a *ArrayWith[T, B]) addSquares(at []uint32, d []T) {
	elements, level, d := a.elements, int64(math.Float64bits(a.level)), d[:len(at)]
	was, is := 0.0, 0.0
	for k, i := range at {
		e := &elements[i]
		old, saved := e.value, e.saved
		v := old + d[k]
		e.value = v
		w, z := float64(old)-float64(saved), float64(v)-float64(saved)
		w, z = w*w, z*z
		was += w
		is += z
		// Does it cross the level, or was it as its backup has it (all others are listed)? Squares are in the order of their bits, so
		// this is one branch, which is seldom taken, instead of three, of which two cannot be foretold.
		wb, zb := int64(math.Float64bits(w)), int64(math.Float64bits(z))
		if (zb-level)^(wb-level)|(wb-1) < 0 {
			a.far.add(int(i))
			a.listed.add(int(i))
		}
	}
	before := a.sums[0] + a.sums[1]
	a.sums[0] += is - was
	a.sums[1] += is - was
	a.rounding += (before + a.sums[0] + a.sums[1] + was + is) * (float64(len(at)+1) * 0x1p-51) // as rounded does
}

// distance is how far two floats are from each other, or the square of that.
func distance[T Number](a, b T, squared bool) float64 {
	d := float64(a) - float64(b)
	if squared {
		return d * d
	}
	return math.Abs(d)
}

// move gives element i a new value and keeps the divergence up to date.
func (a *ArrayWith[T, B]) move(i int, v T) {
	e := &a.elements[i]
	if a.plain && !e.here() && (len(a.flying) == 0 || !a.aloft.has(i)) { // usually, and in fewer steps
		squared := a.options.Norm == errorbound.L2
		is := distance(v, e.saved, squared)
		grown := is - distance(e.value, e.saved, squared)
		e.value = v
		if is >= a.level {
			a.far.add(i)
		}
		terms := a.sums[0]
		a.sums[0] += grown
		a.sums[1] += grown
		a.rounded(2 * (terms + a.sums[0]))
		return
	}
	wasDurable, wasFlight := a.distances(i)
	if a.paths != nil {
		a.extend(i, difference(v, e.value))
	}
	e.value = v
	d, f := a.distances(i)
	if a.options.Norm == errorbound.Max {
		a.note(i, max(d, f))
		return
	}
	a.sums[0] += d - wasDurable
	a.sums[1] += f - wasFlight
	a.rounded(d + f + wasDurable + wasFlight)
	a.listed.add(i)
	if f >= a.level {
		a.far.add(i)
	}
}

// extend makes the path of element i longer. It rounds up: a path must not come out too short, however many its steps.
func (a *ArrayWith[T, B]) extend(i int, step float64) {
	p := &a.paths[i]
	p.durable = (p.durable + step) * (1 + 0x1p-52)
	p.flight = (p.flight + step) * (1 + 0x1p-52)
}

// distances returns how far element i is from the durable state and from the state after the backup in flight, as the
// norm adds it up.
func (a *ArrayWith[T, B]) distances(i int) (toDurable, toFlight float64) {
	e := &a.elements[i]
	switch {
	case a.paths != nil:
		toDurable, toFlight = a.paths[i].durable, a.paths[i].durable
		if a.aloft.has(i) {
			toFlight = a.paths[i].flight
		}
	case a.aloft.has(i):
		toDurable, toFlight = difference(e.value, a.landed[i]), difference(e.value, e.saved)
	default:
		toDurable = difference(e.value, e.saved)
		toFlight = toDurable
	}
	if a.options.Norm == errorbound.L2 {
		return toDurable * toDurable, toFlight * toFlight
	}
	return toDurable, toFlight
}

// away returns both of the distances of element i, which are the same while nothing is in flight.
func (a *ArrayWith[T, B]) away(i int) float64 {
	d := 0.0
	if a.paths != nil {
		d = a.paths[i].durable
	} else {
		d = difference(a.elements[i].value, a.elements[i].saved)
	}
	if a.options.Norm == errorbound.L2 {
		return d * d
	}
	return d
}

// rounded accounts for the rounding of one update of sums by terms of size v; see Map.rounded.
func (a *ArrayWith[T, B]) rounded(v float64) {
	v += a.sums[0] + a.sums[1]
	if isFloat[T]() || a.paths != nil || v > 1<<53 {
		a.rounding += v * 0x1p-51
	}
}

// note lists element i if its distance demands it.
func (a *ArrayWith[T, B]) note(i int, d float64) {
	if a.listed.has(i) {
		a.peak = max(a.peak, d)
		return
	}
	if d == 0 && a.elements[i].here() && !a.aloft.has(i) || a.options.Norm == errorbound.Max && d < a.dueAt { // so that NaN is due
		a.calm = max(a.calm, d)
		return
	}
	a.listed.add(i)
	a.peak = max(a.peak, d)
}

// Measure implements stream.Measurer, as configured.
func (a *ArrayWith[T, B]) Measure() stream.Measure {
	return stream.Measure{Alpha: a.options.Alpha, Norm: a.options.Norm, Combine: a.options.Combine}
}

// SetTheta implements stream.Thresholder. It takes time in proportion to Len. If theta was +Inf, StateDivergence stays
// +Inf until a backup of all elements is durable, which is what the next one is.
func (a *ArrayWith[T, B]) SetTheta(theta float64) {
	a.theta, a.tracked = theta, !math.IsInf(theta, 1)
	a.dueAt = levelEnds(theta, a.options.Alpha)[quiet]
	if !a.tracked {
		a.blind = true
		return
	}
	if a.listed == nil {
		n := len(a.elements)
		a.landed, a.listed, a.used, a.aloft, a.far = make([]T, n), newBitset(n), newBitset(n), newBitset(n), newBitset(n)
	}
	if a.paths == nil && a.options.PathLength {
		a.paths = make([]path, len(a.elements))
		for i := range a.elements { // as if it had gone straight to where it is
			a.paths[i].durable = difference(a.elements[i].value, a.elements[i].saved)
		}
	}
	a.plain = a.paths == nil && a.options.Norm != errorbound.Max && isFloat[T]()
	a.measureAll()
	a.written = true // from here on by whatever changes them
}

// StateDivergence implements stream.StateDivergence in constant time. Under L1 and L2 it is the divergence, but for a bound of
// what rounding may have added. Under Max it is exact once an element has changed by more than 1/2 theta, and until then
// the largest change seen.
func (a *ArrayWith[T, B]) StateDivergence() float64 {
	if !a.tracked || a.blind {
		return math.Inf(1)
	}
	if a.options.Norm == errorbound.Max {
		return max(a.calm, a.peak)
	}
	total := max(0, a.sums[0], a.sums[1]) + a.rounding
	if a.options.Norm == errorbound.L2 {
		return math.Sqrt(total)
	}
	return total
}

// measureAll says anew, from all elements, which are listed and what the divergence is.
func (a *ArrayWith[T, B]) measureAll() {
	clear(a.listed)
	clear(a.used)
	a.level = math.Inf(1)
	a.calm, a.peak, a.sums, a.rounding = 0, 0, [2]float64{}, 0
	if !a.written { // and the system need not find memory for them yet
		return
	}
	for i := range a.elements {
		if a.elements[i].value != 0 {
			a.used.add(i)
		}
		if a.elements[i].here() && a.paths == nil && !a.aloft.has(i) {
			continue // as nearly all are in the beginning
		}
		a.measure(i)
	}
}

// measureListed does the same from the elements that are listed.
func (a *ArrayWith[T, B]) measureListed() {
	a.members = a.listed.appendTo(a.members[:0])
	a.used.addAll(a.listed)
	clear(a.listed)
	a.peak, a.sums, a.rounding = 0, [2]float64{}, 0
	for _, i := range a.members {
		a.measure(i)
	}
}

// measure counts an element that is not listed, and lists it if that is due.
func (a *ArrayWith[T, B]) measure(i int) {
	d, f := a.distances(i)
	a.sums[0] += d
	a.sums[1] += f
	a.rounded(d + f)
	a.note(i, max(d, f))
}
