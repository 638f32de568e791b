package controller_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// durable runs a topology whose sink "out" keeps its items in the store of the backups, and returns what is there at the
// end for another process to read.
func durable[T any](rt *rapid.T, o controller.Options, build func(out *connector.Collector[T]) *stream.Topology) ([]T, *controller.Result) {
	store := backup.NewMemory()
	defer store.Close()
	if o.Guarantee != worker.None {
		o.Store = store
	}
	vault := backup.ResultsOf(store, "results", "1")
	var out, again connector.Collector[T]
	out.Keep(vault)
	topo := build(&out)
	nodes, err := topo.Build()
	require.NoError(rt, err)
	o.Faults = controller.RandomFaults(nodes, rapid.IntRange(0, 8).Draw(rt, "failures"), rapid.Uint64().Draw(rt, "seed"))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := controller.RunLocal(ctx, topo, o)
	require.NoError(rt, err)
	rt.Logf("%v: %+v", o.Faults, r.Failures)
	require.False(rt, r.Interrupted)
	require.Zero(rt, out.Len(), "all is in the vault")
	require.NoError(rt, again.Recall(vault, "out"))
	return again.Items(), r
}

// budgets draws options.
func budgets(rt *rapid.T, guarantees ...worker.Guarantee) controller.Options {
	some := func(name string) uint64 { return rapid.SampledFrom([]uint64{0, 1, 7, 400, 3000}).Draw(rt, name) }
	o := options(float64(some("theta")), some("l"), some("gamma"))
	o.Guarantee = rapid.SampledFrom(guarantees).Draw(rt, "guarantee")
	o.Batch = rapid.SampledFrom([]uint64{1, 50, 1 << 16}).Draw(rt, "batch")
	return o
}

// requireOnce checks that got holds the numbers below n, each once.
func requireOnce(rt *rapid.T, n uint64, got []uint64) {
	seen := make([]int, n)
	for _, v := range got {
		seen[v]++
	}
	for v, times := range seen {
		require.Equal(rt, 1, times, "number %d of %d, %d rows", v, n, len(got))
	}
}

// Behind sources that can go back, a durable result holds every item once, whatever fails and whatever is promised.
func TestResultsAreExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.Uint64Range(2, 20_000).Draw(rt, "items")
		o := budgets(rt, worker.Approximate, worker.ErrorFree, worker.MiniBatch, worker.UpstreamBackup)
		got, _ := durable(rt, o, func(out *connector.Collector[uint64]) *stream.Topology {
			topo := stream.New("results")
			s := stream.From(topo, "source", newNumbers(n), stream.Workers(rapid.IntRange(1, 2).Draw(rt, "sources")))
			stream.To(s, "out", connector.Collect(out), stream.Workers(rapid.IntRange(1, 2).Draw(rt, "sinks")))
			return topo
		})
		requireOnce(rt, n, got)
	})
}

// Behind an operator whose output is at risk, failures of the sink lose at most L items and bring none twice; those of the
// operator may bring what it processes again.
func TestResultsAtRisk(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.Uint64Range(2, 8_000).Draw(rt, "items")
		o := budgets(rt, worker.Approximate, worker.ErrorFree)
		if o.Guarantee == worker.ErrorFree {
			o.Theta, o.L, o.Gamma = 0, 0, 1
		}
		o.PipeSources = rapid.Bool().Draw(rt, "pipe")
		got, r := durable(rt, o, func(out *connector.Collector[uint64]) *stream.Topology {
			topo := stream.New("results")
			s := stream.Then(stream.From(topo, "source", newNumbers(n)), "relay", newRelay)
			stream.To(s, "out", connector.Collect(out), stream.Workers(rapid.IntRange(1, 2).Draw(rt, "sinks")))
			return topo
		})
		failures := map[string]uint64{}
		for _, f := range r.Failures {
			failures[f.Operator]++
		}
		distinct := map[uint64]bool{}
		for _, v := range got {
			distinct[v] = true
		}
		all := uint64(len(r.Failures))
		lost, twice := n-uint64(len(distinct)), uint64(len(got)-len(distinct))
		require.LessOrEqual(rt, lost, 2*(o.L+o.Gamma)+4*all)
		require.LessOrEqual(rt, twice, o.L+2*all)
		if failures["relay"] == 0 {
			require.Zero(rt, twice)
		}
		if all == 0 {
			requireOnce(rt, n, got)
		}
	})
}

// Each window is in a durable result once.
func TestResultsOfWindows(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.Uint64Range(2, 20_000).Draw(rt, "items")
		o := budgets(rt, worker.Approximate, worker.ErrorFree, worker.MiniBatch, worker.UpstreamBackup)
		o.Theta = 0
		got, _ := durable(rt, o, func(out *connector.Collector[windowCount]) *stream.Topology {
			topo := stream.New("results")
			s := stream.From(topo, "source", newNumbers(n), stream.Workers(2), stream.WindowItems(500))
			counts := stream.Then(s, "count", newTumbling, stream.EmitOnClose(), stream.Workers(2), stream.Forget(1))
			stream.To(stream.Then(counts, "add", newAdding, stream.EmitOnClose()), "out", connector.Collect(out))
			return topo
		})
		for i, w := range got {
			require.True(rt, i == 0 || w.Window > got[i-1].Window, "%+v", got)
		}
		checkWindows(rt, got, n, false, true)
	})
}

// Without a promise there is a result nevertheless, whole if nothing fails.
func TestResultsWithoutAPromise(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.Uint64Range(2, 20_000).Draw(rt, "items")
		got, r := durable(rt, controller.Options{Guarantee: worker.None}, func(out *connector.Collector[uint64]) *stream.Topology {
			topo := stream.New("results")
			stream.To(stream.From(topo, "source", newNumbers(n)), "out", connector.Collect(out))
			return topo
		})
		distinct := map[uint64]bool{}
		for _, v := range got {
			require.False(rt, distinct[v], "number %d twice", v)
			distinct[v] = true
		}
		if len(r.Failures) == 0 {
			requireOnce(rt, n, got)
		}
	})
}
