package grep

import (
	"bytes"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/state"
	"github.com/afstream/afstream/stream"
)

// Search emits the lines that match, in the order of each block. It has no state, so its input may be partitioned in
// any way; it allocates nothing, for the text of a match is that of its block.
type Search struct {
	lines *lineFinder
	beta  float64
}

// NewSearch returns a Search. It panics if o is not valid; see Options.Validate.
func NewSearch(o Options) *Search {
	o.mustBeValid()
	return &Search{lines: newLineFinder(o), beta: o.Beta()}
}

// Process implements stream.Operator. It never fails.
func (s *Search) Process(in connector.Block, out *stream.Emitter[Match]) error {
	s.each(&in, func(m Match) { out.Emit(m) })
	return nil
}

// each calls yield for each line of b that matches.
func (s *Search) each(b *connector.Block, yield func(Match)) {
	counted, number := 0, b.Line // line feeds are counted up to here
	for from := 0; from < len(b.Text); {
		start, end := s.lines.next(b.Text, from)
		if start < 0 {
			return
		}
		number += uint64(bytes.Count(b.Text[counted:start], []byte{'\n'}))
		counted = start
		yield(Match{Text: withoutCR(b.Text[start:end]), Offset: b.Offset + int64(start), Line: number})
		from = end + 1
	}
}

// Measure implements stream.Measurer: no state, and beta as Options.Beta has it.
func (s *Search) Measure() stream.Measure { return stream.Measure{Beta: s.beta} }

// Lines is how many lines of one block match.
type Lines struct {
	Offset int64  `json:"offset"` // of the block
	Count  uint64 `json:"count"`
}

// Tally emits, for each block with lines that match, how many there are. It has no state, so its input may be
// partitioned in any way.
type Tally struct{ lines *lineFinder }

// NewTally returns a Tally. It panics if o is not valid; see Options.Validate.
func NewTally(o Options) *Tally {
	o.mustBeValid()
	return &Tally{lines: newLineFinder(o)}
}

// Process implements stream.Operator. It never fails.
func (t *Tally) Process(in connector.Block, out *stream.Emitter[Lines]) error {
	if n := t.lines.count(in.Text); n > 0 {
		out.Emit(Lines{Offset: in.Offset, Count: n})
	}
	return nil
}

// count returns how many lines of text match.
func (f *lineFinder) count(text []byte) (n uint64) {
	for from := 0; from < len(text); n++ {
		start, end := f.next(text, from)
		if start < 0 {
			break
		}
		from = end + 1
	}
	return n
}

// Measure implements stream.Measurer: no state, and one output at most.
func (t *Tally) Measure() stream.Measure { return stream.Measure{Beta: 1} }

// Sum adds up what Tallies have found and emits the sum at the end of each window. It must have one partition and be
// built with stream.EmitOnClose. Its state is one number, which an item changes by Options.Beta at most.
type Sum struct {
	state.Value[uint64]
	alpha float64
}

// NewSum returns a Sum of 0. It panics if o is not valid; see Options.Validate.
func NewSum(o Options) *Sum {
	o.mustBeValid()
	return &Sum{alpha: o.Beta()}
}

// Process implements stream.Operator. It never fails.
func (s *Sum) Process(in Lines, _ *stream.Emitter[uint64]) error {
	s.Add(in.Count)
	return nil
}

// CloseWindow implements stream.WindowCloser.
func (s *Sum) CloseWindow(w stream.Window, out *stream.Emitter[uint64]) error {
	out.Emit(s.Value.Value())
	if !w.Last {
		s.Set(0)
	}
	return nil
}

// Measure implements stream.Measurer.
func (s *Sum) Measure() stream.Measure {
	return stream.Measure{Alpha: s.alpha, Norm: errorbound.Max, Combine: errorbound.Added}
}
