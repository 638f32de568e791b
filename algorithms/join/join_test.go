package join

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/stream"
)

// TestAgainstExact: whatever the order between the inputs, a join emits what the definition says, and checks its tables.
func TestAgainstExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slack := rapid.Int64Range(0, 20).Draw(t, "slack")
		o := options(rapid.SampledFrom([]Kind{Inner, LeftOuter}).Draw(t, "kind"),
			rapid.SampledFrom([]int64{0, 1, 5, 30, Unbounded}).Draw(t, "window"), slack)
		list := steps(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, 200).Draw(t, "n"), 4, slack)
		j := New(o)
		got := feed(t, j, list...)
		checkTable(t, &j.left)
		checkTable(t, &j.right)
		got = append(got, closing(j, true)...)
		c := Compare(got, exactOf(o, list))
		require.Zero(t, c.Missing)
		require.Zero(t, c.Extra)
		require.Equal(t, 1.0, c.Share)
		require.Zero(t, j.Late())
		require.Zero(t, j.Dropped())
	})
}

// checkTable checks the invariants of a table.
func checkTable[T any](t require.TestingT, tab *table[uint8, T]) {
	inLines := map[int32]bool{}
	for key, at := range tab.groups.index {
		group := &tab.groups.list[at]
		require.Equal(t, key, group.key)
		require.Positive(t, group.lines[0].len()+group.lines[1].len(), "an empty group is left")
		last := moment{time: math.MinInt64}
		for _, m := range group.lines[tab.side].list[group.lines[tab.side].first:] {
			s := &tab.slots[m.slot]
			require.Equal(t, at, s.group)
			require.Equal(t, m.time, s.time)
			require.LessOrEqual(t, last.time, m.time)
			require.True(t, last.time < m.time || tab.slots[last.slot].turn < s.turn, "out of order")
			require.False(t, inLines[m.slot], "twice in a line")
			inLines[m.slot] = true
			last = m
		}
	}
	require.Len(t, inLines, tab.rows)
	for at := range tab.slots {
		require.Equal(t, tab.slots[at].status&used != 0, inLines[int32(at)])
	}
	lined := map[int32]bool{}
	for i, e := range tab.queue[tab.first:] {
		require.True(t, i == 0 || tab.queue[tab.first+i-1].time <= e.time)
		if !tab.isGone(&e) {
			require.False(t, lined[e.slot], "twice in order")
			lined[e.slot] = true
		}
	}
	for i, e := range tab.heap {
		require.LessOrEqual(t, tab.heap[max(i-1, 0)/2].time, e.time)
		if !tab.isGone(&e) {
			require.False(t, lined[e.slot], "twice in order")
			lined[e.slot] = true
		}
	}
	require.Equal(t, inLines, lined)
}

// TestMemoryIsBounded: over a stream of any length no more rows are kept than fit two windows.
func TestMemoryIsBounded(t *testing.T) {
	for _, kind := range []Kind{Inner, LeftOuter} {
		j := New(options(kind, 100, 0))
		most := 0
		for i := range 200_000 {
			s := step{i%2 == 0, row{uint8(i % 251), int64(i), uint32(i)}}
			feed(t, j, s)
			left, right := j.Rows()
			most = max(most, left+right)
		}
		require.LessOrEqual(t, most, 110, kind)
		require.LessOrEqual(t, len(j.left.slots)+len(j.right.slots), 110)
		require.Less(t, cap(j.left.queue)+cap(j.right.queue), 1000)
	}
}

// TestIdleInput: when one input stops, only MaxRows bounds what is kept of the other.
func TestIdleInput(t *testing.T) {
	o := options(LeftOuter, 10, 0)
	o.MaxRows = 50
	j := New(o)
	var pairs []Pair[row, row]
	for i := range 1000 {
		pairs = append(pairs, feed(t, j, step{true, row{1, int64(i), uint32(i)}})...)
	}
	left, _ := j.Rows()
	require.Equal(t, 50, left)
	require.Equal(t, uint64(950), j.Dropped())
	require.Len(t, pairs, 950)
	require.False(t, pairs[0].Matched)
	require.Equal(t, uint32(0), pairs[0].Left.id, "the oldest leave first")
	pairs = feed(t, j, step{false, row{1, 999, 7}})
	require.Len(t, pairs, 11+evictions, "partners of the last ten, and rows that leave")
	for range 5 {
		feed(t, New(Options[uint8, row, row]{Left: side(true), Right: side(true), MaxRows: 1}), step{false, row{}}, step{false, row{}})
	}
}

