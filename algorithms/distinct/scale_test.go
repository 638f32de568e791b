package distinct

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

// A sketch that another was merged into is that of all keys.
func TestMergeState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fresh := func() *Count { return New(4) }
		a, b, both := fresh(), fresh(), fresh()
		one, two := rapid.SliceOfN(rapid.Uint64(), 0, 60).Draw(rt, "a"), rapid.SliceOfN(rapid.Uint64(), 0, 60).Draw(rt, "b")
		add(rt, a, one...)
		add(rt, b, two...)
		add(rt, both, slices.Concat(one, two)...)
		theta := rapid.SampledFrom([]float64{0, 3, 1000}).Draw(rt, "theta")
		statetest.AddLaws(rt, fresh, (*Count).MergeState, func(c *Count) any { return c.registers }, theta, a, b, both)
	})
	c := New(4)
	require.ErrorIs(t, c.MergeState(statetest.Reader(statetest.Element("abcd", "x"))), stream.ErrState)
	require.ErrorIs(t, c.MergeState(statetest.Reader(statetest.Backup(t, New(5), true))), ErrPrecision)
}
