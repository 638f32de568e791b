package logreg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrExample is wrapped by the errors about an example that cannot be learned from, or is not one.
var ErrExample = errors.New("logreg: bad example")

// Feature is one coordinate of an example. Coordinates that are not listed are 0.
type Feature struct {
	Index uint32
	Value float32
}

// Example is one labelled item. Features must not be changed once it is made; their indices ascend strictly.
type Example struct {
	Positive bool
	Features []Feature
}

// maxFeatures bounds what a wire form or a line may claim.
const maxFeatures = 1 << 16

// AppendBinary appends the wire form of e, 8 bytes a feature. It implements encoding.BinaryAppender.
func (e Example) AppendBinary(dst []byte) ([]byte, error) {
	if len(e.Features) > maxFeatures {
		return nil, fmt.Errorf("%w: %d features", ErrExample, len(e.Features))
	}
	label := byte(0)
	if e.Positive {
		label = 1
	}
	dst = append(dst, label)
	for _, f := range e.Features {
		dst = binary.LittleEndian.AppendUint32(dst, f.Index)
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(f.Value))
	}
	return dst, nil
}

// UnmarshalBinary decodes what AppendBinary made and keeps nothing of src. The error wraps ErrExample and leaves e as it
// was. It implements encoding.BinaryUnmarshaler.
func (e *Example) UnmarshalBinary(src []byte) error {
	if len(src)%8 != 1 || src[0] > 1 || len(src)/8 > maxFeatures {
		return fmt.Errorf("%w: %d bytes", ErrExample, len(src))
	}
	x := Example{Positive: src[0] == 1, Features: make([]Feature, 0, len(src)/8)}
	for src = src[1:]; len(src) > 0; src = src[8:] {
		f := Feature{binary.LittleEndian.Uint32(src), math.Float32frombits(binary.LittleEndian.Uint32(src[4:]))}
		x.Features = append(x.Features, f)
	}
	if err := x.check(math.MaxUint32, math.MaxFloat32); err != nil {
		return err
	}
	*e = x
	return nil
}

// check reports an index that does not ascend or is above last, and a value whose size is not at most largest.
func (e *Example) check(last uint32, largest float32) error {
	next := uint64(0)
	for _, f := range e.Features {
		if uint64(f.Index) < next || f.Index > last {
			return fmt.Errorf("%w: index %d, want one from %d to %d", ErrExample, f.Index, next, last)
		}
		if !(f.Value <= largest && f.Value >= -largest) { // so that NaN is none
			return fmt.Errorf("%w: value %v of index %d, want a size of at most %v", ErrExample, f.Value, f.Index, largest)
		}
		next = uint64(f.Index) + 1
	}
	return nil
}

// arenaFeatures is how many features are allocated at once, so that making an example allocates nothing most times.
const arenaFeatures = 4096

// builder makes examples. The features of many of them share one allocation, which lives as long as the last.
type builder struct {
	features []Feature // of the example in the making
	arena    []Feature
	used     []Feature // memory that the next example may take
}

// Reuse lets the next example use the memory of one that nobody needs any more.
func (b *builder) Reuse(e Example) { b.used = e.Features }

func (b *builder) add(index uint32, value float32) {
	b.features = append(b.features, Feature{index, value})
}

func (b *builder) reset() { b.features = b.features[:0] }

// sort puts the features in order and reports whether an index came twice.
func (b *builder) sort() (twice bool) {
	slices.SortFunc(b.features, func(x, y Feature) int { return int(int64(x.Index) - int64(y.Index)) })
	n := len(b.features)
	b.features = slices.CompactFunc(b.features, func(x, y Feature) bool { return x.Index == y.Index })
	return len(b.features) < n
}

// take returns the example and begins the next.
func (b *builder) take(positive bool) Example {
	e := Example{Positive: positive, Features: append(b.memory(len(b.features)), b.features...)}
	b.reset()
	return e
}

// memory returns room for n features.
func (b *builder) memory(n int) []Feature {
	used := b.used
	if b.used = nil; n <= cap(used) {
		return used[:0]
	}
	n = (n + 3) &^ 3 // so that who uses it again finds room for one with a few more
	if n > len(b.arena) {
		b.arena = make([]Feature, max(n, arenaFeatures))
	}
	m := b.arena[:0:n]
	b.arena = b.arena[n:]
	return m
}
