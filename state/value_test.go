package state

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

func TestValueModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		theta := thetas(t)
		v, model := &Value[int32]{}, int32(0)
		s := statetest.NewStore(v)
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			d := rapid.Int32Range(-2000, 2000).Draw(t, "d")
			if rapid.Bool().Draw(t, "set") {
				v.Set(d)
				model = d
			} else {
				model += d
				require.Equal(t, model, v.Add(d))
			}
			s.Settle(t, theta)
			s.Draw(t)
			require.Equal(t, model, v.Value())
			statetest.CheckLoss(t, s, theta, func() *Value[int32] { return &Value[int32]{} },
				func(r *Value[int32]) float64 { return math.Abs(float64(v.Value()) - float64(r.Value())) })
		}
	})
}

// TestValueLarge: integers that are the same as float64 still differ.
func TestValueLarge(t *testing.T) {
	var i Value[int64]
	i.Set(math.MaxInt64)
	s := statetest.NewStore(&i)
	s.Save(t, true)
	i.Add(-1)
	require.Equal(t, 1.0, i.StateDivergence())
	i.Set(math.MinInt64)
	require.Equal(t, float64(math.MaxUint64), i.StateDivergence())
}

func TestValueNotFinite(t *testing.T) {
	var v Value[float64]
	v.Set(math.NaN())
	require.True(t, math.IsNaN(v.StateDivergence()))
	require.ErrorIs(t, v.BackupState(stream.NewStateWriter(nil, true)), ErrNotFinite)
}

func TestValueRestoreRejects(t *testing.T) {
	for name, write := range map[string]func(w *stream.StateWriter){
		"other key":        func(w *stream.StateWriter) { w.Put([]byte("x"), make([]byte, 8)) },
		"not finite":       func(w *stream.StateWriter) { w.Put([]byte(valueKey), encodeNumber(nil, inf)) },
		"beyond a float32": func(w *stream.StateWriter) { w.Put([]byte(valueKey), encodeNumber(nil, 1e300)) },
	} {
		w := stream.NewStateWriter(nil, true)
		write(w)
		var v Value[float32]
		require.ErrorIs(t, v.RestoreState(statetest.Reader(w.Bytes())), stream.ErrState, name)
	}
}

func TestValueMeasure(t *testing.T) {
	require.Equal(t, stream.Measure{Norm: errorbound.Max, Combine: errorbound.Added}, new(Value[int]).Measure())
}

func FuzzValueRestore(f *testing.F) {
	statetest.Restore[*Value[float64]]{
		Fresh: func() *Value[float64] { return &Value[float64]{} },
		View:  func(v *Value[float64]) any { return v.Value() },
	}.Fuzz(f, changed(&Value[float64]{}, func(v *Value[float64]) { v.Set(-1.5) }))
}

func keysOf[K Key](s *Set[K]) map[K]bool {
	keys := map[K]bool{}
	for k := range s.All() {
		keys[k] = true
	}
	return keys
}

func TestSetModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		theta := thetas(t)
		set, model := &Set[string]{}, map[string]bool{}
		set.SetTheta(theta)
		s := statetest.NewStore(set)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			k := rapid.SampledFrom([]string{"", "a", "b", "c", "\xff"}).Draw(t, "key")
			if rapid.Bool().Draw(t, "add") {
				require.Equal(t, !model[k], set.Add(k))
				model[k] = true
			} else {
				require.Equal(t, model[k], set.Delete(k))
				delete(model, k)
			}
			s.Settle(t, theta)
			s.Draw(t)
			require.Equal(t, model, keysOf(set))
			require.Equal(t, len(model), set.Len())
			require.Equal(t, model[k], set.Has(k))
			statetest.CheckLoss(t, s, theta, func() *Set[string] { return &Set[string]{} }, func(r *Set[string]) float64 {
				d := 0.0
				for k := range keysOf(set) {
					d += map[bool]float64{false: 1}[r.Has(k)]
				}
				for k := range keysOf(r) {
					d += map[bool]float64{false: 1}[set.Has(k)]
				}
				return d
			})
		}
		set.Reset()
		require.Zero(t, set.Len())
	})
}

func TestSetOptions(t *testing.T) {
	s := &Set[uint8]{}
	s.Configure(Options{Norm: errorbound.L1, Combine: errorbound.Disjoint, Alpha: 1})
	require.Equal(t, stream.Measure{Alpha: 1, Norm: errorbound.Count, Combine: errorbound.Disjoint}, s.Measure())
	require.Equal(t, errorbound.Count, new(Set[uint8]).Measure().Norm)
}

func TestSetOrder(t *testing.T) {
	var s Set[int8]
	for _, k := range []int8{5, -2, 9} {
		s.Add(k)
	}
	require.Equal(t, []int8{-2, 5, 9}, slices.Collect(s.All()))
	for range s.All() {
		break
	}
	require.Len(t, slices.Collect(maps.Keys(keysOf(&s))), 3)
}

func FuzzSetRestore(f *testing.F) {
	statetest.Restore[*Set[uint8]]{
		Fresh: func() *Set[uint8] { return &Set[uint8]{} },
		View:  func(s *Set[uint8]) any { return keysOf(s) },
	}.Fuzz(f, changed(&Set[uint8]{}, func(s *Set[uint8]) { s.Add(0); s.Add(255) }))
}

// TestKeysSort: integers sort by their bytes as they do by value, in every kind.
func TestKeysSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "b")
		require.Equal(t, a < b, string(encodeKey(nil, a)) < string(encodeKey(nil, b)))
		back, err := decodeKey[int64](encodeKey(nil, a))
		require.NoError(t, err)
		require.Equal(t, a, back)
		u, err := decodeKey[uint64](encodeKey(nil, uint64(a)))
		require.NoError(t, err)
		require.Equal(t, uint64(a), u)
	})
}

// TestNumbers: what a number cannot hold is refused in every kind.
func TestNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.Int64().Draw(t, "i")
		back, err := decodeNumber[int64](encodeNumber(nil, i))
		require.NoError(t, err)
		require.Equal(t, i, back)
		small, err := decodeNumber[int8](encodeNumber(nil, i))
		require.Equal(t, i == int64(int8(i)), err == nil)
		if err == nil {
			require.Equal(t, i, int64(small))
		}
	})
}
