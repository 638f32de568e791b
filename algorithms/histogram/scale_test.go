package histogram

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

// A histogram that another was merged into is that of all numbers.
func TestMergeState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := equi(rt, 0, 10, 5)
		fresh := func() *Count { return New(l) }
		a, b, both := fresh(), fresh(), fresh()
		for range rapid.IntRange(0, 40).Draw(rt, "numbers") {
			x := rapid.Float64Range(-2, 12).Draw(rt, "number")
			to := a
			if rapid.Bool().Draw(rt, "b") {
				to = b
			}
			require.NoError(rt, to.Process(x, nil))
			require.NoError(rt, both.Process(x, nil))
		}
		theta := rapid.SampledFrom([]float64{0, 3, 1000}).Draw(rt, "theta")
		view := func(c *Count) any { return []any{c.bins.counts, c.bins.total} }
		statetest.AddLaws(rt, fresh, (*Count).MergeState, view, theta, a, b, both)
	})
	c := New(equi(t, 0, 10, 5))
	require.ErrorIs(t, c.MergeState(statetest.Reader(statetest.Element("abcd", "x"))), stream.ErrState)
	require.ErrorIs(t, c.MergeState(statetest.Reader(statetest.Backup(t, New(equi(t, 0, 10, 6)), true))), ErrLayout)
}
