package controller_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/stream"
)

// TestMarksUseTheWindow: where marks are made at once, an operator that emits makes one when l is used up, and a sink at risk when
// half of it is, or at the end of the slab after that: acknowledgements wait for it.
func TestMarksUseTheWindow(t *testing.T) {
	const n = 60_000
	for _, most := range []uint64{4, 100, 1000} {
		topo := stream.New("relayed")
		s := stream.Then(stream.From(topo, "source", newNumbers(n)), "relay", newRelay)
		var out gather[uint64]
		stream.To(s, "out", out.sink)
		r, err := controller.RunLocal(context.Background(), topo, options(1e9, most, 1000))
		require.NoError(t, err)
		require.Len(t, out.all(), n)
		for _, op := range r.Operators[1:] {
			l := float64(most / 2) // what a first failure may cost
			made := float64(op.Marks + op.StateCommits)
			if op.Name == "out" && made > n/l {
				made = max(n/l, made/2)
			}
			require.InEpsilon(t, n/l, made, 0.1, "%s, L = %d: %d marks, %d commits", op.Name, most, op.Marks, op.StateCommits)
		}
	}
}

// TestSinkLosesNoMoreThanL: a sink takes along what it was given since it was flushed last, and what was acknowledged beyond that;
// together that is at most the l of its incarnation, and all of it is counted.
func TestSinkLosesNoMoreThanL(t *testing.T) {
	const n, most = 200_000, 1000
	worst := 0
	for at := uint64(10_007); at < n; at += 10_007 {
		topo := stream.New("relayed")
		s := stream.Then(stream.From(topo, "source", newNumbers(n)), "relay", newRelay)
		var out gather[uint64]
		stream.To(s, "out", out.sink)
		o := options(1e9, most, 100_000)
		o.Faults = []controller.Fault{{Operator: "out", Items: at}}
		r, err := controller.RunLocal(context.Background(), topo, o)
		require.NoError(t, err)
		require.Len(t, r.Failures, 1)
		got := map[uint64]bool{}
		for _, x := range out.all() {
			got[x] = true
		}
		lost := n - len(got)
		worst = max(worst, lost)
		require.LessOrEqual(t, lost, most/2, "at item %d", at) // half of L is the first incarnation's
		require.EqualValues(t, lost, r.Failures[0].Lost, "at item %d", at)
	}
	t.Logf("%d lost at most", worst) // none, if the sink was ahead of its acknowledgements each time
}
