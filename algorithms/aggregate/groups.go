package aggregate

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/state"
	"github.com/afstream/afstream/stream"
)

// groups holds the aggregates of each key.
//
// They lie in one slice, found by the hash of the key, which items mostly bring along: a Go map would hash all 40 bytes
// of a key again, and take twice as long for it.
//
// Each group adds up what its items weigh since its last durable backup, and compares that with a limit beside it, so
// that only some items cost more than that: about 17 for each theta. A group is *due* for a partial backup when it has
// moved by dueAt.
//
// Invariants, while tracked:
//  1. due holds exactly the groups whose flag due is set. Under Max those have moved by dueAt or more, under L1 they had an
//     item.
//  2. moved < limit for every group, or both are 0. Under Max limit is dueAt for those that are not due, and at most peak
//     for the others.
//  3. total is at least the sum of what groups have moved by since the last complete backup, under L1 since any.
type groups struct {
	slots []uint64 // open addressing: upper half of the hash, index of the group + 1; 0 = free
	list  []group

	l1       bool
	alpha    float64
	tracked  bool // theta is finite
	dueAt    float64
	step     float64 // how much a due group moves before it is looked at again
	due      []uint32
	peak     float64
	total    float64 // movement of all groups
	gone     []connector.Key
	saved    bool // a backup was begun
	stale    bool // backups may hold groups of a window that is over, those in gone
	inFlight flight
}

// group is one key.
type group struct {
	Aggregates
	moved, limit float64
	hash         uint64
	key          connector.Key
	due          bool
}

// flight is the backup in flight.
type flight struct {
	active, complete bool
	groups           []flown // in a partial backup; in a complete one, all
	total            float64 // L1: the movement that it covers
}

type flown struct {
	index uint32
	moved float64
}

// add adds one value to the group of key, which moves it by weight. It is merge for the hot path.
func (g *groups) add(key *connector.Key, hash uint64, v, weight float64) {
	i, ok := g.find(key, hash)
	if !ok {
		i = g.insert(key, hash)
		g.list[i].Min, g.list[i].Max = v, v
	}
	e := &g.list[i]
	e.Count++
	e.Sum += v
	if v < e.Min {
		e.Min = v
	}
	if v > e.Max {
		e.Max = v
	}
	g.total += weight
	if e.moved += weight; !(e.moved < e.limit) {
		g.attention(i)
	}
}

// merge adds aggregates to the group of key, without a claim on how far that moves it.
func (g *groups) merge(key *connector.Key, values *Aggregates) {
	hash := key.Hash()
	i, ok := g.find(key, hash)
	if !ok {
		i = g.insert(key, hash)
	}
	g.list[i].merge(values)
}

// find returns the index of the group of key, if there is one.
func (g *groups) find(key *connector.Key, hash uint64) (uint32, bool) {
	if len(g.slots) == 0 {
		return 0, false
	}
	mask := uint64(len(g.slots) - 1)
	for at := hash & mask; ; at = (at + 1) & mask {
		slot := g.slots[at]
		if slot == 0 {
			return 0, false
		}
		if i := uint32(slot) - 1; slot>>32 == hash>>32 && g.list[i].key == *key {
			return i, true
		}
	}
}

// insert makes a group for a key that has none.
func (g *groups) insert(key *connector.Key, hash uint64) uint32 {
	i := uint32(len(g.list))
	g.list = append(g.list, group{key: *key, hash: hash, limit: g.firstLimit()})
	if len(g.list) > len(g.slots)/2 {
		g.slots = make([]uint64, max(minSlots, 2*len(g.slots)))
		for j := range g.list[:i] {
			g.link(uint32(j))
		}
	}
	g.link(i)
	return i
}

// minSlots is the smallest table.
const minSlots = 64

// link enters group i into the table.
func (g *groups) link(i uint32) {
	mask, hash := uint64(len(g.slots)-1), g.list[i].hash
	at := hash & mask
	for g.slots[at] != 0 {
		at = (at + 1) & mask
	}
	g.slots[at] = hash>>32<<32 | uint64(i+1)
}

func (g *groups) firstLimit() float64 {
	if !g.tracked {
		return math.Inf(1)
	}
	return g.dueAt
}

// attention is called when group i has reached its limit.
func (g *groups) attention(i uint32) {
	e := &g.list[i]
	if !g.tracked {
		return // a sum beyond float64, which backup reports
	}
	if !e.due {
		e.due = true
		g.due = append(g.due, i)
	}
	e.limit = e.moved + g.step
	g.peak = max(g.peak, e.limit)
}

// setTheta begins the tracking, or ends it if theta is infinite.
func (g *groups) setTheta(theta float64) {
	g.tracked = !math.IsInf(theta, 1)
	// What a partial backup leaves must let one more item pass below theta.
	g.dueAt = max(0, min(theta/2, theta-g.alpha))
	g.step = max(0, (theta-g.dueAt)/16)
	if g.l1 {
		g.dueAt, g.step = 0, math.Inf(1) // looked at once
	}
	g.due, g.peak = g.due[:0], 0
	for i := range g.list {
		g.place(uint32(i))
	}
}

// place makes limit and due of group i anew; it must not be in the list.
func (g *groups) place(i uint32) {
	e := &g.list[i]
	e.due, e.limit = false, g.firstLimit()
	if g.tracked && e.moved > 0 && !(e.moved < e.limit) {
		g.attention(i)
	}
}

