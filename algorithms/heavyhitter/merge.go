package heavyhitter

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/afstream/afstream/algorithms/countmin"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/stream"
)

// Merge adds up the sketches of all partitions and emits, at the end of each window, the heavy hitters of the whole
// stream. It must have one partition and be built with stream.EmitOnClose.
//
// Its state is exact: it has no StateDivergence, so the runtime commits it whole at the end of a window and has the
// sketches, which can be emitted again, sent again after a failure.
type Merge struct {
	options Options
	counts  *countmin.Sketch // a field, not embedded: its StateDivergence must not be promoted; nil until it is needed
	keys    map[uint64]connector.Key
}

// NewMerge returns an empty Merge. It panics if o is not valid; see Options.Validate.
func NewMerge(o Options) *Merge {
	if err := o.Validate(); err != nil {
		panic(err)
	}
	return &Merge{options: o, keys: map[uint64]connector.Key{}}
}

// sums returns the counters. They are made when the first sketch arrives, which is at the end of a window: until then they would
// only take memory.
func (m *Merge) sums() *countmin.Sketch {
	if m.counts == nil {
		m.counts = m.options.sketch()
	}
	return m.counts
}

// Process implements stream.Operator. The error wraps ErrPartial.
func (m *Merge) Process(p Partial, _ *stream.Emitter[Row]) error {
	if err := p.check(); err != nil {
		return err
	}
	if p.Rows != m.options.Rows || p.Width != m.options.Width {
		return fmt.Errorf("%w: it is of a sketch of %dx%d, not %dx%d",
			ErrPartial, p.Rows, p.Width, m.options.Rows, m.options.Width)
	}
	if err := m.sums().AddCells(p.First, p.Cells); err != nil {
		return fmt.Errorf("%w: %w", ErrPartial, err)
	}
	m.sums().AddTotal(p.Total)
	for _, c := range p.Candidates {
		m.keys[c.Hash] = c.Key
	}
	return nil
}

// CloseWindow implements stream.WindowCloser: it emits the heavy hitters, heaviest first, and, unless the stream ends,
// starts the next window with nothing.
func (m *Merge) CloseWindow(w stream.Window, out *stream.Emitter[Row]) error {
	if m.options.OnMerged != nil {
		if err := m.options.OnMerged(w, m.sums()); err != nil {
			return err
		}
	}
	for _, row := range m.Rows() {
		out.Emit(row)
	}
	if !w.Last {
		m.sums().Reset()
		clear(m.keys)
	}
	return nil
}

// Rows returns the candidates whose estimate is at least Threshold of the total, heaviest first and by key where they
// are equal. An empty stream has none.
func (m *Merge) Rows() []Row {
	total := m.sums().Total()
	var rows []Row
	for hash, key := range m.keys {
		if e := m.counts.Estimate(hash); e > 0 && e >= m.options.Threshold*total {
			rows = append(rows, Row{Key: key, Estimate: e})
		}
	}
	return ranked(rows, total)
}

// BackupState implements stream.BackupState. It always writes everything.
func (m *Merge) BackupState(w *stream.StateWriter) error {
	if err := m.sums().BackupState(w); err != nil {
		return err
	}
	for _, k := range sortedCandidates(m.keys) {
		value, err := k.Key.AppendBinary(nil)
		if err != nil {
			return fmt.Errorf("back up candidate %q: %w", k.Key, err)
		}
		w.Put(candidateKey(k.Hash), value)
	}
	return nil
}

// RestoreState implements stream.RestoreState.
func (m *Merge) RestoreState(r *stream.StateReader) error {
	return m.sums().RestoreWith(r, func(r *stream.StateReader) error { return restoreCandidate(r, m.keys) })
}

func sortedCandidates(keys map[uint64]connector.Key) []Candidate {
	list := make([]Candidate, 0, len(keys))
	for hash, key := range keys {
		list = append(list, Candidate{hash, key})
	}
	slices.SortFunc(list, compareCandidates)
	return list
}

// ranked orders rows, heaviest first and by key where they are equal, and fills in rank and share.
func ranked(rows []Row, total float64) []Row {
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Estimate, a.Estimate), compareKeys(&a.Key, &b.Key))
	})
	for i := range rows {
		rows[i].Rank = i + 1
		if total > 0 {
			rows[i].Share = rows[i].Estimate / total
		}
	}
	return rows
}

// compareKeys orders keys by kind and bytes.
func compareKeys(a, b *connector.Key) int {
	x, _ := a.AppendBinary(nil)
	y, _ := b.AppendBinary(nil)
	return slices.Compare(x, y)
}
