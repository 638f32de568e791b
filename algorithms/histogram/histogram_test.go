package histogram

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

func layout(t require.TestingT, l Layout, err error) Layout {
	require.NoError(t, err)
	return l
}

func equi(t require.TestingT, lo, hi float64, n int) Layout {
	l, err := EquiWidth(lo, hi, n)
	return layout(t, l, err)
}

func rel(t require.TestingT, eps, least, most float64) Layout {
	l, err := Relative(eps, least, most)
	return layout(t, l, err)
}

func of(t require.TestingT, l Layout, numbers ...float64) Histogram {
	c := New(l)
	require.NoError(t, c.ProcessBatch(numbers, nil))
	return c.Histogram()
}

func TestEquiWidth(t *testing.T) {
	h := of(t, equi(t, 0, 10, 5), -1, 0, 1.9, 2, 9.99, 10, 11, math.MaxFloat64)
	require.Equal(t, []uint64{1, 2, 1, 0, 0, 1, 3}, h.counts)
	require.EqualValues(t, 8, h.Total())
	v, ok := h.Quantile(0.5) // rank 3, the 2
	require.True(t, ok)
	require.Equal(t, 3.0, v, "in the middle of its bin, since it is alone")
	v, ok = h.Quantile(1)
	require.False(t, ok)
	require.Equal(t, 10.0, v)
	v, ok = h.Quantile(0)
	require.False(t, ok)
	require.Equal(t, 0.0, v)
}

// TestEdges: every edge begins its bin, whatever the rounding, and the number just below it is in the bin before.
func TestEdges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := rapid.Float64Range(-1e6, 1e6).Draw(t, "lo")
		l := equi(t, lo, lo+rapid.Float64Range(0.1, 1e6).Draw(t, "width"), rapid.IntRange(1, 999).Draw(t, "bins"))
		for bin := 1; bin < l.Bins(); bin++ {
			low, _ := l.Bounds(bin)
			require.Equal(t, bin, l.Bin(low))
			require.Equal(t, bin-1, l.Bin(math.Nextafter(low, math.Inf(-1))))
		}
	})
}

// TestRelative: a number within the range is told to within eps, and its bin says where it lies.
func TestRelative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		eps := rapid.SampledFrom([]float64{0.3, 0.01, 0.001}).Draw(t, "eps")
		l := rel(t, eps, 1e-3, 1e6)
		x := math.Exp(rapid.Float64Range(math.Log(1e-3), math.Log(1e6)).Draw(t, "log"))
		x = math.Copysign(min(max(x, 1e-3), 1e6), rapid.SampledFrom([]float64{-1, 1}).Draw(t, "sign"))
		bin := l.Bin(x)
		require.True(t, l.within(bin))
		require.LessOrEqual(t, math.Abs(l.middle(bin)-x), eps*math.Abs(x))
		low, high := l.Bounds(bin)
		require.LessOrEqual(t, low-math.Abs(x)*1e-9, x)
		require.GreaterOrEqual(t, high+math.Abs(x)*1e-9, x)
		require.LessOrEqual(t, l.Bin(x-math.Abs(x)*rapid.Float64Range(0, 3).Draw(t, "less")), bin, "bins are in order")
	})
}

func TestRelativeEnds(t *testing.T) {
	l := rel(t, 0.01, 1, 100)
	last := l.Bins() - 1
	zero := l.Bin(0)
	require.Equal(t, zero, l.Bin(0.999))
	require.Equal(t, zero, l.Bin(-0.999))
	require.Equal(t, zero+1, l.Bin(1))
	require.Equal(t, zero-1, l.Bin(-1))
	require.Equal(t, last-1, l.Bin(100))
	require.Equal(t, last, l.Bin(100.001))
	require.Equal(t, 1, l.Bin(-100))
	require.Equal(t, 0, l.Bin(-math.MaxFloat64))
	require.Equal(t, l.middle(zero), 0.0)
	for q, want := range map[float64]float64{0: -100, 1: 100} {
		v, ok := of(t, l, -1e9, 3, 1e9).Quantile(q)
		require.False(t, ok)
		require.Equal(t, want, v)
	}
}

