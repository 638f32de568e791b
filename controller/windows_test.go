package controller_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/stream"
)

// windowCount is how many items one window had, in one partition or in all.
type windowCount struct {
	Window uint64
	Count  uint64
	Last   bool
}

// tumbling counts the items of each window: a plain state that starts afresh after every close.
type tumbling struct{ sums }

func newTumbling() *tumbling { return &tumbling{} }

func (c *tumbling) Process(in uint64, _ *stream.Emitter[windowCount]) error {
	return c.sums.Process(in, nil)
}

func (c *tumbling) CloseWindow(w stream.Window, out *stream.Emitter[windowCount]) error {
	out.Emit(windowCount{Window: w.Number, Count: total([][8]uint64{c.counts}), Last: w.Last})
	c.sums = sums{}
	return nil
}

// adding adds up the counts of all partitions, with an exact state.
type adding struct{ sum uint64 }

func newAdding() *adding { return &adding{} }

func (a *adding) Process(in windowCount, _ *stream.Emitter[windowCount]) error {
	a.sum += in.Count
	return nil
}

func (a *adding) CloseWindow(w stream.Window, out *stream.Emitter[windowCount]) error {
	out.Emit(windowCount{Window: w.Number, Count: a.sum, Last: w.Last})
	a.sum = 0
	return nil
}

func (a *adding) BackupState(w *stream.StateWriter) error {
	w.PutUint64(0, a.sum)
	return nil
}

func (a *adding) RestoreState(r *stream.StateReader) error {
	for r.Next() {
		_, sum, err := r.Uint64()
		if err != nil {
			return err
		}
		a.sum = sum
	}
	return r.Err()
}

// windowed is source -> count -> add -> out, with any number of relays behind the source.
func windowed(n uint64, workers, relays int, out *gather[windowCount], windows ...stream.Option) *stream.Topology {
	t := stream.New("windowed")
	s := stream.From(t, "source", newNumbers(n), append(windows, stream.Workers(2))...)
	for i := range relays {
		s = stream.Then(s, []string{"relay0", "relay1"}[i], newRelay, stream.Workers(2), stream.Forget(1))
	}
	counts := stream.Then(s, "count", newTumbling, stream.EmitOnClose(), stream.Workers(workers), stream.Compute(2), stream.Forget(1))
	added := stream.Then(counts, "add", newAdding, stream.EmitOnClose())
	stream.To(added, "out", out.sink)
	return t
}

func byTime(v uint64) time.Time { return time.UnixMilli(int64(v) - 5000) }

// Every window comes out once, in order, through any failures; with a source that can go back it is complete.
func TestWindows(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.Uint64Range(1, 30_000).Draw(rt, "items")
		timed := rapid.Bool().Draw(rt, "timed")
		relays := rapid.IntRange(0, 2).Draw(rt, "relays")
		option := stream.WindowItems(500)
		if timed {
			option = stream.WindowTime(time.Second, byTime)
		}
		var out gather[windowCount]
		topo := windowed(n, rapid.IntRange(1, 2).Draw(rt, "workers"), relays, &out, option)
		nodes, err := topo.Build()
		require.NoError(rt, err)
		o := options(float64(rapid.SampledFrom([]uint64{0, 20, 1000}).Draw(rt, "theta")), rapid.SampledFrom([]uint64{0, 10, 500}).Draw(rt, "l"), 300)
		o.PipeSources = rapid.Bool().Draw(rt, "pipe")
		if n > 1 {
			o.Faults = controller.RandomFaults(nodes, rapid.IntRange(0, 6).Draw(rt, "failures"), rapid.Uint64().Draw(rt, "seed"))
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		defer move(rt, &o)()
		r, err := controller.RunLocal(ctx, topo, o)
		require.NoError(rt, err)
		rt.Logf("%v: %+v", o.Faults, r.Failures)
		require.False(rt, r.Interrupted)
		checkWindows(rt, out.all(), n, timed, relays == 0 && !o.PipeSources)
		if len(r.Failures) == 0 {
			checkWindows(rt, out.all(), n, timed, true)
		}
	})
}

