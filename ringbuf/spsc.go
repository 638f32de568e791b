package ringbuf

import (
	"fmt"
	"sync/atomic"
)

// falseSharing is how many bytes apart the two sides' variables are kept.
// Lines are 64 bytes on amd64, but it fetches them in pairs, and some arm64
// processors have lines of 128 bytes.
const falseSharing = 128

// SPSC is a bounded first-in-first-out ring between exactly one producer
// goroutine and exactly one consumer goroutine. Which goroutine plays a part may
// change, provided the change itself is synchronised.
//
// No operation blocks, locks or allocates. A push or a pop is a handful of
// instructions with one atomic store; it reads the other side's cache line
// only when the ring looks full (push) or empty (pop).
//
// The zero value is not usable and an SPSC must not be copied: use [NewSPSC].
//
// Invariants, with pushed and popped counting modulo 2^64:
//
//  1. popped <= pushed <= popped + capacity, so that pushed - popped is right
//     even after either has wrapped.
//  2. Slots outside the pushed-popped published ones are zero.
//  3. poppedSeen is a past value of popped and pushedSeen a past value of pushed:
//     acting on either can only underestimate what is possible.
type SPSC[T any] struct {
	slots []T // never reassigned
	_     [falseSharing]byte

	// Written by the producer only.
	pushed     atomic.Uint64 // pushes so far; storing it publishes the slot
	poppedSeen uint64        // the producer's last look at popped
	in         int           // slot of the next push
	_          [falseSharing]byte

	// Written by the consumer only.
	popped     atomic.Uint64 // pops so far; storing it frees the slot
	pushedSeen uint64        // the consumer's last look at pushed
	out        int           // slot of the next pop
	_          [falseSharing]byte
}

// NewSPSC returns an empty ring of the given capacity, which is the number of
// values it holds, exactly: it need not be a power of two. It panics if
// capacity is below 1.
func NewSPSC[T any](capacity int) *SPSC[T] {
	return newSPSC[T](capacity, 0)
}

// newSPSC starts both counters at start, so that tests can see them wrap.
func newSPSC[T any](capacity int, start uint64) *SPSC[T] {
	checkCapacity(capacity)
	r := &SPSC[T]{
		slots:      make([]T, capacity),
		poppedSeen: start,
		pushedSeen: start,
	}
	r.pushed.Store(start)
	r.popped.Store(start)
	return r
}

// checkCapacity panics unless a ring can have the given capacity.
func checkCapacity(capacity int) {
	if capacity < 1 {
		panic(fmt.Sprintf("ringbuf: capacity %d is below 1", capacity))
	}
}

// TryPush appends v and reports true, or reports false if the ring is full and
// then changes nothing. Producer only.
//
// After a push v belongs to the consumer. If the consumer may be waiting, the
// producer has to wake it.
func (r *SPSC[T]) TryPush(v T) bool {
	pushed := r.pushed.Load()
	if pushed-r.poppedSeen == uint64(len(r.slots)) {
		r.poppedSeen = r.popped.Load()
		if pushed-r.poppedSeen == uint64(len(r.slots)) {
			return false
		}
	}
	r.slots[r.in] = v
	r.in = r.following(r.in)
	r.pushed.Store(pushed + 1)
	return true
}

// TryPop takes out the oldest value and reports true, or reports false with the
// zero value if the ring is empty. Consumer only.
//
// The ring keeps no reference to what it returned. If the producer may be
// waiting for room, the consumer has to wake it.
func (r *SPSC[T]) TryPop() (T, bool) {
	var zero T
	popped := r.popped.Load()
	if popped == r.pushedSeen {
		r.pushedSeen = r.pushed.Load()
		if popped == r.pushedSeen {
			return zero, false
		}
	}
	v := r.slots[r.out]
	r.slots[r.out] = zero
	r.out = r.following(r.out)
	r.popped.Store(popped + 1)
	return v, true
}

// following returns the slot after i. The slot is not derived from a counter
// as counter modulo capacity: 2^64 is no multiple of most capacities, so that
// would jump when the counter wraps; it would also divide on every operation.
func (r *SPSC[T]) following(i int) int {
	if i++; i < len(r.slots) {
		return i
	}
	return 0
}

// Len returns the number of values in the ring, between 0 and Cap. Any
// goroutine may call it. To the producer it is an upper bound that only its own
// pushes can raise, to the consumer a lower bound that only its own pops can
// lower; to anybody else it is an estimate fit for metrics.
func (r *SPSC[T]) Len() int {
	// popped first: it cannot overtake a value of pushed read later, so the
	// difference is never negative. It can exceed the capacity if both moved
	// on in between.
	popped := r.popped.Load()
	n := r.pushed.Load() - popped
	return int(min(n, uint64(len(r.slots))))
}

// Cap returns the number of values the ring can hold. Any goroutine may call it.
func (r *SPSC[T]) Cap() int { return len(r.slots) }
