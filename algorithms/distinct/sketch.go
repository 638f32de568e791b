package distinct

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/afstream/afstream/errorbound"
)

var (
	// ErrPrecision is wrapped by the errors about precisions that are out of range, or not the same.
	ErrPrecision = errors.New("distinct: invalid precision")

	// ErrSketch is wrapped by the errors about bytes that hold no Sketch.
	ErrSketch = errors.New("distinct: malformed sketch")
)

// Precisions of a sketch: 16 bytes to 256 KiB.
const (
	MinPrecision = 4
	MaxPrecision = 18
)

// Sketch stands for a set of keys. It does not change. The zero Sketch has no registers and is the set of no keys.
type Sketch struct {
	registers []uint8 // 2^p of them
}

func checkPrecision(p int) error {
	if p < MinPrecision || p > MaxPrecision {
		return fmt.Errorf("%w: %d, want %d to %d", ErrPrecision, p, MinPrecision, MaxPrecision)
	}
	return nil
}

// largest returns the largest value of a register: all bits of a hash that do not choose it are zero.
func largest(p int) uint8 { return uint8(64 - p + 1) }

// Precision returns the precision, 0 of the zero Sketch.
func (s Sketch) Precision() int { return max(0, bits.Len(uint(len(s.registers)))-1) }

// Estimate returns about how many keys there are.
func (s Sketch) Estimate() float64 { return estimate(s.Precision(), s.counts()) }

// counts returns how many registers have each value.
func (s Sketch) counts() (counts [66]int) {
	for _, r := range s.registers {
		counts[r]++
	}
	return counts
}

// estimate is Ertl's algorithm 6 on the numbers of registers of each value.
func estimate(p int, counts [66]int) float64 {
	m := float64(int(1) << p)
	if p == 0 || counts[0] == int(m) {
		return 0
	}
	q := int(largest(p)) - 1
	z := m * tau(1-float64(counts[q+1])/m)
	for k := q; k >= 1; k-- {
		z = (z + float64(counts[k])) / 2
	}
	z += m * sigma(float64(counts[0])/m)
	return m * m / (2 * math.Ln2 * z)
}

// sigma and tau are the series of Ertl's algorithm 6, for registers that are 0 and for those that are full. Both
// converge quadratically, to a fixed point of float64.
func sigma(x float64) float64 {
	if x == 1 {
		return math.Inf(1)
	}
	y, z := 1.0, x
	for {
		x *= x
		before := z
		z += x * y
		y += y
		if z == before {
			return z
		}
	}
}

func tau(x float64) float64 {
	if x == 0 || x == 1 {
		return 0
	}
	y, z := 1.0, 1-x
	for {
		x = math.Sqrt(x)
		before := z
		y /= 2
		z -= (1 - x) * (1 - x) * y
		if z == before {
			return z / 3
		}
	}
}

// Range returns between which values Estimate would be if up to lost registers, whichever, are lower than they should
// be: what Theta + L says for a run with failures.
func (s Sketch) Range(lost uint64) (low, high float64) {
	p, counts := s.Precision(), s.counts()
	low = estimate(p, counts)
	if p == 0 {
		return low, low
	}
	full := largest(p)
	for r := range full { // the lowest registers count most
		n := int(min(uint64(counts[r]), lost))
		counts[r] -= n
		counts[full] += n
		lost -= uint64(n)
	}
	if counts[full] == len(s.registers) {
		return low, math.Inf(1)
	}
	return low, estimate(p, counts)
}

// StandardError returns the relative standard error of an estimate, 1.04/sqrt(2^p).
func StandardError(p int) float64 { return 1.04 / math.Sqrt(math.Ldexp(1, p)) }

// Bound returns by what part of itself the estimate of many more than 2^p keys may be too low after any number of
// failures within params, to be expected (see the package comment); +Inf if nothing can be promised. [Sketch.Range] says
// it exactly for the sketch that a run has made.
func Bound(params errorbound.Params, p int) float64 {
	f := params.StateBound(1) / math.Ldexp(1, p)
	if f == 0 {
		return 0
	}
	x := 2 * f * (1 - math.Log(f))
	if !(f < 1 && x < 1) {
		return math.Inf(1)
	}
	return x / (1 - x)
}

// union returns the sketch of the keys of both. The error wraps ErrPrecision.
func (s Sketch) union(o Sketch) (Sketch, error) {
	if len(s.registers) != len(o.registers) {
		return s, fmt.Errorf("%w: %d and %d", ErrPrecision, s.Precision(), o.Precision())
	}
	u := slices.Clone(s.registers)
	for i, r := range o.registers {
		u[i] = max(u[i], r)
	}
	return Sketch{u}, nil
}

// AppendBinary appends the wire form of s, one byte per register. The error wraps ErrSketch for the zero Sketch. It
// implements encoding.BinaryAppender.
func (s Sketch) AppendBinary(dst []byte) ([]byte, error) {
	if len(s.registers) == 0 {
		return nil, fmt.Errorf("%w: no registers", ErrSketch)
	}
	return append(append(dst, byte(s.Precision())), s.registers...), nil
}

// UnmarshalBinary decodes what AppendBinary made and keeps nothing of src. The error wraps ErrSketch and leaves s as it
// was. It implements encoding.BinaryUnmarshaler.
func (s *Sketch) UnmarshalBinary(src []byte) error {
	if len(src) == 0 || checkPrecision(int(src[0])) != nil || len(src)-1 != 1<<src[0] {
		return fmt.Errorf("%w: %d bytes", ErrSketch, len(src))
	}
	if r := slices.Max(src[1:]); r > largest(int(src[0])) {
		return fmt.Errorf("%w: a register is %d", ErrSketch, r)
	}
	s.registers = bytes.Clone(src[1:])
	return nil
}
