package connector

import (
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/stream"
)

func mustZipf(t require.TestingT, o ZipfOptions, part, parts int) stream.Source[Keyed] {
	factory, err := Zipf(o)
	require.NoError(t, err)
	s, err := factory(part, parts)
	require.NoError(t, err)
	return s
}

func TestZipfOptions(t *testing.T) {
	for _, o := range []ZipfOptions{
		{Keys: 0},
		{Keys: 1, S: -0.1},
		{Keys: 1, S: math.NaN()},
		{Keys: 1, S: math.Inf(1)},
		{Keys: MaxZipfKeys + 1, S: 0.5},
	} {
		_, err := Zipf(o)
		require.Error(t, err, "%+v", o)
	}
	_, err := Zipf(ZipfOptions{Keys: math.MaxUint64})
	require.NoError(t, err, "uniform needs no table")
}

// TestZipfFollowsItsLaw compares the counts with the expected ones by a chi-square test.
func TestZipfFollowsItsLaw(t *testing.T) {
	const items, keys = 100_000, 200
	for _, s := range []float64{0, 0.3, 1, 1.5, 3} {
		drawn, err := drain(mustZipf(t, ZipfOptions{Items: items, Keys: keys, S: s, Seed: 7}, 0, 1), 256)
		require.NoError(t, err)
		require.Len(t, drawn, items)
		counts := map[string]float64{}
		for _, it := range drawn {
			require.Equal(t, 1.0, it.Weight)
			counts[it.Key.String()]++
		}
		sum := 0.0
		for r := range keys {
			sum += math.Pow(float64(r+1), -s)
		}
		names := newKeyNames(keys)
		chi2, cells, rest, restWant := 0.0, 0, 0.0, 0.0
		for r := range keys {
			var it Keyed
			names.put(&it, uint64(r))
			want := items * math.Pow(float64(r+1), -s) / sum
			if want < 10 { // too few to test alone
				rest, restWant = rest+counts[it.Key.String()], restWant+want
				continue
			}
			d := counts[it.Key.String()] - want
			chi2, cells = chi2+d*d/want, cells+1
		}
		if restWant > 10 {
			chi2, cells = chi2+(rest-restWant)*(rest-restWant)/restWant, cells+1
		}
		// The mean is cells-1 and the deviation sqrt(2 cells); six of them never happen.
		require.Less(t, chi2, float64(cells)+6*math.Sqrt(2*float64(cells)), "skew %v", s)
	}
}

// TestZipfSplitsOneStream: the partitions together give the same items for any number.
func TestZipfSplitsOneStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := ZipfOptions{
			Items: rapid.Uint64Range(1, 300).Draw(t, "items"),
			Keys:  rapid.Uint64Range(1, 30_000).Draw(t, "keys"),
			S:     rapid.Float64Range(0, 2).Draw(t, "s"),
			Seed:  rapid.Uint64().Draw(t, "seed"),
		}
		all, err := drain(mustZipf(t, o, 0, 1), 64)
		require.NoError(t, err)
		require.Len(t, all, int(o.Items))
		parts := rapid.IntRange(1, 7).Draw(t, "parts")
		total := 0
		for p := range parts {
			s := mustZipf(t, o, p, parts)
			items, err := drain(s, rapid.IntRange(1, 50).Draw(t, "batch"))
			require.NoError(t, err)
			for i, it := range items {
				require.Equal(t, all[p+i*parts], it)
				require.Equal(t, it.Key.Hash(), it.Hash)
			}
			total += len(items)
			done, of := s.(stream.Progresser).Progress()
			require.EqualValues(t, len(items), done)
			require.EqualValues(t, len(items), of)
			if len(items) == 0 {
				continue
			}
			require.Equal(t, stream.Position{Item: uint64(len(items))}, s.(stream.Replayable).Position())
			at := rapid.IntRange(0, len(items)).Draw(t, "at")
			require.NoError(t, s.(stream.Replayable).Seek(stream.Position{Item: uint64(at)}))
			again, err := drain(s, 64)
			require.NoError(t, err)
			require.Equal(t, items[at:], append([]Keyed{}, again...))
		}
		require.Equal(t, int(o.Items), total)
	})
}

