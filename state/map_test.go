package state

import (
	"fmt"
	"maps"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

func contents[K Key, V Number](m *Map[K, V]) map[K]V { return maps.Collect(m.All()) }

// mapDistance is the definition of each norm, from scratch.
func mapDistance[K Key, V Number](norm errorbound.Norm, a, b map[K]V) float64 {
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	largest, sum, squares, count := 0.0, 0.0, 0.0, 0.0
	for k := range keys {
		d := math.Abs(float64(a[k]) - float64(b[k]))
		largest, sum, squares = max(largest, d), sum+d, squares+d*d
		_, inA := a[k]
		_, inB := b[k]
		if inA != inB {
			count++
		}
	}
	return map[errorbound.Norm]float64{
		errorbound.Max: largest, errorbound.L1: sum, errorbound.L2: math.Sqrt(squares), errorbound.Count: count,
	}[norm]
}

// mapModel drives a Map and a Go map with the same random steps and restores at random points.
func mapModel[V Number](t *rapid.T, norm errorbound.Norm, draw func(t *rapid.T) V) {
	theta := thetas(t)
	options := Options{Norm: norm, Clear: rapid.SampledFrom([]float64{0, 0.1, 0.5, 1}).Draw(t, "clear")}
	fresh := func() *Map[int8, V] {
		m := &Map[int8, V]{}
		m.Configure(options)
		return m
	}
	m := fresh()
	m.SetTheta(theta)
	s, model := statetest.NewStore(m), map[int8]V{}
	for range rapid.IntRange(1, 80).Draw(t, "steps") {
		k := int8(rapid.IntRange(-2, 3).Draw(t, "key"))
		switch rapid.IntRange(0, 5).Draw(t, "op") {
		case 0:
			m.Delete(k)
			delete(model, k)
		case 1:
			v := draw(t)
			m.Put(k, v)
			model[k] = v
		default:
			d := draw(t)
			model[k] += d
			require.Equal(t, model[k], m.Add(k, d))
		}
		if rapid.IntRange(0, 40).Draw(t, "reset") == 0 {
			m.Reset()
			clear(model)
		}
		s.Settle(t, theta)
		s.Draw(t)
		require.Equal(t, len(model), m.Len())
		require.Equal(t, model, contents(m))
		statetest.CheckLoss(t, s, theta, fresh, func(r *Map[int8, V]) float64 { return mapDistance(norm, contents(m), contents(r)) })
		require.NoError(t, valid(m))
	}
	s.Land()
	s.Save(t, true)
	require.Zero(t, m.StateDivergence())
	require.Len(t, m.index, m.Len(), "deleted entries stay behind")
	restored := fresh()
	require.NoError(t, restored.RestoreState(statetest.Reader(s.Durable()...)))
	require.Equal(t, contents(m), contents(restored))
}

// valid checks the invariants of Map.
func valid[K Key, V Number](m *Map[K, V]) error {
	sums, isListed := [2]float64{}, map[int]bool{}
	for _, i := range m.list {
		if isListed[i] {
			return fmt.Errorf("slot %d is listed twice", i)
		}
		isListed[i] = true
	}
	for i := range m.entries {
		e := &m.entries[i]
		if at, ok := m.index[e.key]; e.flags != 0 && (!ok || at != i) {
			return fmt.Errorf("slot %d, flags %b, is not where the index says", i, e.flags)
		}
		if e.flags.has(listed) != isListed[i] {
			return fmt.Errorf("slot %d: flags %b, listed %v", i, e.flags, isListed[i])
		}
		d, f := m.distances(e)
		sums[0] += d
		sums[1] += f
		if bound := map[bool]float64{true: m.peak, false: m.calm}[isListed[i]]; m.options.Norm == errorbound.Max && max(d, f) > bound {
			return fmt.Errorf("slot %d: distance %v above %v", i, max(d, f), bound)
		}
	}
	for i := range sums {
		if m.options.Norm != errorbound.Max && math.Abs(sums[i]-m.sums[i]) > 1e-9*(1+sums[i]) {
			return fmt.Errorf("sums %v, want %v", m.sums, sums)
		}
	}
	return nil
}

func TestMapModel(t *testing.T) {
	for _, norm := range []errorbound.Norm{errorbound.Max, errorbound.L1, errorbound.L2, errorbound.Count} {
		t.Run(norm.String(), func(t *testing.T) {
			t.Run("int64", func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					mapModel(t, norm, func(t *rapid.T) int64 { return rapid.Int64Range(-20, 20).Draw(t, "n") })
				})
			})
			t.Run("float64", func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					mapModel(t, norm, func(t *rapid.T) float64 { return rapid.Float64Range(-20, 20).Draw(t, "x") })
				})
			})
		})
	}
}

