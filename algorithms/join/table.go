package join

import (
	"cmp"
	"slices"
)

// none is no slot.
const none = -1

// groups are the keys of both inputs. One lookup finds the rows of a key in both, and only a key that comes or goes costs
// another update of the map.
type groups[K comparable] struct {
	index  map[K]int32
	list   []group[K]
	free   []int32
	spares spares
	ages   ages
}

// group is one key with its rows in each table.
type group[K comparable] struct {
	key   K
	lines [2]line
}

// find returns the group of a key, a new one if there is none. A new one must get a row, or be released.
func (g *groups[K]) find(key K) int32 {
	if at, ok := g.index[key]; ok {
		return at
	}
	var at int32
	if n := len(g.free); n > 0 {
		at, g.free = g.free[n-1], g.free[:n-1]
	} else {
		at = int32(len(g.list))
		g.list = append(g.list, group[K]{})
	}
	g.list[at].key = key
	g.index[key] = at
	return at
}

// release forgets a group, if it has no rows.
func (g *groups[K]) release(at int32) {
	p := &g.list[at]
	if p.lines[0].len() > 0 || p.lines[1].len() > 0 {
		return
	}
	delete(g.index, p.key)
	var gone K
	p.key = gone
	p.lines[0].release(&g.spares)
	p.lines[1].release(&g.spares)
	g.free = append(g.free, at)
}

// table holds the rows of one input: by key and time, so that partners are found, and by time alone, so that the oldest
// is.
//
// Most rows come in the order of time, so a queue holds those that were the latest when they came, and only the others
// are in a heap: with one heap for all, finding the oldest would cost more than the join. Rows that are removed stay in
// either until they come to its head, or until they are more than half of it.
//
// Invariants: every used slot is in the line of its group once and, if the table is timed, in the queue or in the heap exactly
// once; the times in the queue ascend; ids of used slots are distinct, and below nextID.
type table[K comparable, T any] struct {
	side   int        // which line of a group is this table's
	timed  bool       // rows have a time
	groups *groups[K] // shared with the table of the other input
	slots  []slot[T]
	free   []int32
	queue  []entry // from first on
	first  int
	heap   []entry
	nextID uint64
	rows   int
	at     int32 // the slot that insert has used last
	latest int64 // latest time of any row ever
	seen   bool  // latest is one
}

type slot[T any] struct {
	row    T
	time   int64
	id     uint64 // of its element in backups
	turn   uint64 // see ages
	group  int32
	status status
}

// status is what a backup must know of a row.
type status uint8

const (
	used    status = 1 << iota
	saved          // in the durable backup, as it is now
	flying         // in the backup in flight, as it is now
	older          // an older form of it may be in a backup
	matched        // has found a partner
)

// see takes note of the time of a row that comes, and returns 1 if it is earlier than slack allows, else 0.
func (t *table[K, T]) see(time, slack int64) (late uint64) {
	switch {
	case !t.seen || time > t.latest:
		t.latest, t.seen = time, true
	case apart(time, t.latest) > uint64(slack):
		late = 1
	}
	return late
}

// insert adds a row to a group. It costs constant time if rows come in the order of time, and little if nearly.
func (t *table[K, T]) insert(group int32, row *T, time int64) *slot[T] {
	var at int32
	if n := len(t.free); n > 0 {
		at, t.free = t.free[n-1], t.free[:n-1]
	} else {
		at = int32(len(t.slots))
		t.slots = append(t.slots, slot[T]{})
	}
	t.groups.list[group].lines[t.side].insert(time, at, &t.groups.spares)
	t.at = at
	s := &t.slots[at]
	*s = slot[T]{row: *row, time: time, id: t.nextID, turn: t.groups.ages.turn, group: group, status: used}
	t.nextID++
	t.groups.ages.keep()
	t.rows++
	if t.timed {
		t.line(entry{time, s.turn, at})
	}
	return s
}

// remove takes a row out.
func (t *table[K, T]) remove(at int32) {
	s := &t.slots[at]
	l := &t.groups.list[s.group].lines[t.side]
	if l.remove(s.time, at); l.len() == 0 {
		t.groups.release(s.group)
	}
	t.groups.ages.drop(s.turn)
	*s = slot[T]{}
	t.free = append(t.free, at)
	t.rows--
}

// entry is a row in the order of time. The slot can be reused, so it is that row only as long as the turn is the same.
type entry struct {
	time int64
	turn uint64
	slot int32
}

func (t *table[K, T]) isGone(e *entry) bool {
	s := &t.slots[e.slot]
	return s.turn != e.turn || s.status == 0
}

// line puts a row into the order of time.
func (t *table[K, T]) line(e entry) {
	if n := len(t.queue); n == t.first || t.queue[n-1].time <= e.time {
		if t.first > n/2 || n-t.first > 2*t.rows+minQueue {
			t.tidy()
		}
		t.queue = append(t.queue, e)
		return
	}
	if len(t.heap) > 2*t.rows+minQueue {
		t.heap = slices.DeleteFunc(t.heap, func(e entry) bool { return t.isGone(&e) })
		slices.SortFunc(t.heap, func(a, b entry) int { return cmp.Compare(a.time, b.time) }) // which makes a heap
	}
	t.heap = append(t.heap, e)
	t.up(len(t.heap) - 1)
}

// minQueue is how many rows that are gone are not worth tidying up.
const minQueue = 64

// tidy takes rows that are gone out of the queue.
func (t *table[K, T]) tidy() {
	n := 0
	for i := t.first; i < len(t.queue); i++ {
		if !t.isGone(&t.queue[i]) {
			t.queue[n] = t.queue[i]
			n++
		}
	}
	t.queue, t.first = t.queue[:n], 0
}

// oldest returns the row of the least time, none if there is none. It costs constant time for rows that came in order.
func (t *table[K, T]) oldest() int32 {
	for t.first < len(t.queue) && t.isGone(&t.queue[t.first]) {
		t.first++
	}
	for len(t.heap) > 0 && t.isGone(&t.heap[0]) {
		last := len(t.heap) - 1
		t.heap[0] = t.heap[last]
		t.heap = t.heap[:last]
		t.down()
	}
	if len(t.heap) > 0 && (t.first == len(t.queue) || t.heap[0].time < t.queue[t.first].time) {
		return t.heap[0].slot
	}
	if t.first == len(t.queue) {
		return none
	}
	return t.queue[t.first].slot
}

// up moves entry i of the heap to its place.
func (t *table[K, T]) up(i int) {
	e := t.heap[i]
	for i > 0 {
		parent := (i - 1) / 2
		if t.heap[parent].time <= e.time {
			break
		}
		t.heap[i] = t.heap[parent]
		i = parent
	}
	t.heap[i] = e
}

// down moves the root of the heap to its place.
func (t *table[K, T]) down() {
	if len(t.heap) == 0 {
		return
	}
	i, e := 0, t.heap[0]
	for {
		child := 2*i + 1
		if child >= len(t.heap) {
			break
		}
		if right := child + 1; right < len(t.heap) && t.heap[right].time < t.heap[child].time {
			child = right
		}
		if t.heap[child].time >= e.time {
			break
		}
		t.heap[i] = t.heap[child]
		i = child
	}
	t.heap[i] = e
}
