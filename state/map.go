package state

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// Map holds numbers by key. The zero Map is empty, measures by the maximum norm and is ready for use; Configure chooses
// otherwise.
//
// Under Max, L1 and L2 an absent key counts as 0. Under Count the divergence is the number of keys that are in one of
// the two states and not in the other, values do not matter, and a partial backup does not save changed values.
//
// An update of a key that is there costs one lookup in a Go map and the difference to its backup, no allocation, and
// the divergence is kept up to date by it. A deleted key keeps its memory until its deletion is in a backup.
//
// Invariants, while tracked (theta finite):
//  1. list holds exactly the slots with the flag listed: under Max the entries that are due for a partial backup, under
//     the other norms all whose distance is not 0, and always those deleted but still in the backup.
//  2. Under Max, calm is at least the distance of every entry that is not listed, peak of every one that is; under the
//     other norms sums are the totals of the distances (L2: of their squares) to the durable state and to the state
//     after the backup in flight.
type Map[K Key, V Number] struct {
	index   map[K]int // slots of present entries and of deleted ones that still matter
	entries []entry[K, V]
	free    []int // slots for reuse
	present int
	options Options

	theta      float64
	tracked    bool // theta is finite
	dueAt      float64
	list       []int
	calm, peak float64
	sums       [2]float64
	rounding   float64 // what the rounding of sums may hide
	flying     []int   // slots in the backup in flight
	complete   bool    // the backup in flight holds every entry
}

// entry is one key with its value now, in the durable backup and in the one in flight. A value that is absent is 0.
type entry[K Key, V Number] struct {
	key                    K
	value, durable, flight V
	flags                  flags
}

type flags uint8

const (
	present       flags = 1 << iota // in the state
	stored                          // in the durable backup
	flightPresent                   // in the state that the backup in flight saved
	flying                          // in the backup in flight, as a value or as a deletion
	listed                          // in Map.list
)

func (f flags) has(g flags) bool { return f&g != 0 }

// to returns f with g set or cleared.
func (f flags) to(g flags, on bool) flags {
	if on {
		return f | g
	}
	return f &^ g
}

// Configure sets the options. It must be called before the Map is used, and panics if they are not valid.
func (m *Map[K, V]) Configure(o Options) {
	if err := o.Validate(); err != nil {
		panic(err)
	}
	if o.PathLength {
		panic(fmt.Errorf("%w: only arrays measure path lengths", ErrOptions))
	}
	m.options = o
}

// At returns the value of key, 0 if it is absent.
func (m *Map[K, V]) At(key K) V {
	v, _ := m.Lookup(key)
	return v
}

// Lookup returns the value of key and whether it is there.
func (m *Map[K, V]) Lookup(key K) (V, bool) {
	i, ok := m.index[key]
	if !ok {
		return 0, false
	}
	return m.entries[i].value, m.entries[i].flags.has(present)
}

// Len returns the number of keys.
func (m *Map[K, V]) Len() int { return m.present }

// All yields all keys with their values in the order of the keys, as emitting at the end of a window requires. It
// sorts, and allocates 8 bytes a key. The Map must not be changed meanwhile.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, i := range m.sorted() {
			if e := &m.entries[i]; e.flags.has(present) && !yield(e.key, e.value) {
				return
			}
		}
	}
}

// sorted returns the slots in use in the order of their keys.
func (m *Map[K, V]) sorted() []int {
	slots := make([]int, 0, len(m.index))
	for _, i := range m.index {
		slots = append(slots, i)
	}
	m.sortByKey(slots)
	return slots
}

func (m *Map[K, V]) sortByKey(slots []int) {
	sortSlots(slots, func(a, b int) int { return cmp.Compare(m.entries[a].key, m.entries[b].key) })
}

// sortSlots is slices.SortFunc, but compiled here alone: where it is inlined it is compiled again, in each package with a Map.
//
//go:noinline
func sortSlots(slots []int, compare func(a, b int) int) { slices.SortFunc(slots, compare) }

// Add adds d, which may be negative, to the value of key and returns the new value. An absent key becomes present.
// Integers wrap around.
func (m *Map[K, V]) Add(key K, d V) V {
	i := m.slot(key)
	v := m.entries[i].value + d
	m.change(i, v, true)
	return v
}

// Put sets the value of key.
func (m *Map[K, V]) Put(key K, v V) { m.change(m.slot(key), v, true) }

// Delete removes key, if it is there.
func (m *Map[K, V]) Delete(key K) {
	if i, ok := m.index[key]; ok {
		m.change(i, 0, false)
	}
}

// Reset removes all keys, as at the start of a window. The change counts as divergence like any other.
func (m *Map[K, V]) Reset() {
	for _, i := range m.sorted() {
		m.change(i, 0, false)
	}
}

// slot returns the slot of key, taking a new one if it has none.
func (m *Map[K, V]) slot(key K) int {
	i, ok := m.index[key]
	if ok {
		return i
	}
	if m.index == nil {
		m.index = map[K]int{}
	}
	if n := len(m.free); n > 0 {
		i, m.free = m.free[n-1], m.free[:n-1]
	} else {
		i = len(m.entries)
		m.entries = append(m.entries, entry[K, V]{})
	}
	m.entries[i] = entry[K, V]{key: key}
	m.index[key] = i
	return i
}

