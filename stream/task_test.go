package stream

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// build returns the named node of a topology.
func build(t *testing.T, top *Topology, name string) *Node {
	t.Helper()
	nodes, err := top.Build()
	require.NoError(t, err)
	for _, n := range nodes {
		if n.Name == name {
			return n
		}
	}
	require.FailNow(t, "no such operator", name)
	return nil
}

// taskOf makes partition 0 of n and returns it with what it emits.
func taskOf(t *testing.T, n *Node, grant func(int64) int64) (Task, *recorder[uint64]) {
	t.Helper()
	r := newRecorder[uint64](t, grant)
	task, err := n.NewTask(0, r)
	require.NoError(t, err)
	r.open = task.Buffered
	return task, r
}

func slabOf[T any](items ...T) Slab {
	b := &batch[T]{items: items, codec: newCodec[T]()}
	b.refs.Store(1)
	return b
}

var errOdd = errors.New("odd")

// halves emits half of even numbers and fails at odd ones.
type halves struct{}

func (halves) Process(x uint64, out *Emitter[uint64]) error {
	if x%2 == 1 {
		return errOdd
	}
	out.Emit(x / 2)
	return nil
}

func withOperator[Op Operator[uint64, uint64]](newOperator func() Op, opts ...Option) *Topology {
	top := New("job")
	To(Then(From(top, "in", noSource[uint64]), "op", newOperator, opts...), "out", noSink[uint64])
	return top
}

// The items asked for are processed, in order, up to the first error.
func TestOperatorTask(t *testing.T) {
	task, r := taskOf(t, build(t, withOperator(func() halves { return halves{} }), "op"), unlimited)
	require.NoError(t, task.Process(0, slabOf[uint64](1, 2, 4, 6, 8, 1), 1, 4))
	require.Equal(t, 3, task.Buffered())
	require.ErrorIs(t, task.Process(0, slabOf[uint64](10, 3, 12), 0, 3), errOdd)
	require.NoError(t, task.CloseWindow(Window{Number: 1, Last: true}), "nothing to close")
	task.Flush()
	require.Zero(t, task.Buffered())
	require.Equal(t, []uint64{1, 2, 3, 5}, r.items[channel{0, 0}])
	require.Equal(t, halves{}, task.Operator())
	task.Resume([]uint64{4})
	require.NoError(t, task.Process(0, slabOf[uint64](14), 0, 1))
	task.Flush()
	require.Equal(t, []uint64{1, 2, 3, 5, 7}, r.items[channel{0, 0}])
}

// runs emits the length of every run it is given.
type runs struct{ halves }

func (runs) ProcessBatch(in []uint64, out *Emitter[uint64]) error {
	out.Emit(uint64(len(in)))
	if len(in) > 3 {
		return errOdd
	}
	return nil
}

func TestBatchOperatorTakesRuns(t *testing.T) {
	task, r := taskOf(t, build(t, withOperator(func() runs { return runs{} }), "op"), unlimited)
	s := slabOf[uint64](1, 3, 5, 7, 9)
	require.NoError(t, task.Process(0, s, 0, 2))
	require.NoError(t, task.Process(0, s, 2, 5))
	require.ErrorIs(t, task.Process(0, s, 0, 5), errOdd)
	task.Flush()
	require.Equal(t, []uint64{2, 3, 5}, r.items[channel{0, 0}])
}

// meter diverges by what its items say.
type meter struct {
	reading float64
}

func (m *meter) Process(x uint64, out *Emitter[uint64]) error {
	if x == 1 {
		return errOdd
	}
	m.reading += float64(x)
	out.Emit(x)
	return nil
}

func (m *meter) StateDivergence() float64 { return m.reading }
func (m *meter) BackupState(*StateWriter) error {
	return nil
}
func (m *meter) RestoreState(*StateReader) error { return nil }

// meters is a meter that takes batches.
type meters struct{ meter }

