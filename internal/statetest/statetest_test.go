//go:build invariants

// In make race alone: a test of its own costs go test the linking of one more program.

package statetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/stream"
)

// sum is a state of one number, whose divergence is how much was added since the last durable backup.
type sum struct {
	value, flying, durable uint64
	deaf                   bool // does not note what is durable
}

var errNegative = errors.New("negative")

func (s *sum) StateDivergence() float64 { return float64(s.value - s.durable) }

func (s *sum) BackupState(w *stream.StateWriter) error {
	s.flying = s.value
	w.Put([]byte("sum"), binary.BigEndian.AppendUint64(nil, s.value))
	return nil
}

func (s *sum) BackupDurable() {
	if !s.deaf {
		s.durable = s.flying
	}
}

func (s *sum) RestoreState(r *stream.StateReader) error {
	for r.Next() {
		if string(r.Key()) != "sum" || len(r.Value()) != 8 {
			return fmt.Errorf("%w: unknown element", stream.ErrState)
		}
		if s.value = binary.BigEndian.Uint64(r.Value()); s.value > math.MaxInt64 {
			return errNegative
		}
	}
	return r.Err()
}

func restored(t require.TestingT, backups [][]byte) uint64 {
	var s sum
	require.NoError(t, s.RestoreState(Reader(backups...)))
	return s.value
}

// recorder is a test that may fail.
type recorder struct{ faults []string }

type failed struct{}

func (r *recorder) Errorf(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}
func (r *recorder) FailNow() { panic(failed{}) }

// fails says whether what f checks does not hold.
func fails(f func(t require.TestingT)) (yes bool) {
	r := &recorder{}
	defer func() {
		if p := recover(); p != nil {
			yes = p == failed{} && len(r.faults) > 0
		}
	}()
	f(r)
	return false
}

func TestStore(t *testing.T) {
	state := &sum{value: 1}
	s := NewStore(state)
	left := func() (values []uint64) {
		for _, backups := range s.Left() {
			values = append(values, restored(t, backups))
		}
		return values
	}
	require.Equal(t, []uint64{0}, left())
	s.Land()
	require.Zero(t, state.durable, "nothing was in flight")
	s.Start(t, false)
	require.True(t, s.Flying())
	require.Equal(t, []uint64{0, 1}, left())
	s.Lose()
	require.Equal(t, []uint64{0}, left())
	s.Land()
	require.Empty(t, s.Durable(), "it was lost")
	s.Save(t, false)
	require.Equal(t, []uint64{1}, left())
	require.EqualValues(t, 1, state.durable)
	state.value = 2
	s.Start(t, false)
	state.value = 3
	s.Start(t, false) // the one before is lost
	s.LandUnheard()
	require.Equal(t, []uint64{3}, left())
	require.EqualValues(t, 1, state.durable, "nobody told the state")
	require.Len(t, s.Durable(), 2)
	s.Start(t, true)
	require.Len(t, s.Landed(), 1, "a whole backup replaces all before it")
	require.Len(t, s.Durable(), 2)
	s.Land()
	require.Len(t, s.Durable(), 1)
}

func TestRecover(t *testing.T) {
	before, after := &sum{value: 1}, &sum{}
	s := NewStore(before)
	s.Save(t, false)
	before.value = 2
	s.Start(t, true)
	s.Recover(t, after)
	require.EqualValues(t, 1, after.value)
	require.False(t, s.Flying(), "it died with its worker")
	after.value = 5
	s.Save(t, false)
	require.EqualValues(t, 5, restored(t, s.Durable()))
	require.EqualValues(t, 1, before.durable)
}

// TestStoreKeepsWhatItReturned: what a test has taken out does not change when other backups come.
func TestStoreKeepsWhatItReturned(t *testing.T) {
	state := &sum{}
	s := NewStore(state)
	for range 3 {
		s.Save(t, false)
	}
	state.value = 1
	s.Start(t, false)
	landed := s.Landed()
	state.value = 2
	s.Save(t, false)
	require.EqualValues(t, 1, restored(t, landed))
}

