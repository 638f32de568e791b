package stream

import "math"

// Exit is where an emitter's slabs go; a worker implements it. Its methods are called by the compute goroutine that
// owns the emitter. When the worker is stopped they do not return: they unwind the goroutine by a panic that only the
// worker recovers.
type Exit interface {
	// Send passes one slab to partition to of output edge leg. The slab belongs to the exit from then on.
	Send(leg, to int, s Slab)
	// Credit waits until at least n more items may be emitted and returns how many may.
	Credit(n int64) int64
}

// Unlimited is the credit of an emitter whose items are not at risk.
const Unlimited = math.MaxInt64

// Emitter sends items downstream. It belongs to one operator instance and must be used only during a call to it.
type Emitter[T any] struct {
	legs   []leg[T]
	free   *freeList[T]
	exit   Exit
	copies int64 // channels that one emitted item goes to
	credit int64 // copies that may go out before the exit is asked again
	sealed bool  // EmitOnClose, outside of a close
}

// leg is one output edge: its partitioner and one open slab per receiving partition.
type leg[T any] struct {
	routing routing
	pick    func(item T, n int) int
	lanes   []*batch[T] // the open slab of each receiving partition, nil when nothing is buffered
	turn    int         // shuffle: whose turn it is
	left    int         // shuffle: items left in this turn
}

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
// an operator is slowed down by what comes after it.
func (e *Emitter[T]) Emit(item T) {
	if e.credit < e.copies {
		e.wait()
	}
	e.credit -= e.copies
	for i := range e.legs {
		l := &e.legs[i]
		switch l.routing {
		case routeShuffle:
			e.put(i, l.turn, item)
			l.deal(1)
		case routeForward:
			e.put(i, l.turn, item)
		case routeBroadcast:
			for to := range l.lanes {
				e.put(i, to, item)
			}
		default:
			e.put(i, l.pick(item, len(l.lanes)), item)
		}
	}
}

func (e *Emitter[T]) put(leg, to int, item T) {
	lane := &e.legs[leg].lanes[to]
	if *lane == nil {
		*lane = e.free.take()
	}
	b := *lane
	b.items = append(b.items, item)
	if len(b.items) == SlabItems {
		*lane = nil
		e.exit.Send(leg, to, b)
	}
}

// deal accounts n items of a shuffle to the partition whose turn it is.
func (l *leg[T]) deal(n int) {
	l.left -= n
	if l.left == 0 {
		l.left = SlabItems
		l.turn = (l.turn + 1) % len(l.lanes)
	}
}

// wait asks for credit. What is buffered is sent first: its acks may be what the credit waits for.
func (e *Emitter[T]) wait() {
	if e.sealed {
		panic(errSealed)
	}
	e.flush()
	e.credit = e.exit.Credit(e.copies)
}

func (e *Emitter[T]) flush() {
	for i := range e.legs {
		lanes := e.legs[i].lanes
		for to, b := range lanes {
			if b != nil {
				lanes[to] = nil
				e.exit.Send(i, to, b)
			}
		}
	}
}

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

// resume continues the numbering after sent items per channel, in the order of the channels' ordinals. A shuffle's
// turn follows from how many items it has dealt.
func (e *Emitter[T]) resume(sent []uint64) {
	at := 0
	for i := range e.legs {
		l := &e.legs[i]
		dealt := uint64(0)
		for to := range l.lanes {
			l.lanes[to] = nil
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
// a source can read straight into it. Filled slots are announced by filled.
func (e *Emitter[T]) room() []T {
	l := &e.legs[0]
	if e.credit < 1 {
		e.wait()
	}
	lane := &l.lanes[l.turn]
	if *lane == nil {
		*lane = e.free.take()
	}
	b := *lane
	n := len(b.items)
	limit := int64(SlabItems - n)
	if l.routing == routeShuffle {
		limit = min(limit, int64(l.left))
	}
	return b.items[n : n+int(min(limit, e.credit))]
}

func (e *Emitter[T]) filled(n int) {
	l := &e.legs[0]
	to := l.turn
	b := l.lanes[to]
	b.items = b.items[:len(b.items)+n]
	e.credit -= int64(n)
	if l.routing == routeShuffle {
		l.deal(n)
	}
	if len(b.items) == SlabItems {
		l.lanes[to] = nil
		e.exit.Send(0, to, b)
	}
}

// direct says whether room and filled may be used.
func (e *Emitter[T]) direct() bool {
	return len(e.legs) == 1 && (e.legs[0].routing == routeShuffle || e.legs[0].routing == routeForward)
}
