package wordcount

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// Row is one word of the answer.
type Row struct {
	Rank  int    `json:"rank"` // 1 is the most frequent
	Word  string `json:"word"`
	Count uint64 `json:"count"`
}

func compareRows(a, b Row) int {
	return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Word, b.Word))
}

// Merge adds up the counts of all partitions and emits, at the end of each window, the words with their counts, most
// frequent first and by word where they are equal: all, or Options.Top of them. It must be built with
// stream.EmitOnClose, and with ByShard if it has several partitions. Then each ranks its own words, and Top makes one
// ranking of them.
//
// Its state is exact: it has no StateDivergence, so the runtime commits it whole at the end of a window and has the
// counts, which can be emitted again, sent again after a failure.
type Merge struct {
	words *table // a field, not embedded: its divergence must not be promoted
	top   int
}

// NewMerge returns an empty Merge. It panics if o is not valid; see Options.Validate.
func NewMerge(o Options) *Merge {
	o.mustBeValid()
	return &Merge{words: newTable(errorbound.Max, 0), top: o.Top}
}

// Process implements stream.Operator. The error wraps ErrCounts.
func (m *Merge) Process(c Counts, _ *stream.Emitter[Row]) error {
	for word, count := range c.All() {
		if count > maxTotal-m.words.total {
			return fmt.Errorf("%w: more than %d words", ErrCounts, uint64(maxTotal))
		}
		m.words.add(word, count)
	}
	return nil
}

// CloseWindow implements stream.WindowCloser.
func (m *Merge) CloseWindow(w stream.Window, out *stream.Emitter[Row]) error {
	ranked := m.words.ranked(m.top)
	var words strings.Builder // the memory of all of them
	for _, r := range ranked {
		words.Write(m.words.word(r.index))
	}
	rest := words.String()
	for rank, r := range ranked {
		n := len(m.words.word(r.index))
		out.Emit(Row{Rank: rank + 1, Word: rest[:n], Count: r.count})
		rest = rest[n:]
	}
	if !w.Last {
		m.words.reset()
	}
	return nil
}

// BackupState implements stream.BackupState. It always writes everything.
func (m *Merge) BackupState(w *stream.StateWriter) error {
	m.words.backup(w)
	return nil
}

// BackupDurable implements stream.BackupDurable: words of a window that is over are then forgotten.
func (m *Merge) BackupDurable() { m.words.backupDurable() }

// RestoreState implements stream.RestoreState. The error wraps stream.ErrState.
func (m *Merge) RestoreState(r *stream.StateReader) error { return m.words.restore(r) }

// PartitionOf implements stream.Keyed, for an input that is partitioned by ByShard.
func (m *Merge) PartitionOf(word []byte, n int) int {
	return partitionOf(shardOf(xxhash.Sum64(word)), n)
}

// Top makes one ranking of those of the partitions of Merge and emits its first Options.Top rows at the end of each
// window. It must have one partition and be built with stream.EmitOnClose. Its state is exact, as that of Merge.
type Top struct {
	rows []Row // without ranks; unordered beyond the last call of rank
	top  int
}

// NewTop returns an empty Top. It panics if o is not valid (see Options.Validate) or Options.Top is 0.
func NewTop(o Options) *Top {
	o.mustBeValid()
	if o.Top == 0 {
		panic(fmt.Errorf("%w: a Top of all words", ErrOptions))
	}
	return &Top{top: o.Top}
}

// Process implements stream.Operator. It never fails.
func (t *Top) Process(row Row, _ *stream.Emitter[Row]) error {
	t.rows = append(t.rows, Row{Word: row.Word, Count: row.Count})
	if len(t.rows) >= 2*t.top+1024 {
		t.rank()
	}
	return nil
}

// rank orders the rows and forgets those beyond the top.
func (t *Top) rank() {
	slices.SortFunc(t.rows, compareRows)
	t.rows = t.rows[:min(t.top, len(t.rows))]
}

// CloseWindow implements stream.WindowCloser.
func (t *Top) CloseWindow(w stream.Window, out *stream.Emitter[Row]) error {
	t.rank()
	for i, row := range t.rows {
		row.Rank = i + 1
		out.Emit(row)
	}
	if !w.Last {
		t.rows = nil
	}
	return nil
}

// topKey begins the keys of the rows in a backup. One element per rank, and not per word, so that a later window's
// overwrite an earlier one's; what is beyond them is told by topLen.
const (
	topKey = 'r'
	topLen = "n"
)

// BackupState implements stream.BackupState. It always writes everything.
func (t *Top) BackupState(w *stream.StateWriter) error {
	t.rank()
	w.Put([]byte(topLen), binary.AppendUvarint(nil, uint64(len(t.rows))))
	for i, row := range t.rows {
		value := append(binary.AppendUvarint(nil, row.Count), row.Word...)
		w.Put(binary.BigEndian.AppendUint32([]byte{topKey}, uint32(i)), value)
	}
	return nil
}

// RestoreState implements stream.RestoreState. The error wraps stream.ErrState.
func (t *Top) RestoreState(r *stream.StateReader) error {
	length, rows := uint64(0), map[uint32]Row{}
	for r.Next() {
		if string(r.Key()) == topLen {
			var ok bool
			if length, ok = uvarint(r.Value()); !ok {
				return fmt.Errorf("%w: number of rows %x", stream.ErrState, r.Value())
			}
			continue
		}
		if len(r.Key()) != 5 || r.Key()[0] != topKey {
			return fmt.Errorf("%w: unknown element %q", stream.ErrState, r.Key())
		}
		count, n := binary.Uvarint(r.Value())
		if n <= 0 {
			return fmt.Errorf("%w: row %x", stream.ErrState, r.Value())
		}
		rows[binary.BigEndian.Uint32(r.Key()[1:])] = Row{Word: string(r.Value()[n:]), Count: count}
	}
	if err := r.Err(); err != nil {
		return err
	}
	if length > uint64(len(rows)) {
		return fmt.Errorf("%w: %d rows of %d", stream.ErrState, len(rows), length)
	}
	t.rows = t.rows[:0]
	for i := range uint32(length) {
		row, ok := rows[i]
		if !ok {
			return fmt.Errorf("%w: row %d is missing", stream.ErrState, i)
		}
		t.rows = append(t.rows, row)
	}
	return nil
}
