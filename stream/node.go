package stream

import "reflect"

// Node is one operator of a built topology, as the runtime sees it.
type Node struct {
	Name             string
	Workers, Compute int
	Inputs, Outputs  []*Edge
	BackIn, BackOut  []*BackEdge // feedback that it receives and sends
	IsSource, IsSink bool
	EmitOnClose      bool
	Budget           float64 // part of the job's Theta, L and Gamma
	Windowed         bool    // windows end upstream of it, or at it
	Forget           int     // windows after which a failure is forgotten, 0 = never; see Fades

	// NewSource makes the task of a source. With running, the source of an earlier incarnation, it goes on with that one
	// instead of opening it anew: what is read like a pipe has no beginning to return to.
	NewSource func(part int, exit Exit, running any) (SourceTask, error)
	// NewTask makes the task of any other operator.
	NewTask func(part int, exit Exit) (Task, error)
	// NewDesk makes the peers of op, partition self of a worker with n; nil unless built with Colleagues.
	NewDesk   func(op any, self, n int, granter Granter) (Desk, error)
	colleague reflect.Type // Colleague of what is handed over
}

// Partitions returns how many compute goroutines run the operator.
func (n *Node) Partitions() int { return n.Workers * n.Compute }

// Edge connects two operators.
type Edge struct {
	From, To *Node
	Port     int // which input of To: 0, or 1 for the right side of a join

	routing routing
	typed   any // *edgeType[T]: asserted once per emitter, never per item
	wire    reader
}

// reader is how the slabs of an edge are read back, with their type erased.
type reader interface {
	decode(wire []byte) (Slab, error)
	decoder() func(wire []byte) (Slab, error)
}

// Reaches says whether items of sending partition from can arrive at receiving partition to.
func (e *Edge) Reaches(from, to int) bool { return e.routing != routeForward || from == to }

// Decode rebuilds a slab from what Slab.AppendItems wrote.
func (e *Edge) Decode(wire []byte) (Slab, error) { return e.wire.decode(wire) }

// Decoder returns a function that does what Decode does and uses slabs again that were released, as an emitter does: it
// allocates nothing per slab of items that travel in bulk. It is for one goroutine, which keeps it for as long as it
// reads.
func (e *Edge) Decoder() func(wire []byte) (Slab, error) { return e.wire.decoder() }

// copies is how many channels one emitted item goes to.
func (e *Edge) copies() int {
	if e.routing == routeBroadcast {
		return e.To.Partitions()
	}
	return 1
}

type edgeType[T any] struct {
	pick  func(item T, n int) int
	codec *codec[T]
}

func (e *edgeType[T]) decode(wire []byte) (Slab, error) {
	items, err := e.codec.decode(nil, wire)
	if err != nil {
		return nil, err
	}
	b := &batch[T]{items: items, codec: e.codec}
	b.refs.Store(1)
	return b, nil
}

func (e *edgeType[T]) decoder() func(wire []byte) (Slab, error) {
	free := newFreeList[T]()
	return func(wire []byte) (Slab, error) {
		b := free.take(SlabItems)
		items, err := e.codec.decode(b.items, wire)
		if err != nil {
			b.Release()
			return nil, err
		}
		b.items = items
		return b, nil
	}
}
