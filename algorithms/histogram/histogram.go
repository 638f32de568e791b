package histogram

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
)

// ErrHistogram is wrapped by the errors about bytes that hold no Histogram, and about histograms that cannot be merged.
var ErrHistogram = errors.New("histogram: malformed histogram")

// Histogram is how many numbers there are in each bin of a layout. It does not change. The zero Histogram has no layout
// and no numbers.
type Histogram struct {
	layout Layout
	counts []uint64 // one per bin
	total  uint64
}

// maxTotal bounds what bytes from outside may claim, so that no sum can wrap around.
const maxTotal = 1 << 56

func newHistogram(l Layout, counts []uint64) Histogram {
	h := Histogram{layout: l, counts: counts}
	for _, n := range counts {
		h.total += n
	}
	return h
}

// Layout returns the layout of the bins.
func (h Histogram) Layout() Layout { return h.layout }

// Total returns how many numbers there are.
func (h Histogram) Total() uint64 { return h.total }

// Count returns how many numbers there are in a bin.
func (h Histogram) Count(bin int) uint64 { return h.counts[bin] }

// All yields the bins that hold numbers, in order, with how many.
func (h Histogram) All() iter.Seq2[int, uint64] {
	return func(yield func(int, uint64) bool) {
		for bin, n := range h.counts {
			if n > 0 && !yield(bin, n) {
				return
			}
		}
	}
}

// Quantile returns the number below which the share q, from 0 to 1, of the numbers lies: the one of rank q*(Total-1),
// rounded down, to within the accuracy of the layout. ok is false if there are no numbers, or if it is beyond the range
// and only the end of the range can be told.
func (h Histogram) Quantile(q float64) (value float64, ok bool) {
	if h.total == 0 || !(q >= 0 && q <= 1) {
		return math.NaN(), false
	}
	bin, before := h.bin(rank(q, h.total))
	low, high := h.layout.Bounds(bin)
	switch {
	case math.IsInf(low, -1):
		return high, false
	case math.IsInf(high, 1):
		return low, false
	case h.layout.kind == equiWidth: // as if the numbers of the bin were spread evenly
		within := float64(rank(q, h.total)-before) + 0.5
		return low + (high-low)*within/float64(h.counts[bin]), true
	}
	return h.layout.middle(bin), true
}

// QuantileBin returns the bin that the quantile q, from 0 to 1, lies in; ok is false if there are no numbers.
func (h Histogram) QuantileBin(q float64) (bin int, ok bool) {
	if h.total == 0 || !(q >= 0 && q <= 1) {
		return 0, false
	}
	bin, _ = h.bin(rank(q, h.total))
	return bin, true
}

// rank returns floor(q*(n-1)), for n >= 1.
func rank(q float64, n uint64) uint64 { return min(uint64(q*float64(n-1)), n-1) }

// bin returns the bin of the number of rank r, which must be below total, and how many lie in the bins before.
func (h Histogram) bin(r uint64) (bin int, before uint64) {
	for i, n := range h.counts {
		if r < before+n {
			return i, before
		}
		before += n
	}
	return len(h.counts) - 1, before
}

// Range returns between which values the quantile q of all numbers lies if up to lost of them, wherever they were, are
// missing from h: what Bound says for a run with failures. The values are bounds of bins, infinite where nothing can be
// said.
//
// Of N numbers in h and E' <= E lost ones, the one of rank r = q*(N+E'-1) is at least as large as the one of rank r-E' in
// h, and at most as large as the one of rank r in h.
func (h Histogram) Range(q float64, lost uint64) (low, high float64) {
	low, high = math.Inf(-1), math.Inf(1)
	if h.total == 0 || !(q >= 0 && q <= 1) {
		return low, high
	}
	if r := rank(q, h.total); r >= lost {
		bin, _ := h.bin(r - lost)
		low, _ = h.layout.Bounds(bin)
	}
	if r := rank(q, h.total+lost); r < h.total {
		bin, _ := h.bin(r)
		_, high = h.layout.Bounds(bin)
	}
	return low, high
}

// AppendBinary appends the wire form of h, 2 to 19 bytes per bin that holds numbers. The error wraps ErrHistogram for the
// zero Histogram. It implements encoding.BinaryAppender.
func (h Histogram) AppendBinary(dst []byte) ([]byte, error) {
	if h.layout.kind == 0 {
		return nil, fmt.Errorf("%w: no layout", ErrHistogram)
	}
	dst = h.layout.append(dst)
	last := 0
	for bin, n := range h.All() {
		dst = binary.AppendUvarint(dst, uint64(bin-last))
		dst = binary.AppendUvarint(dst, n)
		last = bin
	}
	return dst, nil
}

// UnmarshalBinary decodes what AppendBinary made and keeps nothing of src. It allocates 8 bytes per bin of the layout,
// of which there are at most MaxBins. The error wraps ErrHistogram and leaves h as it was. It implements
// encoding.BinaryUnmarshaler.
func (h *Histogram) UnmarshalBinary(src []byte) error {
	layout, err := decodeLayout(src[:min(len(src), shapeLen)])
	if err != nil {
		return fmt.Errorf("%w: %w", ErrHistogram, err)
	}
	counts := make([]uint64, layout.Bins())
	bin, total := uint64(0), uint64(0)
	for rest := src[shapeLen:]; len(rest) > 0; {
		step, n := binary.Uvarint(rest)
		count, m := binary.Uvarint(rest[max(n, 0):])
		if n <= 0 || m <= 0 || step >= uint64(len(counts))-bin || step == 0 && total > 0 || count == 0 || count > maxTotal-total {
			return fmt.Errorf("%w: at byte %d of %d", ErrHistogram, len(src)-len(rest), len(src))
		}
		bin += step
		counts[bin] = count
		total += count
		rest = rest[n+m:]
	}
	*h = Histogram{layout: layout, counts: counts, total: total}
	return nil
}

// sum returns the histogram of the numbers of both. The error wraps ErrHistogram.
func (h Histogram) sum(o Histogram) (Histogram, error) {
	if !h.layout.Is(&o.layout) {
		return h, fmt.Errorf("%w: %w: %v and %v", ErrHistogram, ErrLayout, h.layout, o.layout)
	}
	if o.total > maxTotal-h.total {
		return h, fmt.Errorf("%w: more than %d numbers", ErrHistogram, uint64(maxTotal))
	}
	counts := slices.Clone(h.counts)
	for bin, n := range o.counts {
		counts[bin] += n
	}
	return Histogram{layout: h.layout, counts: counts, total: h.total + o.total}, nil
}