func checkWindows(rt *rapid.T, got []windowCount, n uint64, timed, exact bool) {
	rt.Logf("%+v", got)
	got = slices.Compact(got) // a sink that flushes may be given again what it flushed last
	sum := uint64(0)
	for i, w := range got {
		sum += w.Count
		require.Equal(rt, i == len(got)-1, w.Last, "%+v", got)
		require.True(rt, i == 0 || w.Window > got[i-1].Window, "%+v", got)
		if !exact {
			continue
		}
		want := uint64(1000) // two partitions of 500, or a thousand milliseconds
		if w.Last {
			want = min(w.Count, 1000)
		}
		require.Equal(rt, want, w.Count, "window %d of %+v", w.Window, got)
		if timed {
			start := stream.WindowStart(w.Window, time.Second)
			require.Equal(rt, byTime(uint64(i)*1000), start.Local())
		}
	}
	if exact {
		require.Equal(rt, n, sum)
	}
	require.LessOrEqual(rt, sum, n+3000)
}

// Failures are forgotten with the window they struck in: the budget of later incarnations does not shrink.
func TestBudgetsRiseAgainWhenWindowsForget(t *testing.T) {
	for _, forget := range []stream.Option{stream.Forget(1), stream.Decaying()} {
		topo := stream.New("forgetting")
		s := stream.From(topo, "source", newNumbers(40_000), stream.WindowItems(2000))
		c := stream.Then(s, "count", newTumbling, stream.EmitOnClose(), forget)
		var out gather[windowCount]
		stream.To(c, "out", out.sink)
		o := options(64, 64, 64)
		for i := range uint64(10) {
			o.Faults = append(o.Faults, controller.Fault{Operator: "count", Items: 1000 + 4000*i})
		}
		r, err := controller.RunLocal(context.Background(), topo, o)
		require.NoError(t, err)
		require.Len(t, r.Failures, 10)
		for _, f := range r.Failures[1:] {
			require.GreaterOrEqual(t, f.DivergenceBudget, 16.0, "at most one failure counts at a time")
		}
		require.Len(t, out.all(), 20)
	}
}

// late is a partition of numbers that yields nothing before another one has come far.
type late struct {
	numbers
	far    uint64
	others chan struct{}
}

func (l *late) Read(dst []uint64) (int, error) {
	if l.part == 1 {
		<-l.others
		return l.numbers.Read(dst)
	}
	before := l.at
	n, err := l.numbers.Read(dst)
	if before < l.far && l.at >= l.far {
		close(l.others)
	}
	return n, err
}

// A partition whose windows are far ahead of another's, of the same worker, does not keep the other's ends from
// arriving.
func TestWindowsFarAhead(t *testing.T) {
	for _, pipe := range []bool{false, true} {
		far := uint64(1000)
		if pipe {
			far = 20_000
		}
		others := make(chan struct{})
		var out gather[windowCount]
		topo := stream.New("ahead")
		s := stream.From(topo, "source", func(part, parts int) (stream.Source[uint64], error) {
			return &late{numbers: numbers{n: 100_000, parts: uint64(parts), part: uint64(part)}, far: far, others: others}, nil
		}, stream.Compute(2), stream.WindowItems(500))
		c := stream.Then(s, "count", newTumbling, stream.EmitOnClose())
		stream.To(c, "out", out.sink)
		o := options(64, 64, 100_000)
		o.PipeSources = pipe
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r, err := controller.RunLocal(ctx, topo, o)
		require.NoError(t, err)
		require.False(t, r.Interrupted, "the job hung")
		require.Len(t, out.all(), 100)
		for _, w := range out.all() {
			require.EqualValues(t, 1000, w.Count)
		}
	}
}

// keyed is a plain state of keys with partial backups, emptied at closes, which its divergence does not count.
type keyed struct {
	counts map[uint64]uint64
	dirty  map[uint64]bool
}

func newKeyed() *keyed { return &keyed{counts: map[uint64]uint64{}, dirty: map[uint64]bool{}} }

func (k *keyed) Process(in uint64, _ *stream.Emitter[windowCount]) error {
	k.counts[in]++
	k.dirty[in] = true
	return nil
}

