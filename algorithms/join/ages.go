package join

import "math"

// ages tells how old the oldest row of both tables is, in rows that came: those that are kept are counted in blocks of
// consecutive turns. A turn is given to every row that comes, kept or not, and to every one that is restored, from 1 on.
type ages struct {
	turn   uint64  // of the row that came last
	base   uint64  // rows up to this turn were restored, and are not counted
	first  uint64  // number of the first block in kept
	blocks []int32 // rows kept of each block
}

const ageBits = 10

// block returns which block a turn above base is in, counted from the one that base+1 is in.
func (a *ages) block(turn uint64) uint64 { return (turn - a.base - 1) >> ageBits }

// keep counts the row that came last.
func (a *ages) keep() {
	if a.turn <= a.base {
		return
	}
	at := a.block(a.turn)
	for a.first+uint64(len(a.blocks)) <= at {
		a.trim()
		if len(a.blocks) == 0 {
			a.first = at
		}
		a.blocks = append(a.blocks, 0)
	}
	a.blocks[at-a.first]++
}

// drop no longer counts a row that was kept.
func (a *ages) drop(turn uint64) {
	if turn > a.base {
		a.blocks[a.block(turn)-a.first]--
	}
}

// trim forgets the first blocks without rows.
func (a *ages) trim() {
	n := 0
	for n < len(a.blocks) && a.blocks[n] == 0 {
		n++
	}
	a.blocks = a.blocks[n:]
	a.first += uint64(n)
}

// oldest returns how many rows came, since the last was restored, before the oldest that is kept, or somewhat less.
func (a *ages) oldest() uint64 {
	if a.trim(); len(a.blocks) == 0 {
		return a.turn - a.base
	}
	return a.first << ageBits
}

// restoring begins or ends the restoring of rows.
func (a *ages) restoring(on bool) {
	if a.base = a.turn; on {
		a.base = math.MaxUint64
	}
}

// OldestItem implements stream.Rebuildable, in about constant time. A join can be rebuilt from its inputs if it is an inner one and
// its rows leave by their times alone: then rows that come again in another order between the inputs find the same partners,
// since that those of another row are still there follows from the rows of its own input.
func (j *Join[K, L, R]) OldestItem() (n uint64, ok bool) {
	o := &j.options
	if o.Kind != Inner || o.Once || o.MaxRows > 0 || o.Window == Unbounded || !j.left.timed || !j.right.timed {
		return 0, false
	}
	return j.groups.ages.oldest(), true
}
