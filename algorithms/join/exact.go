package join

// Exact joins two lists of rows, all at once, to check what a job emits. It takes time in proportion to the pairs of rows
// with the same key. Left rows without a partner come by themselves if o.Kind is LeftOuter. It panics if o is not valid.
// Options.Slack, Once, MaxRows and MaxMatches play no part: it knows every row.
func Exact[K comparable, L, R any](o Options[K, L, R], left []L, right []R) []Pair[L, R] {
	j := New(o) // for partners
	byKey := map[K][]int{}
	for i := range right {
		key := o.Right.Key(&right[i])
		byKey[key] = append(byKey[key], i)
	}
	time := func(of func() int64, timed bool) int64 {
		if timed {
			return of()
		}
		return 0
	}
	var pairs []Pair[L, R]
	for i := range left {
		l, found := &left[i], false
		at := time(func() int64 { return o.Left.Time(l) }, o.Left.Time != nil)
		for _, k := range byKey[o.Left.Key(l)] {
			r := &right[k]
			if j.partners(at, time(func() int64 { return o.Right.Time(r) }, o.Right.Time != nil)) {
				pairs = append(pairs, Pair[L, R]{*l, *r, true})
				found = true
			}
		}
		if !found && o.Kind == LeftOuter {
			pairs = append(pairs, Pair[L, R]{Left: *l})
		}
	}
	return pairs
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
