package join

import (
	"cmp"
	"slices"
	"sort"
)

// Exact joins two lists of rows, all at once, to check what a job emits. It sorts the right rows of each key by time; a left
// row then costs the logarithm of their number, and its pairs. Left rows without a partner come by themselves if o.Kind is
// LeftOuter. It panics if o is not valid. Options.Slack, Once, MaxRows and MaxMatches play no part: it knows every row.
func Exact[K comparable, L, R any](o Options[K, L, R], left []L, right []R) []Pair[L, R] {
	if err := o.Validate(); err != nil {
		panic(err)
	}
	timed := o.Left.Time != nil && o.Right.Time != nil
	byKey := map[K][]dated{}
	for i := range right {
		d := dated{row: i}
		if timed {
			d.time = o.Right.Time(&right[i])
		}
		key := o.Right.Key(&right[i])
		byKey[key] = append(byKey[key], d)
	}
	for _, rows := range byKey {
		slices.SortStableFunc(rows, dated.compare)
	}
	var pairs []Pair[L, R]
	for i := range left {
		l := &left[i]
		rows := byKey[o.Left.Key(l)]
		if timed {
			rows = within(rows, o.Left.Time(l), o.Window)
		}
		for _, r := range rows {
			pairs = append(pairs, Pair[L, R]{*l, right[r.row], true})
		}
		if len(rows) == 0 && o.Kind == LeftOuter {
			pairs = append(pairs, Pair[L, R]{Left: *l})
		}
	}
	return pairs
}

// dated is a row of a list, by its index, and its time.
type dated struct {
	row  int
	time int64
}

func (d dated) compare(other dated) int { return cmp.Compare(d.time, other.time) }

// within returns the rows, of some in order of time, that are at most so far from a time.
func within(rows []dated, at, window int64) []dated {
	from := sort.Search(len(rows), func(i int) bool { return rows[i].time >= before(at, window) })
	rows = rows[from:]
	return rows[:sort.Search(len(rows), func(i int) bool { return rows[i].time > after(at, window) })]
}

// Completeness says how much of a result is there. No field is ever NaN.
type Completeness struct {
	Expected int `json:"expected"` // pairs that should be there
	Missing  int `json:"missing"`  // of them are not
	Extra    int `json:"extra"`    // pairs that should not be there, or are there too often
	// Share is the part of the expected pairs that is there, 1 if none is expected.
	Share float64 `json:"share"`
}

// Compare checks pairs against those that should be there, in any order. Rows of both types must be comparable.
func Compare[L, R comparable](got, want []Pair[L, R]) Completeness {
	c := Completeness{Expected: len(want), Share: 1}
	counts := map[Pair[L, R]]int{}
	for _, p := range want {
		counts[p]++
	}
	for _, p := range got {
		if counts[p] > 0 {
			counts[p]--
		} else {
			c.Extra++
		}
	}
	c.Missing = len(want) - (len(got) - c.Extra)
	if len(want) > 0 {
		c.Share = 1 - float64(c.Missing)/float64(len(want))
	}
	return c
}
