package spacesaving

import (
	"errors"
	"fmt"
	"math"

	"github.com/afstream/afstream/algorithms/heavyhitter"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// ErrOptions is wrapped by the errors of Options.Validate.
var ErrOptions = errors.New("spacesaving: invalid options")

// MaxCapacity is the most counters a summary may have.
const MaxCapacity = 1 << 22

// Options describe a job. All operators of it must be given the same.
type Options struct {
	// Capacity is how many counters each partition has, at about 150 bytes each; 1 to MaxCapacity. Estimates are too high
	// by at most the total weight divided by it.
	Capacity int

	// Threshold is the share of the total weight from which on a key is a heavy hitter, 1/Capacity to 1: below that keys
	// could be missed.
	Threshold float64

	// Alpha is the most that one item weighs: 1 if items are counted, 1500 for bytes of Ethernet packets. An item that
	// weighs more is an error, since the bounds would not hold. 0 means unknown: any weight is taken, and the runtime
	// looks at the divergence after every item, which is slow.
	Alpha float64

	// OnMerged, if set, is told by Merge what it knows of every key, at the end of each window, before the rows are
	// emitted; once more with the same if a failure makes it close again. An error fails the job.
	OnMerged func(stream.Window, Estimates) error
}

// Validate returns all faults of o, joined, each wrapping ErrOptions.
func (o Options) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...))
		}
	}
	check(o.Capacity >= 1 && o.Capacity <= MaxCapacity, "capacity %d, want 1 to %d", o.Capacity, MaxCapacity)
	check(o.Threshold*float64(max(o.Capacity, 1)) >= 1 && o.Threshold <= 1,
		"threshold %v, want a share from 1/capacity to 1", o.Threshold)
	check(o.Alpha >= 0 && o.Alpha <= math.MaxFloat64, "alpha %v, want a finite number >= 0", o.Alpha)
	return errors.Join(faults...)
}

// mustBeValid panics if o is not valid.
func (o Options) mustBeValid() {
	if err := o.Validate(); err != nil {
		panic(err)
	}
}

// Bound returns by how much an estimate can be too low after any number of failures within p: Theta + L*alpha, and Theta
// alone where the source can be read again.
func Bound(p errorbound.Params, o Options) float64 { return p.StateBound(o.Alpha) }

// Assemble adds operators "count", of the given number of workers, and "merge" to the topology of in. It panics if o is
// not valid.
func Assemble(in stream.Stream[connector.Keyed], o Options, workers int) stream.Stream[heavyhitter.Row] {
	o.mustBeValid()
	summaries := stream.Then(in, "count", func() *Count { return NewCount(o) },
		stream.Shuffle(), stream.Workers(workers), stream.EmitOnClose())
	return stream.Then(summaries, "merge", func() *Merge { return NewMerge(o) }, stream.EmitOnClose())
}
