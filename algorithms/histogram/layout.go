package histogram

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrLayout is wrapped by the errors about layouts that are not valid, or not the same.
var ErrLayout = errors.New("histogram: invalid layout")

// MaxBins is how many bins a layout may have.
const MaxBins = 1 << 20

// Layout says which bin a number belongs to. Bins are numbered in the order of their values; the first and the last
// take what is beyond the range. The zero Layout is not valid. Layouts may be copied and used by several goroutines.
type Layout struct {
	shape
	edges   []float64 // EquiWidth: where bins 1 to n begin, and the end of the range
	perUnit float64   // EquiWidth: bins per unit of the numbers

	// Relative: bins 1 to size are negative, size+1 is zero, then come the positive ones.
	size         int
	gamma        float64
	perLog       float64 // 1 / ln(gamma)
	first        int     // gamma^(first-1) < least
	lowest, most float64
}

// shape is what a layout is made from; layouts of the same shape are the same.
type shape struct {
	kind    kind
	a, b, c float64 // lo, hi, bins; or eps, least, most
}

type kind uint8

const (
	equiWidth kind = iota + 1
	relative
)

// EquiWidth returns the layout of n bins of the same width over lo <= x < hi. The error wraps ErrLayout unless lo and hi
// are finite, lo < hi and n is from 1 to MaxBins-2.
func EquiWidth(lo, hi float64, n int) (Layout, error) {
	l := Layout{shape: shape{equiWidth, lo, hi, float64(n)}}
	width := (hi - lo) / float64(max(n, 1))
	if !(lo < hi) || !finite(lo) || !finite(hi-lo) || n < 1 || n > MaxBins-2 || lo+width == lo || hi-width == hi {
		return Layout{}, fmt.Errorf("%w: %d bins from %v to %v", ErrLayout, n, lo, hi)
	}
	l.perUnit = float64(n) / (hi - lo)
	l.edges = make([]float64, n+1)
	for i := range l.edges {
		l.edges[i] = lo + float64(i)*width
	}
	l.edges[n] = hi
	return l, nil
}

// Relative returns the layout in which every bin knows its numbers to within eps times their size, for numbers of
// least <= |x| <= most. The error wraps ErrLayout unless 1e-6 <= eps < 1 and 1e-300 <= least < most <= 1e300, or if that
// took more than MaxBins bins.
func Relative(eps, least, most float64) (Layout, error) {
	fault := fmt.Errorf("%w: relative error %v from %v to %v", ErrLayout, eps, least, most)
	if !(eps >= 1e-6 && eps < 1 && least >= 1e-300 && least < most && most <= 1e300) {
		return Layout{}, fault
	}
	// A little less than eps, so that the rounding of logarithms and powers does not show.
	gamma := (1 + eps*(1-1e-9)) / (1 - eps*(1-1e-9))
	l := Layout{shape: shape{relative, eps, least, most}, gamma: gamma, perLog: 1 / math.Log(gamma), lowest: least, most: most}
	l.first = l.exponent(least)
	l.size = l.exponent(most) - l.first + 1
	if l.size > (MaxBins-3)/2 {
		return Layout{}, fault
	}
	return l, nil
}

func finite(v float64) bool { return math.Abs(v) <= math.MaxFloat64 }

// exponent returns i for gamma^(i-1) < x <= gamma^i.
func (l *Layout) exponent(x float64) int { return int(math.Ceil(math.Log(x) * l.perLog)) }

// Bins returns the number of bins, those beyond the range included.
func (l *Layout) Bins() int {
	switch l.kind {
	case equiWidth:
		return len(l.edges) + 1
	case relative:
		return 2*l.size + 3
	}
	return 0
}

// Bin returns the bin of x, which must not be NaN.
func (l *Layout) Bin(x float64) int {
	if l.kind == equiWidth {
		return l.equiBin(x)
	}
	return l.relativeBin(x)
}