func TestLayoutsThatAreNone(t *testing.T) {
	for _, make := range []func() (Layout, error){
		func() (Layout, error) { return EquiWidth(1, 1, 5) },
		func() (Layout, error) { return EquiWidth(math.Inf(-1), 1, 5) },
		func() (Layout, error) { return EquiWidth(-math.MaxFloat64, math.MaxFloat64, 5) },
		func() (Layout, error) { return EquiWidth(math.NaN(), 1, 5) },
		func() (Layout, error) { return EquiWidth(0, 1, 0) },
		func() (Layout, error) { return EquiWidth(0, 1, MaxBins) },
		func() (Layout, error) { return EquiWidth(1e16, 1e16+2, 5) },
		func() (Layout, error) { return Relative(0, 1, 2) },
		func() (Layout, error) { return Relative(math.NaN(), 1, 2) },
		func() (Layout, error) { return Relative(0.1, 2, 2) },
		func() (Layout, error) { return Relative(0.1, 0, 2) },
		func() (Layout, error) { return Relative(1e-6, 1e-9, 1e9) },
	} {
		l, err := make()
		require.ErrorIs(t, err, ErrLayout)
		require.Zero(t, l.Bins())
		require.Panics(t, func() { New(l) })
	}
}

func TestNumbersThatAreNone(t *testing.T) {
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		require.ErrorIs(t, New(equi(t, 0, 1, 2)).Process(x, nil), ErrValue)
	}
	for _, q := range []float64{math.NaN(), -0.1, 1.1} {
		_, ok := of(t, equi(t, 0, 1, 2), 0.5).Quantile(q)
		require.False(t, ok)
	}
	_, ok := of(t, equi(t, 0, 1, 2)).Quantile(0.5)
	require.False(t, ok)
}

// TestQuantilesAgainstExact on distributions of every kind, in parts that are merged: every quantile is within what the
// layout says.
func TestQuantilesAgainstExact(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	for name, draw := range map[string]func() float64{
		"normal": r.NormFloat64, "exponential": r.ExpFloat64,
		"heavy tail": func() float64 { return math.Pow(r.Float64(), -1.5) },
		"constant":   func() float64 { return 7 },
		"two peaks":  func() float64 { return float64(r.IntN(2))*1000 + r.NormFloat64() },
	} {
		for _, l := range []Layout{rel(t, 0.02, 1e-9, 1e12), equi(t, -10, 2000, 500)} {
			var exact Exact
			m := NewMerge(l)
			for range 3 {
				c := New(l)
				for range 3000 {
					x := draw()
					exact.Add(x)
					require.NoError(t, c.Process(x, nil))
				}
				require.NoError(t, m.Process(c.Histogram(), nil))
			}
			q := Compare(m.sum, &exact)
			require.Zero(t, q.SumBinError, name)
			require.EqualValues(t, 9000, q.Reported)
			if l.kind == relative {
				require.LessOrEqual(t, q.MaxRelativeError, 0.02, name)
			} else {
				require.LessOrEqual(t, q.MaxQuantileError, 2010.0/500, name)
			}
		}
	}
}

// TestRange: of any numbers of which any few are lost, the exact quantile lies in the range.
func TestRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := equi(t, 0, 20, 10)
		var exact Exact
		c, lost := New(l), uint64(0)
		for range rapid.IntRange(1, 40).Draw(t, "numbers") {
			x := float64(rapid.IntRange(-1, 21).Draw(t, "number"))
			exact.Add(x)
			if rapid.IntRange(0, 3).Draw(t, "lost") == 0 {
				lost++
				continue
			}
			require.NoError(t, c.Process(x, nil))
		}
		most := lost + uint64(rapid.IntRange(0, 3).Draw(t, "slack"))
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		low, high := c.Histogram().Range(q, most)
		require.LessOrEqual(t, low, exact.Quantile(q))
		require.GreaterOrEqual(t, high, exact.Quantile(q))
		if lost == 0 && most == 0 {
			bin := l.Bin(exact.Quantile(q))
			wantLow, wantHigh := l.Bounds(bin)
			require.Equal(t, []float64{wantLow, wantHigh}, []float64{low, high})
		}
	})
}

