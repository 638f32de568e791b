package state

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestBitset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 200).Draw(t, "n")
		b, model := newBitset(n), map[int]bool{}
		for range rapid.IntRange(0, 50).Draw(t, "steps") {
			i := rapid.IntRange(0, n-1).Draw(t, "i")
			if rapid.Bool().Draw(t, "add") {
				b.add(i)
				model[i] = true
			} else {
				b.remove(i)
				delete(model, i)
			}
		}
		want := []int{-1}
		for i := range n {
			require.Equal(t, model[i], b.has(i))
			if model[i] {
				want = append(want, i)
			}
		}
		require.Equal(t, want, b.appendTo([]int{-1}))
		require.True(t, slices.IsSorted(want))
		require.Equal(t, len(model), b.count())
		all := newBitset(n)
		all.add(n - 1)
		all.addAll(b)
		model[n-1] = true
		require.Equal(t, len(model), all.count())
		require.Equal(t, all.count(), len(all.appendTo(nil)))
	})
}
