package join

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// ledger knows which rows the backups hold. Its divergence is the number of rows that are in the state and not in the
// durable backup as they are, and of those that went and matter, see removed. Rows in the backup in flight count until it
// is durable, those that went although they are in it count too: so the number bounds the distance to both.
//
// Invariants, while tracked: fresh holds every used row that is neither saved nor flying (and stale refs, of rows that
// are gone or are there twice); flight every row that is flying; unsaved counts the used rows that are not saved.
type ledger struct {
	tracked bool // theta is finite
	unsaved int
	fresh   []ref
	flight  []ref
	gone    []goner
	leaving int // how many of gone the backup in flight deletes
	missed  int // how many of gone count
}

// ref names a row: a slot can be reused, so it is that row only as long as the id is the same.
type ref struct {
	side byte
	slot int32
	id   uint64
}

// goner is a removed row that a backup may hold.
type goner struct {
	ref
	counts bool
}

// Sides, as the keys of elements begin.
const (
	leftSide  byte = 'l'
	rightSide byte = 'r'
)

// added notes a row that came.
func (j *Join[K, L, R]) added(r ref) {
	l := &j.ledger
	l.unsaved++
	if !l.tracked {
		return
	}
	l.fresh = append(l.fresh, r)
	if len(l.fresh) > 2*l.unsaved+1024 { // most have left before a backup wanted them
		l.fresh = slices.DeleteFunc(l.fresh, func(r ref) bool {
			s := j.status(r)
			return s == nil || *s&(saved|flying) != 0
		})
	}
}

// changed notes that a row is not any more as it was saved, if it was.
func (l *ledger) changed(r ref, s *status) {
	if *s&(saved|flying) == 0 {
		return
	}
	if *s&saved != 0 {
		l.unsaved++
	}
	*s = *s&^(saved|flying) | older
	if l.tracked {
		l.fresh = append(l.fresh, r)
	}
}

// removed notes that a row is gone. Whether that counts is the caller's to say: a row that a failure brings back does no
// harm if it can only leave again, but a left row of a LeftOuter join would be emitted once more.
func (l *ledger) removed(r ref, s status, counts bool) {
	if s&saved == 0 {
		l.unsaved--
	}
	if s&(saved|flying|older) == 0 {
		return
	}
	l.gone = append(l.gone, goner{r, counts})
	if counts {
		l.missed++
	}
}

// Measure implements stream.Measurer. The norm is Count, and keys are in one partition only. In an Inner join a row adds
// itself; in a LeftOuter join it can also find a partner for MaxMatches rows and make two more leave.
func (j *Join[K, L, R]) Measure() stream.Measure {
	m := stream.Measure{Norm: errorbound.Count, Combine: errorbound.Disjoint, Alpha: 1, Beta: float64(j.options.MaxMatches)}
	if j.options.Kind == LeftOuter {
		m.Alpha = 0
		if j.options.MaxMatches > 0 {
			m.Alpha = float64(1 + j.options.MaxMatches + evictions)
			m.Beta += evictions
		}
	}
	return m
}

// SetTheta implements stream.Thresholder. It takes time in proportion to the number of rows.
func (j *Join[K, L, R]) SetTheta(theta float64) {
	l := &j.ledger
	l.tracked = !math.IsInf(theta, 1)
	l.fresh = l.fresh[:0]
	if !l.tracked {
		return
	}
	for r := range j.refs() {
		if s := j.status(r); s != nil && *s&(saved|flying) == 0 {
			l.fresh = append(l.fresh, r)
		}
	}
}

// StateDivergence implements stream.StateDivergence, in constant time.
func (j *Join[K, L, R]) StateDivergence() float64 {
	if !j.ledger.tracked {
		return math.Inf(1)
	}
	return float64(j.ledger.unsaved + j.ledger.missed)
}

// refs yields all rows.
func (j *Join[K, L, R]) refs() func(yield func(ref) bool) {
	return func(yield func(ref) bool) {
		for at := range j.left.slots {
			if s := &j.left.slots[at]; s.status&used != 0 && !yield(ref{leftSide, int32(at), s.id}) {
				return
			}
		}
		for at := range j.right.slots {
			if s := &j.right.slots[at]; s.status&used != 0 && !yield(ref{rightSide, int32(at), s.id}) {
				return
			}
		}
	}
}

// status returns the status of a row, nil if it is gone.
func (j *Join[K, L, R]) status(r ref) *status {
	if r.side == leftSide {
		if s := &j.left.slots[r.slot]; s.status&used != 0 && s.id == r.id {
			return &s.status
		}
		return nil
	}
	if s := &j.right.slots[r.slot]; s.status&used != 0 && s.id == r.id {
		return &s.status
	}
	return nil
}

// timesKey is the key of the element that holds the latest times. Those of rows have 9 bytes.
const timesKey = "times"

// BackupState implements stream.BackupState. A partial backup writes the rows that no durable backup holds, and deletes
// those that are gone: all rows weigh the same, so there is none to leave out. Each row is written once in its life at
// most, and not at all if it goes before.
func (j *Join[K, L, R]) BackupState(w *stream.StateWriter) error {
	j.ground()
	l := &j.ledger
	list := l.fresh
	if w.Whole() || !l.tracked {
		list = list[:0]
		for r := range j.refs() {
			list = append(list, r)
		}
	}
	var key, value []byte
	if !w.Whole() {
		for _, g := range l.gone {
			key = g.key(key[:0])
			w.Delete(key)
		}
	}
	w.Put([]byte(timesKey), j.times())
	for _, r := range list {
		s := j.status(r)
		if s == nil || *s&flying != 0 || *s&saved != 0 && !w.Whole() && l.tracked {
			continue
		}
		var err error
		if value, err = j.encode(value[:0], r, *s); err != nil {
			return fmt.Errorf("back up row %d: %w", r.id, err)
		}
		key = r.key(key[:0])
		w.Put(key, value)
		*s |= flying
		l.flight = append(l.flight, r)
	}
	l.fresh = l.fresh[:0]
	l.leaving = len(l.gone)
	return nil
}