// TestDivergence: at any moment it is exactly how many numbers the last durable backup lacks.
func TestDivergence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := equi(t, 0, 8, 8)
		c := New(l)
		c.SetTheta(rapid.SampledFrom([]float64{0, 5, 100}).Draw(t, "theta"))
		s, stale := statetest.NewStore(c), false
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 40).Draw(t, "reset") == 0 {
				s.LandUnheard() // it may have become durable
				c.bins.reset()
				stale = c.bins.saved
			}
			for range rapid.IntRange(0, 9).Draw(t, "numbers") {
				require.NoError(t, c.Process(float64(rapid.IntRange(0, 7).Draw(t, "number")), nil))
			}
			s.Draw(t)
			if stale = stale && math.IsInf(c.StateDivergence(), 1); stale {
				continue
			}
			r := New(l)
			require.NoError(t, r.RestoreState(statetest.Reader(s.Durable()...)))
			require.Equal(t, float64(c.Histogram().Total()-r.Histogram().Total()), c.StateDivergence())
			for bin, n := range c.Histogram().counts {
				require.GreaterOrEqual(t, n, r.Histogram().counts[bin])
			}
		}
		s.Save(t, false)
		require.Zero(t, c.StateDivergence())
	})
}

func TestPartialBackupsWriteWhatChanged(t *testing.T) {
	c := New(equi(t, 0, 100, 100))
	c.SetTheta(10)
	require.NoError(t, c.ProcessBatch([]float64{1, 1, 1, 2}, nil))
	first := statetest.Backup(t, c, false)
	require.Equal(t, first, statetest.Backup(t, c, false), "the first may be lost")
	c.BackupDurable()
	require.Empty(t, statetest.Backup(t, c, false))
	c.BackupDurable()
	require.NoError(t, c.Process(1, nil))
	require.Less(t, len(statetest.Backup(t, c, false)), 10)
}

func TestRestoreRefuses(t *testing.T) {
	wire := statetest.Backup(t, New(equi(t, 0, 1, 2)), true)
	require.ErrorIs(t, New(equi(t, 0, 1, 3)).RestoreState(statetest.Reader(wire)), ErrLayout)
	m := NewMerge(equi(t, 0, 1, 2))
	merged := statetest.Backup(t, m, true)
	require.NoError(t, m.RestoreState(statetest.Reader(merged)))
	require.ErrorIs(t, NewMerge(rel(t, 0.1, 1, 2)).RestoreState(statetest.Reader(merged)), ErrLayout)
	require.ErrorIs(t, m.Process(of(t, rel(t, 0.1, 1, 2)), nil), ErrLayout)
	for _, chunk := range [][]byte{statetest.Element("layout", "x"), statetest.Element("\x00\x00\x00\x09", "\x01"), statetest.Element("\x00\x00\x00\x01", ""), statetest.Element("k", "\x01")} {
		require.ErrorIs(t, New(equi(t, 0, 1, 2)).RestoreState(statetest.Reader(chunk)), stream.ErrState)
	}
}

func FuzzHistogram(f *testing.F) {
	statetest.FuzzBinary(f, ErrHistogram, func(_ *testing.T, h Histogram, _, _ []byte) {
		h.Quantile(0.5)
		h.Range(0.5, 1)
	}, of(f, equi(f, 0, 10, 5), -5, 1, 1, 9, 99), of(f, rel(f, 0.1, 1, 1000), -5, 1, 1, 9, 99))
}

func FuzzRestoreState(f *testing.F) {
	l := equi(f, 0, 10, 5)
	c := New(l)
	require.NoError(f, c.ProcessBatch([]float64{1, 2, 11}, nil))
	statetest.Restore[*Count]{
		Fresh:    func() *Count { return New(l) },
		View:     func(c *Count) any { return c.Histogram() },
		Refusals: []error{ErrLayout},
	}.Fuzz(f, c)
}

