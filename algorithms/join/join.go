package join

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/afstream/afstream/stream"
)

// ErrMatches is wrapped by the errors about a row that has more partners than Options.MaxMatches.
var ErrMatches = errors.New("join: too many partners")

// Pair is one row of the result. Matched is false for a left row that found no partner; Right is then zero.
type Pair[L, R any] struct {
	Left    L
	Right   R
	Matched bool
}

// Join is a symmetric hash join (Wilschut and Apers, 1991) of two inputs that are hash-partitioned by their keys: each
// row is kept in the table of its input and looked up in that of the other, so that every pair is emitted as soon as both
// of its rows are there, whatever the order between the inputs.
//
// A row costs a lookup in a Go map, and an assignment and a deletion if it is the only one of its key, and the logarithm of
// the number of rows of its key in the other table; no allocation once the tables have reached their size.
type Join[K comparable, L, R any] struct {
	options Options[K, L, R]
	groups  *groups[K]
	left    table[K, L]
	right   table[K, R]
	ledger  ledger
	late    uint64
	dropped uint64
}

// New returns an empty Join. It panics if o is not valid; see Options.Validate.
func New[K comparable, L, R any](o Options[K, L, R]) *Join[K, L, R] {
	if err := o.Validate(); err != nil {
		panic(err)
	}
	g := &groups[K]{index: map[K]int32{}}
	return &Join[K, L, R]{options: o, groups: g,
		left:  table[K, L]{groups: g, timed: o.Left.Time != nil},
		right: table[K, R]{groups: g, side: 1, timed: o.Right.Time != nil},
	}
}

// Rows returns how many rows are kept of each input.
func (j *Join[K, L, R]) Rows() (left, right int) { return j.left.rows, j.right.rows }

// Late returns how many rows came later than Options.Slack allows; they may have missed partners.
func (j *Join[K, L, R]) Late() uint64 { return j.late }

// Dropped returns how many rows left because of Options.MaxRows and may have missed partners.
func (j *Join[K, L, R]) Dropped() uint64 { return j.dropped }

// ProcessLeft implements stream.JoinOperator. The error wraps ErrMatches.
func (j *Join[K, L, R]) ProcessLeft(row L, out *stream.Emitter[Pair[L, R]]) error {
	return j.addLeft(&row, out.Emit)
}

// ProcessRight implements stream.JoinOperator. The error wraps ErrMatches.
func (j *Join[K, L, R]) ProcessRight(row R, out *stream.Emitter[Pair[L, R]]) error {
	return j.addRight(&row, out.Emit)
}

func (j *Join[K, L, R]) addLeft(row *L, emit func(Pair[L, R])) error {
	j.groups.ages.turn++
	key, now := j.options.Left.Key(row), int64(0)
	if j.left.timed {
		now = j.options.Left.Time(row)
		j.late += j.left.see(now, j.options.Slack)
	}
	group, matches := j.groups.find(key), 0
	line := &j.groups.list[group].lines[1]
	for from, k := j.reach(line, now); k > from; {
		k--
		if matches++; j.options.MaxMatches > 0 && matches > j.options.MaxMatches {
			return j.tooMany(key)
		}
		emit(Pair[L, R]{*row, j.right.slots[line.list[k].slot].row, true})
	}
	if matches == 0 || !j.options.Once {
		s := j.left.insert(group, row, now)
		if matches > 0 {
			s.status |= matched
		}
		j.added(ref{leftSide, j.left.at, s.id})
	}
	j.evictRight()
	if j.options.Kind == LeftOuter || j.options.MaxRows > 0 { // see evictions; else only a right row makes left ones leave
		j.evictLeft(emit)
	}
	return nil
}

func (j *Join[K, L, R]) addRight(row *R, emit func(Pair[L, R])) error {
	j.groups.ages.turn++
	key, now := j.options.Right.Key(row), int64(0)
	if j.right.timed {
		now = j.options.Right.Time(row)
		j.late += j.right.see(now, j.options.Slack)
	}
	group, matches := j.groups.find(key), 0
	kept := j.right.insert(group, row, now) // first: the group may lose its left rows
	j.added(ref{rightSide, j.right.at, kept.id})
	line := &j.groups.list[group].lines[0]
	for from, k := j.reach(line, now); k > from; {
		k-- // from the back: match may remove what is there
		if matches++; j.options.MaxMatches > 0 && matches > j.options.MaxMatches {
			return j.tooMany(key)
		}
		at := line.list[k].slot
		emit(Pair[L, R]{j.left.slots[at].row, *row, true})
		j.match(at)
	}
	j.evictLeft(emit)
	if j.options.MaxRows > 0 {
		j.evictRight()
	}
	return nil
}

func (j *Join[K, L, R]) tooMany(key K) error {
	return fmt.Errorf("%w: key %v has more than %d", ErrMatches, key, j.options.MaxMatches)
}

