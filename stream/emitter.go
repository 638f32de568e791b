package stream

import (
	"errors"
	"fmt"
	"math"
)

// Exit is where an emitter's slabs go; a worker implements it. Its methods are called by the compute goroutine that
// owns the emitter. When the worker is stopped they do not return: they unwind the goroutine by a panic that only the
// worker recovers.
type Exit interface {
	// Send passes one slab to partition to of output edge leg. The slab belongs to the exit from then on.
	Send(leg, to int, s Slab)
	// Credit returns how many more items may be emitted while so many are buffered.
	Credit(buffered int) int64
	// AwaitCredit waits until at least n more items may be emitted and returns how many may. Nothing may be buffered.
	AwaitCredit(n int64) int64
	// Hurry passes on what was sent, which may otherwise wait for more of it.
	Hurry()
}

// errSealed is what an emitter panics with.
var errSealed = errors.New("stream: an operator built with EmitOnClose emitted outside of CloseWindow")

// Unlimited is the credit of an emitter whose items are not at risk.
const Unlimited = math.MaxInt64

// Emitter sends items downstream. It belongs to one operator instance and must be used only during a call to it.
//
// Invariants:
//
//  1. credit is never negative: no copy of an item goes out that the exit has not granted.
//  2. Nothing is buffered while the emitter waits for credit.
//  3. An open slab holds less than its limit, and nothing at most between room and filled or after a room that nothing
//     was read into. Only slabs with items are sent. A slab of a shuffle never reaches beyond the block of its turn.
//  4. Which channel an item takes depends on the items before it alone, never on how they were cut into slabs or on
//     when the exit was asked: replay relies on that.
type Emitter[T any] struct {
	legs   []leg[T]
	free   *freeList[T]
	exit   Exit
	copies int64 // channels that one emitted item goes to
	credit int64 // copies that may go out before the exit is asked again
	sealed bool  // EmitOnClose, outside of a close
	muted  bool  // items are dropped; there is no credit then, so that none gets past wait
}

// leg is one output edge: its partitioner and one open slab per receiving partition.
type leg[T any] struct {
	routing routing
	pick    func(item T, n int) int
	lanes   []*batch[T] // the open slab of each receiving partition, nil if there is none
	turn    int         // shuffle: whose turn it is; forward: the only lane
	left    int         // items the next slab may hold; shuffle: what this turn's block lacks, without the open slab
}

// newEmitter makes the emitter of partition part of n.
func newEmitter[T any](n *Node, part int, exit Exit) *Emitter[T] {
	e := &Emitter[T]{free: newFreeList[T](), exit: exit, sealed: n.EmitOnClose}
	for _, edge := range n.Outputs {
		typed := edge.typed.(*edgeType[T])
		l := leg[T]{routing: edge.routing, pick: typed.pick, lanes: make([]*batch[T], edge.To.Partitions()), left: SlabItems}
		if edge.routing == routeForward {
			l.turn = part
		}
		e.legs = append(e.legs, l)
		e.copies += int64(edge.copies())
	}
	return e
}

// Emit sends one item to every consumer of the stream. It may wait for credit or room, and is the only place where
// an operator is slowed down by what comes after it. It takes a few nanoseconds per copy and allocates nothing once
// the slabs go round. It panics, which fails the job, if a partitioner chooses a partition that does not exist, or
// if the operator was built with [EmitOnClose] and is not in its CloseWindow.
func (e *Emitter[T]) Emit(item T) {
	if e.credit < e.copies && !e.wait() {
		return
	}
	e.credit -= e.copies
	for i := range e.legs {
		l := &e.legs[i]
		to := l.turn
		switch l.routing {
		case routeBroadcast:
			e.spread(i, item)
			continue
		case routePick:
			if to = l.pick(item, len(l.lanes)); uint(to) >= uint(len(l.lanes)) {
				panic(fmt.Errorf("stream: the partitioner chose partition %d of %d", to, len(l.lanes)))
			}
		}
		// put, written out: a call here would cost as much as all the rest.
		if b := l.lanes[to]; b != nil && len(b.items) < b.limit-1 {
			b.items = append(b.items, item)
			continue
		}
		e.put(i, to, item)
	}
}

// Flush sends what was emitted so far on its way at once. Without it items wait until 256 of them fill a slab, or until
// the operator has no input left: right for many small items, wrong for a few that somebody waits for. It costs what a
// slab costs, some hundred nanoseconds and the waking of a goroutine.
func (e *Emitter[T]) Flush() {
	e.flush()
	e.exit.Hurry()
}