// TestMapAlpha checks that there is always room for an item of the declared alpha after a partial backup.
func TestMapAlpha(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		norm := rapid.SampledFrom([]errorbound.Norm{errorbound.Max, errorbound.L1, errorbound.L2}).Draw(t, "norm")
		alpha := rapid.SampledFrom([]float64{0.5, 3, 7, 10}).Draw(t, "alpha")
		m := &Map[string, float64]{}
		m.Configure(Options{Norm: norm, Alpha: alpha, Clear: 0.1})
		m.SetTheta(10)
		s := statetest.NewStore(m)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			s.Room(t, 10, alpha)
			m.Add(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "key"), rapid.Float64Range(-alpha, alpha).Draw(t, "d"))
			s.Draw(t)
			require.LessOrEqual(t, m.StateDivergence(), 10+1e-9)
		}
	})
}

// TestMapRoomForAlpha: however small Clear is, a partial backup leaves no more than theta - alpha.
func TestMapRoomForAlpha(t *testing.T) {
	for norm, c := range map[errorbound.Norm]struct {
		change float64
		want   int
	}{
		errorbound.L1: {0.9, 5}, // 9 in all, 4.5 after 5 elements
		errorbound.L2: {3, 8},   // sqrt(90) in all, sqrt(18) after 8
	} {
		m := &Map[int8, float64]{}
		m.Configure(Options{Norm: norm, Alpha: 5, Clear: 0.01})
		m.SetTheta(10)
		for k := range int8(10) {
			m.Add(k, c.change)
		}
		require.Equal(t, c.want, elements(t, m, false), norm)
	}
}

// TestMapPartialClears checks that a partial backup writes the few keys that changed most.
func TestMapPartialClears(t *testing.T) {
	for clear, want := range map[float64]int{0: 1, 0.5: 1, 0.76: 2, 0.95: 6, 1: 11} {
		m := &Map[int, int]{}
		m.Configure(Options{Norm: errorbound.L1, Clear: clear})
		m.SetTheta(1000)
		m.Add(99, 75)
		for k := range 5 {
			m.Add(k, 4)
			m.Add(10+k, 1)
		}
		require.Equal(t, 100.0, m.StateDivergence())
		require.Equal(t, want, elements(t, m, false), "clear %v", clear)
	}
}

func TestMapMaxPartial(t *testing.T) {
	m := &Map[string, int64]{}
	m.SetTheta(10)
	s := statetest.NewStore(m)
	m.Add("quiet", 4)
	m.Add("due", 5)
	m.Add("down", -6)
	require.Equal(t, 6.0, m.StateDivergence())
	s.Start(t, false)
	require.Equal(t, 2, elements(t, m, false))
	s.Save(t, false)
	require.Equal(t, 4.0, m.StateDivergence())
	m.Delete("due")
	require.Equal(t, 1, elements(t, m, false))
}

// TestMapDeletions: a partial backup deletes what is gone however little it was, or it would stay for ever.
func TestMapDeletions(t *testing.T) {
	for _, norm := range []errorbound.Norm{errorbound.Max, errorbound.L1, errorbound.L2, errorbound.Count} {
		m := &Map[string, int64]{}
		m.Configure(Options{Norm: norm, Clear: 0.01})
		m.SetTheta(1000)
		s := statetest.NewStore(m)
		m.Put("zero", 0)
		m.Put("one", 1)
		m.Put("large", 500)
		s.Save(t, true)
		m.Put("large", 100)
		m.Delete("zero")
		m.Delete("one")
		s.Save(t, false)
		require.Len(t, m.index, 1, norm)
		r := &Map[string, int64]{}
		require.NoError(t, r.RestoreState(statetest.Reader(s.Durable()...)))
		require.Equal(t, 1, r.Len(), norm)
	}
}

func TestMapOrder(t *testing.T) {
	var m Map[int, int]
	for _, k := range []int{3, -1, 0, 2, -7} {
		m.Put(k, k)
	}
	m.Delete(2)
	var keys []int
	for k, v := range m.All() {
		require.Equal(t, k, v)
		keys = append(keys, k)
		if len(keys) == 3 {
			break
		}
	}
	require.Equal(t, []int{-7, -1, 0}, keys)
	_, ok := m.Lookup(2)
	require.False(t, ok)
	require.Zero(t, m.At(2))
}

type word string

// embedded is what the package comment promises: an operator by embedding, keys and values of named types.
type embedded struct{ Map[word, int64] }

var _ ready = (*embedded)(nil)

