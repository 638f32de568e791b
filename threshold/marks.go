package threshold

import "fmt"

// Marks bounds what a partition that emits as it processes emits twice after a failure. A mark is a small durable
// record of the processed position of every input channel, taken between two items. After a failure, items at or
// below the newest mark (or commit) may change the state again, from the item log or a resend, but emit nothing;
// items above it are processed in full. So a failure repeats the outputs of at most l items, whatever became of
// acknowledgements in flight, of the item log, and of the senders.
//
// Partitions without outputs, or that emit only at punctuation, need no marks.
//
// Invariants, checked by Valid; totals count processed items of all input channels since the incarnation started:
//
//	M1   marked <= processed                    a mark ahead of processing would lose outputs
//	M2   processed - marked <= max(l, 1)        what a failure emits twice
//
// As with [Sender], 0 is used as 1: emitting and recording that one has emitted are two steps.
//
// The zero value is a Marks with l = 0. A Marks belongs to one goroutine.
type Marks struct {
	l                         uint64
	processed, marked, flying uint64
	inFlight                  bool
}

// NewMarks returns a Marks with nothing processed. l is Budget.L.
func NewMarks(l uint64) *Marks { return &Marks{l: l} }

// Gate returns the total up to which items may be processed now (M2).
func (m *Marks) Gate() uint64 { return saturatingAdd(m.marked, m.Window()) }

// Processed says that the first total items are processed. A total below an earlier one is ignored.
func (m *Marks) Processed(total uint64) { m.processed = max(m.processed, total) }

// Due reports that a mark should be written now: none is in flight and half of the window is used, so that the write
// overlaps with the other half. A caller that runs out of input need not write one.
func (m *Marks) Due() bool {
	return !m.inFlight && m.processed-m.marked >= (m.Window()+1)/2
}

// Started says that the write of a mark at the current processed total has begun, and returns that total.
func (m *Marks) Started() uint64 {
	m.inFlight, m.flying = true, m.processed
	return m.processed
}

// Durable says that the mark in flight is durable.
func (m *Marks) Durable() {
	m.marked, m.inFlight = max(m.marked, m.flying), false
}

// Committed says that a commit with the processed total is durable: it is a mark, too.
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
