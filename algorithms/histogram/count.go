package histogram

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// ErrValue is wrapped by the errors of Process and ProcessBatch about numbers that are NaN or infinite.
var ErrValue = errors.New("histogram: number is not finite")

// Count counts the numbers of one partition by bins. It emits its histogram at the end of each window only and must be
// built with stream.EmitOnClose; its input may be shuffled, or partitioned in any way.
//
// A number costs a few nanoseconds in an equi-width layout, and a logarithm in a relative one. Nothing is allocated.
type Count struct {
	layout Layout
	bins   bins
}

// New returns a Count of no numbers. It panics on a zero Layout.
func New(l Layout) *Count {
	if l.kind == 0 {
		panic(fmt.Errorf("%w: the zero Layout", ErrLayout))
	}
	return &Count{layout: l, bins: newBins(l.Bins())}
}

// Process implements stream.Operator. The error wraps ErrValue.
func (c *Count) Process(in float64, out *stream.Emitter[Histogram]) error {
	return c.ProcessBatch([]float64{in}, out)
}

// ProcessBatch implements stream.BatchOperator. The error wraps ErrValue; the numbers before the faulty one have then
// been counted.
func (c *Count) ProcessBatch(in []float64, _ *stream.Emitter[Histogram]) error {
	l, b := &c.layout, &c.bins
	equi := l.kind == equiWidth
	for _, x := range in {
		if x-x != 0 {
			return fmt.Errorf("%w: %v", ErrValue, x)
		}
		bin := 0
		if equi { // one call less than Bin
			bin = l.equiBin(x)
		} else {
			bin = l.relativeBin(x)
		}
		if b.counts[bin]++; !b.marked[bin] {
			b.mark(uint32(bin))
		}
		b.total++
	}
	return nil
}

// Histogram returns a copy of what was counted.
func (c *Count) Histogram() Histogram { return newHistogram(c.layout, slices.Clone(c.bins.counts)) }

// CloseWindow implements stream.WindowCloser: it emits the histogram and, unless the stream ends, starts the next window
// with none.
func (c *Count) CloseWindow(w stream.Window, out *stream.Emitter[Histogram]) error {
	out.Emit(c.Histogram())
	if !w.Last {
		c.bins.reset()
	}
	return nil
}

// Measure implements stream.Measurer: the L1 norm, one bin that grows by 1 per item, and histograms that are added up
// downstream.
func (c *Count) Measure() stream.Measure {
	return stream.Measure{Alpha: 1, Norm: errorbound.L1, Combine: errorbound.Added}
}

// SetTheta implements stream.Thresholder; only whether theta is infinite matters.
func (c *Count) SetTheta(theta float64) { c.bins.tracked = !math.IsInf(theta, 1) }

// StateDivergence implements stream.StateDivergence: how many numbers came since the last durable backup, exactly and
// in constant time.
func (c *Count) StateDivergence() float64 { return c.bins.divergence() }

// BackupState implements stream.BackupState. A partial backup writes the bins that have changed.
func (c *Count) BackupState(w *stream.StateWriter) error {
	c.bins.backup(w, &c.layout)
	return nil
}

// BackupDurable implements stream.BackupDurable.
func (c *Count) BackupDurable() { c.bins.backupDurable() }

// RestoreState implements stream.RestoreState. The error wraps ErrLayout for a backup of another layout, and
// stream.ErrState for what is no backup.
func (c *Count) RestoreState(r *stream.StateReader) error { return c.bins.restore(r, &c.layout) }

// MergeState implements stream.MergeState, with the errors of RestoreState.
func (c *Count) MergeState(r *stream.StateReader) error { return c.bins.mergeState(r, &c.layout) }

// Merge adds up the histograms of all partitions and emits that of the whole stream at the end of each window. It must
// have one partition and be built with stream.EmitOnClose.
//
// Its state is exact: it has no StateDivergence, so the runtime commits it whole at the end of a window and has the
// histograms, which can be emitted again, sent again after a failure.
type Merge struct{ sum Histogram }

// NewMerge returns a Merge of no histograms. It panics on a zero Layout.
func NewMerge(l Layout) *Merge { return &Merge{sum: New(l).Histogram()} }

// Process implements stream.Operator. The error wraps ErrHistogram.
func (m *Merge) Process(in Histogram, _ *stream.Emitter[Histogram]) error {
	sum, err := m.sum.sum(in)
	if err != nil {
		return err
	}
	m.sum = sum
	return nil
}

// CloseWindow implements stream.WindowCloser.
func (m *Merge) CloseWindow(w stream.Window, out *stream.Emitter[Histogram]) error {
	out.Emit(m.sum)
	if !w.Last {
		m.sum = New(m.sum.layout).Histogram()
	}
	return nil
}

// mergeKey is the key of the one element of a Merge.
const mergeKey = "histogram"

// BackupState implements stream.BackupState. It always writes everything.
func (m *Merge) BackupState(w *stream.StateWriter) error {
	value, err := m.sum.AppendBinary(nil)
	if err != nil {
		return fmt.Errorf("back up histogram: %w", err)
	}
	w.Put([]byte(mergeKey), value)
	return nil
}

// RestoreState implements stream.RestoreState. The error wraps ErrLayout for a backup of another layout, and
// stream.ErrState for what is no backup.
func (m *Merge) RestoreState(r *stream.StateReader) error {
	for r.Next() {
		var h Histogram
		if string(r.Key()) != mergeKey || r.Deleted() {
			return fmt.Errorf("%w: unknown element %q", stream.ErrState, r.Key())
		}
		if err := h.UnmarshalBinary(r.Value()); err != nil {
			return fmt.Errorf("%w: %w", stream.ErrState, err)
		}
		if !h.layout.Is(&m.sum.layout) {
			return fmt.Errorf("%w: the backup has %v, the operator %v", ErrLayout, h.layout, m.sum.layout)
		}
		m.sum = h
	}
	return r.Err()
}

// Bound returns how many numbers can be missing from the histogram of the whole stream after any number of failures
// within p: Theta + L, and Theta alone where the source can be read again.
func Bound(p errorbound.Params) uint64 {
	b := p.StateBound(1)
	if !(b < maxTotal) {
		return maxTotal
	}
	return uint64(b)
}

// Assemble adds operators "histogram", of the given number of workers, and "merge" to the topology of in. It panics on a
// zero Layout.
func Assemble(in stream.Stream[float64], l Layout, workers int) stream.Stream[Histogram] {
	_ = New(l)
	counts := stream.Then(in, "histogram", func() *Count { return New(l) },
		stream.Shuffle(), stream.Workers(workers), stream.EmitOnClose())
	return stream.Then(counts, "merge", func() *Merge { return NewMerge(l) }, stream.EmitOnClose())
}

// appendCount and takeCount are the value of a bin in a backup.
func appendCount(dst []byte, n uint64) []byte { return binary.AppendUvarint(dst, n) }

func takeCount(b []byte) (uint64, bool) {
	v, n := binary.Uvarint(b)
	return v, n > 0 && n == len(b) && v <= maxTotal
}
