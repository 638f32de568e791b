package state

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

// trio is an operator with three states, as a user would write it.
type trio struct {
	*Group
	weights *Array[float64]
	counts  Map[string, int64]
	total   Value[int]
}

func newTrio(total Total) *trio {
	t := &trio{Group: NewGroup(total), weights: NewArray[float64](4, Options{Norm: errorbound.L2})}
	t.Add("weights", 1, t.weights)
	t.Add("counts", 10, &t.counts)
	t.Add("total", 100, &t.total)
	return t
}

func (t *trio) distance(o *trio) float64 {
	shares := []float64{
		normOf(errorbound.L2, differences(t.weights, o.weights)),
		mapDistance(errorbound.Max, contents(&t.counts), contents(&o.counts)) / 10,
		math.Abs(float64(t.total.Value()-o.total.Value())) / 100,
	}
	if t.Group.total == Summed {
		return shares[0] + shares[1] + shares[2]
	}
	return max(shares[0], shares[1], shares[2])
}

func TestGroupModel(t *testing.T) {
	for _, total := range []Total{Largest, Summed} {
		rapid.Check(t, func(t *rapid.T) {
			theta := thetas(t)
			g := newTrio(total)
			g.SetTheta(theta)
			s := statetest.NewStore(g)
			for range rapid.IntRange(1, 60).Draw(t, "steps") {
				d := rapid.IntRange(-30, 30).Draw(t, "d")
				switch rapid.IntRange(0, 3).Draw(t, "member") {
				case 0:
					g.weights.Add(rapid.IntRange(0, 3).Draw(t, "i"), float64(d)/7)
				case 1:
					g.counts.Add(rapid.SampledFrom([]string{"", "a", "a/b"}).Draw(t, "key"), int64(d))
				case 2:
					g.counts.Delete("a")
				default:
					g.total.Add(d)
				}
				s.Settle(t, theta)
				s.Draw(t)
				statetest.CheckLoss(t, s, theta, func() *trio { return newTrio(total) }, func(r *trio) float64 { return g.distance(r) })
			}
		})
	}
}

func TestGroupMeasure(t *testing.T) {
	array := func(norm errorbound.Norm, combine errorbound.Combine, alpha float64) *Array[int64] {
		return NewArray[int64](1, Options{Norm: norm, Combine: combine, Alpha: alpha})
	}
	const d = errorbound.Disjoint
	for name, c := range map[string]struct {
		total Total
		a, b  *Array[int64]
		want  stream.Measure
	}{
		"alike":       {Largest, array(errorbound.Max, d, 1), array(errorbound.Max, d, 6), stream.Measure{Alpha: 3, Combine: d}},
		"sum":         {Summed, array(errorbound.Max, d, 1), array(errorbound.Max, d, 6), stream.Measure{Alpha: 4, Norm: errorbound.L1, Combine: d}},
		"unlike":      {Largest, array(errorbound.Max, d, 1), array(errorbound.L2, d, 6), stream.Measure{Alpha: 3, Norm: errorbound.L2, Combine: d}},
		"one unknown": {Largest, array(errorbound.Max, d, 1), array(errorbound.Max, d, 0), stream.Measure{Combine: d}},
		"one added":   {Largest, array(errorbound.Max, d, 1), array(errorbound.Max, errorbound.Added, 6), stream.Measure{Alpha: 3}},
	} {
		g := NewGroup(c.total)
		g.Add("a", 1, c.a)
		g.Add("b", 2, c.b)
		require.Equal(t, c.want, g.Measure(), name)
	}
	require.Zero(t, new(Group).Measure())
	require.Zero(t, new(Group).StateDivergence())
}

func TestGroupAddRejects(t *testing.T) {
	for name, add := range map[string]func(g *Group){
		"twice":    func(g *Group) { g.Add("a", 1, new(Value[int])) },
		"slash":    func(g *Group) { g.Add("a/b", 1, new(Value[int])) },
		"empty":    func(g *Group) { g.Add("", 1, new(Value[int])) },
		"weight":   func(g *Group) { g.Add("b", 0, new(Value[int])) },
		"no limit": func(g *Group) { g.Add("b", inf, new(Value[int])) },
	} {
		g := NewGroup(Largest)
		g.Add("a", 1, new(Value[int]))
		require.Panics(t, func() { add(g) }, name)
	}
}

// TestGroupRestoreLarge: members are resumed many times, and see their elements in order.
func TestGroupRestoreLarge(t *testing.T) {
	build := func() (*Group, *Array[int64], *Map[int, int]) {
		g, a, m := NewGroup(Largest), NewArray[int64](20_000, Options{}), &Map[int, int]{}
		g.Add("a", 1, a)
		g.Add("m", 1, m)
		return g, a, m
	}
	g, a, m := build()
	g.SetTheta(10)
	var list [][]byte
	for round := range 3 {
		for i := range a.Len() {
			a.Set(i, int64(i*round+1)*10)
			m.Put(i%1000, i*round)
		}
		w := stream.NewStateWriter(nil, round == 0)
		require.NoError(t, g.BackupState(w))
		g.BackupDurable()
		list = append(list, bytes.Clone(w.Bytes()))
	}
	r, b, n := build()
	require.NoError(t, r.RestoreState(statetest.Reader(list...)))
	require.Equal(t, a.Values(), b.Values())
	require.Equal(t, contents(m), contents(n))
}

