package ringbuf

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// ring is what both rings offer.
type ring interface {
	TryPush(v int) bool
	TryPop() (int, bool)
	Len() int
	Cap() int
}

// kind is one kind of ring, for tests that hold for both.
type kind struct {
	name   string
	make   func(capacity int, start uint64) ring
	starts func(capacity int) []uint64 // worth starting at: 0 and just below where arithmetic may break
}

var kinds = []kind{
	{
		name: "SPSC",
		make: func(capacity int, start uint64) ring { return newSPSC[int](capacity, start) },
		starts: func(int) []uint64 {
			return []uint64{0, 1<<63 - 2, 1<<64 - 1, 1<<64 - 2, 1<<64 - 3, 1<<64 - 7}
		},
	},
	{
		name: "MPSC",
		make: func(capacity int, lap uint64) ring { return newMPSC[int](capacity, lap) },
		starts: func(capacity int) []uint64 {
			laps := uint64(1) << (64 - bits.Len(uint(capacity)))
			return []uint64{0, laps/2 - 1, laps - 1, laps - 2}
		},
	},
}

var capacities = []int{1, 2, 3, 4, 5, 8, 64}

// forEachRing runs f as a subtest on every kind, capacity and start worth it.
func forEachRing(t *testing.T, f func(t *testing.T, newRing func() ring)) {
	for _, k := range kinds {
		for _, capacity := range capacities {
			for _, start := range k.starts(capacity) {
				t.Run(fmt.Sprintf("%s/cap=%d/start=%#x", k.name, capacity, start), func(t *testing.T) {
					f(t, func() ring { return k.make(capacity, start) })
				})
			}
		}
	}
}

// snapshot returns everything a ring consists of but the sides' cached views,
// which nobody can observe. Only for rings at rest.
func snapshot(r ring) (fields []uint64, values []int) {
	switch r := r.(type) {
	case *SPSC[int]:
		fields = []uint64{r.pushed.Load(), r.popped.Load(), uint64(r.in), uint64(r.out)}
		values = slices.Clone(r.slots)
	case *MPSC[int]:
		fields = []uint64{r.tail.Load(), r.head.Load()}
		for i := range r.slots {
			fields = append(fields, r.slots[i].stamp.Load())
			values = append(values, r.slots[i].value)
		}
	default:
		panic(fmt.Sprintf("snapshot of %T", r))
	}
	return fields, values
}

// model drives a ring and, beside it, a plain slice that says what is right.
type model struct {
	ring
	want []int
	last int // value pushed last; values are never 0, which marks an empty slot
}

func (m *model) push(t require.TestingT) {
	fields, values := snapshot(m.ring)
	m.last++
	ok := m.TryPush(m.last)
	require.Equal(t, len(m.want) < m.Cap(), ok, "push onto %d of %d", len(m.want), m.Cap())
	if ok {
		m.want = append(m.want, m.last)
		return
	}
	fieldsAfter, valuesAfter := snapshot(m.ring)
	require.Equal(t, fields, fieldsAfter, "a failed push changed the ring")
	require.Equal(t, values, valuesAfter, "a failed push changed a slot")
}

func (m *model) pop(t require.TestingT) {
	v, ok := m.TryPop()
	require.Equal(t, len(m.want) > 0, ok, "pop from %d of %d", len(m.want), m.Cap())
	if !ok {
		require.Zero(t, v)
		return
	}
	require.Equal(t, m.want[0], v)
	m.want = m.want[1:]
}

// check compares the ring with the model: its length, and that it holds exactly
// the values not yet popped and no garbage.
func (m *model) check(t require.TestingT) {
	require.Equal(t, len(m.want), m.Len())
	_, values := snapshot(m.ring)
	held := slices.DeleteFunc(values, func(v int) bool { return v == 0 })
	slices.Sort(held) // values are pushed in ascending order
	require.True(t, slices.Equal(m.want, held), "ring holds %v in place of %v", held, m.want)
}

