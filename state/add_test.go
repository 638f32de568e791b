package state

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

// addable is a state of this package, or its group.
type addable interface {
	statetest.Mergeable
	Adder
}

// add checks the laws for one kind of state: change draws one change and applies it to each of the states that it is given.
func add[S addable](rt *rapid.T, fresh func() S, view func(S) any, change func(rt *rapid.T, to ...S)) {
	a, b, both := fresh(), fresh(), fresh()
	for range rapid.IntRange(0, 30).Draw(rt, "steps") {
		if rapid.Bool().Draw(rt, "a") {
			change(rt, a, both)
		} else {
			change(rt, b, both)
		}
	}
	statetest.AddLaws(rt, fresh, S.AddState, view, thetas(rt), a, b, both)
}

func collectMap(m *Map[string, int64]) any { return maps.Collect(m.All()) }

// valueState is a Value with the SetTheta that AddLaws calls and a Value does without.
type valueState struct{ Value[int32] }

func (*valueState) SetTheta(float64) {}

// A state that another was added to is that of the items of both.
func TestAddState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		index := func() int { return rapid.IntRange(0, 9).Draw(rt, "index") }
		add(rt, func() *Counters { return NewCounters(10) }, func(c *Counters) any { return maps.Collect(c.All()) },
			func(rt *rapid.T, to ...*Counters) {
				i, w := index(), float64(rapid.IntRange(0, 100).Draw(rt, "weight"))
				for _, c := range to {
					c.Add(i, w)
				}
			})
		norm := rapid.SampledFrom([]errorbound.Norm{errorbound.Max, errorbound.L1, errorbound.L2, errorbound.Count}).Draw(rt, "norm")
		add(rt, func() *Map[string, int64] { m := &Map[string, int64]{}; m.Configure(Options{Norm: norm}); return m }, collectMap,
			func(rt *rapid.T, to ...*Map[string, int64]) {
				k, d := rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(rt, "key"), int64(rapid.IntRange(-9, 9).Draw(rt, "d"))
				for _, m := range to {
					m.Add(k, d)
				}
			})
		add(rt, func() *Set[uint8] { return &Set[uint8]{} }, func(s *Set[uint8]) any { return slices.Collect(s.All()) },
			func(rt *rapid.T, to ...*Set[uint8]) {
				k := uint8(index())
				for _, s := range to {
					s.Add(k)
				}
			})
		add(rt, func() *valueState { return &valueState{} }, func(v *valueState) any { return v.Value.Value() },
			func(rt *rapid.T, to ...*valueState) {
				d := rapid.Int32Range(-100, 100).Draw(rt, "d")
				for _, v := range to {
					v.Add(d)
				}
			})
		array := rapid.SampledFrom([]errorbound.Norm{errorbound.Max, errorbound.L1, errorbound.L2}).Draw(rt, "norm of the array")
		options := Options{Norm: array, PathLength: rapid.Bool().Draw(rt, "path")}
		add(rt, func() *Array[int32] { return NewArray[int32](10, options) }, func(a *Array[int32]) any { return a.Values() },
			func(rt *rapid.T, to ...*Array[int32]) {
				i, d := index(), rapid.Int32Range(-100, 100).Draw(rt, "d")
				for _, a := range to {
					a.Add(i, d)
				}
			})
		add(rt, func() *Matrix[int32] { return NewMatrix[int32](2, 5, options) }, func(m *Matrix[int32]) any { return m.cells.Values() },
			func(rt *rapid.T, to ...*Matrix[int32]) {
				i, d := index(), rapid.Int32Range(-100, 100).Draw(rt, "d")
				for _, m := range to {
					m.Add(i%2, i/2, d)
				}
			})
		add(rt, newPair, func(p *pair) any { return []any{collectMap(&p.m), p.v.Value()} },
			func(rt *rapid.T, to ...*pair) {
				i, d := index(), rapid.Int32Range(-100, 100).Draw(rt, "d")
				for _, p := range to {
					p.m.Add(string(rune('a'+i)), int64(d))
					p.v.Add(d)
				}
			})
	})
}

// pair is a Group of two.
type pair struct {
	*Group
	m Map[string, int64]
	v Value[int32]
}

func newPair() *pair {
	p := &pair{Group: NewGroup(Largest)}
	p.Add("map", 1, &p.m)
	p.Add("value", 2, &p.v)
	return p
}

func TestAddStateRefuses(t *testing.T) {
	for name, wire := range map[string][]byte{"an index beyond": statetest.Element("\xff\x00\x00\x00\x00\x00\x00\x00", "\x00\x00\x00\x00\x00\x00\x00\x00"), "another key": statetest.Element("a", "b")} {
		require.ErrorIs(t, NewCounters(3).AddState(statetest.Reader(wire)), stream.ErrState, name)
		require.ErrorIs(t, NewArray[int64](3, Options{}).AddState(statetest.Reader(wire)), stream.ErrState, name)
		require.ErrorIs(t, (&Value[int32]{}).AddState(statetest.Reader(wire)), stream.ErrState, name)
		require.ErrorIs(t, NewMatrix[int64](1, 3, Options{}).AddState(statetest.Reader(wire)), stream.ErrState, name)
		require.ErrorIs(t, newPair().AddState(statetest.Reader(wire)), stream.ErrState, name)
	}
	require.ErrorIs(t, (&Map[uint64, int8]{}).AddState(statetest.Reader(statetest.Element("short", ""))), stream.ErrState)
	g := NewGroup(Summed)
	g.Add("old", 1, &memberOnly{})
	require.ErrorContains(t, g.AddState(statetest.Reader()), `member "old", a *state.memberOnly, has no AddState`)
}

// memberOnly is a member that nothing can be added to.
type memberOnly struct{}

func (*memberOnly) StateDivergence() float64               { return 0 }
func (*memberOnly) BackupState(*stream.StateWriter) error  { return nil }
func (*memberOnly) RestoreState(*stream.StateReader) error { return nil }
func (*memberOnly) BackupDurable()                         {}
