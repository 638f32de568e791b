package heavyhitter

import (
	"errors"
	"fmt"

	"github.com/afstream/afstream/algorithms/countmin"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/stream"
)

// ErrWeight is wrapped by the errors of Process and ProcessBatch about an item whose weight is negative, not finite,
// or above Options.Alpha.
var ErrWeight = errors.New("heavyhitter: weight out of range")

// Sketch summarises the items of one partition. It emits at the end of each window only and must be built with
// stream.EmitOnClose; its input may be shuffled, or partitioned in any way.
//
// Its state is a count-min sketch, backed up element by element, and the set of candidates: the keys whose estimate
// came near Threshold of the local total at their last occurrence. A key of that share of the global total reaches it
// in at least one partition.
type Sketch struct {
	options    Options
	counts     *countmin.Sketch
	candidates *candidates
	maxWeight  float64
	margin     float64 // how far below the bar a key already becomes a candidate
}

// NewSketch returns an empty Sketch. It panics if o is not valid; see Options.Validate.
func NewSketch(o Options) *Sketch {
	return &Sketch{options: o, counts: o.sketch(), candidates: newCandidates(o.Threshold), maxWeight: o.maxWeight()}
}

// Counts returns the count-min sketch of this partition, to be read only.
func (s *Sketch) Counts() *countmin.Sketch { return s.counts }

// Candidates returns the candidates of this partition, ordered by hash. It allocates.
func (s *Sketch) Candidates() []Candidate { return s.candidates.sorted() }

// Process implements stream.Operator. The error wraps ErrWeight.
func (s *Sketch) Process(in connector.Keyed, out *stream.Emitter[Partial]) error {
	return s.ProcessBatch([]connector.Keyed{in}, out)
}

// ProcessBatch implements stream.BatchOperator. The error wraps ErrWeight; the items before the faulty one have then
// been counted.
func (s *Sketch) ProcessBatch(in []connector.Keyed, _ *stream.Emitter[Partial]) error {
	for i := range in {
		item := &in[i]
		if !(item.Weight >= 0 && item.Weight <= s.maxWeight) { // so that NaN is out of range
			return fmt.Errorf("%w: %v of key %q, want 0 to %v", ErrWeight, item.Weight, item.Key, s.maxWeight)
		}
		estimate := s.counts.Update(item.Hash, item.Weight)
		if estimate >= s.admission() && !s.candidates.has(item.Hash) {
			s.admit(item)
		}
	}
	return nil
}

// admission is the weight from which on a key is a candidate: the bar of this partition less the margin, but at least
// half the bar, so that candidates stay few while theta is not yet small against it.
func (s *Sketch) admission() float64 {
	bar := s.options.Threshold * s.counts.Total()
	return max(bar/2, bar-s.margin)
}

func (s *Sketch) admit(item *connector.Keyed) {
	if s.candidates.full() {
		s.candidates.prune(s.admission(), s.counts.Estimate)
	}
	s.candidates.add(Candidate{item.Hash, item.Key}, fresh)
}

// CloseWindow implements stream.WindowCloser: it emits the sketch in pieces, the same for the same state, and, unless
// the stream ends, empties it for the next window.
func (s *Sketch) CloseWindow(w stream.Window, out *stream.Emitter[Partial]) error {
	for p := range s.partials() {
		out.Emit(p)
	}
	if !w.Last {
		s.counts.Reset()
		s.candidates.truncate(0)
	}
	return nil
}
