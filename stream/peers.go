package stream

import (
	"fmt"
	"reflect"

	"github.com/afstream/afstream/ringbuf"
)

// PeerRoom is how many values, ends of windows included, can be on their way from one compute goroutine to another.
const PeerRoom = 64

// Colleague is an operator whose partitions hand values of type V to one another, as far as they belong to one worker:
// partial sums to whoever owns the key, a model to be mixed. It must be built with [Colleagues] of the same V.
//
// Receive takes a value that peer from has handed over, on the goroutine that processes the items, between two runs of
// them or while the partition waits for the end of a window. It must not emit. An error fails the job. What a value
// changes in the state must show in StateDivergence as what an item changes does, and so must what Hand takes out of
// the state of the giver.
type Colleague[V any] interface {
	// SetPeers gives the operator its peers, once, after its state is restored and before its first item. Nothing can be
	// handed over yet.
	SetPeers(peers *Peers[V])
	Receive(from int, value V) error
}

// Finisher is a [Colleague] that keeps values back, to hand over fewer and larger ones. Finish is called when the inputs
// of the partition have ended window w and must hand over what belongs to it. If Hand refuses a value it returns false,
// and is called again when there may be room; it may be called once more after it was done, if a failure comes between.
// From then on until the window is closed Hand refuses everything, also in Receive and in CloseWindow.
type Finisher interface {
	Finish(w Window) (done bool, err error)
}

// Colleagues makes the partitions of each worker of the operator peers: every two of its compute goroutines are joined by
// a ring in either direction, each with room for [PeerRoom] values. The operator must be a [Colleague] of V, have
// StateDivergence, BackupState and RestoreState, and run under the guarantee approximate or none; docs/design.md, section
// 4, "Peers", says why and what a failure can cost. A partition then closes a window when its inputs have ended it and
// those of all its peers have too, so that every value has arrived.
func Colleagues[V any]() Option {
	return func(s *settings) { s.desks = desks{colleague: reflect.TypeFor[Colleague[V]](), open: openDesk[V]} }
}

// Peers are the partitions of one worker, as one of them sees them. It belongs to the operator that was given it and
// must be used only during a call to Process, ProcessBatch, ProcessLeft, ProcessRight, Feedback, Receive or Finish.
//
// Invariants:
//
//  1. credit is what the runtime has granted and was not used; no value is handed over without.
//  2. A way has one giver and one receiver. Its values and ends are received in the order in which they were given.
type Peers[V any] struct {
	self    int
	ways    []way[V] // to each of the partitions; the one to itself is never used
	credit  uint64
	granter Granter
}

// way leads from one compute goroutine to another.
type way[V any] struct {
	ring   *ringbuf.SPSC[parcel[V]]
	handed uint64 // values, of the giver
}

// parcel is a value, or the end of the windows up to number end.
type parcel[V any] struct {
	value V
	end   uint64
}

// Len returns how many partitions the worker has, itself included: its compute goroutines.
func (p *Peers[V]) Len() int { return len(p.ways) }

// Self returns the number of the own partition within the worker, from 0: partition Self of worker w is partition
// w*Len+Self of the operator.
func (p *Peers[V]) Self() int { return p.self }

// Hand gives value to partition to of the worker, for its Receive, and reports whether it could. It never waits, so no
// circle of peers can stop the stream. It reports false if to has no room, if too much of what was handed over could be
// lost or repeated by a failure now (gamma values that their receivers have not taken, or l values since the last
// durable backup of the giver, each at least one), or if the window is ending: the value then stays the giver's, who keeps
// it, merges it with later ones, or drops it. After a true the giver must not touch what the value points to.
//
// It takes some ten nanoseconds, allocates nothing, and wakes the receiver if it sleeps, which takes a microsecond or so:
// let a value stand for many items. It panics, which fails the job, if to is the own partition or none.
func (p *Peers[V]) Hand(to int, value V) bool {
	if uint(to) >= uint(len(p.ways)) || to == p.self {
		panic(fmt.Errorf("stream: partition %d of a worker of %d handed a value to %d: not one of its peers", p.self, len(p.ways), to))
	}
	if p.credit == 0 {
		if p.credit = p.granter.Credit(); p.credit == 0 {
			return false
		}
	}
	w := &p.ways[to]
	if !w.ring.TryPush(parcel[V]{value: value}) {
		return false
	}
	w.handed++
	p.credit--
	p.granter.Gave(to)
	return true
}