// TestRoom: under the runtime's rule the divergence stays within theta, and a failure costs no more, whatever happens to
// backups.
func TestRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const theta, alpha = 10, 3
		state := &sum{}
		s := NewStore(state)
		for range rapid.IntRange(0, 50).Draw(t, "items") {
			s.Room(t, theta, alpha)
			state.value += rapid.Uint64Range(0, alpha).Draw(t, "item")
			s.Draw(t)
			CheckLoss(t, s, theta, func() *sum { return &sum{} }, func(r *sum) float64 { return float64(state.value - r.value) })
		}
	})
}

// TestCheckLoss: it misses neither a divergence above theta nor one that is too small.
func TestCheckLoss(t *testing.T) {
	state := &sum{value: 5}
	s := NewStore(state)
	check := func(theta, distance float64) bool {
		return !fails(func(t require.TestingT) {
			CheckLoss(t, s, theta, func() *sum { return &sum{} }, func(r *sum) float64 { return distance - float64(r.value) })
		})
	}
	require.True(t, check(5, 5))
	require.False(t, check(4, 5))
	require.False(t, check(5, 5.1))
	s.Start(t, false)
	require.False(t, check(5, 5.1), "the backup in flight may be lost")
	s.Land()
	require.True(t, check(0, 5))
	require.False(t, check(0, 6))
}

func TestNoRoom(t *testing.T) {
	deaf := &sum{value: 5, deaf: true}
	require.True(t, fails(func(t require.TestingT) { NewStore(deaf).Room(t, 5, 1) }))
	require.True(t, fails(func(t require.TestingT) { NewStore(deaf).Settle(t, 4) }))
	require.False(t, fails(func(t require.TestingT) { NewStore(deaf).Settle(t, 5) }))
	require.False(t, fails(func(t require.TestingT) { NewStore(deaf).Room(t, 6, 1) }))
	hearing := &sum{value: 5}
	require.False(t, fails(func(t require.TestingT) { NewStore(hearing).Settle(t, 0) }))
	require.Zero(t, hearing.StateDivergence())
}

// TestMergeLaws: each law is missed where it does not hold.
func TestMergeLaws(t *testing.T) {
	check := func(merge func(parts ...int) int, whole int) bool {
		return !fails(func(t require.TestingT) { MergeLaws(t, merge, whole, 3, 1, 2) })
	}
	add := func(parts ...int) (sum int) {
		for _, p := range parts {
			sum += p
		}
		return sum
	}
	require.True(t, check(add, 6))
	require.True(t, check(func(parts ...int) int { return slices.Max(append(parts, 0)) }, 3))
	require.False(t, check(add, 7), "the whole is something else")
	require.False(t, check(func(parts ...int) int { return add(parts...) + 1 }, 7), "no identity")
	require.False(t, check(func(parts ...int) int { return append([]int{0}, parts...)[len(parts)] }, 2), "the last wins")
	require.False(t, check(func(parts ...int) int { return add(parts...) / max(len(parts), 1) }, 2), "means are not associative")
}

func restoreOfSum() Restore[*sum] {
	return Restore[*sum]{
		Fresh: func() *sum { return &sum{} },
		View:  func(s *sum) any { return s.value },
		Check: func(t *testing.T, s *sum) { require.LessOrEqual(t, s.value, uint64(math.MaxInt64)) },
	}
}

func FuzzRestore(f *testing.F) {
	r := restoreOfSum()
	r.Refusals = []error{errNegative}
	f.Add(Element("sum", "\xff\xff\xff\xff\xff\xff\xff\xff"))
	r.Fuzz(f, &sum{value: 7})
}

func TestRefusals(t *testing.T) {
	require.True(t, restoreOfSum().refuses(fmt.Errorf("%w: 3 bytes", stream.ErrState)))
	require.False(t, restoreOfSum().refuses(errNegative), "is not among the refusals")
}

// flag is a value whose decoder knows one encoding of true.
type flag struct{ set bool }

func (v flag) AppendBinary(dst []byte) ([]byte, error) {
	if v.set {
		return append(dst, 1), nil
	}
	return append(dst, 0), nil
}

func (v *flag) UnmarshalBinary(src []byte) error {
	if len(src) != 1 || src[0] > 1 {
		return errNegative
	}
	v.set = src[0] == 1
	return nil
}

func FuzzFlag(f *testing.F) {
	FuzzBinary(f, errNegative, Canonical, flag{true}, flag{})
}
