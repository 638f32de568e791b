package state

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

var arrayNorms = []errorbound.Norm{errorbound.Max, errorbound.L1, errorbound.L2}

// normOf is the definition of each norm, from scratch.
func normOf(norm errorbound.Norm, differences []float64) float64 {
	largest, sum, squares := 0.0, 0.0, 0.0
	for _, d := range differences {
		largest, sum, squares = max(largest, math.Abs(d)), sum+math.Abs(d), squares+d*d
	}
	return map[errorbound.Norm]float64{
		errorbound.Max: largest, errorbound.L1: sum, errorbound.L2: math.Sqrt(squares),
	}[norm]
}

func differences[T Number](a, b *Array[T]) []float64 {
	d := make([]float64, a.Len())
	for i := range d {
		d[i] = difference(a.At(i), b.At(i))
	}
	return d
}

// flight returns the backup that is in flight.
func flight(s *statetest.Store) []byte { return s.Landed()[len(s.Landed())-1] }

// pathsModel plays what a failure can leave of signed changes: for each element every change since its last durable backup.
type pathsModel struct {
	since  [][]float64 // changes since the durable backup
	flight map[int]int // element in the backup in flight: how many of since it covers
}

func (p *pathsModel) start(wire []byte, whole bool) {
	p.flight = map[int]int{}
	for r := statetest.Reader(wire); r.Next(); {
		i, _, _ := r.Uint64()
		p.flight[int(i)] = len(p.since[i])
	}
	for i := range p.since {
		if whole {
			p.flight[i] = len(p.since[i])
		}
	}
}

func (p *pathsModel) land() {
	for i, n := range p.flight {
		p.since[i] = p.since[i][n:]
	}
	p.flight = nil
}

// worst is the largest effect that some subset of the changes can have, per element.
func (p *pathsModel) worst() []float64 {
	w := make([]float64, len(p.since))
	for i, steps := range p.since {
		up, down := 0.0, 0.0
		for _, s := range steps {
			up, down = up+max(s, 0), down+max(-s, 0)
		}
		w[i] = max(up, down)
	}
	return w
}

func arrayModel[T Number](t *rapid.T, o Options, draw func(t *rapid.T) T) {
	const n = 5
	theta := thetas(t)
	o.Clear = rapid.SampledFrom([]float64{0, 0.1, 0.5, 1}).Draw(t, "clear")
	fresh := func() *Array[T] { return NewArray[T](n, o) }
	a, model := fresh(), make([]T, n)
	a.SetTheta(theta)
	s, paths := statetest.NewStore(a), &pathsModel{since: make([][]float64, n)}
	for range rapid.IntRange(1, 80).Draw(t, "steps") {
		i, d := rapid.IntRange(0, n-2).Draw(t, "i"), draw(t)
		step := map[int]T{i: model[i] + d}
		switch rapid.IntRange(0, 4).Draw(t, "op") {
		case 0:
			step[i] = d
			a.Set(i, d)
		case 1:
			other, e := rapid.IntRange(0, n-1).Draw(t, "other"), draw(t)
			if other == i {
				step[i] += e
			} else {
				step[other] = model[other] + e
			}
			a.AddAt([]uint32{uint32(i), uint32(other)}, []T{d, e})
		default:
			a.Add(i, d)
		}
		for i, next := range step {
			paths.since[i] = append(paths.since[i], float64(next)-float64(model[i]))
			model[i] = next
		}
		switch rapid.IntRange(0, 9).Draw(t, "backup") {
		case 0:
			whole := rapid.Bool().Draw(t, "whole")
			s.Start(t, whole)
			paths.start(flight(s), whole)
		case 1, 2:
			s.Land()
			paths.land()
		}
		for tries := 0; a.StateDivergence() > theta; tries++ {
			require.Less(t, tries, 4, "divergence stays above theta")
			s.Land()
			paths.land()
			s.Start(t, false)
			paths.start(flight(s), false)
			s.Land()
			paths.land()
		}
		require.Equal(t, model, a.Values())
		statetest.CheckLoss(t, s, theta, fresh, func(r *Array[T]) float64 { return normOf(o.Norm, differences(a, r)) })
		if exact := exactDivergence(a); o.Norm != errorbound.Max {
			d := a.StateDivergence()
			require.GreaterOrEqual(t, d, exact*(1-1e-13))
			// What rounding may have added counts by its root under L2: 1e-12 of the squares.
			require.LessOrEqual(t, d, exact*(1+1e-9)+theta*1e-4, "bound is not tight")
		}
		if o.PathLength {
			require.LessOrEqual(t, normOf(o.Norm, paths.worst()), a.StateDivergence()*(1+1e-12))
		}
		require.NoError(t, validArray(a))
	}
	s.Save(t, true)
	require.Zero(t, a.StateDivergence())
}

