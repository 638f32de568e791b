package aggregate

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

// Aggregates that others were merged into are those of all items; a key belongs where its items go.
func TestMergeState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := tradeOptions()
		o.Norm = rapid.SampledFrom([]errorbound.Norm{errorbound.Max, errorbound.L1}).Draw(rt, "norm")
		fresh := func() *Aggregate[trade] { return New(o) }
		a, b, both := fresh(), fresh(), fresh()
		for _, item := range drawItems(rt, 60) {
			to := a
			if rapid.Bool().Draw(rt, "to b") {
				to = b
			}
			require.NoError(rt, to.Process(item, nil))
			require.NoError(rt, both.Process(item, nil))
		}
		theta := rapid.SampledFrom([]float64{0, 3, 1000}).Draw(rt, "theta")
		statetest.AddLaws(rt, fresh, (*Aggregate[trade]).MergeState, func(a *Aggregate[trade]) any { return a.Rows() }, theta, a, b, both)
		for _, row := range both.Rows() {
			k, _ := row.Key.AppendBinary(nil)
			require.Equal(rt, stream.PartitionOfUint64(row.Key.Hash(), 5), both.PartitionOf(k, 5))
			require.Equal(rt, both.PartitionOf(k, 3), NewMerge().PartitionOf(k, 3))
		}
	})
	a := New(tradeOptions())
	require.ErrorIs(t, a.MergeState(statetest.Reader(statetest.Element("", "x"))), stream.ErrState)
	require.Negative(t, a.PartitionOf(nil, 3), "whoever reads it says what is wrong with it")
}
