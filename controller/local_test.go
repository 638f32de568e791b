package controller_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

func TestMain(m *testing.M) {
	thorough.Rapid(15)
	goleak.VerifyTestMain(m)
}

// numbers is a source of the numbers 0 to n-1, split over its partitions in turns.
type numbers struct {
	n, parts, part, at uint64
}

func newNumbers(n uint64) stream.NewSource[uint64] {
	return func(part, parts int) (stream.Source[uint64], error) {
		return &numbers{n: n, parts: uint64(parts), part: uint64(part)}, nil
	}
}

func (s *numbers) Read(dst []uint64) (int, error) {
	for i := range dst {
		v := s.at*s.parts + s.part
		if v >= s.n {
			return i, io.EOF
		}
		dst[i] = v
		s.at++
	}
	return len(dst), nil
}

func (s *numbers) Close() error                  { return nil }
func (s *numbers) Position() stream.Position     { return stream.Position{Item: s.at} }
func (s *numbers) Seek(p stream.Position) error  { s.at = p.Item; return nil }
func (s *numbers) Progress() (done, total int64) { return int64(s.at), int64(s.n / s.parts) }

// sums adds up numbers by their remainder: a plain state, backed up as a whole, that diverges by one per item.
type sums struct {
	counts [8]uint64
	since  float64
}

func newSums() *sums { return &sums{} }

func (s *sums) Process(in uint64, _ *stream.Emitter[[8]uint64]) error {
	s.counts[in%8]++
	s.since++
	return nil
}

func (s *sums) CloseWindow(_ stream.Window, out *stream.Emitter[[8]uint64]) error {
	out.Emit(s.counts)
	return nil
}

func (s *sums) StateDivergence() float64 { return s.since }

func (s *sums) BackupState(w *stream.StateWriter) error {
	for i, c := range s.counts {
		w.PutUint64(uint64(i), c)
	}
	s.since = 0
	return nil
}

func (s *sums) RestoreState(r *stream.StateReader) error {
	for r.Next() {
		i, c, err := r.Uint64()
		if err != nil {
			return err
		}
		s.counts[i%8] = c
	}
	return r.Err()
}

func (s *sums) Measure() stream.Measure {
	return stream.Measure{Alpha: 1, Norm: errorbound.L1, Combine: errorbound.Added}
}

// relay emits what it gets, tagged, and counts what it emitted.
type relay struct{ seen, since uint64 }

func newRelay() *relay { return &relay{} }

func (r *relay) Process(in uint64, out *stream.Emitter[uint64]) error {
	r.seen++
	r.since++
	out.Emit(in)
	return nil
}
func (r *relay) StateDivergence() float64 { return float64(r.since) }
func (r *relay) BackupState(w *stream.StateWriter) error {
	w.Put([]byte("n"), binary.LittleEndian.AppendUint64(nil, r.seen))
	r.since = 0
	return nil
}
func (r *relay) RestoreState(s *stream.StateReader) error {
	for s.Next() {
		r.seen = binary.LittleEndian.Uint64(s.Value())
	}
	return s.Err()
}
func (r *relay) Measure() stream.Measure { return stream.Measure{Alpha: 1, Beta: 1} }

// gather collects the items of sinks: of sink what was flushed, perhaps twice if a failure followed, of final what was
// closed.
type gather[T any] struct {
	mu    sync.Mutex
	parts map[int][]T
}

func (g *gather[T]) sink(part, _ int) (stream.Sink[T], error) {
	return &gatherSink[T]{g: g, part: part}, nil
}

// final is a sink that cannot flush: the items of a partition are those of the incarnation that closed it.
func (g *gather[T]) final(part, _ int) (stream.Sink[T], error) {
	return &finalSink[T]{gatherSink[T]{g: g, part: part}}, nil
}

type finalSink[T any] struct{ kept gatherSink[T] }

func (s *finalSink[T]) Write(items []T) error { return s.kept.Write(items) }

func (s *finalSink[T]) Close() error {
	s.kept.g.mu.Lock()
	delete(s.kept.g.parts, s.kept.part)
	s.kept.g.mu.Unlock()
	return s.kept.Flush()
}

func (g *gather[T]) all() []T {
	var all []T
	for _, p := range g.parts {
		all = append(all, p...)
	}
	return all
}

type gatherSink[T any] struct {
	g     *gather[T]
	part  int
	items []T
}

func (s *gatherSink[T]) Write(items []T) error { s.items = append(s.items, items...); return nil }

// Flush makes what was written final.
func (s *gatherSink[T]) Flush() error {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	if s.g.parts == nil {
		s.g.parts = map[int][]T{}
	}
	s.g.parts[s.part] = append(s.g.parts[s.part], s.items...)
	s.items = nil
	return nil
}

func (s *gatherSink[T]) Close() error { return s.Flush() }

func total(parts [][8]uint64) uint64 {
	var n uint64
	for _, p := range parts {
		for _, c := range p {
			n += c
		}
	}
	return n
}

