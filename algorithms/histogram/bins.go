package histogram

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/afstream/afstream/stream"
)

// bins holds counts that only grow, compared by the sum of their differences: the divergence is the difference of two
// totals.
//
// Invariants:
//  1. changed holds exactly the bins with marked set. Every bin that differs from its durable count is one of them, or is
//     in the backup in flight.
//  2. covered is the total of the durable counts.
type bins struct {
	counts  []uint64
	total   uint64
	marked  []bool
	changed []uint32

	tracked  bool // theta is finite
	covered  uint64
	saved    bool // a backup was begun
	stale    bool // backups may hold counts of a window that is over
	shaped   bool // the shape is in a durable backup
	inFlight flight
}

// flight is the backup in flight.
type flight struct {
	active, complete, shaped bool
	total                    uint64
	bins                     []uint32 // in a partial one; they are marked again if it is lost
}

func newBins(n int) bins { return bins{counts: make([]uint64, n), marked: make([]bool, n)} }

func (b *bins) divergence() float64 {
	if !b.tracked || b.stale {
		return math.Inf(1)
	}
	return float64(b.total - b.covered)
}

// reset makes all counts zero; the next backup, partial or not, then replaces all that older ones hold.
func (b *bins) reset() {
	clear(b.counts)
	clear(b.marked)
	b.changed, b.total, b.covered = b.changed[:0], 0, 0
	b.stale = b.saved
	b.inFlight = flight{}
}

// shapeKey is the key of the element that tells the layout. Without it a histogram of another layout would take the
// counts for its own.
const shapeKey = "layout"

// backup writes the layout, once, and the counts: all that are not zero, or those that have changed. The key of a bin is
// its number in 4 bytes.
func (b *bins) backup(w *stream.StateWriter, l *Layout) {
	f := &b.inFlight
	for _, bin := range f.bins { // of a backup that was lost
		b.mark(bin)
	}
	f.active, f.complete, f.total, b.saved = true, w.Whole() || b.stale || !b.tracked, b.total, true
	f.bins = f.bins[:0]
	if f.shaped = w.Whole() || !b.shaped; f.shaped {
		w.Put([]byte(shapeKey), l.append(nil))
	}
	var key, value [10]byte
	write := func(bin uint32) {
		k := binary.BigEndian.AppendUint32(key[:0], bin)
		w.Put(k, appendCount(value[:0], b.counts[bin]))
	}
	if f.complete {
		for bin, n := range b.counts {
			if n > 0 || b.stale && !w.Whole() { // older elements stay unless they are overwritten
				write(uint32(bin))
			}
		}
	} else {
		for _, bin := range b.changed {
			write(bin)
		}
	}
	f.bins = append(f.bins, b.changed...)
	for _, bin := range b.changed {
		b.marked[bin] = false
	}
	b.changed = b.changed[:0]
}

// mark notes that a bin has changed, at most once between two backups.
func (b *bins) mark(bin uint32) {
	if !b.marked[bin] {
		b.marked[bin] = true
		b.changed = append(b.changed, bin)
	}
}

func (b *bins) backupDurable() {
	f := &b.inFlight
	if !f.active {
		return
	}
	b.covered = f.total
	b.shaped = b.shaped || f.shaped
	if f.complete {
		b.stale = false
	}
	*f = flight{bins: f.bins[:0]}
}

func (b *bins) restore(r *stream.StateReader, l *Layout) error {
	for r.Next() {
		bin, n, counts, err := b.element(r, l)
		switch {
		case err != nil:
			return err
		case counts:
			b.counts[bin] = n
		default:
			b.shaped = true
		}
	}
	if err := r.Err(); err != nil {
		return err
	}
	b.total = 0
	for _, n := range b.counts {
		if n > maxTotal-b.total {
			return fmt.Errorf("%w: more than %d numbers", stream.ErrState, uint64(maxTotal))
		}
		b.total += n
	}
	b.covered, b.saved = b.total, b.total > 0
	return nil
}

// element reads one count, or checks the layout.
func (b *bins) element(r *stream.StateReader, l *Layout) (bin uint32, n uint64, counts bool, err error) {
	if string(r.Key()) == shapeKey {
		have, err := decodeLayout(r.Value())
		if err != nil {
			return 0, 0, false, fmt.Errorf("%w: %w", stream.ErrState, err)
		}
		if !have.Is(l) {
			return 0, 0, false, fmt.Errorf("%w: the backup has %v, the operator %v", ErrLayout, have, l)
		}
		return 0, 0, false, nil
	}
	if len(r.Key()) != 4 || binary.BigEndian.Uint32(r.Key()) >= uint32(len(b.counts)) {
		return 0, 0, false, fmt.Errorf("%w: unknown element %q", stream.ErrState, r.Key())
	}
	n, ok := takeCount(r.Value())
	if !ok {
		return 0, 0, false, fmt.Errorf("%w: count %x", stream.ErrState, r.Value())
	}
	return binary.BigEndian.Uint32(r.Key()), n, true, nil
}

// mergeState adds the counts of other bins.
func (b *bins) mergeState(r *stream.StateReader, l *Layout) error {
	for r.Next() {
		bin, n, counts, err := b.element(r, l)
		if err != nil {
			return err
		}
		if !counts || n == 0 {
			continue
		}
		if n > maxTotal-b.total {
			return fmt.Errorf("%w: more than %d numbers", stream.ErrState, uint64(maxTotal))
		}
		b.counts[bin] += n
		b.total += n
		b.mark(bin)
	}
	return r.Err()
}
