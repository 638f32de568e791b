package controller_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// TestAtLeastOnce: under mini-batches and upstream backup nothing is lost, whatever fails and whatever the operators
// between source and sink emit as they process; an item comes twice only through a failure of one that does, at most
// what it had processed beyond its last commit.
func TestAtLeastOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.Uint64Range(2, 12_000).Draw(rt, "items")
		relays := rapid.IntRange(0, 2).Draw(rt, "relays")
		o := controller.Options{
			Guarantee: rapid.SampledFrom([]worker.Guarantee{worker.MiniBatch, worker.UpstreamBackup}).Draw(rt, "guarantee"),
			Batch:     rapid.SampledFrom([]uint64{1, 7, 50, 400, 3000}).Draw(rt, "batch"),
		}
		if o.Batch < 50 { // each commit takes a while
			n = min(n, 2000)
		}
		var windows []stream.Option
		if rapid.Bool().Draw(rt, "windows") {
			windows = append(windows, stream.WindowItems(rapid.SampledFrom([]uint64{100, 2500}).Draw(rt, "window")))
		}
		topo := stream.New("batches")
		s := stream.From(topo, "source", newNumbers(n), append(windows, stream.Workers(rapid.IntRange(1, 2).Draw(rt, "sources")))...)
		partitions := map[string]uint64{}
		for i := range relays {
			name := fmt.Sprintf("relay%d", i)
			workers, compute := rapid.IntRange(1, 2).Draw(rt, "relay workers"), rapid.IntRange(1, 2).Draw(rt, "relay compute")
			partitions[name] = uint64(compute)
			s = stream.Then(s, name, newEcho, route(rt), stream.Workers(workers), stream.Compute(compute))
		}
		if rapid.Bool().Draw(rt, "filter") { // so that commits do not come by themselves where they are waited for
			partitions["tenth"] = 1
			s = stream.Then(s, "tenth", newTenth, route(rt))
		}
		if rapid.Bool().Draw(rt, "kept") {
			s = stream.Then(s, "list", newList, route(rt), stream.EmitOnClose(), stream.Workers(rapid.IntRange(1, 2).Draw(rt, "workers")))
		}
		var out gather[uint64]
		stream.To(s, "out", out.sink)

		nodes, err := topo.Build()
		require.NoError(rt, err)
		o.Faults = controller.RandomFaults(nodes, rapid.IntRange(0, 6).Draw(rt, "failures"), rapid.Uint64().Draw(rt, "seed"))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		defer move(rt, &o)()
		r, err := controller.RunLocal(ctx, topo, o)
		require.NoError(rt, err)
		rt.Logf("%v: %+v", o.Faults, r.Failures)
		require.False(rt, r.Interrupted)
		checkAtLeastOnce(rt, o, r, n, partitions, out.all())
	})
}

func checkAtLeastOnce(rt *rapid.T, o controller.Options, r *controller.Result, n uint64, partitions map[string]uint64, got []uint64) {
	want := n
	if partitions["tenth"] > 0 {
		want = (n + 9) / 10
	}
	slices.Sort(got)
	distinct := slices.Compact(slices.Clone(got))
	require.EqualValues(rt, want, len(distinct), "items that came")
	bound := uint64(0)
	partitions["out"] = 1 // what it flushed last may not have been committed
	for _, f := range r.Failures {
		bound += 2 * o.Batch * partitions[f.Operator]
	}
	require.LessOrEqual(rt, uint64(len(got)-len(distinct)), bound, "items that came again")
	repeated := uint64(0)
	for _, op := range r.Operators {
		require.Zero(rt, op.Lost, op.Name)
		repeated += op.Repeated
	}
	require.LessOrEqual(rt, repeated, bound, "items processed again")
}

// tenth passes every tenth item on.
type tenth struct{}

func newTenth() *tenth { return &tenth{} }

func (*tenth) Process(in uint64, out *stream.Emitter[uint64]) error {
	if in%10 == 0 {
		out.Emit(in)
	}
	return nil
}

// list emits at a close what it was given, each once.
type list struct{ has map[uint64]bool }

func newList() *list { return &list{has: map[uint64]bool{}} }

func (l *list) Process(in uint64, _ *stream.Emitter[uint64]) error {
	l.has[in] = true
	return nil
}

func (l *list) CloseWindow(_ stream.Window, out *stream.Emitter[uint64]) error {
	ids := make([]uint64, 0, len(l.has))
	for id := range l.has {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		out.Emit(id)
	}
	clear(l.has)
	return nil
}

func (l *list) BackupState(w *stream.StateWriter) error {
	for id := range l.has {
		w.PutUint64(id, id)
	}
	return nil
}

func (l *list) RestoreState(r *stream.StateReader) error {
	for r.Next() {
		id, _, err := r.Uint64()
		if err != nil {
			return err
		}
		l.has[id] = true
	}
	return r.Err()
}

// A sink that has nothing to flush cannot make safe what it is given as it comes.
func TestUpstreamBackupNeedsSinksThatFlush(t *testing.T) {
	topo := stream.New("unsafe")
	s := stream.From(topo, "source", newNumbers(10))
	var out gather[uint64]
	stream.To(stream.Then(s, "relay", newEcho), "out", out.final)
	_, err := controller.RunLocal(context.Background(), topo, controller.Options{Guarantee: worker.UpstreamBackup})
	require.ErrorIs(t, err, worker.ErrOperator)
	require.ErrorContains(t, err, "no Flush")
}
