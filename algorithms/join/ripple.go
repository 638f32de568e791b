package join

import (
	"errors"
	"fmt"
	"math"

	"github.com/afstream/afstream/stream"
)

// ErrSample is wrapped by the errors about a sampled row whose value is not finite.
var ErrSample = errors.New("join: bad sample")

// Sample is one sampled row: the hash of its key, and the number that it contributes.
type Sample struct {
	Key   uint64
	Value float64
}

// RippleOptions describe a ripple join. Each input is a Bernoulli sample of its rows.
type RippleOptions struct {
	// LeftRate and RightRate are the parts of the rows that are sampled, in (0, 1].
	LeftRate, RightRate float64
	// Confidence is the probability with which the interval is to hold the true sum, in (0, 1).
	Confidence float64
}

// Validate returns all faults of o, joined, each wrapping ErrOptions.
func (o RippleOptions) Validate() error {
	var faults []error
	for name, rate := range map[string]float64{"left": o.LeftRate, "right": o.RightRate} {
		if !(rate > 0 && rate <= 1) {
			faults = append(faults, fmt.Errorf("%w: %s rate %v, want a share above 0", ErrOptions, name, rate))
		}
	}
	if !(o.Confidence > 0 && o.Confidence < 1) {
		faults = append(faults, fmt.Errorf("%w: confidence %v, want a probability between 0 and 1", ErrOptions, o.Confidence))
	}
	return errors.Join(faults...)
}

// Estimate is what a ripple join knows.
type Estimate struct {
	// Sum is the estimate of the sum, over all pairs of rows with the same key, of the product of their values: the
	// number of pairs if all values are 1.
	Sum float64 `json:"sum"`
	// Half is half the width of the confidence interval around Sum, +Inf before both inputs have two samples.
	Half float64 `json:"half"`
	// Left and Right are the numbers of sampled rows.
	Left  uint64 `json:"left"`
	Right uint64 `json:"right"`
}

// Ripple estimates an aggregate of a join from samples of its inputs, better with every row: the ripple join of Haas and
// Hellerstein (1999), in its hash form. It emits an Estimate at the end of each window and may be built with
// stream.EmitOnClose.
//
// The estimate scales the sum over the sampled pairs up by the rates p and q. With l and r the values of rows, its variance
// is, exactly and for samples of any size,
//
//	(1/p-1) * S1 + (1/q-1) * S2 + (1/p-1)*(1/q-1) * S3
//
// where S1 is the sum over the left rows of l^2 times the square of the sum of all r of its key, S2 the same from the
// right, and S3 the sum over all pairs of l^2*r^2. (Write the sum over pairs of pairs; two pairs that share a row are
// both in the sample more often than independent ones.) All three are estimated without bias from the same sums over the
// sample. That the interval of z standard deviations holds the truth as often as it should then rests on the estimate
// being close to normal, for which Haas and Hellerstein give the conditions. The sums follow from sums by key that one
// row changes in constant time, so no sample need be kept, and neither state nor time grow with the number of pairs.
type Ripple struct {
	options RippleOptions
	z       float64
	keys    map[uint64]*sums
	pairs   float64    // sum over the sampled pairs
	spread  [2]float64 // by input: sum over its rows of value^2 * (total of the other input's values of that key)^2
	both    float64    // sum over the sampled pairs of the square of the product
	rows    [2]uint64
	tracked bool     // theta is finite
	dirty   []uint64 // keys that have changed since the last backup was taken
	flight  []uint64 // keys in the backup in flight
	moves   uint64   // rows that came or, at the end of a window, went
	durable uint64   // moves in the durable backup
	flown   uint64   // moves in the backup in flight
}

// sums are those of one key, by input.
type sums struct {
	count   [2]uint64
	total   [2]float64
	squares [2]float64
	dirty   bool // in Ripple.dirty
}

// NewRipple returns a Ripple that has seen nothing. It panics if o is not valid; see RippleOptions.Validate.
func NewRipple(o RippleOptions) *Ripple {
	if err := o.Validate(); err != nil {
		panic(err)
	}
	z := math.Sqrt2 * math.Erfinv(o.Confidence)
	return &Ripple{options: o, z: z, keys: map[uint64]*sums{}}
}

// ProcessLeft implements stream.JoinOperator. The error wraps ErrSample.
func (r *Ripple) ProcessLeft(s Sample, _ *stream.Emitter[Estimate]) error { return r.add(s, 0) }

// ProcessRight implements stream.JoinOperator. The error wraps ErrSample.
func (r *Ripple) ProcessRight(s Sample, _ *stream.Emitter[Estimate]) error { return r.add(s, 1) }

func (r *Ripple) add(s Sample, side int) error {
	if s.Value-s.Value != 0 {
		return fmt.Errorf("%w: value %v", ErrSample, s.Value)
	}
	k := r.keys[s.Key]
	if k == nil {
		k = &sums{}
		r.keys[s.Key] = k
	}
	r.account(k, -1)
	k.count[side]++
	k.total[side] += s.Value
	k.squares[side] += s.Value * s.Value
	r.account(k, 1)
	r.rows[side]++
	r.moves++
	r.soil(s.Key, k)
	return nil
}

// soil makes a key part of the next partial backup.
func (r *Ripple) soil(key uint64, k *sums) {
	if r.tracked && !k.dirty {
		k.dirty = true
		r.dirty = append(r.dirty, key)
	}
}

// account adds, or takes away, what a key contributes to the sums over all keys.
func (r *Ripple) account(k *sums, sign float64) {
	r.pairs += sign * k.total[0] * k.total[1]
	for side := range r.spread {
		other := k.total[1-side]
		r.spread[side] += sign * k.squares[side] * other * other
	}
	r.both += sign * k.squares[0] * k.squares[1]
}

// Estimate returns the estimate from what has been sampled so far.
func (r *Ripple) Estimate() Estimate {
	p, q := r.options.LeftRate, r.options.RightRate
	e := Estimate{Sum: r.pairs / (p * q), Half: math.Inf(1), Left: r.rows[0], Right: r.rows[1]}
	if r.rows[0] < 2 || r.rows[1] < 2 {
		return e
	}
	s1 := (r.spread[0] - (1-q)*r.both) / (p * q * q)
	s2 := (r.spread[1] - (1-p)*r.both) / (q * p * p)
	s3 := r.both / (p * q)
	variance := (1/p-1)*s1 + (1/q-1)*s2 + (1/p-1)*(1/q-1)*s3
	e.Half = r.z * math.Sqrt(max(0, variance))
	return e
}

// CloseWindow implements stream.WindowCloser: it emits the estimate and, unless the stream ends, begins anew.
func (r *Ripple) CloseWindow(w stream.Window, out *stream.Emitter[Estimate]) error {
	out.Emit(r.Estimate())
	if !w.Last {
		r.reset()
	}
	return nil
}
