package controller_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

func TestParseFault(t *testing.T) {
	for text, want := range map[string]controller.Fault{
		"sketch/0@30%":   {Operator: "sketch", Share: 0.3},
		"merge/12@1":     {Operator: "merge", Worker: 12, Items: 1},
		"trace/0@100%":   {Operator: "trace", Share: 1},
		"a-b_c/3@12.5%":  {Operator: "a-b_c", Worker: 3, Share: 0.125},
		"sketch/1@10000": {Operator: "sketch", Worker: 1, Items: 10000},
	} {
		got, err := controller.ParseFault(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		require.Equal(t, text, got.String())
	}
	for _, text := range []string{"", "sketch", "sketch@5", "sketch/0", "/0@5", "sketch/x@5", "sketch/-1@5", "sketch/0@0", "sketch/0@",
		"sketch/0@0%", "sketch/0@101%", "sketch/0@NaN%", "sketch/0@-3", "sketch/0@1e3"} {
		_, err := controller.ParseFault(text)
		require.ErrorIs(t, err, controller.ErrFault, text)
		require.NotContains(t, err.Error(), "\n")
	}
}

func FuzzParseFault(f *testing.F) {
	f.Add("sketch/0@30%")
	f.Add("sketch/0@77")
	f.Fuzz(func(t *testing.T, text string) {
		fault, err := controller.ParseFault(text)
		if err != nil {
			return
		}
		if fault.Share == 0 == (fault.Items == 0) || fault.Share > 1 || fault.Worker < 0 {
			t.Fatalf("%q became %+v", text, fault)
		}
	})
}

func TestRandomFaultsAreTheSameForTheSameSeed(t *testing.T) {
	nodes, err := sumsTopology(10, 2, &gather[[8]uint64]{}).Build()
	require.NoError(t, err)
	rapid.Check(t, func(rt *rapid.T) {
		seed, k := rapid.Uint64().Draw(rt, "seed"), rapid.IntRange(0, 20).Draw(rt, "k")
		a := controller.RandomFaults(nodes, k, seed)
		require.Equal(rt, a, controller.RandomFaults(nodes, k, seed))
		require.Len(rt, a, k)
		for i := range a {
			require.True(rt, a[i].Share > 0 && a[i].Share < 1)
			require.True(rt, i == 0 || a[i-1].Share <= a[i].Share+1e-9)
		}
	})
}

// sumsTopology is source -> sums -> out.
func sumsTopology(n uint64, workers int, out *gather[[8]uint64]) *stream.Topology {
	t := stream.New("sums")
	source := stream.From(t, "source", newNumbers(n))
	sums := stream.Then(source, "sums", newSums, stream.Workers(workers), stream.EmitOnClose())
	stream.To(sums, "out", out.sink)
	return t
}

func TestOptionsAreChecked(t *testing.T) {
	o := options(10, 10, 10)
	o.Guarantee = 77
	_, err := controller.RunLocal(context.Background(), sumsTopology(10, 1, &gather[[8]uint64]{}), o)
	require.ErrorContains(t, err, "guarantee number 77")
	_, err = controller.RunLocal(context.Background(), sumsTopology(10, 1, &gather[[8]uint64]{}), options(-1, 1, 1))
	require.Error(t, err)
}

func TestFaultsThatNameNothingAreRefused(t *testing.T) {
	for _, f := range []controller.Fault{{Operator: "nobody", Items: 1}, {Operator: "sums", Worker: 2, Items: 1}, {Operator: "sums"},
		{Operator: "sums", Share: 2}, {Operator: "sums", Share: 0.5, Items: 3}, {Operator: "sums", Worker: -1, Items: 1}} {
		o := options(10, 10, 10)
		o.Faults = []controller.Fault{f}
		_, err := controller.RunLocal(context.Background(), sumsTopology(10, 2, &gather[[8]uint64]{}), o)
		require.ErrorIs(t, err, controller.ErrFault)
	}
}

// A fault by items strikes exactly there, counted over incarnations; one that never comes is reported.
func TestFaultsByItems(t *testing.T) {
	o := options(100, 100, 100)
	for _, at := range []uint64{1, 5000, 5001, 9_000_000} {
		o.Faults = append(o.Faults, controller.Fault{Operator: "sums", Worker: 0, Items: at})
	}
	var out gather[[8]uint64]
	r, err := controller.RunLocal(context.Background(), sumsTopology(20_000, 1, &out), o)
	require.NoError(t, err)
	require.Len(t, r.Failures, 3)
	for i, at := range []uint64{1, 5000, 5001} {
		require.EqualValues(t, at, r.Failures[i].AtItem, "counted as the fault was")
	}
	require.Equal(t, []controller.Fault{{Operator: "sums", Items: 9_000_000}}, r.Unreached)
	require.EqualValues(t, []uint64{1, 2, 3}, []uint64{r.Failures[0].Epoch, r.Failures[1].Epoch, r.Failures[2].Epoch})
	require.EqualValues(t, 20_000, total(out.all()), "a whole state with a source that rewinds loses nothing")
}

// broken fails in the way that its field says.
type broken struct{ how string }

var errBroken = errors.New("out of order")

func (b *broken) Process(uint64, *stream.Emitter[uint64]) error {
	switch b.how {
	case "error":
		return errBroken
	case "panic":
		panic("index out of nowhere")
	}
	return nil
}

func (b *broken) CloseWindow(_ stream.Window, out *stream.Emitter[uint64]) error {
	if b.how == "close" {
		return errBroken
	}
	return nil
}

func TestOperatorErrorsFailTheJobAndSayWhere(t *testing.T) {
	for _, how := range []string{"error", "panic", "close"} {
		topo := stream.New("broken")
		s := stream.From(topo, "source", newNumbers(1_000_000), stream.Workers(2))
		b := stream.Then(s, "bad-one", func() *broken { return &broken{how: how} }, stream.Workers(2))
		stream.To(b, "out", (&gather[uint64]{}).sink)
		_, err := controller.RunLocal(context.Background(), topo, options(10, 10, 10))
		require.ErrorContains(t, err, "bad-one partition", how)
		if how == "panic" {
			require.ErrorIs(t, err, worker.ErrPanic)
			require.NotContains(t, err.Error(), "goroutine")
		} else {
			require.ErrorIs(t, err, errBroken)
		}
	}
}

// Operators whose abilities contradict one another are refused before the first item, by name.
func TestAbilitiesThatDoNotFit(t *testing.T) {
	topo := stream.New("closing")
	s := stream.From(topo, "source", newNumbers(10))
	b := stream.Then(s, "forgetful", func() *broken { return &broken{} }, stream.EmitOnClose())
	stream.To(b, "out", (&gather[uint64]{}).sink)
	_, err := controller.RunLocal(context.Background(), topo, options(10, 10, 10))
	require.ErrorIs(t, err, worker.ErrOperator)
	require.ErrorContains(t, err, `"forgetful"`)
	o := options(10, 10, 10)
	o.Guarantee = worker.None
	_, err = controller.RunLocal(context.Background(), topo, o)
	require.NoError(t, err, "without a guarantee there is nothing to back up")
}

// endless is a source that never ends by itself.
type endless struct {
	numbers
	started atomic.Bool
}

func (e *endless) Read(dst []uint64) (int, error) {
	e.n = ^uint64(0)
	e.started.Store(true)
	return e.numbers.Read(dst)
}

func TestInterruptedJobsFinishWhatTheyHaveRead(t *testing.T) {
	for _, g := range []worker.Guarantee{worker.Approximate, worker.None} {
		src := &endless{numbers: numbers{parts: 1}}
		topo := stream.New("sums")
		s := stream.From(topo, "source", func(int, int) (stream.Source[uint64], error) { return src, nil })
		sums := stream.Then(s, "sums", newSums, stream.EmitOnClose())
		var out gather[[8]uint64]
		stream.To(sums, "out", out.sink)
		ctx, cancel := context.WithCancel(context.Background())
		o := options(100, 100, 100)
		o.Guarantee = g
		o.OnProgress = func(done, _ int64) {
			if done > 10_000 {
				cancel()
			}
		}
		started := time.Now()
		r, err := controller.RunLocal(ctx, topo, o)
		require.NoError(t, err)
		require.True(t, r.Interrupted)
		require.Less(t, time.Since(started), 30*time.Second)
		require.Equal(t, r.Items, total(out.all()))
	}
}

// fullDisk is a store that fails all writes from some point on.
type fullDisk struct {
	backup.Store
	writes, room int64
}

func (f *fullDisk) Apply(b *backup.Batch, done func(error)) {
	if atomic.AddInt64(&f.writes, 1) > f.room {
		done(backup.ErrDiskFull)
		return
	}
	f.Store.Apply(b, done)
}

func TestAFullDiskFailsTheJobLoudly(t *testing.T) {
	m := backup.NewMemory()
	defer m.Close()
	o := options(100, 100, 100)
	o.Store = &fullDisk{Store: m, room: 20}
	_, err := controller.RunLocal(context.Background(), sumsTopology(1_000_000, 2, &gather[[8]uint64]{}), o)
	require.ErrorIs(t, err, backup.ErrDiskFull)
	require.NotContains(t, err.Error(), "\n")
}

// A hundred jobs, half of them with failures, leave nothing behind: goleak checks the goroutines at the end of the
// package, this test the memory.
func TestJobsLeaveNothingBehind(t *testing.T) {
	run := func(seed uint64) {
		o := options(100, 100, 100)
		topo := sumsTopology(3000, 2, &gather[[8]uint64]{})
		if seed%2 == 0 {
			nodes, err := topo.Build()
			require.NoError(t, err)
			o.Faults = controller.RandomFaults(nodes, 3, seed)
		}
		_, err := controller.RunLocal(context.Background(), topo, o)
		require.NoError(t, err)
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for seed := range uint64(10) {
		run(seed)
	}
	before := heap()
	for seed := range uint64(100) {
		run(seed)
	}
	require.Less(t, float64(heap()), float64(before)+4e6)
}

// TestEndsWithoutItems: inputs that are empty, or leave partitions without any item, end like any other.
func TestEndsWithoutItems(t *testing.T) {
	for _, n := range []uint64{0, 1, 2} {
		for _, pipe := range []bool{false, true} {
			var out gather[[8]uint64]
			o := options(0, 0, 0)
			o.PipeSources = pipe
			_, err := controller.RunLocal(context.Background(), sumsTopology(n, 4, &out), o)
			require.NoError(t, err)
			require.Len(t, out.all(), 4, fmt.Sprint(n, pipe))
			require.EqualValues(t, n, total(out.all()))
		}
	}
}

// failing is a source whose reading fails after some items.
type failing struct{ numbers }

func (f *failing) Read(dst []uint64) (int, error) {
	n, err := f.numbers.Read(dst)
	if err == io.EOF {
		err = errBroken
	}
	return n, err
}

func TestSourceErrorsFailTheJob(t *testing.T) {
	topo := stream.New("sums")
	s := stream.From(topo, "source", func(int, int) (stream.Source[uint64], error) {
		return &failing{numbers{n: 1000, parts: 1}}, nil
	})
	sums := stream.Then(s, "sums", newSums, stream.EmitOnClose())
	stream.To(sums, "out", (&gather[[8]uint64]{}).sink)
	_, err := controller.RunLocal(context.Background(), topo, options(10, 10, 10))
	require.ErrorIs(t, err, errBroken)
	require.ErrorContains(t, err, "read source partition 0")
}

// closeOnly is a sink that cannot flush.
type closeOnly struct{}

func (closeOnly) Write([]uint64) error { return nil }
func (closeOnly) Close() error         { return nil }

// A sink behind channels at risk must be able to make things safe, or a failure of it would lose everything.
func TestSinksAtRiskMustFlush(t *testing.T) {
	topo := stream.New("relayed")
	s := stream.From(topo, "source", newNumbers(10))
	r := stream.Then(s, "relay", newRelay)
	stream.To(r, "deaf", func(int, int) (stream.Sink[uint64], error) { return closeOnly{}, nil })
	_, err := controller.RunLocal(context.Background(), topo, options(10, 10, 10))
	require.ErrorIs(t, err, worker.ErrOperator)
	require.ErrorContains(t, err, `"deaf"`)
}

// What a flushing sink behind a relay loses or gets twice through its failures stays within l and the marks of both.
func TestSinksAtRiskLoseNoMoreThanL(t *testing.T) {
	const n, l = 60_000, 1000
	for seed := range uint64(8) {
		topo := stream.New("relayed")
		s := stream.From(topo, "source", newNumbers(n))
		r := stream.Then(s, "relay", newRelay)
		var out gather[uint64]
		stream.To(r, "out", out.sink, stream.Workers(2))
		o := options(1000, l, 1000)
		for i := range uint64(6) {
			o.Faults = append(o.Faults, controller.Fault{Operator: "out", Worker: int(i % 2), Items: (i + 1) * (4001 + seed)})
		}
		result, err := controller.RunLocal(context.Background(), topo, o)
		require.NoError(t, err)
		require.Len(t, result.Failures, 6)
		seen := map[uint64]int{}
		for _, v := range out.all() {
			seen[v]++
		}
		require.LessOrEqual(t, n-len(seen), l, "seed %d", seed)
		require.LessOrEqual(t, len(out.all())-len(seen), l, "seed %d", seed)
	}
}

// Two failures of a worker at the same item cannot both happen; at the same share of the input they can.
func TestFaultsAtTheSameTime(t *testing.T) {
	o := options(100, 100, 100)
	at := controller.Fault{Operator: "sums", Worker: 1, Items: 500}
	o.Faults = []controller.Fault{at, {Operator: "sums", Worker: 0, Items: 500}, {Operator: "sums", Worker: 1, Share: 0.5}, at}
	_, err := controller.RunLocal(context.Background(), sumsTopology(20_000, 2, &gather[[8]uint64]{}), o)
	require.ErrorIs(t, err, controller.ErrFault)
	require.ErrorContains(t, err, `"sums/1@500": it is given twice; to kill the worker again at once, give 501 items`)

	half := controller.Fault{Operator: "sums", Worker: 1, Share: 0.5}
	o.Faults = []controller.Fault{half, half}
	r, err := controller.RunLocal(context.Background(), sumsTopology(20_000, 2, &gather[[8]uint64]{}), o)
	require.NoError(t, err)
	require.Equal(t, 2, len(r.Failures)+len(r.Unreached))
}

// A theta that no item fits into is said to be so, once for each operator.
func TestHintOfSmallThresholds(t *testing.T) {
	for _, c := range []struct {
		theta float64
		g     worker.Guarantee
		hints int
	}{{1, worker.Approximate, 1}, {100, worker.Approximate, 0}, {0, worker.Approximate, 0}, {1, worker.ErrorFree, 0}, {1, worker.None, 0}} {
		var log bytes.Buffer
		o := options(c.theta, 100, 100)
		o.Guarantee, o.Log = c.g, slog.New(slog.NewTextHandler(&log, nil))
		_, err := controller.RunLocal(context.Background(), sumsTopology(200, 2, &gather[[8]uint64]{}), o)
		require.NoError(t, err)
		require.Equal(t, c.hints, strings.Count(log.String(), "every item is backed up"), "%v %v", c.theta, c.g)
		if c.hints > 0 {
			require.Contains(t, log.String(), "operator=sums epoch=1 alpha=1 partition_theta=0.25 Theta_above=4\n")
		}
	}
}
