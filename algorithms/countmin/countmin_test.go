package countmin

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/stream"
)

// hashOf is a uniform hash of a number; seeds give independent ones.
func hashOf(seed, key uint64) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], seed)
	binary.LittleEndian.PutUint64(b[8:], key)
	return xxhash.Sum64(b[:])
}

func mustNew(t require.TestingT, p Params) *Sketch {
	s, err := New(p)
	require.NoError(t, err)
	return s
}

func cells(s *Sketch) []float64 {
	return append(s.AppendCells(nil, 0, s.total()), s.Total())
}

// TestNeverUndercounts and stays within the bound of Cormode and Muthukrishnan, theorem 1, on Zipf data: an estimate
// is above the truth by more than eps*total for at most a share delta of the keys, over many hash functions.
func TestAgainstExact(t *testing.T) {
	const eps, delta, keys, items = 0.01, 0.05, 5000, 50_000
	shape := errorbound.CountMinFor(eps, delta)
	over, asked := 0, 0
	for seed := range uint64(thorough.Number(6, 20)) {
		r := rand.New(rand.NewPCG(seed, 1))
		zipf := rand.NewZipf(r, 1.1, 1, keys-1)
		s, exact := mustNew(t, Params{Rows: shape.Rows, Width: shape.Width}), map[uint64]float64{}
		total := 0.0
		for range items {
			k, w := zipf.Uint64(), float64(1+r.IntN(3))
			exact[k] += w
			total += w
			require.Equal(t, s.Update(hashOf(seed, k), w), s.Estimate(hashOf(seed, k)))
		}
		require.Equal(t, total, s.Total())
		for k := range uint64(keys) {
			e := s.Estimate(hashOf(seed, k))
			require.GreaterOrEqual(t, e, exact[k], "undercount")
			asked++
			if e > exact[k]+eps*total {
				over++
			}
		}
	}
	require.LessOrEqual(t, float64(over), delta*float64(asked))
}

// TestRowsAreIndependent: where all keys weigh the same there is no help from a long tail, and Markov's bound is felt.
// Keys that meet in one row must not meet in the others more often than by chance.
func TestRowsAreIndependent(t *testing.T) {
	const rows, width, keys = 4, 1000, 4000
	factors := rowFactors(rows)
	columns := func(seed, key uint64) (c [rows]int) {
		for i, f := range factors {
			c[i] = column(hashOf(seed, key), f, width)
		}
		return c
	}
	meet := [rows]float64{}
	both, pairs := 0.0, 0.0
	for seed := range uint64(4) {
		var all [][rows]int
		for k := range uint64(keys) {
			all = append(all, columns(seed, k))
		}
		for a := range all {
			for b := range all[:a] {
				n := 0
				for i := range rows {
					if all[a][i] == all[b][i] {
						meet[i]++
						n++
					}
				}
				both += float64(n * (n - 1) / 2)
				pairs++
			}
		}
	}
	for i := range rows { // expected about 32,000 of 32 million: standard deviation 179
		require.InDelta(t, pairs/width, meet[i], 5*math.Sqrt(pairs/width), "row %d", i)
	}
	expected := pairs * 6 / (width * width) // about 192 pairs of rows
	require.InDelta(t, expected, both, 6*math.Sqrt(expected))
}

// TestColumnsAreUniform by a chi-squared test of each row, for hashes that are uniform and for small integers.
func TestColumnsAreUniform(t *testing.T) {
	const width, n = 100, 100_000
	for name, hash := range map[string]func(i uint64) uint64{
		"uniform": func(i uint64) uint64 { return hashOf(7, i) },
		"counted": func(i uint64) uint64 { return i },
	} {
		for row, f := range rowFactors(8) {
			var count [width]float64
			for i := range uint64(n) {
				count[column(hash(i), f, width)]++
			}
			chi := 0.0
			for _, c := range count {
				chi += (c - n/width) * (c - n/width) / (n / width)
			}
			require.Less(t, chi, 170.0, "%s, row %d", name, row) // 99 degrees of freedom: p = 1e-5
		}
	}
}

