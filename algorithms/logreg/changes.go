package logreg

import "slices"

// changes remembers which weights changed in which version of the model, as far back as it is worth it: not beyond a few
// times the size of the model.
//
// Invariant: entries[starts[i]:] are the changes of version first+i and later, in order; version is the last one.
type changes struct {
	version uint64
	first   uint64
	starts  []int
	entries []entry
	limit   int
	seen    []uint32 // by weight: the call of since that has yielded it
	call    uint32
}

// entry says that a learner changed a weight.
type entry struct {
	weight  uint32
	learner int32
}

func newChanges(width int) *changes {
	return &changes{first: 1, limit: 2*width + maxPiece, seen: make([]uint32, width)}
}

// add notes a change of the next version.
func (c *changes) add(weight uint32, learner int) {
	if uint64(len(c.starts)) == c.version+1-c.first {
		c.starts = append(c.starts, len(c.entries))
	}
	c.entries = append(c.entries, entry{weight, int32(learner)})
}

// commit makes a version of what was added, if anything was.
func (c *changes) commit() {
	if uint64(len(c.starts)) == c.version+1-c.first {
		return
	}
	c.version++
	if len(c.entries) <= c.limit {
		return
	}
	drop, _ := slices.BinarySearch(c.starts, len(c.entries)/2)
	drop = min(drop, len(c.starts)-1)
	cut := c.starts[drop]
	c.entries = append(c.entries[:0], c.entries[cut:]...)
	c.starts = append(c.starts[:0], c.starts[drop:]...)
	for i := range c.starts {
		c.starts[i] -= cut
	}
	c.first += uint64(drop)
}

// since yields every weight that any learner but one has changed after a version, once. It returns false, and yields
// nothing, if that is not known any more.
func (c *changes) since(version uint64, but int, yield func(weight uint32)) bool {
	if version+1 < c.first || version > c.version {
		return false
	}
	if version == c.version {
		return true
	}
	if c.call++; c.call == 0 {
		clear(c.seen)
		c.call = 1
	}
	for _, e := range c.entries[c.starts[version+1-c.first]:] {
		if e.learner != int32(but) && c.seen[e.weight] != c.call {
			c.seen[e.weight] = c.call
			yield(e.weight)
		}
	}
	return true
}