// TestTable joins a stream with a table, of which rows come before, between and after.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options[uint8, row, row]{Left: side(true), Right: side(false), Once: true,
			Kind: rapid.SampledFrom([]Kind{Inner, LeftOuter}).Draw(t, "kind")}
		list := steps(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, 80).Draw(t, "n"), 60, 0)
		seen := map[uint8]bool{}
		var kept []step
		for _, s := range list {
			if s.left || !seen[s.key] { // the key of a table is unique
				kept = append(kept, s)
			}
			seen[s.key] = seen[s.key] || !s.left
		}
		j := New(o)
		got := feed(t, j, kept...)
		left, right := j.Rows()
		unmatched := 0
		for _, s := range kept {
			if s.left && !seen[s.key] {
				unmatched++
			}
		}
		require.Equal(t, unmatched, left, "rows that have found their partner are not kept")
		require.Len(t, seen, right+len(seen)-countTrue(seen))
		got = append(got, closing(j, true)...)
		c := Compare(got, exactOf(o, kept))
		require.Zero(t, c.Missing+c.Extra)
	})
}

func countTrue(m map[uint8]bool) (n int) {
	for _, v := range m {
		if v {
			n++
		}
	}
	return n
}

// TestWindows: at the end of a window rows without partner are emitted and nothing is left but tables.
func TestWindows(t *testing.T) {
	j := New(options(LeftOuter, 100, 0))
	feed(t, j, step{true, row{1, 5, 1}}, step{true, row{2, 6, 2}}, step{false, row{1, 7, 3}}, step{true, row{3, 8, 4}})
	require.Equal(t, []Pair[row, row]{{Left: row{2, 6, 2}}, {Left: row{3, 8, 4}}}, closing(j, false))
	left, right := j.Rows()
	require.Zero(t, left+right)
	require.Empty(t, feed(t, j, step{false, row{2, 0, 5}}))
	require.Zero(t, j.Late(), "time begins anew")
	o := Options[uint8, row, row]{Left: side(true), Right: side(false)}
	tab := New(o)
	feed(t, tab, step{false, row{1, 0, 1}}, step{true, row{2, 5, 2}})
	require.Empty(t, closing(tab, false))
	left, right = tab.Rows()
	require.Equal(t, []int{0, 1}, []int{left, right})
}

// TestLate: a row that comes later than slack allows is counted.
func TestLate(t *testing.T) {
	j := New(options(Inner, 10, 5))
	feed(t, j, step{true, row{1, 100, 1}}, step{true, row{1, 95, 2}}, step{true, row{1, 94, 3}}, step{false, row{1, 0, 4}}, step{false, row{1, -9, 5}})
	require.Equal(t, uint64(2), j.Late())
}

// TestTimesAtTheEnds: differences of times may be larger than an int64.
func TestTimesAtTheEnds(t *testing.T) {
	for _, window := range []int64{0, 5, Unbounded - 1} {
		j := New(options(Inner, window, 0))
		pairs := feed(t, j, step{true, row{1, math.MinInt64, 1}}, step{false, row{1, math.MaxInt64, 2}}, step{true, row{1, math.MaxInt64 - 5, 3}})
		require.Len(t, pairs, map[bool]int{true: 1, false: 0}[window >= 5])
	}
	require.Len(t, feed(t, New(options(Inner, Unbounded, 0)), step{true, row{1, 3, 1}}, step{false, row{1, math.MaxInt64, 2}}), 1)
}

