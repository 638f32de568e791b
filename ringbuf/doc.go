// Package ringbuf holds the bounded lock-free queues that join the goroutines
// of a worker, and the way those goroutines wait for one another.
//
//   - [SPSC] is a ring for one producer and one consumer: the stages of one
//     worker, chained.
//   - [MPSC] is a ring for any number of producers and one consumer: receivers
//     that give slabs back to the emitter which made them.
//   - [Parker] puts its owner to sleep until somebody wakes it. Rings never
//     block by themselves; a goroutine that finds a ring full or empty waits
//     with its Parker, and the other side wakes it after each push or pop.
//
// The package does not know what it carries. Rings are meant to carry pointers
// to slabs of a few hundred items, so that the cost of a hop is paid per slab.
//
// # Why not channels
//
// A channel takes a lock on every operation. A ring has none, an SPSC touches
// the other side's cache line only when its own cached view says full or empty,
// and a wake-up of a side that is awake costs one atomic load; BenchmarkHop and
// BenchmarkPushPop have the figures. Rings also offer what a worker needs and
// select does not: one goroutine waiting for any of several rings and flags,
// with a condition that it computes itself.
//
// # Who owns a slot
//
// Every slot belongs to exactly one side at any moment, and passes over by one
// atomic store:
//
//   - A free slot belongs to the producer (of an MPSC: to the one whose
//     compare-and-swap claimed it). It writes the value there, then publishes:
//     from then on neither the slot nor what the value points to is the
//     producer's to touch.
//   - A published slot belongs to the consumer. It takes the value out, zeroes
//     the slot so that the ring keeps no garbage alive, and then gives the slot
//     back to the producers. The value stays the consumer's.
//
// All that a producer did before a push happens before everything that the
// consumer does after the pop that returned the value, in the sense of the Go
// memory model. The reverse holds from a pop to the push that reuses its slot.
//
// # Waiting without lost wake-ups
//
// The waiter announces itself and then looks again; the other side changes the
// ring and then looks for a waiter. Go's atomics are sequentially consistent,
// so at least one of the two sees the other. This makes two duties:
//
//   - the waiter looks at its condition after [Parker.Prepare], always
//     ([Parker.Wait] does it);
//   - the other side calls [Parker.Wake] after every change that can make the
//     condition true: a push for a waiting consumer, a pop for a waiting
//     producer, and closing for both.
//
// The condition has to be computed from synchronised memory: ring operations,
// atomics, or values under a mutex.
package ringbuf
