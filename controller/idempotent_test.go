package controller_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/state"
	"github.com/afstream/afstream/stream"
)

// running emits after each item how many there have been.
type running struct{ state.Value[uint64] }

func (r *running) Process(_ uint64, out *stream.Emitter[uint64]) error {
	r.Add(1)
	out.Emit(r.Value.Value())
	return nil
}

// harmless is running that says that its totals may come twice.
type harmless struct{ running }

func (*harmless) Idempotent() {}

// TestIdempotent: an operator whose outputs may come twice commits when its divergence asks for it, however small L is, and
// what it emits again is not counted; one that does not say so commits its position every few items.
func TestIdempotent(t *testing.T) {
	const items = 20_000
	run := func(build func(s stream.Stream[uint64]) stream.Stream[uint64]) controller.OperatorResult {
		var out gather[uint64]
		topology := stream.New("totals")
		stream.To(build(stream.From(topology, "source", newNumbers(items))), "out", out.sink)
		o := options(1e9, 20, 1000)
		o.Faults = []controller.Fault{{Operator: "total", Items: 15_000}}
		r, err := controller.RunLocal(context.Background(), topology, o)
		require.NoError(t, err)
		require.Len(t, r.Failures, 1)
		last := uint64(0)
		for _, v := range out.all() {
			last = max(last, v)
		}
		require.LessOrEqual(t, last, uint64(items))
		require.NotZero(t, last)
		for _, op := range r.Operators {
			if op.Name == "total" {
				return op
			}
		}
		t.Fatal("no operator")
		return controller.OperatorResult{}
	}
	plain := run(func(s stream.Stream[uint64]) stream.Stream[uint64] {
		return stream.Then(s, "total", func() *running { return &running{} })
	})
	require.Greater(t, plain.StateCommits+plain.Marks, uint64(items/20/2))
	require.LessOrEqual(t, plain.Repeated, uint64(20))
	idempotent := run(func(s stream.Stream[uint64]) stream.Stream[uint64] {
		return stream.Then(s, "total", func() *harmless { return &harmless{} })
	})
	require.Less(t, idempotent.StateCommits+idempotent.Marks, uint64(10))
	require.Zero(t, idempotent.Repeated)
}