func TestGroupRestoreRejects(t *testing.T) {
	for _, key := range []string{"", "a", "other/value", "a/", "a/valu"} {
		for size := range []int{1, 10_000} { // found at the end, and while reading
			g := NewGroup(Largest)
			g.Add("a", 1, new(Value[int]))
			g.Add("b", 1, new(Value[int]))
			w := stream.NewStateWriter(nil, true)
			for range size {
				w.Put([]byte("b/value"), make([]byte, 8))
			}
			w.Put([]byte(key), make([]byte, 8))
			require.ErrorIs(t, g.RestoreState(statetest.Reader(w.Bytes())), stream.ErrState, key)
		}
	}
	g := newTrio(Largest)
	broken := errors.New("broken")
	require.ErrorIs(t, g.RestoreState(stream.NewStateReader(func() ([]byte, error) { return nil, broken })), broken)
}

func TestGroupBackupFails(t *testing.T) {
	g := newTrio(Largest)
	g.SetTheta(10)
	g.weights.Set(2, math.NaN())
	require.True(t, math.IsNaN(g.StateDivergence()))
	err := g.BackupState(stream.NewStateWriter(nil, false))
	require.ErrorIs(t, err, ErrNotFinite)
	require.ErrorContains(t, err, "member weights")
}

func FuzzGroupRestore(f *testing.F) {
	statetest.Restore[*trio]{
		Fresh: func() *trio { return newTrio(Largest) },
		View:  func(g *trio) any { return []any{g.weights.Values(), contents(&g.counts), g.total.Value()} },
	}.Fuzz(f, changed(newTrio(Largest), func(g *trio) { g.weights.Set(1, 2); g.counts.Add("x", 3); g.total.Set(-1) }))
}

func TestMatrix(t *testing.T) {
	m := NewMatrix[int](2, 3, Options{Norm: errorbound.L1, Alpha: 2})
	m.SetTheta(100)
	m.Add(0, 2, 5)
	m.Set(1, 0, -1)
	require.NoError(t, m.AddRow(1, []int{1, 2, 3}))
	require.ErrorIs(t, m.AddRow(1, []int{1}), ErrLength)
	require.Equal(t, []int{0, 0, 5}, m.Row(0))
	require.Equal(t, []int{0, 2, 3}, m.Row(1))
	require.Equal(t, 2, m.At(1, 1))
	require.Equal(t, []int{2, 3}, []int{m.Rows(), m.Columns()})
	require.Equal(t, 10.0, m.StateDivergence(), "an element that came back does not count")
	require.Equal(t, stream.Measure{Alpha: 2, Norm: errorbound.L1}, m.Measure())
	for _, at := range [][2]int{{0, 3}, {0, -1}, {2, 0}, {-1, 2}} {
		require.Panics(t, func() { m.At(at[0], at[1]) })
		require.Panics(t, func() { m.Add(at[0], at[1], 1) }, fmt.Sprint(at))
	}
	s := statetest.NewStore(m)
	s.Save(t, false)
	require.Equal(t, 2.0, m.StateDivergence(), "a partial backup clears 3/4: 5 and 3")
	m.Reset()
	s.Save(t, true)
	require.Zero(t, m.StateDivergence())
	require.ErrorIs(t, NewMatrix[int](3, 2, Options{}).RestoreState(statetest.Reader(s.Durable()...)), stream.ErrState)
	require.Panics(t, func() { NewMatrix[int](-1, -1, Options{}) })
}

// TestMatrixModel: a Matrix keeps the promise of its Array, through its own backups.
func TestMatrixModel(t *testing.T) {
	fresh := func() *Matrix[float64] { return NewMatrix[float64](2, 2, Options{Norm: errorbound.L2}) }
	rapid.Check(t, func(t *rapid.T) {
		theta := thetas(t)
		m := fresh()
		m.SetTheta(theta)
		s := statetest.NewStore(m)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			m.Add(rapid.IntRange(0, 1).Draw(t, "r"), rapid.IntRange(0, 1).Draw(t, "c"), rapid.Float64Range(-9, 9).Draw(t, "d"))
			s.Settle(t, theta)
			s.Draw(t)
			statetest.CheckLoss(t, s, theta, fresh, func(r *Matrix[float64]) float64 { return normOf(errorbound.L2, differences(m.cells, r.cells)) })
		}
	})
}

func FuzzMatrixRestore(f *testing.F) {
	statetest.Restore[*Matrix[int8]]{
		Fresh: func() *Matrix[int8] { return NewMatrix[int8](2, 2, Options{}) },
		View:  func(m *Matrix[int8]) any { return m.cells.Values() },
	}.Fuzz(f, changed(NewMatrix[int8](2, 2, Options{}), func(m *Matrix[int8]) { m.Set(0, 1, -3) }))
}
