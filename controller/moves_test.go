package controller_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/stream"
)

// Workers that move cost nothing: with moves and no failure all items arrive, once.
func TestMovesCostNothing(t *testing.T) {
	t.Parallel() // it waits more than it works
	moved := 0
	for seed := uint64(1); moved < thorough.Number(3, 40) && seed < 200; seed++ {
		const n = 30_000
		o := options(50, 20, 100)
		o.PipeSources = seed%2 == 0
		l := newLedger()
		topo := stream.New("moves")
		s := stream.From(topo, "source", newNumbers(n), stream.Workers(1))
		for _, name := range []string{"relay0", "relay1"}[:seed/2%3] {
			s = stream.Then(s, name, newEcho, stream.Shuffle(), stream.Workers(2))
		}
		parts := uint64(1)
		if seed/2%3 > 0 {
			parts = 0
		}
		newIDs := func() *ids { return &ids{l: l, has: map[uint64]bool{}, last: map[uint64]uint64{}, parts: parts} }
		var out gather[uint64]
		kept := stream.Then(s, "ids", newIDs, stream.Shuffle(), stream.EmitOnClose(), stream.Workers(2), stream.Compute(2))
		stream.To(kept, "out", out.final)
		stop := o.Moves(seed)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		r, err := controller.RunLocal(ctx, topo, o)
		cancel()
		now := stop()
		moved += now
		require.NoError(t, err, "seed %d", seed)
		require.Empty(t, l.faults, "seed %d", seed)
		if len(r.Failures) == 0 {
			require.Equal(t, n, len(out.all()), "seed %d, %d moves: %+v", seed, now, r.Operators)
		} else {
			t.Logf("seed %d: %d moves, %d workers that could not: %+v", seed, now, len(r.Failures), r.Failures)
		}
	}
	t.Logf("%d moves", moved)
	require.NotZero(t, moved)
}
