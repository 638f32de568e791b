package reservoir

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrEntry is wrapped by the errors about entries that no Sample can have emitted.
var ErrEntry = errors.New("reservoir: malformed entry")

// Entry is an item that was drawn.
type Entry[T any] struct {
	Item     T
	Priority float64 // the entries with the smallest are the sample
	Seen     uint64  // how many items there were, in one of the entries of a sample and 0 in the others
	Weight   float64 // what they weighed together, likewise; 1 each without Options.Weight
}

// entryHeader is the fixed part of an encoded Entry.
const entryHeader = 24

// AppendBinary appends the wire form of e. The error is that of the item. It implements encoding.BinaryAppender.
func (e Entry[T]) AppendBinary(dst []byte) ([]byte, error) {
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(e.Priority))
	dst = binary.LittleEndian.AppendUint64(dst, e.Seen)
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(e.Weight))
	return appendItem(dst, &e.Item)
}

// UnmarshalBinary decodes what AppendBinary made. The error wraps ErrEntry and leaves e as it was. It implements
// encoding.BinaryUnmarshaler.
func (e *Entry[T]) UnmarshalBinary(src []byte) error {
	if len(src) < entryHeader {
		return fmt.Errorf("%w: %d bytes", ErrEntry, len(src))
	}
	q := Entry[T]{
		Priority: math.Float64frombits(binary.LittleEndian.Uint64(src)),
		Seen:     binary.LittleEndian.Uint64(src[8:]),
		Weight:   math.Float64frombits(binary.LittleEndian.Uint64(src[16:])),
	}
	if err := q.check(); err != nil {
		return err
	}
	if err := decodeItem(src[entryHeader:], &q.Item); err != nil {
		return fmt.Errorf("%w: %w", ErrEntry, err)
	}
	*e = q
	return nil
}

// maxSeen bounds what an entry may claim, so that no sum can wrap around.
const maxSeen = 1 << 56

func (e *Entry[T]) check() error {
	if !isSum(e.Priority) || !isSum(e.Weight) || e.Seen > maxSeen {
		return fmt.Errorf("%w: priority %v, seen %d, weight %v", ErrEntry, e.Priority, e.Seen, e.Weight)
	}
	return nil
}

func isSum(v float64) bool { return v >= 0 && v <= math.MaxFloat64 }

// appendItem and decodeItem use the binary form that Validate has made sure of.
func appendItem[T any](dst []byte, item *T) ([]byte, error) {
	dst, err := any(item).(binaryItem).AppendBinary(dst)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", *item, err)
	}
	return dst, nil
}

func decodeItem[T any](src []byte, item *T) error {
	return any(item).(binaryItem).UnmarshalBinary(src)
}

// smallest orders entries by priority, and by their binary form where it is the same, and returns the first n. The
// order of the same entries is always the same.
func smallest[T any](entries []Entry[T], n int) ([]Entry[T], error) {
	var failed error
	form := func(e *Entry[T]) []byte {
		b, err := e.AppendBinary(nil)
		failed = cmp.Or(failed, err)
		return b
	}
	slices.SortFunc(entries, func(a, b Entry[T]) int {
		if c := cmp.Compare(a.Priority, b.Priority); c != 0 {
			return c
		}
		return bytes.Compare(form(&a), form(&b))
	})
	return entries[:min(n, len(entries))], failed
}

// appendField appends b with its length before it.
func appendField(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// takeField is the inverse of appendField.
func takeField(src []byte) (field, rest []byte, ok bool) {
	length, n := binary.Uvarint(src)
	if n <= 0 || length > uint64(len(src)-n) {
		return nil, nil, false
	}
	return src[n : n+int(length)], src[n+int(length):], true
}