// exactDivergence is the divergence from scratch.
func exactDivergence[T Number](a *Array[T]) float64 {
	sums := [2]float64{}
	for i := range a.elements {
		d, f := a.distances(i)
		sums[0] += d
		sums[1] += f
	}
	if a.options.Norm == errorbound.L2 {
		return math.Sqrt(max(sums[0], sums[1]))
	}
	return max(sums[0], sums[1])
}

// validArray checks the invariants of Array.
func validArray[T Number](a *Array[T]) error {
	sums := [2]float64{}
	if got := a.aloft.appendTo(nil); !slices.Equal(got, a.flying) {
		return fmt.Errorf("aloft are %v, want %v", got, a.flying)
	}
	for i := range a.elements {
		isListed := a.listed.has(i)
		if a.options.Norm != errorbound.Max && a.elements[i].value != 0 && !isListed && !a.used.has(i) {
			return fmt.Errorf("element %d is %v and not in use", i, a.elements[i].value)
		}
		d, f := a.distances(i)
		sums[0] += d
		sums[1] += f
		if a.options.Norm != errorbound.Max && (max(d, f) > 0 || !a.elements[i].here()) && !isListed {
			return fmt.Errorf("element %d has changed and is not listed", i)
		}
		if bound := map[bool]float64{true: a.peak, false: a.calm}[isListed]; a.options.Norm == errorbound.Max && max(d, f) > bound {
			return fmt.Errorf("element %d: distance %v above %v", i, max(d, f), bound)
		}
	}
	for i := range a.elements {
		e := &a.elements[i]
		if d := distance(e.value, e.saved, a.options.Norm == errorbound.L2); a.plain && !a.far.has(i) && d > 0 && d >= a.level {
			return fmt.Errorf("element %d is %v, saved as %v, and not far at level %v", i, e.value, e.saved, a.level)
		}
	}
	for i := range sums {
		if a.options.Norm != errorbound.Max && math.Abs(sums[i]-a.sums[i]) > a.rounding+1e-13*sums[i] {
			return fmt.Errorf("sums %v, want %v but for %v", a.sums, sums, a.rounding)
		}
	}
	return nil
}

func TestArrayModel(t *testing.T) {
	for _, norm := range arrayNorms {
		for _, path := range []bool{false, true} {
			o := Options{Norm: norm, PathLength: path}
			t.Run(fmt.Sprint(norm, "/path=", path), func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					arrayModel(t, o, func(t *rapid.T) int64 { return rapid.Int64Range(-20, 20).Draw(t, "n") })
				})
				rapid.Check(t, func(t *rapid.T) {
					arrayModel(t, o, func(t *rapid.T) float32 { return rapid.Float32Range(-20, 20).Draw(t, "x") })
				})
			})
		}
	}
}

// TestArrayPath is the case of package threshold: +9 and then -9, over and over.
func TestArrayPath(t *testing.T) {
	for path, want := range map[bool]float64{false: 9, true: 1800} {
		a := NewArray[int64](1, Options{PathLength: path})
		a.SetTheta(10_000)
		for range 100 {
			a.Add(0, 9)
			a.Add(0, -9)
		}
		require.InDelta(t, want, a.StateDivergence(), 1e-6)
	}
}

