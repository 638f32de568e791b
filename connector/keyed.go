package connector

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrBadItem is returned when bytes that should hold an encoded Keyed do not.
var ErrBadItem = errors.New("connector: malformed item")

// Keyed is an item with a key and a weight: 56 bytes without a pointer.
type Keyed struct {
	// Hash is Key.Hash(), computed once by the source: partitioners and sketches
	// need it several times per item.
	Hash uint64
	// Weight is how much the item counts for its key; sources yield finite weights
	// that are not negative, 1 if the input names none.
	Weight float64
	// Key is what is counted.
	Key Key
}

// MakeKeyed returns the item of a text key, its hash included.
func MakeKeyed(key []byte, weight float64) Keyed {
	k := Keyed{Weight: weight, Key: MakeKey(key)}
	k.Hash = k.Key.hash()
	return k
}

// keyedHeader is the fixed part of an encoded Keyed: hash and weight.
const keyedHeader = 16

// AppendBinary appends the item's encoding: hash and weight as 8 little-endian bytes
// each, then the key's encoding, 17 to 56 bytes in all. The error is always nil. It
// implements encoding.BinaryAppender.
func (k Keyed) AppendBinary(dst []byte) ([]byte, error) {
	dst = binary.LittleEndian.AppendUint64(dst, k.Hash)
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(k.Weight))
	return k.Key.AppendBinary(dst)
}

// UnmarshalBinary decodes what AppendBinary made, bit for bit. Anything else is an
// error wrapping ErrBadItem and leaves k as it was. src is not kept.
//
// It checks the form, not the meaning: hash and weight may be any values, since an
// operator may put others there than sources do.
func (k *Keyed) UnmarshalBinary(src []byte) error {
	if len(src) <= keyedHeader {
		return fmt.Errorf("%w: %d bytes", ErrBadItem, len(src))
	}
	if err := k.Key.UnmarshalBinary(src[keyedHeader:]); err != nil {
		return fmt.Errorf("%w: %w", ErrBadItem, err)
	}
	k.Hash = binary.LittleEndian.Uint64(src)
	k.Weight = math.Float64frombits(binary.LittleEndian.Uint64(src[8:]))
	return nil
}
