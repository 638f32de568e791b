package reservoir

import (
	"encoding"
	"errors"
	"fmt"
	"math"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// ErrOptions is wrapped by the errors of Options.Validate.
var ErrOptions = errors.New("reservoir: invalid options")

// MaxSize is the largest sample.
const MaxSize = 1 << 24

// Options describe a job over items of type T. All operators of it must be given the same.
//
// A pointer to T must implement encoding.BinaryAppender and encoding.BinaryUnmarshaler, for backups, as
// connector.Keyed does. Items are kept, so they must not share memory that changes.
type Options[T any] struct {
	// Size is how many items are drawn, 1 to MaxSize; fewer if there are fewer.
	Size int

	// Weight returns how likely an item is to be drawn, in proportion to the others; nil means all alike. An item of
	// weight 0 is never drawn; a weight that is negative, NaN or infinite is an error.
	Weight func(item *T) float64

	// ID returns what distinguishes an item from all others, such as its offset in the input; the priority then follows
	// from it, and the sample is the same however the items fall to partitions and whatever was lost before them. Items of
	// the same ID are drawn together. nil means the number of the item in its partition: see "Fault tolerance" in the
	// package comment.
	ID func(item *T) uint64

	// Seed selects the sample: the same seed draws the same of the same items in the same partitions.
	Seed uint64
}

// binaryItem is what a pointer to an item must be.
type binaryItem interface {
	encoding.BinaryAppender
	encoding.BinaryUnmarshaler
}

// Validate returns all faults of o, joined, each wrapping ErrOptions.
func (o Options[T]) Validate() error {
	var faults []error
	if o.Size < 1 || o.Size > MaxSize {
		faults = append(faults, fmt.Errorf("%w: size %d, want 1 to %d", ErrOptions, o.Size, MaxSize))
	}
	if _, ok := any(new(T)).(binaryItem); !ok {
		faults = append(faults, fmt.Errorf("%w: items of type %T have no binary form", ErrOptions, *new(T)))
	}
	return errors.Join(faults...)
}

// mustBeValid panics if o is not valid.
func (o Options[T]) mustBeValid() {
	if err := o.Validate(); err != nil {
		panic(err)
	}
}

// alpha is the most that one item adds to the divergence: an entry comes, one goes, and the count.
const alpha = 3

// Bound returns in how many entries the sample can differ, those that are missing and those in their place, after any
// number of failures within p: Theta + L*alpha, and Theta alone where the source can be read again. Without Options.ID
// it holds only where the source can be read again, see "Fault tolerance" in the package comment.
func Bound(p errorbound.Params) float64 { return p.StateBound(alpha) }

// StandardError returns z/sqrt(n), where n is the size of a sample less the entries that failures within p may have
// taken or put in the place of others (Bound). It is the error of a mean in units of the standard deviation, with the confidence that z
// stands for (1.96: 95%), and +Inf if nothing of the sample is left.
func StandardError(z float64, size int, p errorbound.Params) float64 {
	n := float64(size) - Bound(p)
	if !(n > 0) {
		return math.Inf(1)
	}
	return z / math.Sqrt(n)
}

// Assemble adds operators "sample", of the given number of workers, and "merge" to the topology of in. It panics if o is
// not valid.
func Assemble[T any](in stream.Stream[T], o Options[T], workers int) stream.Stream[Entry[T]] {
	o.mustBeValid()
	samples := stream.Then(in, "sample", func() *Sample[T] { return NewSample(o) },
		stream.Shuffle(), stream.Workers(workers), stream.EmitOnClose())
	return stream.Then(samples, "merge", func() *Merge[T] { return NewMerge(o) }, stream.EmitOnClose())
}