func TestZipfSeedsDiffer(t *testing.T) {
	a, _ := drain(mustZipf(t, ZipfOptions{Items: 100, Keys: 1000, Seed: 1}, 0, 1), 64)
	b, _ := drain(mustZipf(t, ZipfOptions{Items: 100, Keys: 1000, Seed: 2}, 0, 1), 64)
	same := 0
	for i := range a {
		if a[i] == b[i] {
			same++
		}
	}
	require.Less(t, same, 10)
}

func TestZipfWithoutEnd(t *testing.T) {
	s := mustZipf(t, ZipfOptions{Keys: 10, S: 1}, 1, 3)
	n, err := s.Read(make([]Keyed, 100))
	require.NoError(t, err)
	require.Equal(t, 100, n)
	done, total := s.(stream.Progresser).Progress()
	require.EqualValues(t, 100, done)
	require.Zero(t, total)
	require.NoError(t, s.(stream.Replayable).Seek(stream.Position{Item: 1 << 60}))
	require.NoError(t, s.Close())
	_, err = s.Read(make([]Keyed, 1))
	require.ErrorIs(t, err, ErrClosed)
}

func TestKeyNames(t *testing.T) {
	for _, c := range []struct {
		keys, rank uint64
		want       string
	}{
		{1, 0, "k000000"},
		{1_000_000, 999_999, "k999999"},
		{1_000_001, 7, "k0000007"},
		{math.MaxUint64, math.MaxUint64 - 1, "k18446744073709551614"},
	} {
		var it Keyed
		newKeyNames(c.keys).put(&it, c.rank)
		require.Equal(t, MakeKeyed([]byte(c.want), 1), it)
	}
}

// TestAliasTable checks the probabilities that a table stands for, exactly rather than
// by drawing.
func TestAliasTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Float64Range(0, 100), 1, 40).Draw(t, "weights")
		weights[0] += 0.1 // one is positive
		table := newAliasTable(len(weights), func(i int) float64 { return weights[i] })
		got := make([]float64, len(weights))
		sum := 0.0
		for i, c := range table {
			keep := float64(c.keep) / (1 << 32)
			got[i] += keep
			got[c.alias] += 1 - keep
			sum += weights[i]
		}
		for i, w := range weights {
			require.InDelta(t, w/sum, got[i]/float64(len(weights)), 1e-8)
		}
	})
}

func TestSlice(t *testing.T) {
	items := []int{0, 1, 2, 3, 4, 5, 6}
	for parts := 1; parts <= 9; parts++ {
		seen := map[int]bool{}
		for p := range parts {
			s, err := Slice(items)(p, parts)
			require.NoError(t, err)
			got, err := drain(s, 2)
			require.NoError(t, err)
			for i, v := range got {
				require.Equal(t, p+i*parts, v)
				seen[v] = true
			}
			require.ErrorIs(t, s.(stream.Replayable).Seek(stream.Position{Item: uint64(len(got)) + 1}), ErrBadPosition)
		}
		require.Len(t, seen, len(items))
	}
	_, err := Slice(items)(2, 2)
	require.Error(t, err)
	s, err := Slice[string](nil)(0, 1)
	require.NoError(t, err)
	got, err := drain(s, 1)
	require.NoError(t, err)
	require.Empty(t, got)
}

// A node that only knows of the source makes no table.
func TestZipfIsBuiltWhenOpened(t *testing.T) {
	allocated := func(f func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	var open stream.NewSource[Keyed]
	require.Less(t, allocated(func() {
		var err error
		open, err = Zipf(ZipfOptions{Items: 10, Keys: 1 << 20, S: 1})
		require.NoError(t, err)
	}), uint64(1<<20))
	require.GreaterOrEqual(t, allocated(func() {
		s, err := open(0, 1)
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}), uint64(8<<20))
}
