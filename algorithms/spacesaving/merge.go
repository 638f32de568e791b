package spacesaving

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/afstream/afstream/algorithms/heavyhitter"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/stream"
)

// Estimates is what merged summaries say about the weight of keys. It does not change. The zero Estimates is that of no
// items.
type Estimates struct {
	keys   map[connector.Key]float64
	absent float64
	total  float64
}

// Of returns how much a key weighs at most, up to what failures have taken: for one that no summary has a counter of, the
// most that it could weigh.
func (e Estimates) Of(key connector.Key) float64 {
	if w, ok := e.keys[key]; ok {
		return w
	}
	return e.absent
}

// Total returns the weight of all items.
func (e Estimates) Total() float64 { return e.total }

// Merge adds up the summaries of all partitions and emits, at the end of each window, the keys whose estimate is at
// least Options.Threshold of the total. It must have one partition and be built with stream.EmitOnClose.
//
// Its state is exact: it has no StateDivergence, so the runtime commits it whole at the end of a window and has the
// summaries, which can be emitted again, sent again after a failure.
type Merge struct {
	options Options
	keys    map[connector.Key]merged
	absent  float64 // what a key counts that no partition has
	total   float64
}

// merged is what the partitions that have a key make of it.
type merged struct {
	weight float64
	least  float64 // what it would count in them if they did not have it
}

// NewMerge returns an empty Merge. It panics if o is not valid; see Options.Validate.
func NewMerge(o Options) *Merge {
	o.mustBeValid()
	return &Merge{options: o, keys: map[connector.Key]merged{}}
}

// Process implements stream.Operator. The error wraps ErrPartial.
func (m *Merge) Process(p Partial, _ *stream.Emitter[heavyhitter.Row]) error {
	if err := p.check(); err != nil {
		return err
	}
	if !isSum(m.total + p.Total) {
		return fmt.Errorf("%w: the totals add up to %v", ErrPartial, m.total+p.Total)
	}
	m.total += p.Total
	m.absent += p.Absent
	for _, c := range p.Counters {
		k := m.keys[c.Key]
		m.keys[c.Key] = merged{weight: k.weight + c.Weight, least: k.least + p.Least}
	}
	return nil
}

// Rows returns the heavy hitters, heaviest first and by key where they are equal. Of no items there are none.
func (m *Merge) Rows() []heavyhitter.Row {
	var rows []heavyhitter.Row
	for key, k := range m.keys {
		if e := m.estimate(k); e > 0 && e >= m.options.Threshold*m.total {
			rows = append(rows, heavyhitter.Row{Key: key, Estimate: e, Share: e / m.total})
		}
	}
	slices.SortFunc(rows, func(a, b heavyhitter.Row) int {
		return cmp.Or(cmp.Compare(b.Estimate, a.Estimate), compareKeys(&a.Key, &b.Key))
	})
	for i := range rows {
		rows[i].Rank = i + 1
	}
	return rows
}

// estimate adds what a key counts in the summaries that do not have it. A difference that rounding has made negative would
// make an estimate too low.
func (m *Merge) estimate(k merged) float64 { return k.weight + max(0, m.absent-k.least) }

// Estimates returns what is known of every key, in a copy that later items do not change.
func (m *Merge) Estimates() Estimates {
	e := Estimates{keys: make(map[connector.Key]float64, len(m.keys)), absent: m.absent, total: m.total}
	for key, k := range m.keys {
		e.keys[key] = m.estimate(k)
	}
	return e
}

func compareKeys(a, b *connector.Key) int {
	x, _ := a.AppendBinary(nil)
	y, _ := b.AppendBinary(nil)
	return slices.Compare(x, y)
}

// CloseWindow implements stream.WindowCloser: it emits the rows and, unless the stream ends, starts the next window with
// nothing.
func (m *Merge) CloseWindow(w stream.Window, out *stream.Emitter[heavyhitter.Row]) error {
	if m.options.OnMerged != nil {
		if err := m.options.OnMerged(w, m.Estimates()); err != nil {
			return err
		}
	}
	for _, row := range m.Rows() {
		out.Emit(row)
	}
	if !w.Last {
		clear(m.keys)
		m.absent, m.total = 0, 0
	}
	return nil
}

// mergeKey is the key of the one element of a Merge. All keys are in it, so that a later window's backup leaves nothing
// of an earlier one's.
const mergeKey = "summary"

// BackupState implements stream.BackupState. It always writes everything.
func (m *Merge) BackupState(w *stream.StateWriter) error {
	order := make([]connector.Key, 0, len(m.keys))
	for key := range m.keys {
		order = append(order, key)
	}
	slices.SortFunc(order, func(a, b connector.Key) int { return compareKeys(&a, &b) })
	value := appendFloat(appendFloat(nil, m.absent), m.total)
	for _, key := range order {
		k := m.keys[key]
		one := appendFloat(appendFloat(nil, k.weight), k.least)
		one, _ = key.AppendBinary(one) // its error is always nil
		value = append(binary.AppendUvarint(value, uint64(len(one))), one...)
	}
	w.Put([]byte(mergeKey), value)
	return nil
}

// RestoreState implements stream.RestoreState. The error wraps stream.ErrState.
func (m *Merge) RestoreState(r *stream.StateReader) error {
	for r.Next() {
		v := r.Value()
		if string(r.Key()) != mergeKey || len(v) < 16 || !isSum(float(v)) || !isSum(float(v[8:])) {
			return fmt.Errorf("%w: unknown element %q", stream.ErrState, r.Key())
		}
		m.absent, m.total = float(v), float(v[8:])
		clear(m.keys)
		for rest := v[16:]; len(rest) > 0; {
			length, n := binary.Uvarint(rest)
			if n <= 0 || length < 16 || length > uint64(len(rest)-n) {
				return fmt.Errorf("%w: key cut short", stream.ErrState)
			}
			one := rest[n : n+int(length)]
			rest = rest[n+int(length):]
			var key connector.Key
			if err := key.UnmarshalBinary(one[16:]); err != nil {
				return fmt.Errorf("%w: %w", stream.ErrState, err)
			}
			k := merged{weight: float(one), least: float(one[8:])}
			if !isSum(k.weight) || !isSum(k.least) {
				return fmt.Errorf("%w: key %q weighs %v", stream.ErrState, key, k.weight)
			}
			m.keys[key] = k
		}
	}
	return r.Err()
}