// TestArrayAlpha checks that there is always room for an item of the declared alpha after a partial backup.
func TestArrayAlpha(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alpha := rapid.SampledFrom([]float64{0.5, 3, 7, 10}).Draw(t, "alpha")
		a := NewArray[float64](6, Options{
			Norm:  rapid.SampledFrom(arrayNorms).Draw(t, "norm"),
			Alpha: alpha, Clear: 0.1, PathLength: rapid.Bool().Draw(t, "path"),
		})
		a.SetTheta(10)
		s := statetest.NewStore(a)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			s.Room(t, 10, alpha)
			a.Add(rapid.IntRange(0, 5).Draw(t, "i"), rapid.Float64Range(-alpha, alpha).Draw(t, "d"))
			s.Draw(t)
			require.LessOrEqual(t, a.StateDivergence(), 10+1e-9)
		}
	})
}

// TestArrayPartialClears checks that a partial backup writes the few elements that changed most.
func TestArrayPartialClears(t *testing.T) {
	for clear, want := range map[float64]int{0: 1, 0.5: 1, 0.76: 2, 0.95: 6, 1: 11} {
		a := NewArray[int64](20, Options{Norm: errorbound.L1, Clear: clear})
		a.SetTheta(1000)
		a.Add(19, 75)
		for i := range 5 {
			a.Add(i, -4)
			a.Add(10+i, 1)
		}
		require.Equal(t, 100.0, a.StateDivergence())
		w := stream.NewStateWriter(nil, false)
		require.NoError(t, a.BackupState(w))
		got := 0
		for r := statetest.Reader(w.Bytes()); r.Next(); {
			got++
		}
		require.Equal(t, want, got, "clear %v", clear)
	}
}

// TestLargest checks the selection against sorting.
func TestLargest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var changes []change
		total := 0.0
		for i, d := range rapid.SliceOfN(rapid.IntRange(0, 20), 0, 50).Draw(t, "distances") {
			changes = append(changes, change{i, float64(d)})
			total += float64(d)
		}
		goal := float64(rapid.IntRange(0, 300).Draw(t, "goal"))
		sorted := slices.SortedFunc(slices.Values(changes), func(a, b change) int { return cmp.Compare(b.distance, a.distance) })
		want, left := 0, total
		for ; left > goal; want++ {
			left -= sorted[want].distance
		}
		s := largest(changes, total, goal)
		got, cleared := 0, 0.0
		for _, c := range changes {
			if s.takes(c.distance) {
				got++
				cleared += c.distance
			}
		}
		require.Equal(t, want, got)
		require.Equal(t, total-left, cleared)
	})
}

// TestLargestOfAnySize: what is left is no more than the goal, and nothing that is left is more than a sixteenth larger than what
// is taken, among those that are not a billion times smaller than the largest.
func TestLargestOfAnySize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var changes []change
		total, farthest := 0.0, 0.0
		for i, d := range rapid.SliceOfN(rapid.Custom(func(t *rapid.T) float64 {
			return math.Ldexp(rapid.Float64Range(0, 1).Draw(t, "fraction"), rapid.IntRange(-1074, 1000).Draw(t, "exponent"))
		}), 0, 50).Draw(t, "distances") {
			changes = append(changes, change{i, d})
			total, farthest = total+d, max(farthest, d)
		}
		goal := total * rapid.Float64Range(0, 1.5).Draw(t, "goal")
		s := largest(changes, total, goal)
		least, most, left := inf, 0.0, 0.0
		for _, c := range changes {
			if s.takes(c.distance) {
				least = min(least, c.distance)
			} else {
				most = max(most, c.distance)
				left += c.distance
			}
		}
		require.LessOrEqual(t, left, goal+total*1e-12)
		if goal >= total {
			require.Equal(t, inf, least, "nothing is taken in vain")
		}
		if most > math.Ldexp(farthest, -30) {
			require.LessOrEqual(t, most, least*(1+1.0/16))
		}
	})
}