// peers tells the type apart for any V.
func (p *Peers[V]) peers() {}

// Granter is what the runtime does for the Peers of one partition; a worker implements it.
type Granter interface {
	// Credit returns how many values may be handed over now; it is asked again when they have been.
	Credit() uint64
	// Gave says that something was handed to partition to, which may sleep.
	Gave(to int)
}

// Desk is what the runtime sees of the [Peers] of one partition. All methods belong to its compute goroutine, but for
// Seat, which comes before any of them, and Waiting, which any goroutine may call.
type Desk interface {
	// Seat makes the partition a peer of those that the desks belong to, itself among them, of one type, in order.
	Seat(all []Desk)
	// Handed returns how many values were handed to partition to.
	Handed(to int) uint64
	// Revoke takes back what was granted: the granter is asked before the next value.
	Revoke()
	// End puts the end of the windows up to level behind what was handed to partition to, or reports false if there is
	// no room.
	End(to int, level uint64) bool
	// Waiting returns how many values and ends of partition from lie here, at least.
	Waiting(from int) int
	// Take takes the next of them. A value, for which end is 0, goes to the operator, or nowhere if dropped.
	Take(from int, drop bool) (end uint64, err error)
}

// desk is the Desk of an operator.
type desk[V any] struct {
	*Peers[V]
	op  Colleague[V]
	ins []*ringbuf.SPSC[parcel[V]]
}

func openDesk[V any](op any, self, n int, granter Granter) (Desk, error) {
	c, ok := op.(Colleague[V])
	if !ok {
		return nil, fmt.Errorf("%T hands over no values of type %v: it is no stream.Colleague of them", op, reflect.TypeFor[V]())
	}
	p := &Peers[V]{self: self, ways: make([]way[V], n), granter: granter}
	for to := range p.ways {
		if to != self {
			p.ways[to].ring = ringbuf.NewSPSC[parcel[V]](PeerRoom)
		}
	}
	c.SetPeers(p)
	return &desk[V]{Peers: p, op: c}, nil
}

func (d *desk[V]) Seat(all []Desk) {
	for _, other := range all {
		d.ins = append(d.ins, other.(*desk[V]).ways[d.self].ring)
	}
}

func (d *desk[V]) Handed(to int) uint64 { return d.ways[to].handed }

func (d *desk[V]) Revoke() { d.credit = 0 }

func (d *desk[V]) End(to int, level uint64) bool {
	return d.ways[to].ring.TryPush(parcel[V]{end: level})
}

func (d *desk[V]) Waiting(from int) int {
	if from == d.self {
		return 0
	}
	return d.ins[from].Len()
}

func (d *desk[V]) Take(from int, drop bool) (end uint64, err error) {
	parcel, ok := d.ins[from].TryPop()
	if !ok {
		panic(fmt.Errorf("stream: nothing of peer %d is waiting", from))
	}
	if parcel.end == 0 && !drop {
		err = d.op.Receive(from, parcel.value)
	}
	return parcel.end, err
}

// desks is how an operator that was built with Colleagues gets its peers; the zero value is for all others.
type desks struct {
	colleague reflect.Type // Colleague[V]
	open      func(op any, self, n int, granter Granter) (Desk, error)
}

// checkColleague faults an operator that was built with Colleagues of what it does not hand over, or without although it
// wants peers: it would never be given any.
func (t *Topology) checkColleague(n *Node, op reflect.Type) {
	if n.NewDesk != nil {
		if op.Kind() != reflect.Interface && !op.Implements(n.colleague) {
			t.fault("operator %q: built with Colleagues, but %v does not implement %v", n.Name, op, n.colleague)
		}
		return
	}
	set, has := op.MethodByName("SetPeers")
	if has && set.Type.NumIn() > 0 && set.Type.In(set.Type.NumIn()-1).Implements(reflect.TypeFor[interface{ peers() }]()) {
		t.fault("operator %q: %v has SetPeers and is built without stream.Colleagues, so it would have no peers", n.Name, op)
	}
}