// ground forgets a backup that did not become durable.
func (j *Join[K, L, R]) ground() {
	l := &j.ledger
	for _, r := range l.flight {
		s := j.status(r)
		if s == nil || *s&flying == 0 {
			continue
		}
		*s = *s&^flying | older
		if l.tracked && *s&saved == 0 {
			l.fresh = append(l.fresh, r)
		}
	}
	l.flight, l.leaving = l.flight[:0], 0
}

func (r ref) key(dst []byte) []byte {
	return binary.BigEndian.AppendUint64(append(dst, r.side), r.id)
}

func (j *Join[K, L, R]) encode(dst []byte, r ref, s status) ([]byte, error) {
	dst = append(dst, byte(s&matched))
	if r.side == leftSide {
		return j.options.Left.Append(dst, &j.left.slots[r.slot].row)
	}
	return j.options.Right.Append(dst, &j.right.slots[r.slot].row)
}

func (j *Join[K, L, R]) times() []byte {
	var b []byte
	for _, t := range []struct {
		latest int64
		seen   bool
	}{{j.left.latest, j.left.seen}, {j.right.latest, j.right.seen}} {
		seen := byte(0)
		if t.seen {
			seen = 1
		}
		b = append(binary.BigEndian.AppendUint64(b, uint64(t.latest)), seen)
	}
	return b
}

// BackupDurable implements stream.BackupDurable, in time proportional to what the backup wrote.
func (j *Join[K, L, R]) BackupDurable() {
	l := &j.ledger
	for _, r := range l.flight {
		s := j.status(r)
		if s == nil || *s&flying == 0 {
			continue
		}
		if *s&saved == 0 {
			l.unsaved--
		}
		*s = *s&^flying | saved
	}
	l.gone = append(l.gone[:0], l.gone[l.leaving:]...)
	l.missed = 0
	for _, g := range l.gone {
		if g.counts {
			l.missed++
		}
	}
	l.flight, l.leaving = l.flight[:0], 0
}

// RestoreState implements stream.RestoreState.
func (j *Join[K, L, R]) RestoreState(r *stream.StateReader) error {
	j.groups.ages.restoring(true)
	defer j.groups.ages.restoring(false)
	slots := map[ref]int32{} // by side and id
	for r.Next() {
		if string(r.Key()) == timesKey {
			if err := j.restoreTimes(r.Value()); err != nil {
				return err
			}
			continue
		}
		if err := j.restore(r, slots); err != nil {
			return err
		}
	}
	return r.Err()
}

func (j *Join[K, L, R]) restoreTimes(b []byte) error {
	if len(b) != 18 || b[8] > 1 || b[17] > 1 {
		return fmt.Errorf("%w: times of %d bytes", stream.ErrState, len(b))
	}
	j.left.latest, j.left.seen = int64(binary.BigEndian.Uint64(b)), b[8] == 1
	j.right.latest, j.right.seen = int64(binary.BigEndian.Uint64(b[9:])), b[17] == 1
	return nil
}

// restore takes one row, in place of an older form of it.
func (j *Join[K, L, R]) restore(r *stream.StateReader, slots map[ref]int32) error {
	key, value := r.Key(), r.Value()
	if len(key) != 9 || key[0] != leftSide && key[0] != rightSide {
		return fmt.Errorf("%w: unknown element %q", stream.ErrState, key)
	}
	name := ref{side: key[0], id: binary.BigEndian.Uint64(key[1:])}
	if name.id == math.MaxUint64 {
		return fmt.Errorf("%w: row number %d", stream.ErrState, name.id)
	}
	if at, ok := slots[name]; ok {
		delete(slots, name)
		if name.side == leftSide {
			j.left.remove(at)
		} else {
			j.right.remove(at)
		}
	}
	if r.Deleted() {
		return nil
	}
	if len(value) == 0 || status(value[0])&^matched != 0 {
		return fmt.Errorf("%w: row %d of %d bytes", stream.ErrState, name.id, len(value))
	}
	at, err := int32(none), error(nil)
	if name.side == leftSide {
		at, err = revive(&j.left, &j.options.Left, name.id, status(value[0]), value[1:])
	} else {
		at, err = revive(&j.right, &j.options.Right, name.id, status(value[0]), value[1:])
	}
	if err != nil {
		return fmt.Errorf("%w: row %d: %w", stream.ErrState, name.id, err)
	}
	slots[name] = at
	return nil
}

// revive puts a decoded row into its table.
func revive[K comparable, T any](t *table[K, T], side *Side[K, T], id uint64, s status, src []byte) (int32, error) {
	var row T
	if err := side.Decode(src, &row); err != nil {
		return none, err
	}
	time := int64(0)
	if side.Time != nil {
		time = side.Time(&row)
	}
	next := max(t.nextID, id+1)
	t.nextID = id
	t.groups.ages.turn++
	restored := t.insert(t.groups.find(side.Key(&row)), &row, time)
	restored.status |= s | saved
	t.nextID = next
	return t.at, nil
}
