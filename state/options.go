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

// selection is which changes a partial backup writes, see largest.
type selection struct {
	sure   float64 // all whose distance is at least this
	least  float64 // of those that are less far, but at least this, as many as it takes
	excess float64 // by how much all others are still more than the goal
}

// largest selects the changes of the largest distances, as few as it takes to leave no more than goal of the total left.
// Distances less than a sixteenth apart count as equal. It adds them up by their leading bits, since any kind of sorting guesses wrong
// where every other comparison goes: of a backup of a long tail of small changes that would be the larger part.
func largest(changes []change, left, goal float64) selection {
	farthest := 0.0
	for _, c := range changes {
		farthest = max(farthest, c.distance)
	}
	var sums [512]float64 // the last one also of all that are smaller still
	top := classOf(farthest)
	for _, c := range changes {
		sums[min(top-classOf(c.distance), len(sums)-1)] += c.distance
	}
	for k, sum := range sums[:len(sums)-1] {
		if left-sum <= goal {
			return selection{sure: leastOf(top - k + 1), least: leastOf(top - k), excess: left - goal}
		}
		left -= sum
	}
	return selection{sure: leastOf(top - len(sums) + 2), excess: left - goal}
}

// takes says whether a change of this distance is one of them. It is to be asked once for each change.
func (s *selection) takes(distance float64) bool {
	if distance >= s.sure {
		return true
	}
	if !(distance >= s.least) || s.excess <= 0 { // so that with NaN it takes all
		return false
	}
	s.excess -= distance
	return true
}

// classOf numbers the sixteenths of the octaves that distances are in, and leastOf is the least distance in one.
func classOf(distance float64) int { return int(math.Float64bits(distance) >> 48 & 0x7fff) }
func leastOf(class int) float64    { return math.Float64frombits(uint64(max(class, 0)) << 48) }