func (k *keyed) CloseWindow(w stream.Window, out *stream.Emitter[windowCount]) error {
	var n uint64
	for _, c := range k.counts {
		n += c
	}
	out.Emit(windowCount{Window: w.Number, Count: n, Last: w.Last})
	clear(k.counts)
	clear(k.dirty)
	return nil
}

func (k *keyed) StateDivergence() float64 { return float64(len(k.dirty)) }
func (k *keyed) Measure() stream.Measure  { return stream.Measure{Alpha: 1} }

func (k *keyed) BackupState(w *stream.StateWriter) error {
	for key, c := range k.counts {
		if w.Whole() || k.dirty[key] {
			w.PutUint64(key, c)
		}
	}
	clear(k.dirty)
	return nil
}

func (k *keyed) RestoreState(r *stream.StateReader) error {
	for r.Next() {
		key, c, err := r.Uint64()
		if err != nil {
			return err
		}
		k.counts[key] = c
	}
	return r.Err()
}

// The first backup after a close holds the whole state: the close has changed what no divergence tells.
func TestStatesEmptiedAtClosesStayEmpty(t *testing.T) {
	for at := uint64(2100); at < 10_000; at += 700 {
		var out gather[windowCount]
		topo := stream.New("emptied")
		s := stream.From(topo, "source", newNumbers(10_000), stream.WindowItems(2000))
		c := stream.Then(s, "count", newKeyed, stream.EmitOnClose())
		stream.To(c, "out", out.sink)
		o := options(200, 64, 64)
		o.Faults = []controller.Fault{{Operator: "count", Items: at}}
		_, err := controller.RunLocal(context.Background(), topo, o)
		require.NoError(t, err)
		require.Len(t, out.all(), 5)
		for _, w := range out.all() {
			require.EqualValues(t, 2000, w.Count, "failure at %d", at)
		}
	}
}

// One receiver fails while another waits for the sink to commit its last close, which waits for the first: the source
// has to go back many windows for the first, and what it repeats of the other must not stand in its way.
func TestGoingBackManyWindowsPastAReceiverThatWaits(t *testing.T) {
	for i := range uint64(5) {
		var out gather[[8]uint64]
		topo := stream.New("past")
		s := stream.From(topo, "source", newNumbers(30_000), stream.WindowItems(100))
		c := stream.Then(s, "sums", newSums, stream.EmitOnClose(), stream.Workers(2),
			stream.HashUint64(func(v uint64) uint64 { return v }))
		stream.To(c, "out", out.sink)
		o := options(20, 100, 100)
		for k, items := range []uint64{5000, 9000, 13_000} {
			o.Faults = append(o.Faults, controller.Fault{Operator: "sums", Worker: k % 2, Items: items + 777*i})
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r, err := controller.RunLocal(ctx, topo, o)
		require.NoError(t, err)
		require.False(t, r.Interrupted, "the job hung")
	}
}

// uneven does not let its second partition go on before the first has come far.
type uneven struct {
	tumbling
	part, seen int
	far        chan struct{}
}

func (u *uneven) Open(_ context.Context, p stream.Placement) error {
	u.part = p.Partition
	return nil
}

func (u *uneven) Process(in uint64, out *stream.Emitter[windowCount]) error {
	u.seen++
	switch {
	case u.part == 0 && u.seen == 10_000+15:
		close(u.far) // in the second window, its theta about to be reached
	case u.part == 1 && u.seen == 9000:
		<-u.far
	}
	return u.tumbling.Process(in, out)
}

// The source is blocked by the receiver that waits when the other asks it to go back.
func TestGoingBackWhileAReceiverThatWaitsBlocksTheSource(t *testing.T) {
	far := make(chan struct{})
	var out gather[windowCount]
	topo := stream.New("blocked")
	s := stream.From(topo, "source", newNumbers(200_000), stream.WindowItems(20_000))
	c := stream.Then(s, "sums", func() *uneven { return &uneven{far: far} }, stream.EmitOnClose(), stream.Workers(2))
	stream.To(c, "out", out.sink)
	o := options(20, 100, 100)
	o.Faults = []controller.Fault{{Operator: "sums", Worker: 1, Items: 9500}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := controller.RunLocal(ctx, topo, o)
	require.NoError(t, err)
	require.False(t, r.Interrupted, "the job hung")
	require.Len(t, r.Failures, 1)
}
