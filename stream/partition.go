package stream

import "github.com/cespare/xxhash/v2"

// routing is how an edge chooses the receiving partition.
type routing uint8

const (
	routeShuffle routing = iota
	routeForward
	routeBroadcast
	routePick
)

// Partitioner chooses the partition of the receiving operator that an item goes to, out of n. It must depend on the
// item only: replay and recovery rely on the same choice.
type Partitioner[T any] func(item T, n int) int

// Hash sends items of the same key to the same partition. The hash is stable across processes and is mixed before it
// is reduced, so that patterns in the keys do not leave partitions idle. The function is part of what a backup relies
// on: it never changes.
func Hash[T any](key func(T) string) Option {
	if key == nil {
		return Custom[T](nil)
	}
	return Custom(func(item T, n int) int { return PartitionOf(key(item), n) })
}

// PartitionOf returns to which of n partitions [Hash] sends items of a key.
func PartitionOf(key string, n int) int { return reduce(xxhash.Sum64String(key), n) }

// PartitionOfUint64 returns to which of n partitions [HashUint64] sends items of a key.
func PartitionOfUint64(key uint64, n int) int { return reduce(mix(key), n) }

// HashUint64 is Hash for keys that are numbers, or hashed already.
func HashUint64[T any](key func(T) uint64) Option {
	if key == nil {
		return Custom[T](nil)
	}
	return Custom(func(item T, n int) int { return PartitionOfUint64(key(item), n) })
}

// Custom routes by the user's own function. A result outside [0, n) fails the job.
func Custom[T any](p Partitioner[T]) Option {
	return func(s *settings) { s.partitioned, s.routing, s.pick = true, routePick, p }
}

// Shuffle deals the items out evenly, in blocks of SlabItems. It is the default, and the cheapest.
func Shuffle() Option { return route(routeShuffle) }

// Forward keeps partition p's items in partition p. Both operators must have the same number of partitions.
func Forward() Option { return route(routeForward) }

// Broadcast sends every item to every partition.
func Broadcast() Option { return route(routeBroadcast) }

func route(r routing) Option {
	return func(s *settings) { s.partitioned, s.routing = true, r }
}

// mix is the finaliser of splitmix64: every input bit changes every output bit with probability near one half.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// reduce maps a hash to [0, n) by its high bits, which needs no division.
func reduce(h uint64, n int) int {
	return int((h >> 32) * uint64(n) >> 32)
}
