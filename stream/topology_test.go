package stream

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// pass emits what it gets.
type pass[T any] struct{}

func (pass[T]) Process(item T, out *Emitter[T]) error { out.Emit(item); return nil }

func newPass[T any]() func() pass[T] { return func() pass[T] { return pass[T]{} } }

// both joins two streams of numbers.
type both struct{}

func (both) ProcessLeft(item uint64, out *Emitter[uint64]) error  { out.Emit(item); return nil }
func (both) ProcessRight(item uint64, out *Emitter[uint64]) error { out.Emit(item); return nil }

func newBoth() both { return both{} }

// deaf has methods with the names of abilities and other signatures.
type deaf struct{ pass[uint64] }

func (deaf) CloseWindow(Window, *Emitter[string]) error { return nil }

type deafBatch struct{ pass[uint64] }

func (deafBatch) ProcessBatch([]string, *Emitter[uint64]) error { return nil }

// closing emits at the close.
type closing struct{}

func (closing) Process(uint64, *Emitter[uint64]) error           { return nil }
func (closing) CloseWindow(w Window, out *Emitter[uint64]) error { out.Emit(w.Number); return nil }

func noSource[T any](int, int) (Source[T], error) { return nil, nil }
func noSink[T any](int, int) (Sink[T], error)     { return nil, nil }

// Each fault is found by Build, wraps ErrTopology, and names the topology and the operator.
func TestBuildFindsFaults(t *testing.T) {
	type topology = func(t *Topology)
	numbers := func(t *Topology, opts ...Option) Stream[uint64] { return From(t, "numbers", noSource[uint64], opts...) }
	for name, c := range map[string]struct {
		build topology
		want  []string
	}{
		"partitioner of another type": {func(t *Topology) {
			To(Then(numbers(t), "op", newPass[uint64](), Hash(func(s string) string { return s })), "out", noSink[uint64])
		}, []string{`"op"`, "Partitioner[string]", "uint64", `"numbers"`}},
		"partitioner of a join": {func(t *Topology) {
			words := From(t, "words", noSource[string])
			To(words, "rest", noSink[string])
			n := numbers(t)
			To(Join(n, n, "op", newBoth, nil, Hash(func(s string) string { return s })), "out", noSink[uint64])
		}, []string{`"op"`, "Partitioner[string]"}},
		"no partitioner": {func(t *Topology) {
			To(numbers(t), "out", noSink[uint64], HashUint64[uint64](nil))
		}, []string{`"out"`, "partitioner", "nil"}},
		"name used twice": {func(t *Topology) {
			To(Then(numbers(t), "numbers", newPass[uint64]()), "out", noSink[uint64])
		}, []string{`"numbers"`, "twice"}},
		"name with a slash": {func(t *Topology) { To(numbers(t), "out/put", noSink[uint64]) }, []string{`"out/put"`, "match"}},
		"no name":           {func(t *Topology) { To(numbers(t), "", noSink[uint64]) }, []string{`operator ""`, "match"}},
		"name too long": {func(t *Topology) { To(numbers(t), fmt.Sprintf("%065d", 0), noSink[uint64]) },
			[]string{"match"}},
		"no workers":         {func(t *Topology) { To(numbers(t, Workers(0)), "out", noSink[uint64]) }, []string{`"numbers"`, "at least one worker"}},
		"negative compute":   {func(t *Topology) { To(numbers(t), "out", noSink[uint64], Compute(-1)) }, []string{`"out"`, "-1"}},
		"forward to fewer":   {func(t *Topology) { To(numbers(t, Workers(3)), "out", noSink[uint64], Forward(), Compute(2)) }, []string{`"out"`, `"numbers"`, "3, not 2"}},
		"goes nowhere":       {func(t *Topology) { numbers(t) }, []string{`"numbers"`, "nowhere"}},
		"empty":              {func(t *Topology) {}, []string{"no operators"}},
		"partitioned source": {func(t *Topology) { To(numbers(t, Shuffle()), "out", noSink[uint64]) }, []string{`"numbers"`, "no input"}},
		"closing source":     {func(t *Topology) { To(numbers(t, EmitOnClose()), "out", noSink[uint64]) }, []string{`"numbers"`, "EmitOnClose"}},
		"closing sink":       {func(t *Topology) { To(numbers(t), "out", noSink[uint64], EmitOnClose()) }, []string{`"out"`, "EmitOnClose"}},
		"closing without a close": {func(t *Topology) {
			To(Then(numbers(t), "op", newPass[uint64](), EmitOnClose()), "out", noSink[uint64])
		}, []string{`"op"`, "CloseWindow"}},
		"close of another type": {func(t *Topology) {
			To(Then(numbers(t), "op", func() deaf { return deaf{} }), "out", noSink[uint64])
		}, []string{`"op"`, "CloseWindow", "stream.deaf"}},
		"batch of another type": {func(t *Topology) {
			To(Then(numbers(t), "op", func() deafBatch { return deafBatch{} }), "out", noSink[uint64])
		}, []string{`"op"`, "ProcessBatch", "stream.deafBatch"}},
		"join with its own partitioner": {func(t *Topology) {
			n := numbers(t)
			To(Join(n, n, "op", newBoth, Shuffle(), Shuffle(), Broadcast()), "out", noSink[uint64])
		}, []string{`"op"`, "left and right"}},
		"workers of one side": {func(t *Topology) {
			n := numbers(t)
			To(Join(n, n, "op", newBoth, Workers(2), Shuffle()), "out", noSink[uint64])
		}, []string{`"op"`, "left and right"}},
	} {
		t.Run(name, func(t *testing.T) {
			top := New("job")
			c.build(top)
			nodes, err := top.Build()
			require.Nil(t, nodes)
			require.ErrorIs(t, err, ErrTopology)
			require.Len(t, faults(err), 1, "%v", err)
			for _, part := range append(c.want, "job: ") {
				require.ErrorContains(t, err, part)
			}
		})
	}
}

