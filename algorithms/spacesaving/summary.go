package spacesaving

import (
	"cmp"
	"slices"

	"github.com/afstream/afstream/connector"
)

// Counter is a key with its count.
type Counter struct {
	Key    connector.Key
	Weight float64 // never less than the key's
	Over   float64 // by how much it can be too high
}

// summary holds the counters of one partition. Keys of the same 64-bit hash count as one.
//
// Invariants:
//  1. heap is a heap of the numbers of all counters, the smallest weight first, and places says where each is in it.
//  2. index has the hash of each counter's key, and nothing else.
type summary struct {
	counters []Counter
	hashes   []uint64
	index    map[uint64]uint32
	heap     []uint32
	places   []uint32
	capacity int
	total    float64
}

func newSummary(capacity int) summary {
	return summary{index: map[uint64]uint32{}, capacity: capacity}
}

// add adds weight to the key of hash and returns the number of the counter that has changed.
func (s *summary) add(key *connector.Key, hash uint64, weight float64) uint32 {
	s.total += weight
	if i, ok := s.index[hash]; ok {
		s.counters[i].Weight += weight
		s.down(s.places[i])
		return i
	}
	if len(s.counters) < s.capacity {
		return s.insert(Counter{Key: *key, Weight: weight}, hash)
	}
	i := s.heap[0]
	delete(s.index, s.hashes[i])
	s.index[hash] = i
	c := &s.counters[i]
	*c = Counter{Key: *key, Weight: c.Weight + weight, Over: c.Weight}
	s.hashes[i] = hash
	s.down(0)
	return i
}

// insert makes a new counter.
func (s *summary) insert(c Counter, hash uint64) uint32 {
	i := uint32(len(s.counters))
	s.counters = append(s.counters, c)
	s.hashes = append(s.hashes, hash)
	s.index[hash] = i
	s.heap = append(s.heap, i)
	s.places = append(s.places, i)
	s.up(i)
	return i
}

// least returns the most that a key without a counter can weigh.
func (s *summary) least() float64 {
	if len(s.counters) < s.capacity {
		return 0
	}
	return s.counters[s.heap[0]].Weight
}

func (s *summary) weightAt(place uint32) float64 { return s.counters[s.heap[place]].Weight }

func (s *summary) swap(a, b uint32) {
	s.heap[a], s.heap[b] = s.heap[b], s.heap[a]
	s.places[s.heap[a]], s.places[s.heap[b]] = a, b
}

func (s *summary) up(place uint32) {
	for place > 0 {
		parent := (place - 1) / 2
		if s.weightAt(parent) <= s.weightAt(place) {
			return
		}
		s.swap(parent, place)
		place = parent
	}
}

func (s *summary) down(place uint32) {
	n := uint32(len(s.heap))
	for {
		child := 2*place + 1
		if child >= n {
			return
		}
		if child+1 < n && s.weightAt(child+1) < s.weightAt(child) {
			child++
		}
		if s.weightAt(place) <= s.weightAt(child) {
			return
		}
		s.swap(place, child)
		place = child
	}
}

// sorted returns the numbers of the counters by the hash of their keys.
func (s *summary) sorted() []uint32 {
	order := make([]uint32, len(s.counters))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int { return cmp.Compare(s.hashes[a], s.hashes[b]) })
	return order
}

// clear forgets all counters.
func (s *summary) clear() {
	clear(s.index)
	s.counters, s.hashes, s.heap, s.places = s.counters[:0], s.hashes[:0], s.heap[:0], s.places[:0]
	s.total = 0
}
