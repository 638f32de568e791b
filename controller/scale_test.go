package controller_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// mostScales is how often a test asks for another number of workers: a job that does nothing else gets nowhere.
const mostScales = 25

// scales asks for random numbers of workers of random operators, again and again until stop is called, which returns how
// often that was done and what was refused.
func scales(o *controller.Options, seed uint64, pause time.Duration, operators ...string) (stop func() (int, []error)) {
	requests := make(chan controller.Scale)
	o.Scale = requests
	rng := rand.New(rand.NewPCG(seed, 2))
	quit, n := make(chan struct{}), 0
	var refused []error
	var asking sync.WaitGroup
	asking.Go(func() {
		answer := make(chan error, 1)
		for range mostScales {
			select {
			case <-quit:
				return
			case <-time.After(time.Duration(rng.Int64N(int64(pause)))):
			}
			s := controller.Scale{
				Operator: operators[rng.IntN(len(operators))], Workers: 1 + rng.IntN(4), Done: func(err error) { answer <- err },
			}
			select {
			case <-quit:
				return
			case requests <- s:
			}
			select {
			case err := <-answer:
				if err == nil {
					n++
				} else {
					refused = append(refused, err)
				}
			case <-quit:
				return
			}
		}
	})
	return func() (int, []error) {
		close(quit)
		asking.Wait()
		return n, refused
	}
}

// patience is how long a job may take before it is taken to hang.
const patience = 30 * time.Second

// dripping is a source of numbers that yields few at a time, so that few are in flight.
type dripping struct{ numbers }

func newDripping(n uint64) stream.NewSource[uint64] {
	return func(part, parts int) (stream.Source[uint64], error) {
		return &dripping{numbers{n: n, parts: uint64(parts), part: uint64(part)}}, nil
	}
}

func (d *dripping) Read(dst []uint64) (int, error) {
	return d.numbers.Read(dst[:min(len(dst), 1+int(d.at*7%13))])
}

// bag counts how often each number came: a state under the Count norm, backed up element by element.
type bag struct {
	has   map[uint64]uint64
	fresh []uint64
}

func newBag() *bag { return &bag{has: map[uint64]uint64{}} }

// item is a number and how often it came.
type item struct{ ID, Count uint64 }

func (b *bag) Process(id uint64, _ *stream.Emitter[item]) error {
	b.has[id]++
	b.fresh = append(b.fresh, id)
	return nil
}

func (b *bag) CloseWindow(w stream.Window, out *stream.Emitter[item]) error {
	ids := make([]uint64, 0, len(b.has))
	for id := range b.has {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		out.Emit(item{ID: id, Count: b.has[id]})
	}
	if !w.Last {
		clear(b.has)
		b.fresh = b.fresh[:0]
	}
	return nil
}

func (b *bag) StateDivergence() float64 { return float64(len(b.fresh)) }
func (b *bag) Measure() stream.Measure {
	return stream.Measure{Alpha: 1, Norm: errorbound.Count, Combine: errorbound.Added}
}

func (b *bag) BackupState(w *stream.StateWriter) error {
	if w.Whole() {
		for id, n := range b.has {
			w.PutUint64(id, n)
		}
	} else {
		for _, id := range b.fresh {
			w.PutUint64(id, b.has[id])
		}
	}
	b.fresh = b.fresh[:0]
	return nil
}

func (b *bag) RestoreState(r *stream.StateReader) error {
	for r.Next() {
		id, n, err := r.Uint64()
		if err != nil {
			return err
		}
		b.has[id] = n
	}
	return r.Err()
}

// merging is a bag whose partitions are added up downstream.
type merging struct{ *bag }

func newMerging() merging { return merging{newBag()} }

func (m merging) MergeState(r *stream.StateReader) error {
	for r.Next() {
		id, n, err := r.Uint64()
		if err != nil {
			return err
		}
		m.has[id] += n
	}
	return r.Err()
}

// byKey is a bag each of whose numbers is in one partition only.
type byKey struct {
	*bag
	part, parts int
}

func newByKey() *byKey { return &byKey{bag: newBag()} }

func (k *byKey) Open(_ context.Context, p stream.Placement) error {
	k.part, k.parts = p.Partition, p.Partitions
	return nil
}

func (k *byKey) PartitionOf(key []byte, n int) int {
	return stream.PartitionOfUint64(le(key), n)
}

func (k *byKey) CloseWindow(w stream.Window, out *stream.Emitter[item]) error {
	for id := range k.has {
		if to := stream.PartitionOfUint64(id, k.parts); to != k.part {
			return fmt.Errorf("number %d is in partition %d of %d, not %d", id, k.part, k.parts, to)
		}
	}
	return k.bag.CloseWindow(w, out)
}