func TestMapUntracked(t *testing.T) {
	var m embedded
	s := statetest.NewStore(&m)
	m.Add("a", 1)
	m.Add("b", 2)
	require.Equal(t, inf, m.StateDivergence())
	s.Save(t, false)
	m.Delete("a")
	m.Add("c", 3)
	m.Add("d", 3)
	m.Delete("d")
	s.Save(t, false)
	require.Len(t, m.index, 2)
	var r embedded
	require.NoError(t, r.RestoreState(statetest.Reader(s.Durable()...)))
	require.Equal(t, map[word]int64{"b": 2, "c": 3}, contents(&r.Map))
	r.SetTheta(5)
	require.Zero(t, r.StateDivergence())
}

func TestMapNotFinite(t *testing.T) {
	for _, norm := range []errorbound.Norm{errorbound.Max, errorbound.L1, errorbound.L2} {
		for _, theta := range []float64{10, inf} {
			for _, x := range []float64{math.NaN(), inf} {
				m := &Map[string, float64]{}
				m.Configure(Options{Norm: norm})
				m.SetTheta(theta)
				m.Add("ok", 3)
				m.Put("bad", x)
				require.False(t, m.StateDivergence() <= 10)
				require.ErrorIs(t, m.BackupState(stream.NewStateWriter(nil, false)), ErrNotFinite, "%v %v %v", norm, theta, x)
			}
		}
	}
}

func TestMapRestoreRejects(t *testing.T) {
	for name, wire := range map[string]func(w *stream.StateWriter){
		"short key":      func(w *stream.StateWriter) { w.Put([]byte{1}, make([]byte, 8)) },
		"short value":    func(w *stream.StateWriter) { w.Put(encodeKey(nil, int8(1)), []byte{1}) },
		"key too large":  func(w *stream.StateWriter) { w.Put(encodeKey(nil, 128), make([]byte, 8)) },
		"value of uint8": func(w *stream.StateWriter) { w.Put(encodeKey(nil, int8(1)), encodeNumber(nil, 256)) },
	} {
		w := stream.NewStateWriter(nil, true)
		wire(w)
		var m Map[int8, uint8]
		require.ErrorIs(t, m.RestoreState(statetest.Reader(w.Bytes())), stream.ErrState, name)
	}
}

func TestMapOptions(t *testing.T) {
	bad := Options{Norm: 9, Combine: 7, Alpha: math.NaN(), Clear: 2}
	err := bad.Validate()
	require.ErrorIs(t, err, ErrOptions)
	for _, part := range []string{"norm", "combine", "alpha", "clear"} {
		require.ErrorContains(t, err, part)
	}
	require.Panics(t, func() { new(Map[int, int]).Configure(bad) })
	m := &Map[int, int]{}
	m.Configure(Options{Norm: errorbound.L2, Combine: errorbound.Disjoint, Alpha: 2})
	require.Equal(t, stream.Measure{Alpha: 2, Norm: errorbound.L2, Combine: errorbound.Disjoint}, m.Measure())
}

func TestMapAddDoesNotAllocate(t *testing.T) {
	m := &Map[string, int64]{}
	m.SetTheta(5)
	m.Add("a", 100)
	require.Zero(t, testing.AllocsPerRun(100, func() { m.Add("a", 1) }))
}

func FuzzMapRestore(f *testing.F) {
	statetest.Restore[*Map[int16, float32]]{
		Fresh: func() *Map[int16, float32] { return &Map[int16, float32]{} },
		View:  func(m *Map[int16, float32]) any { return contents(m) },
	}.Fuzz(f, changed(&Map[int16, float32]{}, func(m *Map[int16, float32]) { m.Put(-3, 1.5); m.Put(4, -2) }))
}

func FuzzMapStringRestore(f *testing.F) {
	statetest.Restore[*Map[string, uint16]]{
		Fresh: func() *Map[string, uint16] { return &Map[string, uint16]{} },
		View:  func(m *Map[string, uint16]) any { return contents(m) },
	}.Fuzz(f, changed(&Map[string, uint16]{}, func(m *Map[string, uint16]) { m.Put("", 1); m.Put("\xff", 2) }))
}

func BenchmarkMapAdd(b *testing.B) {
	keys := make([]string, 1024)
	for i := range keys {
		keys[i] = fmt.Sprint("key", i)
	}
	for _, theta := range []float64{inf, 2500} {
		b.Run(fmt.Sprint("theta=", theta), func(b *testing.B) {
			var m Map[string, int64]
			m.SetTheta(theta)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				m.Add(keys[i&1023], 1)
			}
		})
	}
}
