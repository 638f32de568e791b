package stream

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
)

// ErrTopology is wrapped by every error that Build returns.
var ErrTopology = errors.New("stream: invalid topology")

// Names become keys of backups, subjects and paths.
var validName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Topology is the graph of a job. A graph built with From, Then, Join and To has no cycle: a stream exists before
// it can be used.
type Topology struct {
	name  string
	nodes []*Node
	errs  []error
}

// Stream is the output of an operator, to be used as input of others.
type Stream[T any] struct {
	t    *Topology
	node *Node
}

// New begins a topology. Faults made while building it are collected and returned by Build.
func New(name string) *Topology {
	t := &Topology{name: name}
	if !validName.MatchString(name) {
		t.fault("a name must match %s", validName)
	}
	return t
}

// Name returns the name given to New.
func (t *Topology) Name() string { return t.name }

// Build checks the topology and returns its operators, each after its inputs. The error joins all faults, each of which
// wraps [ErrTopology] and names the operator. Build may be called again; the operators are the same.
func (t *Topology) Build() ([]*Node, error) {
	found := &Topology{name: t.name, errs: slices.Clone(t.errs)}
	if len(t.nodes) == 0 {
		found.fault("no operators")
	}
	seen := map[string]bool{}
	for _, n := range t.nodes {
		if seen[n.Name] {
			found.fault("operator %q: the name is used twice", n.Name)
		}
		seen[n.Name] = true
		if !n.IsSink && len(n.Outputs) == 0 {
			found.fault("operator %q: its output goes nowhere, end it with stream.To", n.Name)
		}
		for _, e := range n.Inputs {
			if e.routing == routeForward && e.From.Partitions() != n.Partitions() {
				found.fault("operator %q: forward needs as many partitions as %q has (%d, not %d)",
					n.Name, e.From.Name, e.From.Partitions(), n.Partitions())
			}
		}
	}
	if len(found.errs) > 0 {
		return nil, errors.Join(found.errs...)
	}
	return slices.Clone(t.nodes), nil
}

// fault notes a fault for Build to return.
func (t *Topology) fault(format string, args ...any) {
	t.errs = append(t.errs, fmt.Errorf("%w: %s: %s", ErrTopology, t.name, fmt.Sprintf(format, args...)))
}

// From begins a stream at a source. open is called once for every partition, and again where a source has to be opened
// anew after a failure.
func From[T any](t *Topology, name string, open NewSource[T], opts ...Option) Stream[T] {
	n, s := t.node(name, opts)
	if s.partitioned {
		t.fault("operator %q: a source has no input to partition", name)
	}
	n.IsSource = true
	t.silent(n)
	checkWindows[T](t, n, s.windows)
	n.NewSource = func(part int, exit Exit, running any) (SourceTask, error) {
		src, ok := running.(Source[T])
		if !ok {
			var err error
			if src, err = open(part, n.Partitions()); err != nil {
				return nil, err
			}
		}
		return newTask(src, newEmitter[T](n, part, exit), s.windows), nil
	}
	return Stream[T]{t: t, node: n}
}

// Then adds an operator that takes the items of in. newOperator is called once for every incarnation of a partition.
func Then[In, Out any, Op Operator[In, Out]](in Stream[In], name string, newOperator func() Op, opts ...Option) Stream[Out] {
	n, s := in.t.node(name, opts)
	in.t.windowless(n, s)
	in.t.checkAbilities(n, reflect.TypeFor[Op](), map[string]reflect.Type{
		"CloseWindow":  reflect.TypeFor[WindowCloser[Out]](),
		"ProcessBatch": reflect.TypeFor[BatchOperator[In, Out]](),
	})
	n.NewTask = func(part int, exit Exit) (Task, error) {
		return newOperatorTask[In, Out](newOperator(), newEmitter[Out](n, part, exit), n.EmitOnClose), nil
	}
	connect(in, n, 0, s)
	return Stream[Out]{t: in.t, node: n}
}

// Join adds an operator that takes the items of two streams. left and right choose the partitioners of a and b; nil is
// Shuffle.
func Join[A, B, Out any, Op JoinOperator[A, B, Out]](a Stream[A], b Stream[B], name string, newOperator func() Op,
	left, right Option, opts ...Option) Stream[Out] {
	n, s := a.t.node(name, opts)
	if s.partitioned {
		a.t.fault("operator %q: the inputs of a join are partitioned by left and right", name)
	}
	if a.t != b.t {
		for _, t := range []*Topology{a.t, b.t} {
			t.fault("operator %q: its inputs belong to two topologies, %q and %q", name, a.t.name, b.t.name)
		}
	}
	a.t.checkAbilities(n, reflect.TypeFor[Op](), map[string]reflect.Type{"CloseWindow": reflect.TypeFor[WindowCloser[Out]]()})
	n.NewTask = func(part int, exit Exit) (Task, error) {
		return newJoinTask[A, B, Out](newOperator(), newEmitter[Out](n, part, exit), n.EmitOnClose), nil
	}
	connect(a, n, 0, a.t.side(n, left))
	connect(b, n, 1, a.t.side(n, right))
	return Stream[Out]{t: a.t, node: n}
}

// To ends a stream in a sink. open is called once for every incarnation of a partition.
func To[T any](in Stream[T], name string, open NewSink[T], opts ...Option) {
	n, s := in.t.node(name, opts)
	n.IsSink = true
	in.t.silent(n)
	in.t.windowless(n, s)
	n.NewTask = func(part int, _ Exit) (Task, error) {
		sink, err := open(part, n.Partitions())
		if err != nil {
			return nil, err
		}
		return &sinkTask[T]{sink: sink}, nil
	}
	connect(in, n, 0, s)
}