func benchNumbers() []float64 {
	r := rand.New(rand.NewPCG(1, 0))
	numbers := make([]float64, 1<<14)
	for i := range numbers {
		numbers[i] = r.ExpFloat64() * 100
	}
	return numbers
}

func TestProcessBatchDoesNotAllocate(t *testing.T) {
	numbers := benchNumbers()
	c := New(rel(t, 0.01, 1e-6, 1e6))
	c.SetTheta(1000)
	require.NoError(t, c.ProcessBatch(numbers, nil))
	require.Zero(t, testing.AllocsPerRun(10, func() {
		if err := c.ProcessBatch(numbers, nil); err != nil {
			t.Error(err)
		}
	}))
}

// BenchmarkByHand is what the others are measured against: one operation is one number.
func BenchmarkByHand(b *testing.B) {
	numbers := benchNumbers()
	b.Run("equi_width", func(b *testing.B) {
		counts := make([]uint64, 1000)
		for n := range b.N {
			if x := numbers[n&(1<<14-1)]; x >= 0 && x < 1000 {
				counts[int(x/1000*1000)]++
			}
		}
	})
	b.Run("relative", func(b *testing.B) {
		counts, perLog := make([]uint64, 5000), 1/math.Log(1.01/0.99)
		for n := range b.N {
			if x := numbers[n&(1<<14-1)]; x > 1e-6 && x < 1e6 {
				counts[int(math.Ceil(math.Log(x)*perLog))+1000]++
			}
		}
	})
}

// BenchmarkProcessBatch takes backups when they are asked for.
func BenchmarkProcessBatch(b *testing.B) {
	numbers := benchNumbers()
	for name, l := range map[string]Layout{"equi_width": equi(b, 0, 1000, 1000), "relative": rel(b, 0.01, 1e-6, 1e6)} {
		b.Run(name, func(b *testing.B) {
			c := New(l)
			c.SetTheta(10_000)
			w := stream.NewStateWriter(nil, false)
			for n := 0; n < b.N; n += 256 {
				at := n & (1<<14 - 1)
				if err := c.ProcessBatch(numbers[at:at+256], nil); err != nil {
					b.Fatal(err)
				}
				if c.StateDivergence() > 7500 {
					w.Reset(false)
					if err := c.BackupState(w); err != nil {
						b.Fatal(err)
					}
					c.BackupDurable()
				}
			}
		})
	}
}

// TestRankError: it is 0 for the histogram of all numbers, and never more than how many numbers are missing, wherever they
// were.
func TestRankError(t *testing.T) {
	equi, err := EquiWidth(-50, 50, 13)
	require.NoError(t, err)
	relative, err := Relative(0.05, 1e-2, 1e3)
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		l := rapid.SampledFrom([]Layout{equi, relative}).Draw(t, "layout")
		numbers := rapid.SliceOfN(rapid.Float64Range(-100, 100), 1, 60).Draw(t, "numbers")
		lost := rapid.IntRange(0, len(numbers)).Draw(t, "lost")
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		var exact Exact
		all, part := New(l), New(l)
		for i, x := range numbers {
			exact.Add(x)
			require.NoError(t, all.Process(x, nil))
			if i >= lost {
				require.NoError(t, part.Process(x, nil))
			}
		}
		require.Zero(t, RankError(all.Histogram(), &exact, q))
		require.LessOrEqual(t, RankError(part.Histogram(), &exact, q), uint64(lost))
	})
	var exact Exact
	exact.Add(1)
	exact.Add(49)
	only := New(equi)
	require.EqualValues(t, 2, RankError(only.Histogram(), &exact, 0), "no numbers")
	require.NoError(t, only.Process(49, nil))
	require.EqualValues(t, 1, RankError(only.Histogram(), &exact, 0))
	require.Zero(t, RankError(only.Histogram(), &exact, 1))
	_, ok := only.Histogram().QuantileBin(1.1)
	require.False(t, ok)
}
