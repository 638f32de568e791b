package stream

import (
	"github.com/stretchr/testify/require"
)

// channel is one output channel as an Exit sees it.
type channel struct{ leg, to int }

// recorder is an Exit that keeps the items of every channel in the order of their arrival, gives the slabs back at
// once, and grants credit by a rule.
type recorder[T any] struct {
	hurried int
	t       require.TestingT
	items   map[channel][]T
	slabs   []int // length of each slab, in the order of sending
	sent    int64 // copies that were sent
	grant   func(n int64) int64
	given   int64 // copies that were credited; the last grant replaces what was left of the one before
	asks    int   // calls of AwaitCredit
	open    func() int
}

func newRecorder[T any](t require.TestingT, grant func(n int64) int64) *recorder[T] {
	return &recorder[T]{t: t, items: map[channel][]T{}, grant: grant}
}

func (r *recorder[T]) Send(leg, to int, s Slab) {
	b := s.(*batch[T])
	require.Positive(r.t, b.Len(), "an empty slab was sent")
	require.LessOrEqual(r.t, b.Len(), SlabItems)
	c := channel{leg, to}
	r.items[c] = append(r.items[c], b.items...)
	r.slabs = append(r.slabs, b.Len())
	r.sent += int64(b.Len())
	s.Release()
}

// Hurry counts how often it was called.
func (r *recorder[T]) Hurry() { r.hurried++ }

// Credit grants nothing that has to be waited for, and knows what is buffered.
func (r *recorder[T]) Credit(buffered int) int64 {
	require.EqualValues(r.t, r.open(), buffered)
	return r.given - r.sent - int64(buffered)
}

// AwaitCredit checks that nothing is held back while the emitter waits, and that it kept to what it was granted before.
func (r *recorder[T]) AwaitCredit(n int64) int64 {
	require.Zero(r.t, r.open(), "the emitter asks for credit with items in hand")
	require.LessOrEqual(r.t, r.sent, r.given, "more was emitted than credited")
	r.asks++
	c := r.grant(n)
	r.given = r.sent + min(c, Unlimited-r.sent)
	return c
}

// sentPerChannel lists the items per channel in the order of the channels' ordinals, as Resume takes it.
func (r *recorder[T]) sentPerChannel(n *Node) []uint64 {
	var sent []uint64
	for leg, e := range n.Outputs {
		for to := range e.To.Partitions() {
			sent = append(sent, uint64(len(r.items[channel{leg, to}])))
		}
	}
	return sent
}

// unlimited is the grant of an exit whose channels are not at risk.
func unlimited(int64) int64 { return Unlimited }

// output is an edge to be tested: its partitioner and how many partitions receive.
type output struct {
	route Option
	parts int
}

// sender builds a topology of one source with the given outputs and returns the source's node. Forward edges give the
// source as many partitions as the receiver has.
func sender[T any](t require.TestingT, outputs ...output) *Node {
	workers := 1
	for _, o := range outputs {
		s := &settings{}
		o.route(s)
		if s.routing == routeForward {
			workers = o.parts
		}
	}
	top := New("test")
	s := From(top, "source", func(int, int) (Source[T], error) { return nil, nil }, Workers(workers))
	for i, o := range outputs {
		To(s, "sink-"+string(rune('a'+i)), func(int, int) (Sink[T], error) { return nil, nil }, o.route, Workers(o.parts))
	}
	nodes, err := top.Build()
	require.NoError(t, err)
	return nodes[0]
}

// emitterTo returns an emitter of partition part of n and the exit that records what it sends.
func emitterTo[T any](t require.TestingT, n *Node, part int, grant func(n int64) int64) (*Emitter[T], *recorder[T]) {
	r := newRecorder[T](t, grant)
	e := newEmitter[T](n, part, r)
	r.open = e.buffered
	return e, r
}

// flushed flushes e and returns what arrived per channel.
func flushed[T any](e *Emitter[T], r *recorder[T]) map[channel][]T {
	e.flush()
	require.Zero(r.t, e.buffered())
	return r.items
}
