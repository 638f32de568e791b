package errorbound

import (
	"fmt"
	"math"
)

// Norm is how the divergence of a state is measured: the norm of the vector of differences between the state and its
// backup. The zero value is Max.
type Norm uint8

const (
	// Max is the largest difference of any element: what per-key answers need (every count off by at most theta).
	Max Norm = iota
	// L1 is the sum of the differences (Manhattan).
	L1
	// L2 is the square root of the sum of squared differences (Euclidean): what model weights need.
	L2
	// Count is the number of keys that are in one of the two states and not in the other.
	Count
)

// String returns the lower-case name that ParseNorm accepts.
func (n Norm) String() string {
	switch n {
	case Max:
		return "max"
	case L1:
		return "l1"
	case L2:
		return "l2"
	case Count:
		return "count"
	}
	return fmt.Sprintf("norm(%d)", uint8(n))
}

// ParseNorm is the inverse of [Norm.String].
func ParseNorm(name string) (Norm, error) {
	for _, n := range []Norm{Max, L1, L2, Count} {
		if n.String() == name {
			return n, nil
		}
	}
	return 0, fmt.Errorf("errorbound: norm %q is none of max, l1, l2, count", name)
}

// Combine is how the states of an operator's partitions make up the state of the operator. The zero value, Added, is
// the safe one: its shares are right for Disjoint states too.
type Combine uint8

const (
	// Added: the partitions' states are summed downstream element by element (shuffled input, local sketches merged).
	Added Combine = iota
	// Disjoint: every key lives in one partition only (hash-partitioned input).
	Disjoint
)

// String returns "added" or "disjoint".
func (c Combine) String() string {
	switch c {
	case Added:
		return "added"
	case Disjoint:
		return "disjoint"
	}
	return fmt.Sprintf("combine(%d)", uint8(c))
}

// Share returns the part of an operator's theta that each of its n partitions may use so that the combined state
// diverges by at most theta. An n below 1 is taken as 1.
//
//   - Added: the difference of a sum is at most the sum of the differences in every norm, so each gets 1/n. It cannot
//     be larger: all partitions may be off by the same vector.
//   - Disjoint, L1 and Count: the norm of the whole is the sum of the parts' norms: 1/n.
//   - Disjoint, L2: the squares add up: n * (theta/sqrt(n))^2 = theta^2, so 1/sqrt(n).
//   - Disjoint, Max: the norm of the whole is the largest of the parts': 1.
func Share(norm Norm, combine Combine, n int) float64 {
	if n <= 1 {
		return 1
	}
	if combine == Disjoint {
		switch norm {
		case Max:
			return 1
		case L2:
			return 1 / math.Sqrt(float64(n))
		}
	}
	return 1 / float64(n)
}
