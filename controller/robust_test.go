package controller_test

import (
	"context"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// More neighbours than any ring has slots.
func TestManyWorkers(t *testing.T) {
	var out gather[[8]uint64]
	topo := stream.New("wide")
	s := stream.From(topo, "source", newNumbers(10_000), stream.Workers(100))
	c := stream.Then(s, "sums", newSums, stream.EmitOnClose())
	stream.To(c, "out", out.sink)
	_, err := controller.RunLocal(context.Background(), topo, options(100, 100, 100))
	require.NoError(t, err)
	require.EqualValues(t, 10_000, total(out.all()))
}

// heavy is a state of 4 MB.
type heavy struct {
	sums
	ballast []byte
}

// Dead workers are not kept: memory does not grow with the number of failures.
func TestDeadWorkersAreForgotten(t *testing.T) {
	thorough.Only(t)
	var out gather[[8]uint64]
	topo := stream.New("heavy")
	s := stream.From(topo, "source", newNumbers(200_000))
	c := stream.Then(s, "sums", func() *heavy { return &heavy{ballast: make([]byte, 4<<20)} }, stream.EmitOnClose())
	stream.To(c, "out", out.sink)
	o := options(100, 100, 100)
	for i := range uint64(30) {
		o.Faults = append(o.Faults, controller.Fault{Operator: "sums", Items: 5000 * (i + 1)})
	}
	var live uint64
	o.OnEvent = func(e controller.Event) {
		if !e.Recovered || e.Epoch != 30 {
			return
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		live = m.HeapAlloc
	}
	_, err := controller.RunLocal(context.Background(), topo, o)
	require.NoError(t, err)
	require.Less(t, float64(live), 60e6)
}

// Items at risk may be larger than an entry of the item log, a slab of them at a time.
func TestLargeItemsAtRisk(t *testing.T) {
	item := strings.Repeat("x", 8000)
	topo := stream.New("large")
	s := stream.From(topo, "source", func(int, int) (stream.Source[string], error) { return &repeated{item: item, n: 600}, nil })
	var out gather[string]
	stream.To(s, "out", out.sink)
	o := options(1, 4, 400)
	o.PipeSources = true
	_, err := controller.RunLocal(context.Background(), topo, o)
	require.NoError(t, err)
	require.Len(t, out.all(), 600)
}

// repeated yields one item n times and counts how often it is closed.
type repeated struct {
	item   string
	n, at  int
	closed *atomic.Int64
}

func (r *repeated) Read(dst []string) (int, error) {
	for i := range dst {
		if r.at == r.n {
			return i, io.EOF
		}
		dst[i] = r.item
		r.at++
	}
	return len(dst), nil
}
func (r *repeated) Close() error {
	if r.closed != nil {
		r.closed.Add(1)
	}
	return nil
}

// rereadable is repeated that can go back.
type rereadable struct{ repeated }

func (r *rereadable) Position() stream.Position    { return stream.Position{Item: uint64(r.at)} }
func (r *rereadable) Seek(p stream.Position) error { r.at = int(p.Item); return nil }

// Every source that was opened is closed once, whatever fails.
func TestSourcesAreClosedOnce(t *testing.T) {
	for _, pipe := range []bool{false, true} {
		var opened, closed atomic.Int64
		topo := stream.New("closing")
		s := stream.From(topo, "source", func(int, int) (stream.Source[string], error) {
			opened.Add(1)
			return &rereadable{repeated{item: "x", n: 50_000, closed: &closed}}, nil
		})
		var out gather[string]
		stream.To(s, "out", out.sink)
		o := options(1, 400, 400)
		o.PipeSources = pipe
		for i := range uint64(8) {
			o.Faults = append(o.Faults, controller.Fault{Operator: "source", Items: 3000 * (i + 1)})
		}
		_, err := controller.RunLocal(context.Background(), topo, o)
		require.NoError(t, err)
		if pipe {
			require.GreaterOrEqual(t, closed.Load(), opened.Load())
		} else {
			require.Equal(t, opened.Load(), closed.Load())
			require.EqualValues(t, 9, opened.Load())
		}
	}
}

// One partition that cannot go back makes all of its source a pipe.
func TestSourcesOfTwoKinds(t *testing.T) {
	topo := stream.New("mixed")
	s := stream.From(topo, "source", func(part, _ int) (stream.Source[string], error) {
		if part == 0 {
			return &repeated{item: "pipe", n: 5000}, nil
		}
		return &rereadable{repeated{item: "file", n: 5000}}, nil
	}, stream.Compute(2))
	var out gather[string]
	stream.To(s, "out", out.sink)
	_, err := controller.RunLocal(context.Background(), topo, options(1, 400, 400))
	require.NoError(t, err)
	require.Len(t, out.all(), 10_000)
}

// stubborn is a state whose backups never make it any less divergent.
type stubborn struct{ sums }

func (s *stubborn) BackupState(w *stream.StateWriter) error {
	since := s.since
	err := s.sums.BackupState(w)
	s.since = since
	return err
}

// odd fails in user code where one does not expect it.
type odd struct {
	sums
	how string
}

func (o *odd) Open(context.Context, stream.Placement) error {
	if o.how == "open" {
		panic("no")
	}
	return nil
}

func (o *odd) Process(in uint64, out *stream.Emitter[[8]uint64]) error {
	if o.how == "exit" {
		runtime.Goexit()
	}
	return o.sums.Process(in, out)
}

func TestUserCodeThatMisbehavesFailsTheJob(t *testing.T) {
	run := func(newOperator func() stream.Operator[uint64, [8]uint64]) error {
		topo := stream.New("odd")
		s := stream.From(topo, "source", newNumbers(10_000))
		c := stream.Then(s, "odd-one", newOperator)
		stream.To(c, "out", (&gather[[8]uint64]{}).sink)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := controller.RunLocal(ctx, topo, options(10, 10, 10))
		return err
	}
	// Under the tag invariants the check of I1 finds it first.
	err := run(func() stream.Operator[uint64, [8]uint64] { return &stubborn{} })
	require.ErrorContains(t, err, "odd-one partition 0")
	for how, want := range map[string]string{"open": "odd-one is being loaded", "exit": "ended its goroutine"} {
		err := run(func() stream.Operator[uint64, [8]uint64] { return &odd{how: how} })
		require.ErrorIs(t, err, worker.ErrPanic, how)
		require.ErrorContains(t, err, want)
	}
}

// careful recovers from panics in its own Process, as careful code does, and with that catches the end of its worker.
type careful struct{ relay }

func (c *careful) Process(in uint64, out *stream.Emitter[uint64]) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errBroken
		}
	}()
	return c.relay.Process(in, out)
}

func TestKillsOfOperatorsThatRecoverFromPanics(t *testing.T) {
	topo := stream.New("careful")
	s := stream.From(topo, "source", newNumbers(20_000))
	c := stream.Then(s, "careful", func() *careful { return &careful{} })
	var out gather[uint64]
	stream.To(c, "out", out.sink)
	o := options(100, 100, 100)
	for _, share := range []float64{0.2, 0.4, 0.6, 0.8} {
		o.Faults = append(o.Faults, controller.Fault{Operator: "careful", Share: share})
	}
	r, err := controller.RunLocal(context.Background(), topo, o)
	require.NoError(t, err)
	require.Len(t, r.Failures, 4)
}