// TestRowFactors pins the hash functions: a change would make old backups useless without anybody noticing.
func TestRowFactors(t *testing.T) {
	require.Equal(t, []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f5, 0x6c45d188009454f, 0xf88bb8a8724c81ed}, rowFactors(4))
}

type update struct {
	hash   uint64
	weight float64
}

func updates(t *rapid.T, label string) []update {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) update {
		return update{hashOf(0, rapid.Uint64Range(0, 30).Draw(t, "key")), float64(rapid.IntRange(0, 100).Draw(t, "weight"))}
	}), 0, 50).Draw(t, label)
}

func sketchOf(t require.TestingT, lists ...[]update) *Sketch {
	s := mustNew(t, Params{Rows: 3, Width: 7})
	for _, list := range lists {
		for _, u := range list {
			s.Update(u.hash, u.weight)
		}
	}
	return s
}

// TestMergeLaws: sketches are merged as the streams that they have seen.
func TestMergeLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := updates(t, "a"), updates(t, "b"), updates(t, "c")
		merge := func(parts ...[]float64) []float64 {
			s := sketchOf(t)
			for _, part := range parts { // as sketches in pieces, and whole
				other := sketchOf(t)
				require.NoError(t, other.AddCells(0, part[:5]))
				require.NoError(t, other.AddCells(5, part[5:other.total()]))
				other.AddTotal(part[other.total()])
				require.NoError(t, s.Merge(other))
			}
			return cells(s)
		}
		statetest.MergeLaws(t, merge, cells(sketchOf(t, a, b, c)), cells(sketchOf(t, a)), cells(sketchOf(t, b)), cells(sketchOf(t, c)))
	})
}

func TestShapes(t *testing.T) {
	s := mustNew(t, Params{Rows: 2, Width: 5})
	require.ErrorIs(t, s.Merge(mustNew(t, Params{Rows: 5, Width: 2})), ErrShape)
	require.ErrorIs(t, s.AddCells(8, make([]float64, 3)), ErrShape)
	require.ErrorIs(t, s.AddCells(-1, nil), ErrShape)
	require.ErrorIs(t, s.AddCells(math.MaxInt, []float64{1}), ErrShape)
	require.NoError(t, s.AddCells(8, []float64{1, 2}))
	s.AddTotal(3)
	require.Equal(t, []float64{0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3}, cells(s))
}

func TestParams(t *testing.T) {
	for _, bad := range []Params{
		{}, {Rows: 1}, {Width: 1}, {Rows: -1, Width: 5}, {Rows: MaxRows + 1, Width: 1}, {Rows: 2, Width: MaxCells},
		{Rows: 1, Width: 1, Alpha: -1}, {Rows: 1, Width: 1, Alpha: math.NaN()}, {Rows: 1, Width: 1, Alpha: math.Inf(1)},
		{Rows: 1, Width: 1, TotalSlack: 0.5}, {Rows: 1, Width: 1, TotalSlack: math.NaN()},
	} {
		_, err := New(bad)
		require.ErrorIs(t, err, ErrParams, "%+v", bad)
	}
	p := Params{Rows: 4, Width: 8000, Alpha: 1500, TotalSlack: 100}
	s := mustNew(t, p)
	require.Equal(t, p, s.Params())
	require.Equal(t, stream.Measure{Alpha: 1500, Norm: errorbound.Max, Combine: errorbound.Added}, s.Measure())
}

