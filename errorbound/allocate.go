package errorbound

import (
	"errors"
	"fmt"
	"math"
)

// ErrAllocate is wrapped by the errors of [Allocate] and of [Ledger] about loads that are none.
var ErrAllocate = errors.New("errorbound: invalid loads")

// Load is what one worker does to its backups.
type Load struct {
	// Rate is by how much its state diverges per second, in the operator's norm, were it never backed up.
	Rate float64
	// Cost is what one of its backups costs, in any unit that is the same for all workers.
	Cost float64
}

// Allocate returns the shares of theta that make the backup work of all workers together least: worker i, which diverges
// at the rate r and may do so by theta*x before it has to back up, does so r/(theta*x) times a second at the cost c
// each. The shares keep the constraint that [Share] keeps with equal parts.
//
// With w = c*r the sum of the w/x is least, by Lagrange's condition w/x^2 = const * derivative of the constraint,
//
//   - where shares add up (sum of x at most 1: Added, and L1 and Count over disjoint keys) for x ~ sqrt(w);
//   - where their squares do (Disjoint, L2) for x ~ w^(1/3);
//   - and where they do not (Disjoint, Max) for x = 1.
//
// No share is below floor, from 0 to 1, times the equal one, so that a worker whose load was measured wrong or changes
// backs up at most 1/floor times as often as with equal shares; and one of no load can take up work. Where a floor
// binds, the worker has it and the rest is divided among the others by the same rule, until no floor binds: pinning
// leaves less for the others, so a pinned worker would never want more again (the Karush-Kuhn-Tucker conditions, which
// are sufficient since the problem is convex). If all loads are 0 the shares are equal.
//
// The shares keep the constraint in float64 arithmetic, too. The error wraps ErrAllocate. Cost: O(n^2) at worst.
func Allocate(norm Norm, combine Combine, loads []Load, floor float64) ([]float64, error) {
	weights, err := workOf(loads, floor)
	if err != nil {
		return nil, err
	}
	return allocate(powerOf(norm, combine), weights, floor), nil
}

// BackupWork returns the cost per second of all backups with these shares of theta 1; with another theta it is that much
// less. A worker of no load costs nothing, whatever its share.
func BackupWork(loads []Load, shares []float64) float64 {
	sum := 0.0
	for i, l := range loads {
		if w := l.Rate * l.Cost; w > 0 {
			sum += w / shares[i]
		}
	}
	return sum
}

// power is the exponent p of the constraint sum of x^p <= 1; 0 stands for infinity.
type power int

// powerOf returns the exponent for which Share is the equal solution.
func powerOf(norm Norm, combine Combine) power {
	switch {
	case combine == Disjoint && norm == Max:
		return 0
	case combine == Disjoint && norm == L2:
		return 2
	}
	return 1
}

// of returns the left side of the constraint, raised to 1/p: the norm of the whole.
func (p power) of(parts []float64) float64 {
	sum := 0.0
	for _, x := range parts {
		switch p {
		case 0:
			sum = max(sum, x)
		case 1:
			sum += x
		default:
			sum += x * x
		}
	}
	if p == 2 {
		return math.Sqrt(sum)
	}
	return sum
}

// equal is the equal share of n.
func (p power) equal(n int) float64 {
	switch p {
	case 0:
		return 1
	case 1:
		return 1 / float64(n)
	}
	return 1 / math.Sqrt(float64(n))
}

func workOf(loads []Load, floor float64) ([]float64, error) {
	var c checks
	c.add(len(loads) > 0, "no loads")
	c.add(floor >= 0 && floor <= 1, "floor %v: want a part of the equal share, 0 to 1", floor)
	weights := make([]float64, len(loads))
	for i, l := range loads {
		weights[i] = l.Rate * l.Cost
		c.add(l.Rate >= 0 && l.Cost >= 0 && finite(weights[i]), "load %d: rate %v at cost %v: want finite numbers of at"+
			" least 0", i, l.Rate, l.Cost)
	}
	if len(c) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrAllocate, errors.Join(c...))
	}
	return weights, nil
}

// allocate solves the problem for products of rate and cost.
func allocate(p power, weights []float64, floor float64) []float64 {
	n := len(weights)
	shares := make([]float64, n)
	if p == 0 {
		for i := range shares {
			shares[i] = 1
		}
		return shares
	}
	wish := wishes(p, weights)
	least, pinned := floor*p.equal(n), make([]bool, n)
	for again := true; again; {
		again = false
		room, wanted := 1.0, 0.0 // in p-th powers
		for i := range wish {
			if pinned[i] {
				room -= math.Pow(least, float64(p))
			} else {
				wanted += math.Pow(wish[i], float64(p))
			}
		}
		scale := 0.0
		if wanted > 0 {
			scale = math.Pow(max(room, 0)/wanted, 1/float64(p))
		}
		for i := range wish {
			shares[i] = max(wish[i]*scale, least)
			if !pinned[i] && wish[i]*scale < least {
				pinned[i], again = true, true
			}
		}
	}
	fit(p, shares)
	return shares
}

// wishes returns numbers in proportion to the shares wanted without floors, the largest being 1.
func wishes(p power, weights []float64) []float64 {
	largest := 0.0
	for _, w := range weights {
		largest = max(largest, w)
	}
	wish := make([]float64, len(weights))
	for i, w := range weights {
		switch {
		case largest == 0:
			wish[i] = 1
		case p == 1:
			wish[i] = math.Sqrt(w / largest)
		default:
			wish[i] = math.Cbrt(w / largest)
		}
	}
	return wish
}

// fit takes off what rounding has put on, so that parts keep the constraint.
func fit(p power, parts []float64) {
	for whole := p.of(parts); whole > 1; whole = p.of(parts) {
		for i := range parts {
			parts[i] *= math.Nextafter(1/whole, 0)
		}
	}
}
