package stream

import (
	"maps"
	"reflect"
	"slices"
)

// Option sets how an operator runs or how its input is partitioned.
type Option func(*settings)

type settings struct {
	workers, compute int
	partitioned      bool // a partitioner was chosen
	routing          routing
	pick             any // Partitioner[T] of the input, for routePick
	emitOnClose      bool
	windows          any // windowItems or *windowTime[T], of a source
	forget           int
	budget           float64
	desks            desks
}

// Workers sets how many workers run the operator (default 1). Each is a unit of failure.
func Workers(n int) Option { return func(s *settings) { s.workers = n } }

// Compute sets how many compute goroutines, each with a partition of its own, a worker has (default 1).
func Compute(n int) Option { return func(s *settings) { s.compute = n } }

// Budget gives the operator a part of the job's Theta, L and Gamma, in (0, 1]; the default is all of each. The promise
// holds for an operator as a whole: where several operators of a pipeline share one promise about its end, let their
// parts, each times the outputs that a loss there costs at the end, add up to 1. errorbound.StageShare has such parts.
func Budget(share float64) Option { return func(s *settings) { s.budget = share } }

// EmitOnClose declares that the operator emits only in CloseWindow, and deterministically. The runtime then backs its
// state up before each close and can run a close again after a failure: nothing it emits is lost or emitted twice.
func EmitOnClose() Option { return func(s *settings) { s.emitOnClose = true } }

// node adds an operator to t.
func (t *Topology) node(name string, opts []Option) (*Node, *settings) {
	s := &settings{workers: 1, compute: 1, budget: 1}
	for _, o := range opts {
		o(s)
	}
	n := &Node{Name: name, Workers: s.workers, Compute: s.compute, EmitOnClose: s.emitOnClose, Forget: s.forget, Budget: s.budget}
	n.NewDesk, n.colleague = s.desks.open, s.desks.colleague
	if !validName.MatchString(name) {
		t.fault("operator %q: a name must match %s", name, validName)
	}
	if s.workers < 1 || s.compute < 1 {
		t.fault("operator %q: needs at least one worker and one compute goroutine, not %d and %d", name, s.workers, s.compute)
	}
	if !(s.budget > 0 && s.budget <= 1) { // so that NaN is a fault
		t.fault("operator %q: a budget of %v of the whole, want more than 0 and at most 1", name, s.budget)
	}
	if s.forget < 0 && s.forget != fades {
		t.fault("operator %q: failures cannot be forgotten after %d windows", name, s.forget)
	}
	t.nodes = append(t.nodes, n)
	return n, s
}

// silent faults options that are only for operators in between.
func (t *Topology) silent(n *Node) {
	if n.EmitOnClose {
		t.fault("operator %q: EmitOnClose is not for sources and sinks", n.Name)
	}
	if n.NewDesk != nil {
		t.fault("operator %q: Colleagues are not for sources and sinks", n.Name)
	}
}

// windowless faults an option that is only for sources.
func (t *Topology) windowless(n *Node, s *settings) {
	if s.windows != nil {
		t.fault("operator %q: windows are set at the source", n.Name)
	}
}

// side reads the partitioner of one input of a join.
func (t *Topology) side(n *Node, o Option) *settings {
	s := &settings{}
	if o != nil {
		o(s)
	}
	if s.workers != 0 || s.compute != 0 || s.emitOnClose || s.desks.open != nil {
		t.fault("operator %q: left and right of a join choose partitioners only", n.Name)
	}
	return s
}

// checkAbilities faults methods of an operator that have the name of an optional ability and not its signature: the
// ability would not be found, and what it was to do would silently not happen.
func (t *Topology) checkAbilities(n *Node, op reflect.Type, abilities map[string]reflect.Type) {
	for _, method := range slices.Sorted(maps.Keys(abilities)) {
		if _, has := op.MethodByName(method); has && !op.Implements(abilities[method]) {
			t.fault("operator %q: method %s of %v does not implement %v", n.Name, method, op, abilities[method])
		}
	}
	t.checkColleague(n, op)
	_, closes := op.MethodByName("CloseWindow")
	if n.EmitOnClose && !closes && op.Kind() != reflect.Interface {
		t.fault("operator %q: EmitOnClose needs a CloseWindow to emit in, which %v has not", n.Name, op)
	}
}

// connect adds the edge from stream in to port of node n.
func connect[T any](in Stream[T], n *Node, port int, s *settings) {
	typed := &edgeType[T]{codec: newCodec[T]()}
	e := &Edge{From: in.node, To: n, Port: port, routing: s.routing, typed: typed, wire: typed}
	if s.routing == routePick {
		pick, _ := s.pick.(Partitioner[T])
		if pick == nil {
			in.t.faultPick(e, s.pick, reflect.TypeFor[Partitioner[T]]())
		}
		typed.pick = pick
	}
	e.link()
}

// faultPick faults a partitioner that is not of the type that the items want, or nil.
func (t *Topology) faultPick(e *Edge, pick any, want reflect.Type) {
	if reflect.TypeOf(pick) != want {
		t.fault("operator %q: the partitioner is a %T, its input from %q is of type %v", e.To.Name, pick, e.From.Name, want.In(0))
		return
	}
	t.fault("operator %q: the partitioner of its input from %q is nil", e.To.Name, e.From.Name)
}

// link makes e known to its ends.
func (e *Edge) link() {
	e.To.Windowed = e.To.Windowed || e.From.Windowed
	e.From.Outputs = append(e.From.Outputs, e)
	e.To.Inputs = append(e.To.Inputs, e)
}
