package reservoir

import (
	"fmt"

	"github.com/afstream/afstream/stream"
)

// Merge makes one sample of those of all partitions and emits its entries, in the order of priorities, at the end of
// each window. It must have one partition and be built with stream.EmitOnClose.
//
// Its state is exact: it has no StateDivergence, so the runtime commits it whole at the end of a window and has the
// entries, which can be emitted again, sent again after a failure.
type Merge[T any] struct {
	size    int
	entries []Entry[T] // without Seen and Weight
	seen    uint64
	weight  float64
}

// NewMerge returns an empty Merge. It panics if o is not valid; see Options.Validate.
func NewMerge[T any](o Options[T]) *Merge[T] {
	o.mustBeValid()
	return &Merge[T]{size: o.Size}
}

// Process implements stream.Operator. The error wraps ErrEntry, or is that of encoding an item.
func (m *Merge[T]) Process(in Entry[T], _ *stream.Emitter[Entry[T]]) error {
	if err := in.check(); err != nil {
		return err
	}
	if in.Seen > maxSeen-m.seen || !isSum(m.weight+in.Weight) {
		return fmt.Errorf("%w: more than %d items, or too heavy ones", ErrEntry, uint64(maxSeen))
	}
	m.seen += in.Seen
	m.weight += in.Weight
	m.entries = append(m.entries, Entry[T]{Item: in.Item, Priority: in.Priority})
	if len(m.entries) >= 2*m.size+1024 {
		return m.rank()
	}
	return nil
}

// rank orders the entries and forgets those that are not in the sample.
func (m *Merge[T]) rank() (err error) {
	m.entries, err = smallest(m.entries, m.size)
	return err
}

// CloseWindow implements stream.WindowCloser. A window without items has no entries.
func (m *Merge[T]) CloseWindow(w stream.Window, out *stream.Emitter[Entry[T]]) error {
	if err := m.rank(); err != nil {
		return err
	}
	for i, e := range m.entries {
		if i == 0 {
			e.Seen, e.Weight = m.seen, m.weight
		}
		out.Emit(e)
	}
	if !w.Last {
		*m = Merge[T]{size: m.size}
	}
	return nil
}

// mergeKey is the key of the one element of a Merge. All entries are in it, so that a later window's backup leaves
// nothing of an earlier one's.
const mergeKey = "sample"

// BackupState implements stream.BackupState. It always writes everything.
func (m *Merge[T]) BackupState(w *stream.StateWriter) error {
	if err := m.rank(); err != nil {
		return err
	}
	var value, one []byte
	for i, e := range m.entries {
		if i == 0 {
			e.Seen, e.Weight = m.seen, m.weight
		}
		var err error
		if one, err = e.AppendBinary(one[:0]); err != nil {
			return fmt.Errorf("back up entry: %w", err)
		}
		value = appendField(value, one)
	}
	w.Put([]byte(mergeKey), value)
	return nil
}

// RestoreState implements stream.RestoreState. The error wraps stream.ErrState.
func (m *Merge[T]) RestoreState(r *stream.StateReader) error {
	for r.Next() {
		if string(r.Key()) != mergeKey || r.Deleted() {
			return fmt.Errorf("%w: unknown element %q", stream.ErrState, r.Key())
		}
		*m = Merge[T]{size: m.size}
		for rest := r.Value(); len(rest) > 0; {
			one, after, ok := takeField(rest)
			var e Entry[T]
			if !ok {
				return fmt.Errorf("%w: entry cut short", stream.ErrState)
			}
			if err := e.UnmarshalBinary(one); err != nil {
				return fmt.Errorf("%w: %w", stream.ErrState, err)
			}
			if err := m.Process(e, nil); err != nil {
				return fmt.Errorf("%w: %w", stream.ErrState, err)
			}
			rest = after
		}
	}
	return r.Err()
}
