package state

import (
	"errors"
	"fmt"
	"math"

	"github.com/afstream/afstream/errorbound"
)

// ErrOptions is wrapped by the errors of Options.Validate.
var ErrOptions = errors.New("state: invalid options")

// DefaultClear is what 0 stands for in Options.Clear.
const DefaultClear = 0.65

// Options say how a Map, a Set, an Array or a Matrix measures its divergence. The zero value is right for counts by key whose items are
// not hash-partitioned.
type Options struct {
	// Norm is the distance between two states; 0 is errorbound.Max. With Max a backup is needed about once for each
	// theta that a key grows. With L1 and long-tailed keys nearly every item needs one, whatever is done. A Set knows
	// only Count and ignores Norm.
	Norm errorbound.Norm

	// Combine says how the states of the partitions make up the whole; 0 is errorbound.Added, which is safe. If the
	// input is partitioned by the same key, errorbound.Disjoint allows a larger theta to each.
	Combine errorbound.Combine

	// Alpha is the most by which one item changes the state, 0 if unknown; the runtime then looks at the divergence
	// after each item.
	Alpha float64

	// PathLength, of an Array or a Matrix, measures each element by the length of its path since the backup, the sum of
	// the absolute values of its changes, instead of by its difference. It is needed where changes can cancel (model
	// weights, differences) and inputs are at risk: a failure then loses some of the changes since the backup and not
	// others, and what is left of them may be far from a difference that has come back to 0. The path bounds what any
	// subset of the changes adds up to. It costs 16 bytes an element.
	PathLength bool

	// Clear is the share of the divergence that a partial backup removes under the norms L1, L2 and Count, by writing
	// the elements that changed most; 0 is DefaultClear. 1 writes everything that changed; small values make small
	// backups but many.
	Clear float64
}

// Validate returns all faults of o, joined, each wrapping ErrOptions.
func (o Options) Validate() error {
	var faults []error
	check := func(ok bool, format string, arg any) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: "+format, ErrOptions, arg))
		}
	}
	check(o.Norm <= errorbound.Count, "%v", o.Norm)
	check(o.Combine <= errorbound.Disjoint, "%v", o.Combine)
	check(o.Alpha >= 0 && o.Alpha <= math.MaxFloat64, "alpha %v, want a finite number >= 0", o.Alpha)
	check(o.Clear >= 0 && o.Clear <= 1, "clear %v, want a share from 0 to 1", o.Clear)
	return errors.Join(faults...)
}

// goal returns how much of the distance a partial backup may leave, as the norm adds it up. It must leave room for at
// least one more item.
func (o Options) goal(total, theta float64) float64 {
	share := o.Clear
	if share == 0 {
		share = DefaultClear
	}
	room := max(0, theta-o.Alpha)
	if o.Norm == errorbound.L2 {
		return math.Pow(min((1-share)*math.Sqrt(total), room), 2)
	}
	return min((1-share)*total, room)
}

// change is one candidate for a partial backup.
type change struct {
	slot     int
	distance float64
}

// largest returns the fewest changes, those of the largest distances, without which no more than goal is left of the
// total left. It reorders changes. It selects, in linear time: with a long tail of small changes, sorting them for each
// backup would cost more than all the rest.
func largest(changes []change, left, goal float64) []change {
	from, to := 0, len(changes) // the first from are wanted, those from to on are not
	for from < to && !(left <= goal) {
		pivot := medianDistance(changes[from:to])
		above, below := from, to // [from, above) are larger than pivot, [below, to) smaller
		sum := 0.0
		for i := from; i < below; {
			switch d := changes[i].distance; {
			case d > pivot:
				changes[i], changes[above] = changes[above], changes[i]
				sum += d
				above++
				i++
			case d < pivot:
				below--
				changes[i], changes[below] = changes[below], changes[i]
			default:
				i++
			}
		}
		if left-sum <= goal { // the pivot itself is not needed
			to = above
			continue
		}
		left, from = left-sum, above
		for ; from < below && !(left <= goal); from++ {
			left -= pivot
		}
	}
	return changes[:from]
}

// medianDistance returns the median distance of the first, the middle and the last change.
func medianDistance(c []change) float64 {
	a, b, z := c[0].distance, c[len(c)/2].distance, c[len(c)-1].distance
	return max(min(a, b), min(max(a, b), z))
}