// spread puts item into every lane of a broadcast.
func (e *Emitter[T]) spread(leg int, item T) {
	for to, b := range e.legs[leg].lanes {
		if b != nil && len(b.items) < b.limit-1 { // put, written out as in Emit
			b.items = append(b.items, item)
			continue
		}
		e.put(leg, to, item)
	}
}

// put appends item to the open slab of a lane, and sends the slab when that fills it.
func (e *Emitter[T]) put(leg, to int, item T) {
	b := e.lane(leg, to)
	b.items = append(b.items, item)
	if len(b.items) == b.limit {
		e.send(leg, to)
	}
}

// lane returns the open slab of a lane, opening one if need be.
func (e *Emitter[T]) lane(leg, to int) *batch[T] {
	l := &e.legs[leg]
	if l.lanes[to] == nil {
		l.lanes[to] = e.free.take(l.left)
	}
	return l.lanes[to]
}

// send passes the open slab of a lane to the exit, if it holds anything. It ends the turn of a shuffle whose block is
// complete.
func (e *Emitter[T]) send(leg, to int) {
	l := &e.legs[leg]
	b := l.lanes[to]
	if b == nil || len(b.items) == 0 {
		return
	}
	l.lanes[to] = nil
	if l.routing == routeShuffle {
		if l.left -= len(b.items); l.left == 0 {
			l.turn, l.left = (l.turn+1)%len(l.lanes), SlabItems
		}
	}
	e.exit.Send(leg, to, b) // last: it may unwind
}

// wait asks for credit, or says that what is emitted is to be dropped. What is buffered is sent before it really waits: its
// acks may be what the credit waits for.
func (e *Emitter[T]) wait() bool {
	switch {
	case e.sealed:
		panic(errSealed)
	case e.muted:
		return false
	}
	if e.credit = e.exit.Credit(e.buffered()); e.credit < e.copies {
		e.flush()
		e.credit = e.exit.AwaitCredit(e.copies)
	}
	return true
}

// mute makes Emit drop items, or ends that.
func (e *Emitter[T]) mute(on bool) { e.muted, e.credit = on, 0 }

// flush sends whatever is buffered.
func (e *Emitter[T]) flush() {
	for i := range e.legs {
		for to := range e.legs[i].lanes {
			e.send(i, to)
		}
	}
}

// buffered returns how many copies of items were emitted and not sent yet.
func (e *Emitter[T]) buffered() int {
	n := 0
	for i := range e.legs {
		for _, b := range e.legs[i].lanes {
			if b != nil {
				n += len(b.items)
			}
		}
	}
	return n
}

// resume forgets what is buffered and continues the numbering after sent items per channel, in the order of the
// channels' ordinals. A shuffle's turn follows from how many items it has dealt.
func (e *Emitter[T]) resume(sent []uint64) {
	at := 0
	for i := range e.legs {
		l := &e.legs[i]
		dealt := uint64(0)
		for to, b := range l.lanes {
			if b != nil {
				l.lanes[to] = nil
				b.Release()
			}
			dealt += sent[at]
			at++
		}
		if l.routing == routeShuffle {
			l.turn = int(dealt / SlabItems % uint64(len(l.lanes)))
			l.left = SlabItems - int(dealt%SlabItems)
		}
	}
	e.credit = 0
}

// unseal lets an EmitOnClose operator emit during its close.
func (e *Emitter[T]) unseal() { e.sealed = false }

// seal ends that again; the credit is dropped so that the next Emit comes through wait.
func (e *Emitter[T]) seal(emitOnClose bool) {
	if emitOnClose {
		e.sealed, e.credit = true, 0
	}
}

// room returns the free part of the slab that the next items go to, if they all go to one partition in order, so that
// a source can read straight into it. It is never empty. Filled slots are announced by filled.
func (e *Emitter[T]) room() []T {
	if e.credit < 1 {
		e.wait()
	}
	b := e.lane(0, e.legs[0].turn)
	n := len(b.items)
	return b.items[n : n+int(min(int64(b.limit-n), e.credit))]
}

// filled emits the first n items of what room returned.
func (e *Emitter[T]) filled(n int) {
	to := e.legs[0].turn
	b := e.legs[0].lanes[to]
	b.items = b.items[:len(b.items)+n]
	e.credit -= int64(n)
	if len(b.items) == b.limit {
		e.send(0, to)
	}
}

// direct says whether room and filled may be used.
func (e *Emitter[T]) direct() bool {
	return len(e.legs) == 1 && (e.legs[0].routing == routeShuffle || e.legs[0].routing == routeForward)
}
