package threshold

import "fmt"

// Marks bounds what a partition that emits as it processes emits twice after a failure. A mark makes the processed positions
// of all input channels durable without any element of the state: as a record beside the commits, at once and whether
// or not one is in flight, or as a commit of its own. Unlike a state backup it costs next to nothing. After a failure only what is above the newest commit, mark or not, is asked for, taken from the item log,
// applied and emitted again. So a failure repeats the outputs of at most l items, whatever became of acknowledgements
// in flight, of the item log, and of the senders. The elements that a mark leaves out lack items at or below it for
// good, but the divergence of the state counts those already, so that is within theta.
//
// Any commit is a mark, too. The caller makes one when it is Due; one that is a commit waits for the partition's one
// commit slot, or for its own end, at the Gate.
//
// Partitions that neither emit nor flush as they process, or emit only at punctuation, need no marks.
//
// Invariants, checked by Valid; totals count the entries, items and punctuation, that were processed of all input
// channels since the incarnation started, those replayed from the item log included:
//
//	M1   marked <= processed                    a mark ahead of processing would lose outputs
//	M2   processed - marked <= max(l, 1)        what a failure emits twice
//
// As with [Sender], 0 is used as 1: emitting and recording that one has emitted are two steps.
//
// The zero value is a Marks with l = 0. A Marks belongs to one goroutine.
type Marks struct {
	l                 uint64
	processed, marked uint64
}

// NewMarks returns a Marks with nothing processed. l is Budget.L.
func NewMarks(l uint64) *Marks { return &Marks{l: l} }

// Gate returns the total up to which entries may be processed now (M2). It is never below what is processed, so that
// the difference of the two is the room there is.
func (m *Marks) Gate() uint64 { return max(m.processed, saturatingAdd(m.marked, m.Window())) }

// Processed says that the first total entries are processed. A total below an earlier one is ignored.
func (m *Marks) Processed(total uint64) { m.processed = max(m.processed, total) }

// Due reports that a commit should begin now if none is under way: half of the window is used, so that its write
// overlaps with the other half. A caller that runs out of input need not write one, nor one whose mark is written before it
// goes on: that may as well wait until the Gate is reached.
func (m *Marks) Due() bool { return m.processed-m.marked >= m.Window()-m.Window()/2 }

// Committed says that a commit made at the processed total is durable. A total below an earlier one is ignored.
func (m *Marks) Committed(total uint64) { m.marked = max(m.marked, total) }

// Window returns the limit in use: max(l, 1).
func (m *Marks) Window() uint64 { return max(m.l, 1) }

// Valid returns an error wrapping ErrInvariant that names the first broken invariant, or nil.
func (m *Marks) Valid() error {
	switch {
	case m.marked > m.processed:
		return fmt.Errorf("%w: M1: marked %d is over processed %d", ErrInvariant, m.marked, m.processed)
	case m.processed-m.marked > m.Window():
		return fmt.Errorf("%w: M2: processed %d is more than %d over marked %d",
			ErrInvariant, m.processed, m.Window(), m.marked)
	}
	return nil
}
