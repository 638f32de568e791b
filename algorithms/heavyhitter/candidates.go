package heavyhitter

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/afstream/afstream/connector"
)

// Candidate is a key that may be a heavy hitter, with its hash as the sketch knows it.
type Candidate struct {
	Hash uint64
	Key  connector.Key
}

func compareCandidates(a, b Candidate) int { return cmp.Compare(a.Hash, b.Hash) }

// candidates is a bounded set of keys, found by hash. Keys of the same 64-bit hash count as one, as they do in the
// sketch.
//
// It is an open addressing table because each occurrence of a heavy key looks it up. Single keys are never removed
// from the table; prune builds it anew.
type candidates struct {
	slots []uint64 // hashes by linear probing, 0 = free; at least twice as many as limit
	shift uint     // 64 - log2(len(slots))
	list  []candidate
	limit int

	// gone are the hashes of removed candidates that a backup still holds; the first goneInFlight of them are deleted
	// by the backup in flight.
	gone         []uint64
	goneInFlight int
}

type candidate struct {
	Candidate
	saved saved
}

// saved says how far a candidate is on its way into the backup.
type saved uint8

const (
	fresh saved = iota
	inFlight
	durable
)

// candidateSlack is how many candidates fit beside 4/threshold. At most 2/threshold keys can weigh half the bar; the
// rest is room for keys that did earlier, so that prune is rare.
const candidateSlack = 64

func newCandidates(threshold float64) *candidates {
	c := &candidates{limit: int(4/threshold) + candidateSlack}
	n := bits.Len(uint(2*c.limit - 1))
	c.slots = make([]uint64, 1<<n)
	c.shift = uint(64 - n)
	c.list = make([]candidate, 0, c.limit)
	return c
}

// slotHash makes room for 0 as the mark of a free slot. Two keys share a slot hash as rarely as they share a hash.
func slotHash(hash uint64) uint64 {
	if hash == 0 {
		return 1
	}
	return hash
}

// has reports whether a key of that hash is a candidate. The table always has free slots, which end the search.
func (c *candidates) has(hash uint64) bool {
	hash = slotHash(hash)
	for i := c.slot(hash); ; i = (i + 1) & (len(c.slots) - 1) {
		switch c.slots[i] {
		case hash:
			return true
		case 0:
			return false
		}
	}
}

// slot is where the search for hash begins. The multiplication spreads hashes that are not uniform.
func (c *candidates) slot(hash uint64) int { return int(hash * 0x9e3779b97f4a7c15 >> c.shift) }

func (c *candidates) full() bool { return len(c.list) >= c.limit }

// add adds a candidate that is not there yet; the set must not be full.
func (c *candidates) add(k Candidate, s saved) {
	c.list = append(c.list, candidate{k, s})
	c.index(k.Hash)
}

func (c *candidates) index(hash uint64) {
	hash = slotHash(hash)
	i := c.slot(hash)
	for c.slots[i] != 0 {
		i = (i + 1) & (len(c.slots) - 1)
	}
	c.slots[i] = hash
}

// prune removes the candidates below bar. Should that leave the set nearly full, which takes a sketch so narrow that
// far more keys seem heavy than can be, then the lightest go too.
func (c *candidates) prune(bar float64, estimate func(hash uint64) float64) {
	slices.SortFunc(c.list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(estimate(b.Hash), estimate(a.Hash)), compareCandidates(a.Candidate, b.Candidate))
	})
	keep, _ := slices.BinarySearchFunc(c.list, bar, func(k candidate, bar float64) int {
		return cmp.Compare(bar, estimate(k.Hash))
	})
	for keep < len(c.list) && estimate(c.list[keep].Hash) >= bar { // equal to the bar is heavy
		keep++
	}
	if keep > c.limit*7/8 {
		keep = c.limit * 3 / 4
	}
	c.truncate(keep)
}

// truncate keeps the first n candidates.
func (c *candidates) truncate(n int) {
	for _, k := range c.list[n:] {
		if k.saved != fresh {
			c.gone = append(c.gone, k.Hash)
		}
	}
	c.list = c.list[:n]
	clear(c.slots)
	for _, k := range c.list {
		c.index(k.Hash)
	}
}

// sorted returns a copy, ordered by hash.
func (c *candidates) sorted() []Candidate {
	keys := make([]Candidate, len(c.list))
	for i, k := range c.list {
		keys[i] = k.Candidate
	}
	slices.SortFunc(keys, compareCandidates)
	return keys
}
