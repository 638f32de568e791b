package stream

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
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
		t.fault("topology %q: a name must match %s", name, validName)
	}
	return t
}

// Name returns the name given to New.
func (t *Topology) Name() string { return t.name }

// Build checks the topology and returns its operators, each after its inputs. The error joins all faults.
func (t *Topology) Build() ([]*Node, error) {
	errs := append([]error(nil), t.errs...)
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s: %s", ErrTopology, t.name, fmt.Sprintf(format, args...)))
	}
	if len(t.nodes) == 0 {
		fault("no operators")
	}
	seen := map[string]bool{}
	for _, n := range t.nodes {
		if seen[n.Name] {
			fault("operator %q: the name is used twice", n.Name)
		}
		seen[n.Name] = true
		if !n.IsSink && len(n.Outputs) == 0 {
			fault("operator %q: its output goes nowhere, end it with stream.To", n.Name)
		}
		for _, e := range n.Inputs {
			if e.routing == routeForward && e.From.Partitions() != n.Partitions() {
				fault("operator %q: forward needs as many partitions as %q has (%d, not %d)",
					n.Name, e.From.Name, e.From.Partitions(), n.Partitions())
			}
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return t.nodes, nil
}

func (t *Topology) fault(format string, args ...any) {
	t.errs = append(t.errs, fmt.Errorf("%w: %s", ErrTopology, fmt.Sprintf(format, args...)))
}

// Option sets how an operator runs or how its input is partitioned.
type Option func(*settings)

type settings struct {
	workers, compute int
	routing          routing
	pick             any // Partitioner[T] of the input, for routePick
	emitOnClose      bool
}

// Workers sets how many workers run the operator (default 1). Each is a unit of failure.
func Workers(n int) Option { return func(s *settings) { s.workers = n } }

// Compute sets how many compute goroutines, each with a partition of its own, a worker has (default 1).
func Compute(n int) Option { return func(s *settings) { s.compute = n } }

// EmitOnClose declares that the operator emits only in CloseWindow, and deterministically. The runtime then backs its
// state up before each close and can run a close again after a failure: nothing it emits is lost or emitted twice.
func EmitOnClose() Option { return func(s *settings) { s.emitOnClose = true } }

// node adds an operator to t.
func (t *Topology) node(name string, opts []Option) (*Node, *settings) {
	s := &settings{workers: 1, compute: 1}
	for _, o := range opts {
		o(s)
	}
	n := &Node{Name: name, Workers: s.workers, Compute: s.compute, EmitOnClose: s.emitOnClose}
	if !validName.MatchString(name) {
		t.fault("operator %q: a name must match %s", name, validName)
	}
	if s.workers < 1 || s.compute < 1 {
		t.fault("operator %q: needs at least one worker and one compute goroutine, not %d and %d", name, s.workers, s.compute)
	}
	t.nodes = append(t.nodes, n)
	return n, s
}

// connect adds the edge from stream in to port of node n.
func connect[T any](in Stream[T], n *Node, port int, s *settings) {
	typed := &edgeType[T]{}
	if s.routing == routePick {
		pick, ok := s.pick.(Partitioner[T])
		if !ok {
			in.t.fault("operator %q: the partitioner is a %T, its input from %q is of type %v",
				n.Name, s.pick, in.node.Name, reflect.TypeFor[T]())
			pick = func(T, int) int { return 0 }
		}
		typed.pick = pick
	}
	e := &Edge{From: in.node, To: n, Port: port, routing: s.routing, typed: typed, decode: typed.decode}
	in.node.Outputs = append(in.node.Outputs, e)
	n.Inputs = append(n.Inputs, e)
}

// From begins a stream at a source.
func From[T any](t *Topology, name string, open NewSource[T], opts ...Option) Stream[T] {
	n, _ := t.node(name, opts)
	n.IsSource = true
	n.NewSource = func(part int, exit Exit, running any) (SourceTask, error) {
		src, ok := running.(Source[T])
		if !ok {
			var err error
			if src, err = open(part, n.Partitions()); err != nil {
				return nil, err
			}
		}
		return newSourceTask(src, newEmitter[T](n, part, exit)), nil
	}
	return Stream[T]{t: t, node: n}
}

// Then adds an operator that takes the items of in. newOperator is called once for every incarnation of a partition.
func Then[In, Out any, Op Operator[In, Out]](in Stream[In], name string, newOperator func() Op, opts ...Option) Stream[Out] {
	n, s := in.t.node(name, opts)
	n.NewTask = func(part int, exit Exit) (Task, error) {
		return newOperatorTask[In, Out](newOperator(), newEmitter[Out](n, part, exit), n.EmitOnClose), nil
	}
	connect(in, n, 0, s)
	return Stream[Out]{t: in.t, node: n}
}

// Join adds an operator that takes the items of two streams. Partitioners of the two inputs are set by left and right.
func Join[A, B, Out any, Op JoinOperator[A, B, Out]](a Stream[A], b Stream[B], name string, newOperator func() Op,
	left, right Option, opts ...Option) Stream[Out] {
	n, _ := a.t.node(name, opts)
	if a.t != b.t {
		a.t.fault("operator %q: its inputs belong to two topologies", name)
	}
	n.NewTask = func(part int, exit Exit) (Task, error) {
		return newJoinTask[A, B, Out](newOperator(), newEmitter[Out](n, part, exit), n.EmitOnClose), nil
	}
	for port, o := range []Option{left, right} {
		s := &settings{}
		o(s)
		if port == 0 {
			connect(a, n, port, s)
		} else {
			connect(b, n, port, s)
		}
	}
	return Stream[Out]{t: a.t, node: n}
}

// To ends a stream in a sink.
func To[T any](in Stream[T], name string, open NewSink[T], opts ...Option) {
	n, s := in.t.node(name, opts)
	n.IsSink = true
	n.NewTask = func(part int, _ Exit) (Task, error) {
		sink, err := open(part, n.Partitions())
		if err != nil {
			return nil, err
		}
		return &sinkTask[T]{sink: sink}, nil
	}
	connect(in, n, 0, s)
}
