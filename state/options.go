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
const DefaultClear = 0.75

// Options say how a Map or a Set measures its divergence. The zero value is right for counts by key whose items are
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