func (k *byKey) Measure() stream.Measure {
	return stream.Measure{Alpha: 1, Norm: errorbound.Count, Combine: errorbound.Disjoint}
}

func le(b []byte) (v uint64) {
	for i, x := range b {
		v |= uint64(x) << (8 * i)
	}
	return v
}

// scalableRelay is an echo that can be scaled: its state is a number that is added up.
type scalableRelay struct{ *echo }

func newScalableRelay() scalableRelay { return scalableRelay{newEcho()} }

func (s scalableRelay) MergeState(r *stream.StateReader) error {
	for r.Next() {
		s.seen += le(r.Value())
	}
	return r.Err()
}

// stage adds an operator of bags in one of the two ways.
func stage(s stream.Stream[uint64], keyed bool, opts ...stream.Option) stream.Stream[item] {
	opts = append(opts, stream.EmitOnClose())
	if keyed {
		return stream.Then(s, "bag", newByKey, append(opts, stream.HashUint64(func(v uint64) uint64 { return v }))...)
	}
	return stream.Then(s, "bag", newMerging, append(opts, stream.Shuffle())...)
}

// Without a failure every item counts once, however often the number of workers changes, and wherever.
func TestScalingCostsNothing(t *testing.T) {
	thorough.Only(t)
	t.Parallel() // it waits more than it works
	scaled := 0
	for seed := uint64(1); seed <= 12; seed++ {
		n := uint64(8000)
		o := options(50, 20, 100)
		o.Guarantee = []worker.Guarantee{worker.Approximate, worker.ErrorFree, worker.MiniBatch, worker.UpstreamBackup}[seed%4]
		o.Batch = 500
		if o.Guarantee == worker.ErrorFree { // each item waits for a commit
			n = 1500
		}
		store := backup.Store(backup.NewMemory())
		if seed%3 == 0 && o.Guarantee != worker.ErrorFree {
			var err error
			store, err = backup.OpenBadger(t.TempDir(), backup.BadgerOptions{})
			require.NoError(t, err)
		}
		o.Store = store
		topo := stream.New("scales")
		s := stream.From(topo, "source", newDripping(n), stream.Workers(2))
		operators := []string{"bag"}
		for _, name := range []string{"relay0", "relay1"}[:seed/4%3] {
			s = stream.Then(s, name, newScalableRelay, stream.Shuffle(), stream.Workers(2))
			operators = append(operators, name)
		}
		var out gather[item]
		stream.To(stage(s, seed%2 == 0, stream.Workers(2), stream.Compute(2)), "out", out.final)
		stop := scales(&o, seed, time.Millisecond, operators...)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		r, err := controller.RunLocal(ctx, topo, o)
		cancel()
		done, refused := stop()
		scaled += done
		require.NoError(t, err, "seed %d", seed)
		require.False(t, r.Interrupted, "seed %d: the job hung", seed)
		require.EqualValues(t, n, r.Items, "seed %d", seed)
		requireAllOnce(t, out.all(), n, "seed %d, %v, %d times, %v", seed, o.Guarantee, done, refused)
		layouts := map[string]bool{}
		require.NoError(t, store.Scan([]byte("s/scales/"), func(key, _ []byte) error {
			_, layout, _ := strings.Cut(strings.Split(string(key), "/")[3], ".")
			layouts[layout] = true
			return nil
		}))
		require.LessOrEqual(t, len(layouts), 2, "seed %d: old layouts are dropped: %v", seed, layouts)
		require.NoError(t, store.Close())
	}
	t.Logf("changed %d times", scaled)
	require.NotZero(t, scaled)
}

func requireAllOnce(t require.TestingT, got []item, n uint64, format string, args ...any) {
	counts := make([]uint64, n)
	for _, i := range got {
		counts[i.ID] += i.Count
	}
	for id, c := range counts {
		if c != 1 {
			require.Failf(t, "not once", "number %d came %d times: %s", id, c, fmt.Sprintf(format, args...))
		}
	}
}