// match notes that a left row has found a partner.
func (j *Join[K, L, R]) match(at int32) {
	if j.options.Once {
		j.removeLeft(at)
		return
	}
	s := &j.left.slots[at]
	if s.status&matched == 0 && j.options.Kind == LeftOuter {
		j.ledger.changed(ref{leftSide, at, s.id}, &s.status)
	}
	s.status |= matched
}

// reach returns which part of the line of a key in the other input a row may join with, given its time. Tables have no
// time. Rows that came out of order, those that are due to leave, and those of an input that is far ahead of the other
// are not even looked at.
func (j *Join[K, L, R]) reach(l *line, now int64) (from, to int) {
	if !j.left.timed || !j.right.timed {
		return l.first, len(l.list)
	}
	return l.between(before(now, j.options.Window), after(now, j.options.Window))
}

// before returns time-by, and after time+by, or the end of time.
func before(time, by int64) int64 {
	if time < math.MinInt64+by {
		return math.MinInt64
	}
	return time - by
}

func after(time, by int64) int64 {
	if time > math.MaxInt64-by {
		return math.MaxInt64
	}
	return time + by
}

// apart returns |a-b|, which may be more than an int64 holds.
func apart(a, b int64) uint64 {
	if a < b {
		a, b = b, a
	}
	return uint64(a) - uint64(b)
}

// evictions is how many left rows of a LeftOuter join may leave for one that comes, so that the divergence that one row
// adds is bounded. More than one, or a backlog would never shrink. Rows that are due to leave find no partner meanwhile.
const evictions = 2

// evictLeft removes left rows that can find no partner any more: older than the latest right row by more than the window
// and the slack.
func (j *Join[K, L, R]) evictLeft(emit func(Pair[L, R])) {
	for n := 0; j.options.Kind == Inner || n < evictions; n++ {
		at := j.left.oldest()
		full := j.options.MaxRows > 0 && j.left.rows > j.options.MaxRows
		if at == none || !full && !j.expired(j.left.slots[at].time, j.right.latest, j.right.seen) {
			return
		}
		if full {
			j.dropped++
		}
		j.emitUnmatched(at, emit)
		j.removeLeft(at)
	}
}

// evictRight removes right rows likewise.
func (j *Join[K, L, R]) evictRight() {
	for {
		at := j.right.oldest()
		full := j.options.MaxRows > 0 && j.right.rows > j.options.MaxRows
		if at == none || !full && !j.expired(j.right.slots[at].time, j.left.latest, j.left.seen) {
			return
		}
		if full {
			j.dropped++
		}
		j.removeRight(at)
	}
}

// expired says whether a row of some time can find no partner, given the latest time of the other input.
func (j *Join[K, L, R]) expired(time, latest int64, seen bool) bool {
	if !seen || time >= latest || j.options.Window == Unbounded {
		return false
	}
	reach := uint64(j.options.Window) + uint64(j.options.Slack)
	return apart(time, latest) > reach
}

func (j *Join[K, L, R]) emitUnmatched(at int32, emit func(Pair[L, R])) {
	if s := &j.left.slots[at]; j.options.Kind == LeftOuter && s.status&matched == 0 {
		emit(Pair[L, R]{Left: s.row})
	}
}

func (j *Join[K, L, R]) removeLeft(at int32) {
	s := &j.left.slots[at]
	j.ledger.removed(ref{leftSide, at, s.id}, s.status, j.options.Kind == LeftOuter)
	j.left.remove(at)
}

func (j *Join[K, L, R]) removeRight(at int32) {
	s := &j.right.slots[at]
	j.ledger.removed(ref{rightSide, at, s.id}, s.status, false)
	j.right.remove(at)
}

// CloseWindow implements stream.WindowCloser. Left rows of a LeftOuter join that have found no partner are emitted, in the
// order in which they came. Unless the stream ends, all rows of inputs with a time are then removed: rows of different
// windows do not join. Tables stay.
func (j *Join[K, L, R]) CloseWindow(w stream.Window, out *stream.Emitter[Pair[L, R]]) error {
	j.close(w, out.Emit)
	return nil
}

func (j *Join[K, L, R]) close(w stream.Window, emit func(Pair[L, R])) {
	for _, at := range j.left.byID() {
		j.emitUnmatched(at, emit)
	}
	if w.Last {
		return
	}
	if j.left.timed {
		for at := j.left.oldest(); at != none; at = j.left.oldest() {
			j.removeLeft(at)
		}
		j.left.seen = false
	}
	if j.right.timed {
		for at := j.right.oldest(); at != none; at = j.right.oldest() {
			j.removeRight(at)
		}
		j.right.seen = false
	}
}

// byID returns the rows in the order in which they came.
func (t *table[K, T]) byID() []int32 {
	var list []int32
	for at := range t.slots {
		if t.slots[at].status&used != 0 {
			list = append(list, int32(at))
		}
	}
	slices.SortFunc(list, func(a, b int32) int {
		if t.slots[a].id < t.slots[b].id {
			return -1
		}
		return 1
	})
	return list
}