func (m *meters) ProcessBatch(in []uint64, out *Emitter[uint64]) error {
	for _, x := range in {
		if err := m.Process(x, out); err != nil {
			return err
		}
	}
	return nil
}

// Items are handed over one by one until the divergence is above a limit, or is none.
func TestProcessUntil(t *testing.T) {
	one, _ := taskOf(t, build(t, withOperator(func() *meter { return &meter{} }), "op"), unlimited)
	many, _ := taskOf(t, build(t, withOperator(func() *meters { return &meters{} }), "op"), unlimited)
	for _, task := range []Task{one, many} {
		reading := map[Task]*float64{}
		switch op := task.Operator().(type) {
		case *meter:
			reading[task] = &op.reading
		case *meters:
			reading[task] = &op.reading
		}
		s := slabOf[uint64](4, 4, 4, 4, 100, 4, 1, 4)
		alpha := 0.0
		until := func(from, to int, start, most float64) int {
			*reading[task] = start
			n, err := task.ProcessUntil(0, s, from, to, most, alpha)
			require.NoError(t, err)
			return n
		}
		require.True(t, task.Steps())
		require.Equal(t, 4, until(0, 4, 0, 1000), "all that were asked for")
		require.Equal(t, 3, until(0, 4, 0, 8), "up to the limit, and one more")
		require.Equal(t, 1, until(1, 4, 50, 8), "at least one")
		require.Equal(t, 1, until(0, 4, math.NaN(), 1000))
		require.Equal(t, 1, until(0, 4, -7, 1000), "a distance cannot be negative")
		n, err := task.ProcessUntil(0, s, 5, 8, 1000, 0)
		require.ErrorIs(t, err, errOdd)
		require.Equal(t, 2, n)
		for i, want := range []int{3, 3, 3, 3, 4} { // runs as long as alpha allows, looks between them
			alpha = []float64{100, 8, 4, 3, 1}[i] // 1 is too small, so more comes in than may
			require.Equal(t, want, until(0, 4, 0, 8), "alpha %v", alpha)
		}
	}
	plain, _ := taskOf(t, build(t, withOperator(func() halves { return halves{} }), "op"), unlimited)
	require.False(t, plain.Steps())
}

// sides marks what comes from the right, and closes with the number of the window.
type sides struct{}

func (sides) ProcessLeft(x string, out *Emitter[uint64]) error {
	if x == "" {
		return errOdd
	}
	out.Emit(uint64(len(x)))
	return nil
}

func (sides) ProcessRight(x uint64, out *Emitter[uint64]) error {
	if x == 0 {
		return errOdd
	}
	out.Emit(100 + x)
	return nil
}

func (sides) CloseWindow(w Window, out *Emitter[uint64]) error { out.Emit(1000 + w.Number); return nil }

// The port says which side items come from, also if both sides carry the same type.
func TestJoinTaskPorts(t *testing.T) {
	top := New("job")
	left, right := From(top, "left", noSource[string]), From(top, "right", noSource[uint64])
	To(Join(left, right, "op", func() sides { return sides{} }, nil, nil), "out", noSink[uint64])
	n := build(t, top, "op")
	require.Equal(t, []string{"left", "right"}, []string{n.Inputs[0].From.Name, n.Inputs[1].From.Name})
	task, r := taskOf(t, n, unlimited)
	require.NoError(t, task.Process(n.Inputs[1].Port, slabOf[uint64](0, 7, 8), 1, 3))
	require.NoError(t, task.Process(n.Inputs[0].Port, slabOf("abc", "de", ""), 0, 2))
	require.ErrorIs(t, task.Process(n.Inputs[0].Port, slabOf("abc", ""), 1, 2), errOdd)
	require.ErrorIs(t, task.Process(n.Inputs[1].Port, slabOf[uint64](0), 0, 1), errOdd)
	require.Equal(t, 4, task.Buffered())
	require.NoError(t, task.CloseWindow(Window{Number: 3}))
	task.Flush()
	require.Equal(t, []uint64{107, 108, 3, 2, 1003}, r.items[channel{0, 0}])
	require.Equal(t, sides{}, task.Operator())
	task.Resume([]uint64{5})
	require.Zero(t, task.Buffered())
}