// With failures, moves and windows the bounds hold as they do without a change: what was lost before and what may be
// lost after add up to no more.
func TestScalingThroughFailures(t *testing.T) {
	t.Parallel() // it waits more than it works
	scaled := 0
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.Uint64Range(500, 8000).Draw(rt, "items")
		relays := rapid.IntRange(0, 2).Draw(rt, "relays")
		budget := func(name string) uint64 { return rapid.SampledFrom([]uint64{0, 1, 50, 400, 3000}).Draw(rt, name) }
		o := options(float64(budget("theta")), budget("l"), budget("gamma"))
		o.Guarantee = rapid.SampledFrom([]worker.Guarantee{worker.Approximate, worker.Approximate, worker.ErrorFree, worker.MiniBatch, worker.UpstreamBackup}).Draw(rt, "guarantee")
		o.Batch = rapid.SampledFrom([]uint64{50, 400, 3000}).Draw(rt, "batch")
		o.Series = rapid.SampledFrom([]errorbound.Series{errorbound.Geometric, errorbound.Telescoping}).Draw(rt, "series")
		if o.Guarantee == worker.ErrorFree {
			o.Theta, o.L, o.Gamma = 0, 0, 1
			n = min(n, 2000)
		}
		var windows []stream.Option
		switch rapid.IntRange(0, 2).Draw(rt, "windows") {
		case 1:
			windows = append(windows, stream.WindowItems(rapid.SampledFrom([]uint64{7, 100, 2500}).Draw(rt, "window")))
		case 2:
			windows = append(windows, stream.WindowTime(rapid.SampledFrom([]time.Duration{20, 300, 3000}).Draw(rt, "size")*time.Millisecond, byTime))
		}
		topo := stream.New("scaled")
		s := stream.From(topo, "source", newDripping(n), append(windows, stream.Workers(rapid.IntRange(1, 2).Draw(rt, "sources")))...)
		operators := []string{"bag"}
		for _, name := range []string{"relay0", "relay1"}[:relays] {
			s = stream.Then(s, name, newScalableRelay, route(rt), stream.Workers(rapid.IntRange(1, 2).Draw(rt, "relay workers")))
			operators = append(operators, name)
		}
		var out gather[item]
		kept := stage(s, rapid.Bool().Draw(rt, "keyed"), stream.Workers(rapid.IntRange(1, 3).Draw(rt, "workers")),
			stream.Compute(rapid.IntRange(1, 2).Draw(rt, "compute")))
		stream.To(kept, "out", out.sink)
		nodes, err := topo.Build()
		require.NoError(rt, err)
		o.Faults = controller.RandomFaults(nodes, rapid.IntRange(0, 3).Draw(rt, "failures"), rapid.Uint64().Draw(rt, "seed"))
		if rapid.Bool().Draw(rt, "forgetful") {
			o.Forgetful()
		}
		kill := o.Kills(rapid.Uint64().Draw(rt, "kills seed"), rapid.IntRange(0, 4).Draw(rt, "kills"), 6*time.Millisecond)
		defer move(rt, &o)()
		stop := scales(&o, rapid.Uint64().Draw(rt, "scale seed"), rapid.SampledFrom([]time.Duration{time.Millisecond, 8 * time.Millisecond}).Draw(rt, "pause"), operators...)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		var log bytes.Buffer
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		r, err := controller.RunLocal(ctx, topo, o)
		done, refused := stop()
		if r.Interrupted || err != nil {
			t.Logf("%v\n%s", err, log.String()) // not to rt, which runs it again
		}
		kill()
		scaled += done
		rt.Logf("changed %d times, %v; %v: %+v", done, refused, o.Faults, r.Failures)
		require.NoError(rt, err)
		require.False(rt, r.Interrupted, "the job hung")
		require.EqualValues(rt, n, r.Items)
		checkScaled(rt, o, r, n, uint64(relays), out.all())
	})
	t.Logf("changed %d times", scaled)
	require.NotZero(t, scaled)
}

func checkScaled(rt *rapid.T, o controller.Options, r *controller.Result, n, relays uint64, got []item) {
	counts := make([]uint64, n)
	for _, i := range got {
		counts[i.ID] += i.Count
	}
	lost, again := uint64(0), uint64(0)
	for _, c := range counts {
		if c == 0 {
			lost++
		} else {
			again += c - 1
		}
	}
	slack := 16 * uint64(len(r.Failures)) // see check
	lostBound, againBound := uint64(0), uint64(0)
	switch o.Guarantee {
	case worker.Approximate, worker.ErrorFree:
		lostBound = uint64(o.Theta)
		if relays > 0 {
			lostBound += o.L + relays*(o.Gamma+o.L) + slack
			againBound = relays*o.L + slack
		}
	default:
		if relays > 0 {
			againBound = 2 * o.Batch * 16 * uint64(len(r.Failures))
		}
	}
	if len(r.Failures) == 0 {
		lostBound, againBound = 0, 0
	}
	require.LessOrEqual(rt, lost, lostBound, "lost")
	require.LessOrEqual(rt, again, againBound+sinkAgain(r, got), "twice")
}

// sinkAgain is what the sink may have been given twice.
func sinkAgain(r *controller.Result, got []item) uint64 {
	for _, f := range r.Failures {
		if f.Operator == "out" {
			return uint64(len(got)) // everything that it flushed since its last commit
		}
	}
	return 0
}