func TestMaxMatches(t *testing.T) {
	o := options(LeftOuter, 10, 0)
	o.MaxMatches = 2
	for _, left := range []bool{true, false} {
		j := New(o)
		feed(t, j, step{!left, row{1, 0, 1}}, step{!left, row{1, 0, 2}}, step{left, row{1, 0, 3}}, step{!left, row{2, 0, 4}})
		j = New(o)
		feed(t, j, step{!left, row{1, 0, 1}}, step{!left, row{1, 0, 2}}, step{!left, row{1, 0, 3}})
		none := func(Pair[row, row]) {}
		r := row{1, 0, 4}
		if left {
			require.ErrorIs(t, j.addLeft(&r, none), ErrMatches)
		} else {
			require.ErrorIs(t, j.addRight(&r, none), ErrMatches)
		}
	}
	require.Equal(t, stream.Measure{Alpha: 5, Beta: 4, Norm: 3, Combine: 1}, New(o).Measure())
	o.Kind = Inner
	require.Equal(t, stream.Measure{Alpha: 1, Beta: 2, Norm: 3, Combine: 1}, New(o).Measure())
}

func TestOptions(t *testing.T) {
	bad := Options[uint8, row, row]{Kind: 9, Window: -1, Slack: -1, MaxRows: -1, MaxMatches: -1}
	err := bad.Validate()
	require.ErrorIs(t, err, ErrOptions)
	for _, part := range []string{"left", "right", "kind", "window", "slack", "rows", "matches"} {
		require.ErrorContains(t, err, part)
	}
	require.Panics(t, func() { New(bad) })
}

// TestExact holds Exact against all pairs of rows, one by one, with times up to the ends of time.
func TestExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.OneOf(rapid.Int64Range(0, 9), rapid.Int64Range(math.MaxInt64-3, math.MaxInt64), rapid.Int64Range(math.MinInt64, math.MinInt64+3))
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) row {
			return row{key: rapid.Uint8Range(0, 1).Draw(t, "key"), time: at.Draw(t, "time"), id: rapid.Uint32().Draw(t, "id")}
		}), 0, 12)
		left, right := rows.Draw(t, "left"), rows.Draw(t, "right")
		window := rapid.OneOf(rapid.Int64Range(0, 4), rapid.Just[int64](math.MaxInt64)).Draw(t, "window")
		timed := rapid.Bool().Draw(t, "timed")
		o := options(rapid.SampledFrom([]Kind{Inner, LeftOuter}).Draw(t, "kind"), window, 0)
		o.Right = side(timed)
		var want []Pair[row, row]
		for _, l := range left {
			found := false
			for _, r := range right {
				if l.key == r.key && (!timed || apart(l.time, r.time) <= uint64(window)) {
					want, found = append(want, Pair[row, row]{l, r, true}), true
				}
			}
			if !found && o.Kind == LeftOuter {
				want = append(want, Pair[row, row]{Left: l})
			}
		}
		require.ElementsMatch(t, want, Exact(o, left, right))
	})
}

func TestCompare(t *testing.T) {
	p := func(a, b uint32) Pair[row, row] { return Pair[row, row]{row{id: a}, row{id: b}, true} }
	want := []Pair[row, row]{p(1, 1), p(1, 2), p(2, 2), p(2, 2)}
	require.Equal(t, Completeness{4, 0, 0, 1}, Compare(want, want))
	require.Equal(t, Completeness{4, 2, 1, 0.5}, Compare([]Pair[row, row]{p(2, 2), p(1, 1), p(1, 1)}, want))
	require.Equal(t, Completeness{0, 0, 0, 1}, Compare[row, row](nil, nil))
	a, b, x, y, z := row{key: 1, id: 1}, row{key: 2, id: 2}, row{key: 1, id: 3}, row{key: 1, id: 4}, row{key: 2, id: 5}
	require.Equal(t, []Pair[row, row]{{a, x, true}, {a, y, true}, {b, z, true}},
		Exact(Options[uint8, row, row]{Left: side(false), Right: side(false)}, []row{a, b}, []row{x, y, z}))
}