// backupBytes runs signed updates of Zipf-distributed elements and returns how many bytes were backed up to keep the
// divergence under theta.
func backupBytes(t testing.TB, o Options, theta float64, whole bool, updates int) (bytes, backups int) {
	a := NewArray[float64](4096, o)
	a.SetTheta(theta)
	r := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(r, 1.3, 1, 4095)
	w := stream.NewStateWriter(nil, whole)
	for range updates {
		a.Add(int(zipf.Uint64()), r.Float64()-0.25)
		if a.StateDivergence() > theta*3/4 {
			w.Reset(whole)
			require.NoError(t, a.BackupState(w))
			a.BackupDurable()
			require.LessOrEqual(t, a.StateDivergence(), theta)
			bytes += len(w.Bytes())
			backups++
		}
	}
	return bytes, backups
}

// TestPartialBackupsAreSmaller measures what partial backups are for: on skewed elements they write far less than whole
// ones that keep the same promise, although there are more of them.
func TestPartialBackupsAreSmaller(t *testing.T) {
	for _, c := range []struct {
		norm  errorbound.Norm
		theta float64
		least float64 // how many times fewer bytes
	}{
		{errorbound.Max, 20, 100},
		{errorbound.L2, 40, 20},
		{errorbound.L1, 200, 5},
	} {
		for _, path := range []bool{false, true} {
			o := Options{Norm: c.norm, PathLength: path}
			partial, many := backupBytes(t, o, c.theta, false, 100_000)
			whole, few := backupBytes(t, o, c.theta, true, 100_000)
			t.Logf("%v theta=%v path=%v: partial %d bytes in %d backups, whole %d in %d, %.0f times fewer",
				c.norm, c.theta, path, partial, many, whole, few, float64(whole)/float64(partial))
			require.Greater(t, float64(whole), c.least*float64(partial), "%v path %v", c.norm, path)
		}
	}
}

func TestArrayOperations(t *testing.T) {
	a := NewArray[int64](3, Options{Norm: errorbound.L1})
	a.SetTheta(100)
	require.NoError(t, a.AddAll([]int64{1, 0, -2}))
	require.ErrorIs(t, a.AddAll([]int64{1}), ErrLength)
	require.Equal(t, 3.0, a.StateDivergence())
	require.NoError(t, a.SetAll([]int64{1, 4, -2}))
	require.ErrorIs(t, a.SetAll(nil), ErrLength)
	require.Equal(t, 7.0, a.StateDivergence())
	require.Equal(t, 3, a.Len())
	for i, v := range a.All() {
		require.Equal(t, a.At(i), v)
		if i == 1 {
			break
		}
	}
	a.Reset()
	require.Equal(t, []int64{0, 0, 0}, a.Values())
	require.Zero(t, a.StateDivergence(), "it is back where it was")
	a.SetTheta(20)
	require.Zero(t, a.StateDivergence())
	require.Panics(t, func() { a.Add(3, 1) })
	for _, at := range [][]uint32{{3, 1}, {0, 4}, {0}} {
		require.Panics(t, func() { a.AddAt(at, []int64{1, 1}) }, at)
	}
}

// TestArrayWith: what is kept beside the numbers is saved with them if the owner asks for it.
func TestArrayWith(t *testing.T) {
	for _, whole := range []bool{false, true} {
		a := NewArrayWith[float64, uint32](3, Options{Norm: errorbound.L2})
		a.SetTheta(10)
		a.AddAt([]uint32{0, 2}, []float64{1.5, -2})
		*a.Beside(2) = 7
		require.InDelta(t, 2.5, a.StateDivergence(), 1e-9)
		w := stream.NewStateWriter(nil, whole)
		require.NoError(t, a.BackupWith(w, func(i int) uint64 { return uint64(*a.Beside(i)) }))
		saved := map[uint64][]uint64{}
		for r := statetest.Reader(w.Bytes()); r.Next(); {
			v := r.Value()
			saved[binary.LittleEndian.Uint64(r.Key())] = []uint64{binary.LittleEndian.Uint64(v), binary.LittleEndian.Uint64(v[8:])}
		}
		require.Equal(t, []uint64{math.Float64bits(-2), 7}, saved[2])
		require.Equal(t, []uint64{math.Float64bits(1.5), 0}, saved[0])
		require.Len(t, saved, 2)
	}
}

