package distinct

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

func add(t require.TestingT, c *Count, hashes ...uint64) {
	for _, h := range hashes {
		require.NoError(t, c.Process(connector.Keyed{Hash: h}, nil))
	}
}

func TestRegisters(t *testing.T) {
	c := New(4)
	add(t, c, 0, 0x1fff_ffff_ffff_ffff, 0x2000_0000_0000_0001, 0xf400_0000_0000_0000, 0xf800_0000_0000_0000)
	require.Equal(t, []uint8{61, 1, 61 - 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}, c.Sketch().registers)
	require.EqualValues(t, 61, largest(4))
}

// TestEstimates: from no keys to a million, at any precision, the estimates have no more bias and error than the
// package comment says.
func TestEstimates(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	for _, p := range []int{4, 8, 12} {
		const runs = 200
		for _, n := range []int{0, 1, 10, 100, 1000, 3000, 20_000} {
			sum, squares := 0.0, 0.0
			for range runs {
				c, twice := New(p), make([]connector.Keyed, 2)
				for range n {
					twice[0].Hash = r.Uint64()
					twice[1].Hash = twice[0].Hash
					if err := c.ProcessBatch(twice, nil); err != nil {
						t.Fatal(err)
					}
				}
				e := c.Sketch().Estimate() - float64(n)
				sum, squares = sum+e, squares+e*e
			}
			sigma := StandardError(p) * float64(n)
			bias := 1.1 / math.Ldexp(1, p) * float64(n)
			require.LessOrEqual(t, math.Abs(sum/runs), bias+4.5*sigma/math.Sqrt(runs)+0.02, "p %d, n %d: bias", p, n)
			require.LessOrEqual(t, math.Sqrt(squares/runs), sigma*1.2+0.02, "p %d, n %d: error", p, n)
		}
	}
}

// TestSeries compares the series with the sums that they are defined by.
func TestSeries(t *testing.T) {
	for _, x := range []float64{0, 0.1, 0.5, 0.9, 0.999} {
		s, u := x, 1-x
		for k := 1; k < 60; k++ {
			s += math.Pow(x, math.Pow(2, float64(k))) * math.Pow(2, float64(k-1))
			d := 1 - math.Pow(x, math.Pow(2, float64(-k)))
			u -= d * d * math.Pow(2, float64(-k))
		}
		require.InEpsilon(t, 1+s, 1+sigma(x), 1e-9)
		if x > 0 {
			require.InEpsilon(t, u/3, tau(x), 1e-9)
		}
	}
	require.Zero(t, tau(0))
	require.Zero(t, tau(1))
	require.Equal(t, math.Inf(1), sigma(1))
}

func TestEstimateOfTheExtremes(t *testing.T) {
	require.Zero(t, Sketch{}.Estimate())
	require.Zero(t, New(4).Sketch().Estimate())
	full := New(4)
	for i := range uint64(16) {
		add(t, full, i<<60)
	}
	require.Equal(t, math.Inf(1), full.Sketch().Estimate(), "all registers are full")
	for i := range full.registers[:15] {
		full.registers[i] = 1
	}
	require.Positive(t, full.Sketch().Estimate())
	require.False(t, math.IsInf(full.Sketch().Estimate(), 1))
}

// TestMerge: the merged sketch is that of all keys, whichever partitions they came to.
func TestMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, m := New(5), NewMerge(5)
		for range 3 {
			part := New(5)
			for range rapid.IntRange(0, 60).Draw(t, "keys") {
				h := rapid.Uint64().Draw(t, "hash")
				add(t, part, h)
				add(t, all, h)
			}
			require.NoError(t, m.Process(part.Sketch(), nil))
		}
		require.Equal(t, all.Sketch(), m.all)
		again := NewMerge(5)
		require.NoError(t, again.RestoreState(statetest.Reader(statetest.Backup(t, m, false))))
		require.Equal(t, m.all, again.all)
	})
	require.ErrorIs(t, NewMerge(4).Process(New(5).Sketch(), nil), ErrPrecision)
	require.ErrorIs(t, NewMerge(4).Process(Sketch{}, nil), ErrPrecision)
}

// TestRange: whatever registers are lower, up to so many, the estimate without the loss is in the range.
func TestRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := New(4)
		for range rapid.IntRange(0, 200).Draw(t, "keys") {
			add(t, c, rapid.Uint64().Draw(t, "hash"))
		}
		damaged := Sketch{slices.Clone(c.registers)}
		lost := rapid.IntRange(0, 16).Draw(t, "lost")
		for range lost {
			at := rapid.IntRange(0, 15).Draw(t, "register")
			damaged.registers[at] = uint8(rapid.IntRange(0, int(damaged.registers[at])).Draw(t, "value"))
		}
		low, high := damaged.Range(uint64(lost))
		require.LessOrEqual(t, low, c.Sketch().Estimate())
		require.GreaterOrEqual(t, high, c.Sketch().Estimate())
	})
}

// TestBound: the expected loss of many keys is above what the range says.
func TestBound(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	c := New(12)
	for range 1_000_000 {
		add(t, c, r.Uint64())
	}
	for _, theta := range []float64{1, 10, 40, 200} {
		low, high := c.Sketch().Range(uint64(theta))
		bound := Bound(errorbound.Params{Theta: theta}, 12)
		require.Less(t, (high-low)/low, bound)
		require.Greater(t, (high-low)/low, bound/3, "and not far above")
	}
	require.Zero(t, Bound(errorbound.Params{}, 12))
	require.Equal(t, math.Inf(1), Bound(errorbound.Params{Theta: math.Inf(1)}, 12))
	require.Equal(t, math.Inf(1), Bound(errorbound.Params{Theta: 4000}, 12))
}

