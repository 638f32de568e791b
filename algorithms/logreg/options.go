package logreg

import (
	"errors"
	"fmt"
	"math"
)

// ErrOptions is wrapped by the errors of Options.Validate.
var ErrOptions = errors.New("logreg: invalid options")

// MaxBits bounds Options.Bits: 2^28 weights take 2 GB in each learner.
const MaxBits = 28

// Method is how the size of a step is chosen.
type Method uint8

const (
	// AdaGrad divides the rate of each weight by the root of the sum of its squared gradients so far (Duchi, Hazan and
	// Singer, 2011). The default: rare categories keep learning fast.
	AdaGrad Method = iota
	// SGD steps by rate/sqrt(t) for the t-th example (Zinkevich, 2003).
	SGD
)

// Consistency is how far the learners may be apart. It takes effect where the runtime asks Learner.Ready.
type Consistency uint8

const (
	// Asynchronous learners never wait. The default.
	Asynchronous Consistency = iota
	// BulkSynchronous learners wait after each update for those of all others: Staleness 0.
	BulkSynchronous
	// StaleSynchronous learners may be Options.Staleness updates ahead of the slowest (Ho and others, 2013).
	StaleSynchronous
)

// Options describe a job. All operators of it must be given the same.
type Options struct {
	// Bits is the logarithm of the number of weights, 1 to MaxBits. One more weight is the bias.
	Bits int

	// Learners is the number of Learner partitions; 0 is 1.
	Learners int

	// Method is how the size of a step is chosen.
	Method Method

	// Rate is the size of the first step of a weight; 0 is DefaultRate. It is divided by sqrt(Learners), since each sees
	// only that part of the examples and their steps are added.
	Rate float64

	// Every is how many examples a learner takes before it sends an update; 0 is DefaultEvery. A single learner has no
	// others to tell and sends at the ends of windows only.
	Every int

	// Consistency is how far the learners may be apart, Staleness by how many updates under StaleSynchronous.
	Consistency Consistency
	Staleness   uint64

	// MaxFeatures and MaxValue bound an example: the number of its features and the size of a value; 0 is 1 for MaxValue.
	// An example beyond them is an error. They make up Alpha. MaxFeatures 0 means unknown: the runtime then looks at the
	// divergence after every example, which is slow.
	MaxFeatures int
	MaxValue    float64

	// PathLength makes the divergence of a learner the length of the path of each weight, see state.Options.PathLength.
	// Set it if examples are at risk (their source cannot replay).
	PathLength bool

	// Clear is the share of the divergence that a partial backup removes, see state.Options.Clear; 0 is its default.
	Clear float64

	// Quality, if set, returns where the learner of a partition counts how good its predictions are; it is called by
	// Open. A Prequential that outlives the learner counts through failures. By default a learner has its own.
	Quality func(partition int) *Prequential

	// OnEnd, if set, is told by the learner of a partition at the end of the stream how good its predictions were; once
	// more, perhaps by a learner that has made none, if a failure makes it close again. An error fails the job.
	OnEnd func(partition int, q *Prequential) error
}

// Defaults of Options.
const (
	DefaultRate  = 0.1
	DefaultEvery = 250 // the source paper has 1,000; two learners are then a percent worse on the flights
)

// Validate returns all faults of o, joined, each wrapping ErrOptions.
func (o Options) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...))
		}
	}
	check(o.Bits >= 1 && o.Bits <= MaxBits, "%d bits, want 1 to %d", o.Bits, MaxBits)
	check(o.Learners >= 0 && o.Learners <= 1<<12, "%d learners, want 1 to 4096", o.Learners)
	check(o.Method <= SGD, "method %d", o.Method)
	check(o.Consistency <= StaleSynchronous, "consistency %d", o.Consistency)
	check(o.Rate >= 0 && o.Rate <= math.MaxFloat64, "rate %v, want a positive number", o.Rate)
	check(o.Every >= 0, "an update every %d examples", o.Every)
	check(o.MaxFeatures >= 0 && o.MaxFeatures <= maxFeatures, "at most %d features", o.MaxFeatures)
	check(o.MaxValue >= 0 && o.MaxValue <= math.MaxFloat32, "values of at most %v", o.MaxValue)
	check(o.Clear >= 0 && o.Clear <= 1, "clear %v, want a share from 0 to 1", o.Clear)
	return errors.Join(faults...)
}

// filled returns o with its defaults. It panics on invalid options.
func (o Options) filled() Options {
	if err := o.Validate(); err != nil {
		panic(err)
	}
	o.Learners = max(o.Learners, 1)
	if o.Rate == 0 {
		o.Rate = DefaultRate
	}
	if o.Every == 0 {
		o.Every = DefaultEvery
	}
	if o.MaxValue == 0 {
		o.MaxValue = 1
	}
	return o
}

// bias is the index of the bias, and one less than the number of weights.
func (o Options) bias() uint32 { return 1 << o.Bits }

// rate is the rate of one of several learners.
func (o Options) rate() float64 { return o.Rate / math.Sqrt(float64(o.Learners)) }

// Alpha returns the most, in the Euclidean norm, by which one example changes the weights of a learner; 0 if
// o.MaxFeatures is not known.
//
// The gradient of the loss by weight i is (p-y)*x_i, and |p-y| < 1. A step of SGD is at most rate*|x|; one of AdaGrad
// at most rate in each coordinate, since the gradient is part of the sum that it is divided by. There are at most
// MaxFeatures coordinates and the bias.
func (o Options) Alpha() float64 {
	o = o.filled()
	if o.MaxFeatures == 0 {
		return 0
	}
	if o.Method == SGD {
		return o.rate() * math.Sqrt(float64(o.MaxFeatures)*o.MaxValue*o.MaxValue+1)
	}
	return o.rate() * math.Sqrt(float64(o.MaxFeatures)+1)
}