// TestArrayUntracked: what happens under theta = +Inf is in no distance, so that a finite theta begins with a backup of
// everything.
func TestArrayUntracked(t *testing.T) {
	for _, path := range []bool{false, true} {
		a := NewArray[float64](2, Options{PathLength: path})
		a.SetTheta(inf)
		s := statetest.NewStore(a)
		a.Add(0, 5)
		s.Save(t, false)
		a.Set(0, 0)
		require.Equal(t, inf, a.StateDivergence())
		a.SetTheta(10)
		require.Equal(t, inf, a.StateDivergence())
		s.Start(t, false)
		require.Equal(t, inf, a.StateDivergence())
		s.Land()
		require.Zero(t, a.StateDivergence())
		a.Add(1, 3)
		require.InDelta(t, 3, a.StateDivergence(), 1e-9)
		r := NewArray[float64](2, Options{PathLength: path})
		require.NoError(t, r.RestoreState(statetest.Reader(s.Durable()...)))
		require.Equal(t, []float64{0, 0}, r.Values(), "zeros replace older elements")
		r.Add(0, -4) // a compensation
		r.SetTheta(10)
		require.InDelta(t, 4, r.StateDivergence(), 1e-9)
	}
}

func TestArrayNotFinite(t *testing.T) {
	for _, norm := range arrayNorms {
		for _, theta := range []float64{10, inf} {
			for _, x := range []float64{math.NaN(), inf} {
				a := NewArray[float64](3, Options{Norm: norm})
				a.SetTheta(theta)
				a.Add(0, 3)
				a.Set(1, x)
				require.False(t, a.StateDivergence() <= 10)
				for _, whole := range []bool{false, true} {
					require.ErrorIs(t, a.BackupState(stream.NewStateWriter(nil, whole)), ErrNotFinite)
				}
				a.Set(1, 0)
				require.NoError(t, a.BackupState(stream.NewStateWriter(nil, false)))
			}
		}
	}
}

func TestArrayRejects(t *testing.T) {
	require.Panics(t, func() { NewArray[int64](1, Options{Norm: errorbound.Count}) })
	require.Panics(t, func() { NewArray[int64](1, Options{Clear: 2}) })
	require.Panics(t, func() { new(Map[int, int]).Configure(Options{PathLength: true}) })
	for name, write := range map[string]func(w *stream.StateWriter){
		"short key":   func(w *stream.StateWriter) { w.Put([]byte{1}, make([]byte, 8)) },
		"index":       func(w *stream.StateWriter) { w.PutUint64(2, 0) },
		"short value": func(w *stream.StateWriter) { w.Put(make([]byte, 8), []byte{1}) },
		"of uint8":    func(w *stream.StateWriter) { w.PutUint64(0, 256) },
	} {
		w := stream.NewStateWriter(nil, true)
		write(w)
		require.ErrorIs(t, NewArray[uint8](2, Options{}).RestoreState(statetest.Reader(w.Bytes())), stream.ErrState, name)
	}
}

func FuzzArrayRestore(f *testing.F) {
	statetest.Restore[*Array[float32]]{
		Fresh: func() *Array[float32] { return NewArray[float32](3, Options{}) },
		View:  func(a *Array[float32]) any { return a.Values() },
	}.Fuzz(f, changed(NewArray[float32](3, Options{}), func(a *Array[float32]) { a.Set(0, -1.5); a.Set(2, 7) }))
}