// divergence is an upper bound, in constant time; infinite if a sum has left the range of float64.
func (g *groups) divergence() float64 {
	switch {
	case !g.tracked || g.stale:
		return math.Inf(1)
	case g.l1:
		return g.total
	case len(g.due) > 0:
		return g.peak
	case g.total > 0:
		return g.dueAt
	}
	return 0
}

// sorted returns the groups by key as people read it, and by its binary form where that is the same.
func (g *groups) sorted() []uint32 {
	keys := make([][]byte, len(g.list))
	order := make([]uint32, len(g.list))
	for i := range g.list {
		keys[i], _ = g.list[i].key.AppendText(nil)
		keys[i], _ = g.list[i].key.AppendBinary(append(keys[i], 0))
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int { return bytes.Compare(keys[a], keys[b]) })
	return order
}

// rows returns the aggregates by key.
func (g *groups) rows() []Row {
	rows := make([]Row, 0, len(g.list))
	for _, i := range g.sorted() {
		rows = append(rows, Row{Key: g.list[i].key, Aggregates: g.list[i].Aggregates})
	}
	return rows
}

// close emits the rows and, unless the stream ends, forgets the groups.
func (g *groups) close(w stream.Window, out *stream.Emitter[Row]) error {
	for _, row := range g.rows() {
		out.Emit(row)
	}
	if !w.Last {
		g.reset()
	}
	return nil
}

// reset forgets all groups; the next backup, partial or not, then replaces all that older ones hold.
func (g *groups) reset() {
	if g.saved {
		for i := range g.list {
			g.gone = append(g.gone, g.list[i].key)
		}
		g.stale = true
	}
	clear(g.slots)
	g.list, g.due, g.peak, g.total = g.list[:0], g.due[:0], 0, 0
	g.inFlight = flight{}
}

// backup writes all groups, or those that are due. The key of an element is the binary form of the group's.
func (g *groups) backup(w *stream.StateWriter) error {
	f := &g.inFlight
	f.active, f.complete, f.total = true, w.Whole() || g.stale || !g.tracked, g.total
	f.groups, g.saved = f.groups[:0], true
	if f.complete && !w.Whole() {
		for _, key := range g.gone {
			if _, again := g.find(&key, key.Hash()); !again {
				k, _ := key.AppendBinary(nil)
				w.Delete(k)
			}
		}
	}
	list := g.due
	if f.complete {
		list = g.sorted()
	}
	var key, value []byte
	for _, i := range list {
		e := &g.list[i]
		if err := e.check(); err != nil {
			return fmt.Errorf("back up key %q: %w: %w", e.key, state.ErrNotFinite, err)
		}
		key, _ = e.key.AppendBinary(key[:0])
		value = e.Aggregates.append(value[:0])
		w.Put(key, value)
		f.groups = append(f.groups, flown{i, e.moved})
	}
	return nil
}

// backupDurable takes note that what backup wrote last is durable, in time proportional to the groups that it holds
// and those that are due.
func (g *groups) backupDurable() {
	f := &g.inFlight
	if !f.active {
		return
	}
	f.active = false
	for _, flown := range f.groups {
		e := &g.list[flown.index]
		e.moved = without(e.moved, flown.moved)
	}
	if f.complete || g.l1 { // all that had moved was written
		g.total = without(g.total, f.total)
	}
	if f.complete {
		g.gone, g.stale = g.gone[:0], false
		g.due, g.peak = g.due[:0], 0
		for i := range g.list {
			g.place(uint32(i))
		}
		return
	}
	left := g.due
	g.due, g.peak = g.due[:0], 0
	for _, i := range left { // attention appends to the same array, never beyond what has been read
		g.place(i)
	}
}

// without returns a-b, but never less than the exact difference of what a and b were added up from: each addition may
// have been rounded.
func without(a, b float64) float64 {
	if a == b {
		return 0
	}
	const rounding = 0x1p-40 // 2^12 additions of opposite rounding, and far below any theta
	if d := a - b; d == math.Trunc(d) && a < 1<<53 {
		return d // counts are exact
	}
	return max(0, a-b) + a*rounding
}

// read returns what backup wrote.
func read(r *stream.StateReader) (map[connector.Key]Aggregates, error) {
	found := map[connector.Key]Aggregates{}
	for r.Next() {
		var key connector.Key
		if err := key.UnmarshalBinary(r.Key()); err != nil {
			return nil, fmt.Errorf("%w: %w", stream.ErrState, err)
		}
		if r.Deleted() {
			delete(found, key)
			continue
		}
		var a Aggregates
		if err := a.decode(r.Value()); err != nil {
			return nil, fmt.Errorf("%w: key %q: %w", stream.ErrState, key, err)
		}
		found[key] = a
	}
	return found, r.Err()
}

// mergeState adds what backup wrote for other groups.
func (g *groups) mergeState(r *stream.StateReader) error {
	found, err := read(r)
	for key, a := range found {
		g.merge(&key, &a)
	}
	return err
}

// partitionOf is to which of n partitions the group of an element's key belongs, if items come by the hash of their keys.
func partitionOf(key []byte, n int) int {
	var k connector.Key
	if k.UnmarshalBinary(key) != nil {
		return -1 // whoever reads it says what is wrong with it
	}
	return stream.PartitionOfUint64(k.Hash(), n)
}

// restore reads what backup wrote.
func (g *groups) restore(r *stream.StateReader) error {
	found, err := read(r)
	if err != nil {
		return err
	}
	g.saved = len(found) > 0
	for key, a := range found { // in any order: what is emitted and written is sorted
		g.list[g.insert(&key, key.Hash())].Aggregates = a
	}
	return nil
}
