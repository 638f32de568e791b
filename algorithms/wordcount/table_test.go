package wordcount

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

// countsOf is what t would emit.
func countsOf(t *table) map[string]uint64 {
	counts := map[string]uint64{}
	for piece := range t.pieces() {
		for word, count := range piece.All() {
			counts[string(word)] += count
		}
	}
	return counts
}

// distance is the norm of the difference of two tables.
func distance(norm errorbound.Norm, a, b map[string]uint64) float64 {
	d := 0.0
	for word := range union(a, b) {
		diff := math.Abs(float64(a[word]) - float64(b[word]))
		if norm == errorbound.L1 {
			d += diff
		} else {
			d = max(d, diff)
		}
	}
	return d
}

func union(a, b map[string]uint64) map[string]bool {
	words := map[string]bool{}
	for w := range a {
		words[w] = true
	}
	for w := range b {
		words[w] = true
	}
	return words
}

// TestTableAgainstMap also passes the sizes at which the table grows.
func TestTableAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, want := newTable(errorbound.Max, 1), map[string]uint64{}
		words := rapid.SampledFrom([]int{3, 600, 5000}).Draw(t, "words")
		for i := range words * 2 {
			word := fmt.Sprint(i * 7919 % words)
			n := uint64(i%5 + 1)
			table.add([]byte(word), n)
			want[word] += n
		}
		require.Equal(t, want, countsOf(table))
		ranked := table.ranked(10)
		require.Len(t, ranked, min(10, words))
		require.LessOrEqual(t, len(table.entries), len(table.slots)/2)
	})
}

// TestDivergence: at any moment the divergence is at least the distance from what a restore would find now, or would
// find if the backup in flight turned out to have become durable; and it is tight enough to go on.
func TestDivergence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		norm := rapid.SampledFrom([]errorbound.Norm{errorbound.Max, errorbound.L1}).Draw(t, "norm")
		theta := rapid.SampledFrom([]float64{0, 1, 7, 40, 1000}).Draw(t, "theta")
		alpha := rapid.SampledFrom([]float64{1, 3}).Draw(t, "alpha")
		c := &counter{words: newTable(norm, alpha)}
		c.SetTheta(theta)
		s := statetest.NewStore(c)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			if rapid.IntRange(0, 60).Draw(t, "reset") == 0 {
				c.words.reset()
			}
			for range rapid.IntRange(0, 30).Draw(t, "adds") {
				word := fmt.Sprint(rapid.IntRange(0, 12).Draw(t, "word"))
				c.words.add([]byte(word), uint64(rapid.IntRange(1, int(alpha)).Draw(t, "n")))
			}
			s.Draw(t)
			statetest.CheckLoss(t, s, math.Inf(1), func() *counter { return &counter{words: newTable(norm, alpha)} },
				func(r *counter) float64 { return distance(norm, countsOf(c.words), countsOf(r.words)) })
		}
	})
}

// TestPartialBackupsLeaveRoom: whatever the counts, a partial backup that is durable leaves room for an item, so that
// a job never stands still; and it writes no more than it must.
func TestPartialBackupsLeaveRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		norm := rapid.SampledFrom([]errorbound.Norm{errorbound.Max, errorbound.L1}).Draw(t, "norm")
		alpha := rapid.Float64Range(1, 50).Draw(t, "alpha")
		theta := alpha * rapid.Float64Range(1, 100).Draw(t, "factor")
		c := &counter{words: newTable(norm, math.Floor(alpha))}
		c.SetTheta(theta)
		for range rapid.IntRange(0, 30).Draw(t, "adds") {
			c.words.add([]byte{byte(rapid.IntRange(0, 5).Draw(t, "word"))}, rapid.Uint64Range(1, 200).Draw(t, "n"))
		}
		statetest.Backup(t, c, false)
		c.BackupDurable()
		require.LessOrEqual(t, c.StateDivergence()+math.Floor(alpha), theta)
		require.LessOrEqual(t, c.StateDivergence(), theta/2)
		require.Empty(t, statetest.Backup(t, c, false), "nothing is written twice")
	})
}

// TestLostBackup: what a lost backup held is written again.
func TestLostBackup(t *testing.T) {
	c := &counter{words: newTable(errorbound.Max, 1)}
	c.SetTheta(10)
	c.words.add([]byte("a"), 9)
	lost := statetest.Backup(t, c, false)
	require.NotEmpty(t, lost)
	require.Equal(t, lost, statetest.Backup(t, c, false))
	c.BackupDurable()
	require.Zero(t, c.StateDivergence()-5, "the quiet words may have grown by half of theta")
}

// TestForgottenWords: the words of earlier windows leave the backups, and then the table.
func TestForgottenWords(t *testing.T) {
	for _, theta := range []float64{100, math.Inf(1)} {
		c := &counter{words: newTable(errorbound.Max, 1)}
		c.SetTheta(theta)
		s := statetest.NewStore(c)
		for window := range 5 {
			for i := range 2000 {
				c.words.add(fmt.Appendf(nil, "%d-%d", window, i), 1)
			}
			c.words.add(fmt.Append(nil, window), 200) // one that partial backups write
			s.Save(t, window == 2)
			require.LessOrEqual(t, len(c.words.entries), 4100)
			s.Save(t, false) // the first may hold no more than what replaces the window before
			r := newTable(errorbound.Max, 1)
			require.NoError(t, r.restore(statetest.Reader(s.Durable()...)))
			require.LessOrEqual(t, distance(errorbound.Max, countsOf(c.words), countsOf(r)), 50.0)
			for word := range countsOf(r) {
				require.Equal(t, fmt.Sprint(window), word[:1])
			}
			c.words.reset()
			require.Empty(t, countsOf(c.words))
			require.Equal(t, math.Inf(1), c.StateDivergence())
		}
	}
}

func TestRestoreRefuses(t *testing.T) {
	for _, chunk := range [][]byte{statetest.Element("", "\x01"), statetest.Element("a", ""), statetest.Element("a", "\x00"), statetest.Element("a", "\x01\x01"), statetest.Element("a", "\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), {1}} {
		require.ErrorIs(t, newTable(errorbound.Max, 1).restore(statetest.Reader(chunk)), stream.ErrState, "%q", chunk)
	}
}

func FuzzRestoreState(f *testing.F) {
	c := &counter{words: newTable(errorbound.Max, 1)}
	c.words.add([]byte("a"), 3)
	c.words.add([]byte("bc"), 300)
	statetest.Restore[*counter]{
		Fresh: func() *counter { return &counter{words: newTable(errorbound.Max, 1)} },
		View:  func(c *counter) any { return countsOf(c.words) },
	}.Fuzz(f, c)
}

func FuzzCounts(f *testing.F) {
	table := newTable(errorbound.Max, 1)
	table.add([]byte("word"), 300)
	statetest.FuzzBinary(f, ErrCounts, func(t *testing.T, c Counts, wire, again []byte) {
		require.Equal(t, wire, again)
		n := 0
		for word, count := range c.All() {
			require.NotEmpty(t, word)
			require.Positive(t, count)
			n++
		}
		require.LessOrEqual(t, 3*n, len(wire)-1, "a length, a byte and a count each")
	}, slices.Collect(table.pieces())...)
}