// TestFailure runs updates under the runtime's rule and restores: every counter is within
// theta, the total within its slack, and a compensated sketch undercounts nothing.
func TestFailure(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const theta, slack = 10, 5
		p := Params{Rows: 2, Width: 4, Alpha: 3, TotalSlack: slack}
		s := mustNew(t, p)
		s.SetTheta(theta)
		exact := map[uint64]float64{}
		store := statetest.NewStore(s)
		for range rapid.IntRange(1, 80).Draw(t, "items") {
			store.Room(t, theta, p.Alpha)
			h, w := hashOf(0, rapid.Uint64Range(0, 9).Draw(t, "key")), float64(rapid.IntRange(0, 3).Draw(t, "w"))
			exact[h] += w
			s.Update(h, w)
			store.Draw(t)
		}
		r := mustNew(t, p)
		require.NoError(t, r.RestoreState(statetest.Reader(store.Durable()...)))
		require.LessOrEqual(t, s.StateDivergence(), float64(theta))
		for i, v := range s.AppendCells(nil, 0, s.total()) {
			require.LessOrEqual(t, v-r.cells.At(i), s.StateDivergence())
		}
		require.LessOrEqual(t, s.Total()-r.Total(), s.StateDivergence()*slack)
		total := r.Total()
		r.SetTheta(theta / 2)
		r.Compensate(theta, 2)
		for h, w := range exact {
			require.GreaterOrEqual(t, r.Estimate(h), w)
			require.LessOrEqual(t, r.Estimate(h), s.Estimate(h)+theta+2*3)
		}
		require.Equal(t, total, r.Total())
		require.GreaterOrEqual(t, r.StateDivergence(), theta+2*3.0, "a compensation that is not backed up is lost")
	})
}

func TestCompensateNothing(t *testing.T) {
	for _, theta := range []float64{math.Inf(1), math.NaN(), 0, -1} {
		s := sketchOf(t)
		s.Compensate(theta, 0)
		require.Zero(t, s.Estimate(1), "theta %v", theta)
	}
}

func TestRestoreRejects(t *testing.T) {
	whole := statetest.Backup(t, mustNew(t, Params{Rows: 2, Width: 6}), true)
	require.ErrorIs(t, mustNew(t, Params{Rows: 3, Width: 4}).RestoreState(statetest.Reader(whole)), ErrShape)
	for _, key := range []string{"shape", "other"} {
		w := stream.NewStateWriter(nil, true)
		w.Put([]byte(key), []byte{1})
		require.ErrorIs(t, sketchOf(t).RestoreState(statetest.Reader(w.Bytes())), stream.ErrState, key)
	}
}

// TestShapeIsSavedOnce: with the first backup that becomes durable, and with whole ones.
func TestShapeIsSavedOnce(t *testing.T) {
	s := sketchOf(t)
	s.SetTheta(10)
	require.NotEmpty(t, statetest.Backup(t, s, false), "may be lost")
	require.NotEmpty(t, statetest.Backup(t, s, false))
	s.BackupDurable()
	require.Empty(t, statetest.Backup(t, s, false))
	require.NotEmpty(t, statetest.Backup(t, s, true))
	r := sketchOf(t)
	require.NoError(t, r.RestoreState(statetest.Reader(statetest.Backup(t, s, true))))
	r.SetTheta(10)
	require.Empty(t, statetest.Backup(t, r, false))
}

func TestReset(t *testing.T) {
	s := sketchOf(t, []update{{1, 5}})
	s.Reset()
	require.Zero(t, s.Estimate(1))
	require.Zero(t, s.Total())
}

func FuzzRestoreState(f *testing.F) {
	f.Add([]byte{5, 's', 'h', 'a', 'p', 'e', 9, 1, 0, 0, 0, 1, 0, 0, 0})
	statetest.Restore[*Sketch]{
		Fresh: func() *Sketch {
			s, _ := New(Params{Rows: 3, Width: 7}) // as the seed, hence valid
			return s
		},
		View:     func(s *Sketch) any { return cells(s) },
		Refusals: []error{ErrShape},
	}.Fuzz(f, sketchOf(f, []update{{hashOf(0, 1), 2}, {hashOf(0, 2), 3}}))
}

func TestUpdateDoesNotAllocate(t *testing.T) {
	s := mustNew(t, Params{Rows: 4, Width: 8000})
	s.SetTheta(2500)
	h := uint64(1)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		h = h*6364136223846793005 + 1442695040888963407
		s.Update(h, 1)
	}))
}