func options(theta float64, l, gamma uint64) controller.Options {
	return controller.Options{Params: errorbound.Params{Theta: theta, L: l, Gamma: gamma}}
}

func TestRunWithoutFailures(t *testing.T) {
	for _, pipe := range []bool{false, true} {
		for _, relays := range []bool{false, true} {
			for _, g := range []worker.Guarantee{worker.Approximate, worker.None} {
				t.Run(fmt.Sprintf("pipe=%v relay=%v %v", pipe, relays, g), func(t *testing.T) {
					const n = 100_000
					var out gather[[8]uint64]
					topo := stream.New("sums")
					src := stream.From(topo, "source", newNumbers(n), stream.Workers(2))
					if relays {
						src = stream.Then(src, "relay", newRelay, stream.Workers(2))
					}
					counts := stream.Then(src, "sums", newSums, stream.Workers(2), stream.Compute(2), stream.EmitOnClose())
					stream.To(counts, "out", out.sink)
					o := options(1000, 1000, 1000)
					o.PipeSources, o.Guarantee = pipe, g
					r, err := controller.RunLocal(context.Background(), topo, o)
					require.NoError(t, err)
					require.EqualValues(t, n, r.Items)
					require.Len(t, out.all(), 4)
					require.EqualValues(t, n, total(out.all()))
				})
			}
		}
	}
}

// Pinned goroutines do the same work.
func TestPin(t *testing.T) {
	var out gather[[8]uint64]
	o := options(100, 100, 100)
	o.Pin = true
	_, err := controller.RunLocal(context.Background(), sumsTopology(50_000, 2, &out), o)
	require.NoError(t, err)
	require.EqualValues(t, 50_000, total(out.all()))
}

// Parts of a budget bound the thresholds of each operator.
func TestBudgets(t *testing.T) {
	topo := stream.New("parts")
	s := stream.From(topo, "source", newNumbers(1000))
	r := stream.Then(s, "relay", newRelay, stream.Budget(errorbound.StageShare(1, 2, 1)))
	c := stream.Then(r, "sums", newSums, stream.EmitOnClose(), stream.Budget(errorbound.StageShare(2, 2, 1)))
	stream.To(c, "out", (&gather[[8]uint64]{}).sink)
	result, err := controller.RunLocal(context.Background(), topo, options(1000, 800, 400))
	require.NoError(t, err)
	for _, op := range result.Operators[1:3] {
		require.EqualValues(t, []float64{250, 200, 100}, []float64{op.Theta, float64(op.L), float64(op.Gamma)}, op.Name)
	}
}

// The guarantees without an error have none, whatever fails.
func TestExactGuarantees(t *testing.T) {
	for _, g := range []worker.Guarantee{worker.ErrorFree, worker.MiniBatch} {
		for seed := range uint64(thorough.Number(2, 5)) {
			const n = 30_000
			var out gather[[8]uint64]
			topo := sumsTopology(n, 2, &out)
			nodes, err := topo.Build()
			require.NoError(t, err)
			o := controller.Options{Guarantee: g, Batch: 700, PipeSources: g == worker.ErrorFree && seed%2 == 0}
			o.Faults = controller.RandomFaults(nodes, 5, seed)
			if o.PipeSources { // what a pipe's reader loses between two items is lost
				o.Faults = slices.DeleteFunc(o.Faults, func(f controller.Fault) bool { return f.Operator == "source" })
			}
			_, err = controller.RunLocal(context.Background(), topo, o)
			require.NoError(t, err)
			require.EqualValues(t, n, total(out.all()), "%v, seed %d", g, seed)
		}
	}
}

func TestRunThroughFailures(t *testing.T) {
	for _, pipe := range []bool{false, true} {
		for _, relays := range []bool{false, true} {
			t.Run(fmt.Sprintf("pipe=%v relay=%v", pipe, relays), func(t *testing.T) {
				const n = 200_000
				var out gather[[8]uint64]
				topo := stream.New("sums")
				src := stream.From(topo, "source", newNumbers(n), stream.Workers(2))
				if relays {
					src = stream.Then(src, "relay", newRelay, stream.Workers(2))
				}
				counts := stream.Then(src, "sums", newSums, stream.Workers(2), stream.Compute(2), stream.EmitOnClose())
				stream.To(counts, "out", out.sink)
				o := options(1000, 1000, 1000)
				o.PipeSources = pipe
				nodes, err := topo.Build()
				require.NoError(t, err)
				o.Faults = controller.RandomFaults(nodes, 5, 7)
				r, err := controller.RunLocal(context.Background(), topo, o)
				require.NoError(t, err)
				t.Log(r.Failures, r.Operators)
				require.Len(t, out.all(), 4)
				require.InDelta(t, n, float64(total(out.all())), 1000+1000+2000+2000)
				require.False(t, math.IsNaN(r.Seconds))
			})
		}
	}
}
