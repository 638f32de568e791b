package wordcount

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

// A table that another was merged into is that of all words.
func TestMergeState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		norm := rapid.SampledFrom([]errorbound.Norm{errorbound.Max, errorbound.L1}).Draw(rt, "norm")
		fresh := func() *Count { return NewCount(Options{Norm: norm}) }
		a, b, both := fresh(), fresh(), fresh()
		for range rapid.IntRange(0, 40).Draw(rt, "words") {
			word := []byte(rapid.SampledFrom([]string{"a", "b", "c", "longer than eight", "x y"}).Draw(rt, "word"))
			if rapid.Bool().Draw(rt, "to a") {
				a.words.add(word, 1)
			} else {
				b.words.add(word, 1)
			}
			both.words.add(word, 1)
		}
		theta := rapid.SampledFrom([]float64{0, 3, 1000}).Draw(rt, "theta")
		view := func(c *Count) any { return []any{countsOf(c.words), c.Total()} }
		statetest.AddLaws(rt, fresh, (*Count).MergeState, view, theta, a, b, both)
	})
	c := NewCount(Options{})
	require.ErrorIs(t, c.MergeState(statetest.Reader(statetest.Element("a", ""))), stream.ErrState)
	require.ErrorIs(t, c.MergeState(statetest.Reader(statetest.Element("a", "\x80\x80\x80\x80\x80\x80\x80\x80\x02"))), stream.ErrState, "more than there can be")
}

// What belongs to a partition is what its input brings.
func TestPartitionOfAgreesWithTheInput(t *testing.T) {
	for i := range 200 {
		text := fmt.Sprint("word", i)
		if i%3 == 0 {
			text += strings.Repeat("x", i) // some are longer than a key
		}
		item := connector.MakeKeyed([]byte(text), 1)
		word, _ := item.Key.AppendText(nil)
		for n := 1; n <= 7; n++ {
			require.Equal(t, stream.PartitionOfUint64(item.Hash, n), NewTally(Options{}).PartitionOf(word, n), text)
		}
	}
	c := NewCount(Options{})
	for i := range 200 {
		c.words.add(fmt.Append(nil, "word", i), 1)
	}
	for piece := range c.words.pieces() {
		for word := range piece.All() {
			for n := 1; n <= 7; n++ {
				require.Equal(t, partitionOf(piece.shard, n), NewMerge(Options{}).PartitionOf(word, n))
			}
		}
	}
}