func (l *Layout) relativeBin(x float64) int {
	size := math.Abs(x)
	zero := l.size + 1
	switch {
	case size < l.lowest:
		return zero
	case size > l.most && x > 0:
		return 2*l.size + 2
	case size > l.most:
		return 0
	}
	// min and max, for the logarithm of a number at the end of the range may be rounded beyond it.
	i := min(max(l.exponent(size)-l.first, 0), l.size-1) + 1
	if x < 0 {
		i = -i
	}
	return zero + i
}

// equiBin computes the bin, and then corrects what rounding may have done near an edge.
func (l *Layout) equiBin(x float64) int {
	n := len(l.edges) - 1
	if x < l.a {
		return 0
	}
	if x >= l.b {
		return n + 1
	}
	i := min(int((x-l.a)*l.perUnit), n-1)
	if x < l.edges[i] {
		return i
	}
	if x >= l.edges[i+1] {
		return i + 2
	}
	return i + 1
}

// Bounds returns the least and the largest number of a bin: infinite beyond the range. Neighbours share a bound, which
// belongs to one of them.
func (l *Layout) Bounds(bin int) (low, high float64) {
	last := l.Bins() - 1
	if l.kind == equiWidth {
		low, high = math.Inf(-1), math.Inf(1)
		if bin > 0 {
			low = l.edges[bin-1]
		}
		if bin < last {
			high = l.edges[bin]
		}
		return low, high
	}
	zero := l.size + 1
	switch i := bin - zero; {
	case i == 0:
		return -l.lowest, l.lowest
	case i > l.size:
		return l.most, math.Inf(1)
	case i < -l.size:
		return math.Inf(-1), -l.most
	case i > 0:
		return l.magnitude(i)
	default:
		low, high = l.magnitude(-i)
		return -high, -low
	}
}

// magnitude returns the bounds of positive bin i, from 1.
func (l *Layout) magnitude(i int) (low, high float64) {
	e := float64(l.first + i - 1)
	low, high = math.Pow(l.gamma, e-1), math.Pow(l.gamma, e)
	return max(low, l.lowest), min(high, l.most)
}

// middle returns the number that a bin within the range stands for.
func (l *Layout) middle(bin int) float64 {
	if l.kind == equiWidth {
		low, high := l.Bounds(bin)
		return low + (high-low)/2
	}
	i := bin - l.size - 1
	if i == 0 {
		return 0
	}
	size := min(max(i, -i), l.size)
	v := 2 * math.Pow(l.gamma, float64(l.first+size-1)) / (l.gamma + 1)
	return math.Copysign(v, float64(i))
}

// within says whether a bin is within the range.
func (l *Layout) within(bin int) bool { return bin > 0 && bin < l.Bins()-1 }

// Is reports whether l and o are the same layout.
func (l *Layout) Is(o *Layout) bool { return l.shape == o.shape }

// String returns what the layout was made from.
func (l Layout) String() string {
	switch l.kind {
	case equiWidth:
		return fmt.Sprintf("%v bins from %v to %v", l.c, l.a, l.b)
	case relative:
		return fmt.Sprintf("relative error %v from %v to %v", l.a, l.b, l.c)
	}
	return "no layout"
}

// shapeLen is the length of an encoded shape.
const shapeLen = 25

func (s *shape) append(dst []byte) []byte {
	dst = append(dst, byte(s.kind))
	for _, v := range [...]float64{s.a, s.b, s.c} {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
	}
	return dst
}

// decodeLayout makes the layout whose shape src holds.
func decodeLayout(src []byte) (Layout, error) {
	if len(src) != shapeLen {
		return Layout{}, fmt.Errorf("%w: shape of %d bytes", ErrLayout, len(src))
	}
	v := func(i int) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(src[1+8*i:])) }
	switch n := v(2); {
	case kind(src[0]) == relative:
		return Relative(v(0), v(1), n)
	case kind(src[0]) == equiWidth && n >= 1 && n <= MaxBins && n == math.Trunc(n):
		return EquiWidth(v(0), v(1), int(n))
	}
	return Layout{}, fmt.Errorf("%w: unknown shape", ErrLayout)
}
