package backup

// How many keys a commit deletes beside what it writes: a share of what is waiting, so that the trash never grows
// without limit, and a cap, so that no commit becomes slow or too large for a batch.
const (
	minTake   = 16
	takeShare = 8
	maxTake   = 1024
)

// trash is a queue of keys to delete, kept as ranges: a superseded generation is three entries however many keys it has.
type trash struct {
	ranges  []trashRange
	pending uint64
}

// trashRange is the numbers [from, to) of one kind. generation is set for the kinds whose keys have one.
type trashRange struct {
	kind       byte
	generation uint64
	from, to   uint64
}

// add queues the numbers [from, to), joined to the last range where that is possible.
func (t *trash) add(kind byte, generation, from, to uint64) {
	if from >= to {
		return
	}
	t.pending += to - from
	if n := len(t.ranges); n > 0 {
		r := &t.ranges[n-1]
		if r.kind == kind && r.generation == generation && r.to == from {
			r.to = to
			return
		}
	}
	t.ranges = append(t.ranges, trashRange{kind, generation, from, to})
}

// take appends the next few keys to keys, with their bytes in buf, and says how many. They stay in the queue until drop:
// the batch that deletes them may fail.
func (t *trash) take(prefix, buf []byte, keys [][]byte) (int, []byte, [][]byte) {
	want := min(t.pending, min(maxTake, max(minTake, t.pending/takeShare)))
	left := want
	for i := 0; left > 0; i++ {
		r := t.ranges[i]
		for n := r.from; n < r.to && left > 0; n++ {
			at := len(buf)
			if r.generation == 0 {
				buf = appendKey(buf, prefix, r.kind, n)
			} else {
				buf = appendKey(buf, prefix, r.kind, r.generation, n)
			}
			keys = append(keys, buf[at:len(buf):len(buf)])
			left--
		}
	}
	return int(want), buf, keys
}

// drop removes the first n keys from the queue.
func (t *trash) drop(n int) {
	left := uint64(n)
	t.pending -= left
	i := 0
	for ; left > 0; i++ {
		r := &t.ranges[i]
		if size := r.to - r.from; size > left {
			r.from += left
			break
		} else {
			left -= size
		}
	}
	t.ranges = append(t.ranges[:0], t.ranges[i:]...)
}
