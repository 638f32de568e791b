package ringbuf

import (
	"math/bits"
	"sync/atomic"
)

// MPSC is a bounded ring between any number of producer goroutines and exactly
// one consumer goroutine. Values of one producer come out in the order in which
// it pushed them; between producers the order is that in which they claimed
// their slots.
//
// No operation locks or allocates. A push is one compare-and-swap, repeated only
// if another producer was faster, and one atomic store.
//
// A producer that is descheduled between claiming its slot and publishing it
// hides the values pushed after it: until it goes on, [MPSC.TryPop] reports
// false although [MPSC.Len] is not 0. No wake-up is lost by that, since that
// producer wakes the consumer after its push as every producer does, but it is
// the reason to wait for TryPop and never for Len.
//
// The zero value is not usable and an MPSC must not be copied: use [NewMPSC].
//
// # Positions and stamps
//
// This is D. Vyukov's bounded queue, in which every slot carries a stamp that
// says whose turn it is, with two changes that make every capacity work, 1 and
// odd ones included.
//
// A position is not a running count but a pair in one word: the low bits are
// the slot, the bits above them the lap, that is, how often the ring has been
// gone around. With a plain count the slot would be count modulo capacity, which
// jumps when the count wraps at 2^64 unless the capacity is a power of two. Here
// only the lap wraps, and the slot never notices.
//
// The low bits have room for the number capacity, not just for the last slot,
// so that a position plus one is no other slot's position and no other lap's.
// Hence for position p on slot i:
//
//  1. stamp = p: free, to be claimed by the producer that moves tail beyond p,
//     and then owned by it.
//  2. stamp = p+1: published, owned by the consumer.
//  3. stamp = p+lap: free again, in the next lap.
//
// Stamps of a slot only ever grow (modulo 2^64) and by less than half the number
// range within any one operation, so that signed differences order them.
type MPSC[T any] struct {
	slots []mpscSlot[T] // never reassigned
	lap   uint64        // one lap, as a difference of positions; a power of two above len(slots)
	_     [falseSharing]byte

	tail atomic.Uint64 // position of the next push; moved by producers
	_    [falseSharing]byte

	head atomic.Uint64 // position of the next pop; moved by the consumer
	_    [falseSharing]byte
}

type mpscSlot[T any] struct {
	stamp atomic.Uint64
	value T
}

// NewMPSC returns an empty ring of the given capacity, which is the number of
// values it holds, exactly: it need not be a power of two. It panics if
// capacity is below 1.
func NewMPSC[T any](capacity int) *MPSC[T] {
	return newMPSC[T](capacity, 0)
}

// newMPSC starts in the given lap, counted modulo the number of laps that fit
// into a position, so that tests can see it wrap: ^uint64(0) is the last one.
func newMPSC[T any](capacity int, lap uint64) *MPSC[T] {
	checkCapacity(capacity)
	r := &MPSC[T]{
		slots: make([]mpscSlot[T], capacity),
		lap:   1 << bits.Len(uint(capacity)),
	}
	start := lap * r.lap
	for i := range r.slots {
		r.slots[i].stamp.Store(start + uint64(i))
	}
	r.tail.Store(start)
	r.head.Store(start)
	return r
}

// TryPush appends v and reports true, or reports false if the ring is full and
// then changes nothing. Any goroutine may call it.
//
// After a push v belongs to the consumer. If the consumer may be waiting, the
// producer has to wake it.
func (r *MPSC[T]) TryPush(v T) bool {
	for {
		tail := r.tail.Load()
		s := r.slot(tail)
		switch d := int64(s.stamp.Load() - tail); {
		case d < 0:
			// The slot still serves the lap before, so nobody can have moved tail
			// beyond this position: the ring was full at the moment of that load.
			return false
		case d == 0 && r.tail.CompareAndSwap(tail, r.following(tail)):
			s.value = v
			s.stamp.Store(tail + 1)
			return true
		}
		// Another producer claimed this position; that one made progress.
	}
}

// TryPop takes out the oldest value and reports true, or reports false with the
// zero value if there is none or its producer has yet to publish it. Consumer
// only.
//
// The ring keeps no reference to what it returned. If producers may be waiting
// for room, the consumer has to wake them.
func (r *MPSC[T]) TryPop() (T, bool) {
	var zero T
	head := r.head.Load()
	s := r.slot(head)
	if s.stamp.Load() != head+1 {
		return zero, false
	}
	v := s.value
	s.value = zero
	// head first, so that tail, which a producer can move as soon as the slot is
	// free, is never more than capacity values ahead of it.
	r.head.Store(r.following(head))
	s.stamp.Store(head + r.lap)
	return v, true
}

// slot returns the slot of position p.
func (r *MPSC[T]) slot(p uint64) *mpscSlot[T] { return &r.slots[p&(r.lap-1)] }

// following returns the position after p: the next slot, or the first one of
// the next lap.
func (r *MPSC[T]) following(p uint64) uint64 {
	i := p & (r.lap - 1)
	if i+1 < uint64(len(r.slots)) {
		return p + 1
	}
	return p - i + r.lap
}

// Len returns the number of values in the ring, between 0 and Cap, including
// those whose producer has claimed a slot and not yet published it. Any
// goroutine may call it; it is an estimate fit for metrics and no condition to
// wait for.
func (r *MPSC[T]) Len() int {
	head := r.head.Load() // first, as in SPSC.Len
	tail := r.tail.Load()
	i, j := head&(r.lap-1), tail&(r.lap-1)
	laps := ((tail - j) - (head - i)) / r.lap
	// Between the two loads tail may have run several laps ahead. The product
	// cannot overflow: fewer than 2^64/lap laps of fewer than lap slots.
	capacity := uint64(len(r.slots))
	return int(min(laps*capacity+j-i, capacity))
}

// Cap returns the number of values the ring can hold. Any goroutine may call it.
func (r *MPSC[T]) Cap() int { return len(r.slots) }