// change gives the entry of slot i a new value and keeps the divergence up to date.
func (m *Map[K, V]) change(i int, v V, here bool) {
	e := &m.entries[i]
	oldDurable, oldFlight := m.distances(e)
	if here && !e.flags.has(present) {
		m.present++
	} else if !here && e.flags.has(present) {
		m.present--
	}
	e.value, e.flags = v, e.flags.to(present, here)
	switch {
	case m.tracked:
		d, f := m.distances(e)
		m.sums[0] += d - oldDurable
		m.sums[1] += f - oldFlight
		m.rounded(d + f + oldDurable + oldFlight)
		m.note(i, max(d, f))
		m.release(i)
	case !here:
		m.release(i)
	}
}

// distances returns how far e is from the durable state and from the state after the backup in flight, as the norm
// adds it up.
func (m *Map[K, V]) distances(e *entry[K, V]) (toDurable, toFlight float64) {
	toDurable = m.distance(e, e.durable, e.flags.has(stored))
	if !e.flags.has(flying) {
		return toDurable, toDurable
	}
	return toDurable, m.distance(e, e.flight, e.flags.has(flightPresent))
}

func (m *Map[K, V]) distance(e *entry[K, V], v V, there bool) float64 {
	switch m.options.Norm {
	case errorbound.Count:
		if e.flags.has(present) != there {
			return 1
		}
		return 0
	case errorbound.L2:
		d := difference(e.value, v)
		return d * d
	}
	return difference(e.value, v)
}

// rounded accounts for the rounding of one update of sums by terms of size v. When a large distance goes away the rest
// may be smaller than the error that it leaves behind, and under L2 even the square root of that counts. Sums of
// integers below 2^53 are exact.
func (m *Map[K, V]) rounded(v float64) {
	v += m.sums[0] + m.sums[1]
	if m.options.Norm != errorbound.Count && (isFloat[V]() || v > 1<<53) {
		m.rounding += v * 0x1p-51
	}
}

// note lists slot i if its distance demands it.
func (m *Map[K, V]) note(i int, d float64) {
	e := &m.entries[i]
	if !e.flags.has(listed) {
		wanted := d != 0
		if m.options.Norm == errorbound.Max {
			wanted = d != 0 && !(d < m.dueAt) // so that NaN is due
		}
		if !wanted && (e.flags.has(present) || !e.flags.has(stored|flying)) {
			m.calm = max(m.calm, d)
			return
		}
		e.flags |= listed
		m.list = append(m.list, i)
	}
	m.peak = max(m.peak, d)
}

// release frees slot i if nothing is left of its entry, neither in the state nor in a backup. A listed one is freed
// when the list is next made.
func (m *Map[K, V]) release(i int) {
	e := &m.entries[i]
	if e.flags != 0 {
		return
	}
	delete(m.index, e.key)
	*e = entry[K, V]{}
	m.free = append(m.free, i)
}

// Measure implements stream.Measurer, as configured.
func (m *Map[K, V]) Measure() stream.Measure {
	return stream.Measure{Alpha: m.options.Alpha, Norm: m.options.Norm, Combine: m.options.Combine}
}

// SetTheta implements stream.Thresholder. It takes time in proportion to the number of keys.
func (m *Map[K, V]) SetTheta(theta float64) {
	m.theta, m.tracked = theta, !math.IsInf(theta, 1)
	m.dueAt = levelEnds(theta, m.options.Alpha)[quiet]
	m.measureAll()
}

// StateDivergence implements stream.StateDivergence in constant time. It is exact under L1, L2 and Count, but
// for a little more to make up for rounding. Under Max it is exact once a key has changed by more than 1/2 theta, and the largest change seen until then.
func (m *Map[K, V]) StateDivergence() float64 {
	if !m.tracked {
		return math.Inf(1)
	}
	switch m.options.Norm {
	case errorbound.Max:
		return max(m.calm, m.peak)
	case errorbound.L2:
		return math.Sqrt(max(0, m.sums[0], m.sums[1]) + m.rounding)
	}
	return max(0, m.sums[0], m.sums[1]) + m.rounding
}

// measureAll makes the list and the divergence anew from all entries.
func (m *Map[K, V]) measureAll() {
	m.calm = 0
	m.list = m.list[:0]
	for i := range m.entries {
		if e := &m.entries[i]; e.flags != 0 {
			e.flags |= listed
			m.list = append(m.list, i)
		}
	}
	m.measureList()
}

// measureList makes the list and the divergence anew from the entries that are listed.
func (m *Map[K, V]) measureList() {
	old := m.list
	m.list, m.peak, m.sums, m.rounding = m.list[:0], 0, [2]float64{}, 0
	for _, i := range old { // note appends to the same array, never beyond what has been read
		e := &m.entries[i]
		e.flags &^= listed
		if m.tracked {
			d, f := m.distances(e)
			m.sums[0] += d
			m.sums[1] += f
			m.rounded(d + f)
			m.note(i, max(d, f))
		}
		m.release(i)
	}
}