func TestArrayAddDoesNotAllocate(t *testing.T) {
	for _, path := range []bool{false, true} {
		a := NewArray[float64](64, Options{Norm: errorbound.L2, PathLength: path})
		a.SetTheta(1e9)
		for i := range a.Len() {
			a.Add(i, 1)
		}
		require.Zero(t, testing.AllocsPerRun(100, func() { a.Add(7, 0.5) }))
	}
}

// BenchmarkArrayAdd adds to one of 2^16 elements; backups are taken when they are asked for, and their cost is part of it.
func BenchmarkArrayAdd(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(r, 1.2, 1, 1<<16-1)
	at := make([]int, 1<<14)
	for i := range at {
		at[i] = int(zipf.Uint64())
	}
	for _, c := range []struct {
		norm  errorbound.Norm
		theta float64
		path  bool
	}{{errorbound.Max, inf, false}, {errorbound.Max, 2500, false}, {errorbound.L2, 2500, false}, {errorbound.L2, 2500, true}} {
		b.Run(fmt.Sprintf("%v/theta=%v/path=%v", c.norm, c.theta, c.path), func(b *testing.B) {
			a := NewArray[float64](1<<16, Options{Norm: c.norm, PathLength: c.path})
			a.SetTheta(c.theta)
			w := stream.NewStateWriter(nil, false)
			written := 0
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				a.Add(at[i&(1<<14-1)], 1)
				if i&255 == 0 && a.StateDivergence() > c.theta*3/4 {
					w.Reset(false)
					if err := a.BackupState(w); err != nil {
						b.Fatal(err)
					}
					a.BackupDurable()
					written += len(w.Bytes())
				}
			}
			b.ReportMetric(float64(written)/float64(b.N), "backupB/op")
		})
	}
}

// BenchmarkArrayAddAt makes steps of 10 elements.
func BenchmarkArrayAddAt(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	const n, k = 1 << 16, 10
	at, d := make([][]uint32, 1<<10), make([]float64, k)
	for i := range at {
		for range k {
			at[i] = append(at[i], uint32(math.Pow(r.Float64(), 8)*n))
		}
		slices.Sort(at[i])
		for j := 1; j < k; j++ {
			at[i][j] = max(at[i][j], at[i][j-1]+1)
		}
	}
	for i := range d {
		d[i] = r.Float64() - 0.5
	}
	for _, theta := range []float64{inf, 500} {
		b.Run(fmt.Sprint("theta=", theta), func(b *testing.B) {
			a := NewArray[float64](n+k, Options{Norm: errorbound.L2})
			a.SetTheta(theta)
			w := stream.NewStateWriter(nil, false)
			backups := 0
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				a.AddAt(at[i&(1<<10-1)], d)
				if a.StateDivergence() > theta*3/4 {
					w.Reset(false)
					if err := a.BackupState(w); err != nil {
						b.Fatal(err)
					}
					a.BackupDurable()
					backups++
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*k), "ns/element")
			b.ReportMetric(float64(backups), "backups")
		})
	}
}

// What an Array was given before it was told theta counts as soon as it is told.
func TestArrayChangedBeforeTheta(t *testing.T) {
	for name, change := range map[string]func(a *Array[float64]){
		"set":    func(a *Array[float64]) { a.Set(2, 3) },
		"add at": func(a *Array[float64]) { a.AddAt([]uint32{2}, []float64{3}) },
		"restored": func(a *Array[float64]) {
			other := NewArray[float64](5, Options{})
			other.Set(2, 3)
			require.NoError(t, a.RestoreState(statetest.Reader(statetest.Backup(t, other, true))))
			a.Set(2, 6)
		},
	} {
		a := NewArray[float64](5, Options{Norm: errorbound.L2})
		change(a)
		a.SetTheta(10)
		require.InDelta(t, 3, a.StateDivergence(), 1e-12, name)
		a.Add(2, 1)
		a.SetTheta(20)
		require.InDelta(t, 4, a.StateDivergence(), 1e-12, name)
		require.NoError(t, validArray(a))
	}
}