// faults takes a joined error apart.
func faults(err error) []error {
	return err.(interface{ Unwrap() []error }).Unwrap()
}

func TestBuildFindsABadTopologyName(t *testing.T) {
	top := New("a job")
	To(From(top, "numbers", noSource[uint64]), "out", noSink[uint64])
	_, err := top.Build()
	require.ErrorIs(t, err, ErrTopology)
	require.ErrorContains(t, err, "a job: a name must match")
}

// Both topologies are broken by an operator that takes from both.
func TestJoinOfTwoTopologies(t *testing.T) {
	one, two := New("one"), New("two")
	j := Join(From(one, "a", noSource[uint64]), From(two, "b", noSource[uint64]), "join", newBoth, nil, nil)
	To(j, "out", noSink[uint64])
	for _, top := range []*Topology{one, two} {
		_, err := top.Build()
		require.ErrorIs(t, err, ErrTopology)
		require.ErrorContains(t, err, `operator "join": its inputs belong to two topologies, "one" and "two"`)
	}
}

func TestBuildJoinsAllFaults(t *testing.T) {
	top := New("job")
	s := From(top, "a b", noSource[uint64], Workers(0))
	To(Then(s, "op", newPass[uint64](), Hash(func(s string) string { return s })), "op", noSink[uint64], Compute(0))
	From(top, "alone", noSource[uint64])
	for range 2 { // Build adds nothing to the faults
		_, err := top.Build()
		require.Len(t, faults(err), 6)
		for _, part := range []string{`"a b"`, "0 and 1", "Partitioner[string]", "1 and 0", "twice", `"alone"`} {
			require.ErrorContains(t, err, part)
		}
	}
}

// What Build returns is what was described, each operator after its inputs.
func TestBuild(t *testing.T) {
	top := New("job")
	require.Equal(t, "job", top.Name())
	a := From(top, "a", noSource[uint64], Workers(2))
	b := Then(a, "b", newPass[uint64](), Workers(2), Compute(3), Broadcast())
	c := Then(a, "c", func() closing { return closing{} }, Forward(), Compute(2), EmitOnClose())
	d := Join(b, c, "d", newBoth, Broadcast(), HashUint64(identity), Workers(5))
	To(d, "e", noSink[uint64])
	nodes, err := top.Build()
	require.NoError(t, err)
	var names []string
	at := map[*Node]int{}
	for i, n := range nodes {
		names = append(names, fmt.Sprintf("%s*%d", n.Name, n.Partitions()))
		at[n] = i
		for port, e := range n.Inputs {
			require.Same(t, n, e.To)
			require.Equal(t, port, e.Port)
			require.Less(t, at[e.From], i)
			require.Contains(t, e.From.Outputs, e)
		}
	}
	require.Equal(t, []string{"a*2", "b*6", "c*2", "d*5", "e*1"}, names)
	require.Equal(t, []bool{true, false, false, false, false}, ofEach(nodes, func(n *Node) bool { return n.IsSource }))
	require.Equal(t, []bool{false, false, true, false, false}, ofEach(nodes, func(n *Node) bool { return n.EmitOnClose }))
	require.Equal(t, []bool{false, false, false, false, true}, ofEach(nodes, func(n *Node) bool { return n.IsSink }))

	broadcast, forward := nodes[1].Inputs[0], nodes[2].Inputs[0]
	require.Equal(t, 6, broadcast.copies())
	require.Equal(t, 1, forward.copies())
	require.True(t, broadcast.Reaches(0, 5))
	require.True(t, forward.Reaches(1, 1))
	require.False(t, forward.Reaches(1, 0))
}

func ofEach(nodes []*Node, f func(*Node) bool) []bool {
	var all []bool
	for _, n := range nodes {
		all = append(all, f(n))
	}
	return all
}
