package heavyhitter

import (
	"errors"
	"fmt"
	"math"

	"github.com/afstream/afstream/algorithms/countmin"
	"github.com/afstream/afstream/stream"
)

// ErrOptions is wrapped by the errors of Options.Validate, beside those of package countmin.
var ErrOptions = errors.New("heavyhitter: invalid options")

// minThreshold bounds the candidates, which take about 100 bytes each.
const minThreshold = 1e-6

// Options describe a job. All operators of it must be given the same.
type Options struct {
	// Rows and Width are the shape of the count-min sketch of every partition. 4 and 8000 are those of the source
	// paper's experiment; see the package comment of countmin for how they follow from a wanted accuracy.
	Rows, Width int

	// Threshold is the share of the total weight from which on a key is a heavy hitter, in [1e-6, 1].
	Threshold float64

	// Alpha is the most that one item weighs: 1 if items are counted, 1500 for bytes of Ethernet packets. An item that
	// weighs more is an error, since the bounds would not hold. 0 means unknown: any weight is taken, and the runtime
	// looks at the divergence after every item, which is slow.
	Alpha float64

	// Compensate makes a recovered sketch raise its counters by what the failure may have lost. No heavy hitter is
	// missed then; keys below the threshold by up to Theta + Alpha*L may be reported instead.
	Compensate bool

	// OnMerged, if set, is called by Merge at the end of each window with the global sketch, before it is emptied for
	// the next window: to check a run. The sketch may be read during the call only. It is called again if the close is
	// run again after a failure, and by the goroutine of the operator. An error fails the job.
	OnMerged func(w stream.Window, s *countmin.Sketch) error
}

// Validate returns all faults of o, joined, each wrapping ErrOptions or countmin.ErrParams.
func (o Options) Validate() error {
	var faults []error
	if !(o.Threshold >= minThreshold && o.Threshold <= 1) { // so that NaN is a fault
		faults = append(faults, fmt.Errorf("%w: threshold %v, want a share from %v to 1", ErrOptions, o.Threshold, minThreshold))
		o.Threshold = 1
	}
	return errors.Join(append(faults, o.params().Validate())...)
}

func (o Options) params() countmin.Params {
	// The total is only ever compared after multiplication by Threshold, so it may be off by 1/Threshold times as much.
	return countmin.Params{Rows: o.Rows, Width: o.Width, Alpha: o.Alpha, TotalSlack: 1 / o.Threshold}
}

// sketch returns an empty sketch. It panics on invalid options.
func (o Options) sketch() *countmin.Sketch {
	if err := o.Validate(); err != nil {
		panic(err)
	}
	s, err := countmin.New(o.params())
	if err != nil {
		panic(err) // unreachable: Validate has checked the same
	}
	return s
}

// maxWeight is the largest weight that an item may have.
func (o Options) maxWeight() float64 {
	if o.Alpha > 0 {
		return o.Alpha
	}
	return math.MaxFloat64
}
