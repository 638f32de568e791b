package join

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/internal/statetest"
)

// TestRebuilt: an inner join that is given again what OldestItem asks for, the inputs in another order to one another, goes on as if
// nothing had happened: it knows every row that may still find partners. What it was restored from before does not matter.
func TestRebuilt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slack := rapid.Int64Range(0, 20).Draw(t, "slack")
		o := options(Inner, rapid.SampledFrom([]int64{0, 5, 30}).Draw(t, "window"), slack)
		seed := rapid.Uint64().Draw(t, "seed")
		list := steps(seed, rapid.IntRange(0, 8<<ageBits).Draw(t, "n"), 40, slack)
		saved := rapid.IntRange(0, len(list)).Draw(t, "saved")
		at := rapid.IntRange(saved, len(list)).Draw(t, "failure")

		j := New(o)
		got := feed(t, j, list[:saved]...)
		backup := statetest.Backup(t, j, true)
		j = New(o)
		require.NoError(t, j.RestoreState(statetest.Reader(backup)))
		got = append(got, feed(t, j, list[saved:at]...)...)
		oldest, ok := j.OldestItem()
		require.True(t, ok)
		requireOldest(t, j, oldest)

		again := New(o)
		require.NoError(t, again.RestoreState(statetest.Reader(backup)))
		feed(t, again, shuffled(seed, list[saved+int(oldest):at])...)
		kept := rowsOf(again)
		for r := range rowsOf(j) {
			if !j.expired(r.time, j.left.latest, j.left.seen) && !j.expired(r.time, j.right.latest, j.right.seen) {
				require.Contains(t, kept, r)
			}
		}
		got = append(got, feed(t, again, list[at:]...)...)
		c := Compare(got, exactOf(o, list))
		require.Zero(t, c.Missing)
		require.Zero(t, c.Extra)
	})
}

// requireOldest checks what OldestItem has returned against the rows.
func requireOldest(t require.TestingT, j *Join[uint8, row, row], oldest uint64) {
	a := &j.groups.ages
	least := a.turn - a.base
	for _, tab := range []*table[uint8, row]{&j.left, &j.right} {
		for at := range tab.slots {
			if s := &tab.slots[at]; s.status&used != 0 && s.turn > a.base {
				least = min(least, s.turn-a.base-1)
			}
		}
	}
	require.LessOrEqual(t, oldest, least)
	require.Less(t, least-oldest, uint64(1<<ageBits))
}

// shuffled is another order of rows, the same within each input.
func shuffled(seed uint64, list []step) []step {
	r := rand.New(rand.NewPCG(seed, 9))
	var sides [2][]step
	for _, s := range list {
		if s.left {
			sides[0] = append(sides[0], s)
		} else {
			sides[1] = append(sides[1], s)
		}
	}
	var other []step
	for len(sides[0])+len(sides[1]) > 0 {
		k := r.IntN(2)
		n := min(len(sides[k]), r.IntN(300))
		other, sides[k] = append(other, sides[k][:n]...), sides[k][n:]
	}
	return other
}

// TestWhatCannotBeRebuilt: joins whose rows leave for another reason than their times, or never, or are emitted when they do.
func TestWhatCannotBeRebuilt(t *testing.T) {
	for name, change := range map[string]func(o *Options[uint8, row, row]){
		"left outer": func(o *Options[uint8, row, row]) { o.Kind = LeftOuter },
		"once":       func(o *Options[uint8, row, row]) { o.Once = true },
		"unbounded":  func(o *Options[uint8, row, row]) { o.Window = Unbounded },
		"max rows":   func(o *Options[uint8, row, row]) { o.MaxRows = 5 },
		"table":      func(o *Options[uint8, row, row]) { o.Right.Time = nil },
	} {
		o := options(Inner, 5, 5)
		_, ok := New(o).OldestItem()
		require.True(t, ok)
		change(&o)
		_, ok = New(o).OldestItem()
		require.False(t, ok, name)
	}
}
