package errorbound

import (
	"fmt"
	"math"
)

// Series is a decay series a_0, a_1, ... of non-negative shares whose sum is 1: a_k is the part of the budget that the
// k-th incarnation of a worker may spend. The zero value is Geometric.
type Series uint8

const (
	// Geometric is a_k = 1/2^(k+1), the series of the source paper. It grants half of what is left.
	Geometric Series = iota
	// Telescoping is a_k = 1/((k+1)(k+2)) = 1/(k+1) - 1/(k+2). It starts at one half as well but falls as 1/k^2: after
	// ten failures it grants 1/132 where Geometric grants 1/2048, so that a long-running job is not strangled.
	Telescoping
)

// Term returns a_k. Terms too small for a float64 are 0.
func (s Series) Term(k uint64) float64 {
	if s == Telescoping {
		return 1 / ((float64(k) + 1) * (float64(k) + 2))
	}
	if k > 1100 {
		return 0
	}
	return math.Ldexp(1, -int(k)-1)
}

// Spent returns a_0 + ... + a_k in closed form; it is at most 1.
func (s Series) Spent(k uint64) float64 {
	if s == Telescoping {
		return (float64(k) + 1) / (float64(k) + 2)
	}
	return 1 - s.Term(k)
}

// Grant returns floor(total * a_k) in exact integer arithmetic, so that the sum of grants over any k never exceeds
// total. Both series have terms 1/d with whole d, and floor(floor(x/d)/n) = floor(x/(d*n)): a caller may divide the
// grant by a number of partitions without losing more than by dividing once.
func (s Series) Grant(total, k uint64) uint64 {
	if s == Telescoping {
		if k >= math.MaxUint32 { // the divisor would not fit; it is larger than any total
			return 0
		}
		return total / ((k + 1) * (k + 2))
	}
	if k >= 63 {
		return 0
	}
	return total >> (k + 1)
}

// String returns the lower-case name that ParseSeries accepts.
func (s Series) String() string {
	switch s {
	case Geometric:
		return "geometric"
	case Telescoping:
		return "telescoping"
	}
	return fmt.Sprintf("series(%d)", uint8(s))
}

// ParseSeries is the inverse of [Series.String].
func ParseSeries(name string) (Series, error) {
	for _, s := range []Series{Geometric, Telescoping} {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("errorbound: series %q is none of geometric, telescoping", name)
}