func TestRingMatchesSlice(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				capacity := rapid.OneOf(rapid.SampledFrom(capacities), rapid.IntRange(1, 70)).Draw(t, "capacity")
				start := rapid.OneOf(rapid.SampledFrom(k.starts(capacity)), rapid.Uint64()).Draw(t, "start")
				m := &model{ring: k.make(capacity, start)}
				t.Repeat(map[string]func(*rapid.T){
					"push": func(t *rapid.T) { m.push(t) },
					"pop":  func(t *rapid.T) { m.pop(t) },
					"fill": func(t *rapid.T) {
						for range capacity + 1 {
							m.push(t)
						}
					},
					"drain": func(t *rapid.T) {
						for range capacity + 1 {
							m.pop(t)
						}
					},
					"": func(t *rapid.T) { m.check(t) },
				})
			})
		})
	}
}

// TestRingWraps goes round each ring several times at every fill level, so that
// counters, laps and slots wrap with the ring empty, full and in between.
func TestRingWraps(t *testing.T) {
	forEachRing(t, func(t *testing.T, newRing func() ring) {
		for level := range newRing().Cap() {
			m := &model{ring: newRing()}
			for range level {
				m.push(t)
			}
			for range 3*m.Cap() + 10 {
				m.push(t)
				m.pop(t)
			}
			m.check(t)
		}
	})
}

func TestRingFillsAndDrains(t *testing.T) {
	forEachRing(t, func(t *testing.T, newRing func() ring) {
		m := &model{ring: newRing()}
		m.pop(t)
		for range 4 {
			for range m.Cap() + 2 {
				m.push(t)
			}
			m.check(t)
			for range m.Cap() + 2 {
				m.pop(t)
			}
			m.check(t)
		}
	})
}

func TestCapacityBelowOnePanics(t *testing.T) {
	for _, capacity := range []int{0, -1} {
		message := fmt.Sprintf("ringbuf: capacity %d is below 1", capacity)
		require.PanicsWithValue(t, message, func() { NewSPSC[int](capacity) })
		require.PanicsWithValue(t, message, func() { NewMPSC[int](capacity) })
	}
}

func TestPublicConstructors(t *testing.T) {
	for _, capacity := range capacities {
		for _, r := range []ring{NewSPSC[int](capacity), NewMPSC[int](capacity)} {
			require.Equal(t, capacity, r.Cap())
			require.Zero(t, r.Len())
		}
	}
}

// TestMPSCHidesWhatFollowsAClaim stops a producer, by hand, between claiming its
// slot and publishing it, and checks what the type's documentation says.
func TestMPSCHidesWhatFollowsAClaim(t *testing.T) {
	r := NewMPSC[int](3)
	claimed := r.tail.Load()
	require.True(t, r.tail.CompareAndSwap(claimed, r.following(claimed)))
	require.True(t, r.TryPush(2), "another producer passes the stopped one")
	require.Equal(t, 2, r.Len())
	_, ok := r.TryPop()
	require.False(t, ok, "order is kept: the claimed slot comes first")
	require.True(t, r.TryPush(3))
	require.False(t, r.TryPush(4), "a claimed slot counts as taken")

	s := r.slot(claimed)
	s.value = 1
	s.stamp.Store(claimed + 1)
	for want := 1; want <= 3; want++ {
		v, ok := r.TryPop()
		require.True(t, ok)
		require.Equal(t, want, v)
	}
}

// TestLenStaysInRange shows Len the torn views that its two loads can yield.
func TestLenStaysInRange(t *testing.T) {
	s := NewSPSC[int](3)
	s.pushed.Store(7) // as if 4 pushes and pops came between the loads
	require.Equal(t, 3, s.Len())

	for _, ahead := range []uint64{1, 2, 3, 100} {
		m := NewMPSC[int](3)
		m.tail.Store(ahead*m.lap + 2)
		require.Equal(t, 3, m.Len(), "tail %d laps ahead", ahead)
	}
}