// TestDivergence: at any moment it is at least the number of registers that a restore would find lower, and no backup
// leaves anything.
func TestDivergence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := New(4)
		c.SetTheta(5)
		s, stale := statetest.NewStore(c), false
		check := func(backups [][]byte) {
			r := New(4)
			require.NoError(t, r.RestoreState(statetest.Reader(backups...)))
			differ := 0
			for i := range r.registers {
				require.LessOrEqual(t, r.registers[i], c.registers[i])
				if r.registers[i] != c.registers[i] {
					differ++
				}
			}
			require.GreaterOrEqual(t, c.StateDivergence(), float64(differ))
			require.LessOrEqual(t, c.StateDivergence(), 16.0)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			before := c.StateDivergence()
			if rapid.IntRange(0, 40).Draw(t, "reset") == 0 {
				s.LandUnheard() // it may have become durable
				c.reset()
				stale = c.saved
			} else {
				add(t, c, rapid.Uint64().Draw(t, "hash")>>rapid.IntRange(0, 9).Draw(t, "zeros"))
				require.True(t, stale || c.StateDivergence() <= before+1)
			}
			s.Draw(t)
			stale = stale && math.IsInf(c.StateDivergence(), 1)
			if !stale {
				check(s.Durable())
				check(s.Landed())
			}
		}
		s.Land()
		s.Save(t, false)
		require.Zero(t, c.StateDivergence())
		check(s.Durable())
	})
}

func TestRestoreRefuses(t *testing.T) {
	require.ErrorIs(t, New(5).RestoreState(statetest.Reader(statetest.Backup(t, New(4), true))), ErrPrecision)
	require.ErrorIs(t, NewMerge(5).RestoreState(statetest.Reader(statetest.Backup(t, NewMerge(4), true))), ErrPrecision)
	for _, chunk := range [][]byte{statetest.Element("x", "\x01"), statetest.Element("\x00\x00\x00\x10", "\x01"), statetest.Element("\x00\x00\x00\x01", "\x3e"), statetest.Element("\x00\x00\x00\x01", ""), statetest.Element("sketch", "\x04")} {
		require.ErrorIs(t, New(4).RestoreState(statetest.Reader(chunk)), stream.ErrState)
		require.ErrorIs(t, NewMerge(4).RestoreState(statetest.Reader(chunk)), stream.ErrState)
	}
	for _, p := range []int{MinPrecision - 1, MaxPrecision + 1} {
		require.Panics(t, func() { New(p) })
		require.Panics(t, func() { NewMerge(p) })
	}
}

func FuzzSketch(f *testing.F) {
	c := New(4)
	add(f, c, 1, 1<<63, 1<<61)
	statetest.FuzzBinary(f, ErrSketch, func(t *testing.T, s Sketch, wire, again []byte) {
		require.Equal(t, wire, again)
		require.False(t, math.IsNaN(s.Estimate()))
		low, high := s.Range(3)
		require.LessOrEqual(t, low, high)
	}, c.Sketch())
}

func FuzzRestoreState(f *testing.F) {
	c := New(4)
	add(f, c, 1, 1<<63)
	statetest.Restore[*Count]{
		Fresh:    func() *Count { return New(4) },
		View:     func(c *Count) any { return c.Sketch() },
		Refusals: []error{ErrPrecision},
	}.Fuzz(f, c)
}

func benchItems() []connector.Keyed {
	items := make([]connector.Keyed, 1<<14)
	for i := range items {
		items[i] = connector.MakeKeyed(fmt.Append(nil, i), 1)
	}
	return items
}

func TestProcessBatchDoesNotAllocate(t *testing.T) {
	items, c := benchItems(), New(14)
	require.NoError(t, c.ProcessBatch(items, nil))
	require.Zero(t, testing.AllocsPerRun(10, func() {
		if err := c.ProcessBatch(items, nil); err != nil {
			t.Error(err)
		}
	}))
}

// BenchmarkByHand is what the other is measured against. One operation is one item.
func BenchmarkByHand(b *testing.B) {
	items := benchItems()
	registers := make([]uint8, 1<<14)
	b.ResetTimer()
	for n := range b.N {
		h := items[n&(1<<14-1)].Hash + uint64(n>>14)*0x9e3779b97f4a7c15
		at, zeros := h>>50, uint8(1)
		for rest := h<<14 | 1<<13; rest>>63 == 0; rest <<= 1 {
			zeros++
		}
		registers[at] = max(registers[at], zeros)
	}
	_ = binary.LittleEndian.Uint64(registers)
}

// BenchmarkProcessBatch takes backups when they are asked for.
func BenchmarkProcessBatch(b *testing.B) {
	items := benchItems()
	c := New(14)
	c.SetTheta(100)
	w := stream.NewStateWriter(nil, false)
	b.ResetTimer()
	for n := 0; n < b.N; n += 256 {
		at := n & (1<<14 - 1)
		batch := items[at : at+256]
		for i := range batch {
			batch[i].Hash += 0x9e3779b97f4a7c15 // another key, each time round
		}
		if err := c.ProcessBatch(batch, nil); err != nil {
			b.Fatal(err)
		}
		if c.StateDivergence() > 75 {
			w.Reset(false)
			if err := c.BackupState(w); err != nil {
				b.Fatal(err)
			}
			c.BackupDurable()
		}
	}
}