// ask runs a job and asks once, at once, for n workers of an operator. It returns the answer.
func ask(t *testing.T, topo *stream.Topology, o controller.Options, operator string, n int) error {
	requests, answer := make(chan controller.Scale, 1), make(chan error, 1)
	requests <- controller.Scale{Operator: operator, Workers: n, Done: func(err error) { answer <- err }}
	o.Scale = requests
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := controller.RunLocal(ctx, topo, o)
	require.NoError(t, err)
	require.False(t, r.Interrupted, "the job hung")
	return <-answer
}

func TestScalingRefused(t *testing.T) {
	simple := func() (*stream.Topology, *gather[item]) {
		var out gather[item]
		topo := stream.New("refused")
		s := stream.From(topo, "source", newDripping(20_000))
		echoed := stream.Then(s, "echo", newEcho)
		stream.To(stage(echoed, false, stream.Workers(2)), "out", out.sink)
		return topo, &out
	}
	for name, c := range map[string]struct {
		change   func(o *controller.Options)
		operator string
		workers  int
		want     string
	}{
		"nobody":      {func(*controller.Options) {}, "nobody", 2, `there is no operator "nobody"`},
		"none":        {func(*controller.Options) {}, "bag", 0, `operator "bag" needs at least one worker`},
		"the same":    {func(*controller.Options) {}, "bag", 2, `operator "bag" has 2 workers already`},
		"a source":    {func(*controller.Options) {}, "source", 2, "a source has as many partitions as its input"},
		"a sink":      {func(*controller.Options) {}, "out", 2, "a sink has as many partitions as its result"},
		"no ability":  {func(*controller.Options) {}, "echo", 2, "*controller_test.echo has neither MergeState"},
		"a pipe":      {func(o *controller.Options) { o.PipeSources = true }, "bag", 3, "source/0: worker cannot come to rest without loss: its input is read like a pipe"},
		"no backups":  {func(o *controller.Options) { o.Guarantee = worker.None }, "bag", 3, "the job makes no backups"},
		"theta moves": {func(o *controller.Options) { o.Allocate = controller.ByCost }, "bag", 3, "run the job with the equal allocation"},
	} {
		topo, out := simple()
		o := options(50, 20, 100)
		c.change(&o)
		err := ask(t, topo, o, c.operator, c.workers)
		require.ErrorIs(t, err, controller.ErrScale, name)
		require.ErrorContains(t, err, c.want, name)
		requireAllOnce(t, out.all(), 20_000, "%s", name)
	}
}

// A sink that only its Close makes safe cannot come to rest once it has been given something: the job goes on as it is.
func TestScalingGivenUp(t *testing.T) {
	var out gather[item]
	var all gather[uint64]
	topo := stream.New("given-up")
	s := stream.From(topo, "source", newDripping(40_000))
	stream.To(s, "all", all.final)
	stream.To(stage(s, true, stream.Workers(2)), "out", out.sink)
	requests, answer := make(chan controller.Scale, 1), make(chan error, 1)
	o := options(50, 20, 100)
	o.Scale = requests
	var once sync.Once
	o.OnProgress = func(done, _ int64) {
		if done > 1000 {
			once.Do(func() {
				requests <- controller.Scale{Operator: "bag", Workers: 3, Done: func(err error) { answer <- err }}
			})
		}
	}
	_, err := controller.RunLocal(t.Context(), topo, o)
	require.NoError(t, err)
	require.ErrorContains(t, <-answer, "all/0: worker cannot come to rest without loss: a sink without Flush has been given items")
	requireAllOnce(t, out.all(), 40_000, "given up")
	require.Len(t, all.all(), 40_000)
}

// What failures have spent before a change is not spent again after it.
func TestScalingKeepsWhatIsSpent(t *testing.T) {
	o := options(120, 0, 100)
	o.Faults = []controller.Fault{{Operator: "bag", Worker: 1, Items: 200}, {Operator: "bag", Worker: 1, Items: 400}}
	var thetas []float64
	o.Thetas("bag", func(workers int, theta float64) { thetas = append(thetas, theta*float64(workers)) })
	requests := make(chan controller.Scale, 1)
	o.Scale = requests
	failed := 0
	o.OnEvent = func(e controller.Event) {
		if failed++; e.Recovered && failed == 4 {
			requests <- controller.Scale{Operator: "bag", Workers: 3}
		}
	}
	var out gather[item]
	topo := stream.New("spent")
	stream.To(stage(stream.From(topo, "source", newDripping(20_000)), false, stream.Workers(2)), "out", out.sink)
	r, err := controller.RunLocal(t.Context(), topo, o)
	require.NoError(t, err)
	require.Len(t, r.Failures, 2)
	require.InDeltaSlice(t, []float64{60, 60, 15, 15, 15}, thetas, 1e-9, "a_0 of each of two, then a_2 of each of three")
	nodes, err := topo.Build()
	require.NoError(t, err)
	require.Equal(t, 2, nodes[1].Workers, "the topology is the caller's")
}