// hasty emits before its time.
type hasty struct{ closing }

func (hasty) Process(x uint64, out *Emitter[uint64]) error { out.Emit(x); return nil }

// An EmitOnClose operator that emits elsewhere is found out before anything is sent, before its first close and after.
func TestEmitOnCloseIsSealed(t *testing.T) {
	task, r := taskOf(t, build(t, withOperator(func() hasty { return hasty{} }, EmitOnClose()), "op"), unlimited)
	hurry := func() { _ = task.Process(0, slabOf[uint64](1), 0, 1) }
	for window := uint64(1); window <= 2; window++ {
		require.PanicsWithError(t, errSealed.Error(), hurry)
		require.NoError(t, task.CloseWindow(Window{Number: window}))
		require.PanicsWithError(t, errSealed.Error(), hurry)
		task.Resume([]uint64{window})
	}
	require.Empty(t, r.items[channel{0, 0}], "Resume forgot what was not flushed")
	require.NoError(t, task.CloseWindow(Window{Number: 3}))
	task.Flush()
	require.Equal(t, []uint64{3}, r.items[channel{0, 0}])
}

// note is a sink that notes what happens to it.
type note struct{ calls []string }

func (n *note) Write(items []uint64) error {
	n.calls = append(n.calls, fmt.Sprint(items))
	if len(items) == 0 {
		return errOdd
	}
	return nil
}

func (n *note) Close() error { n.calls = append(n.calls, "close"); return errOdd }

// A sink is closed by the end of the stream only, not by the end of a window.
func TestSinkTask(t *testing.T) {
	top := New("job")
	var sink note
	open := func(part, parts int) (Sink[uint64], error) {
		if parts != 2 || part != 0 {
			return nil, fmt.Errorf("partition %d of %d: %w", part, parts, errOdd)
		}
		return &sink, nil
	}
	To(From(top, "in", noSource[uint64]), "out", open, Workers(2))
	n := build(t, top, "out")
	task, err := n.NewTask(0, nil)
	require.NoError(t, err)
	require.NoError(t, task.Process(0, slabOf[uint64](1, 2, 3), 1, 3))
	require.ErrorIs(t, task.Process(0, slabOf[uint64](1, 2, 3), 1, 1), errOdd)
	require.NoError(t, task.CloseWindow(Window{Number: 1}))
	task.Flush()
	task.Resume(nil)
	require.Zero(t, task.Buffered())
	require.Equal(t, []string{"[2 3]", "[]"}, sink.calls)
	require.ErrorIs(t, task.CloseWindow(Window{Number: 2, Last: true}), errOdd)
	require.Equal(t, "close", sink.calls[2])
	require.Same(t, &sink, task.Operator())
	_, err = n.NewTask(1, nil)
	require.ErrorIs(t, err, errOdd)
	require.ErrorContains(t, err, "partition 1 of 2")
}

// Items that go through an item log come back as a slab of the edge's type.
func TestEdgeDecode(t *testing.T) {
	n := sender[uint64](t, output{Shuffle(), 1})
	s := slabOf[uint64](1, 2, 3)
	wire, err := s.AppendItems(nil, 1, 3)
	require.NoError(t, err)
	back, err := n.Outputs[0].Decode(wire)
	require.NoError(t, err)
	require.Equal(t, []uint64{2, 3}, back.(*batch[uint64]).items)
	require.NotPanics(t, back.Release)
	_, err = n.Outputs[0].Decode(wire[:len(wire)-1])
	require.ErrorIs(t, err, ErrWire)
}
