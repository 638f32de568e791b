package state

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"

	"github.com/afstream/afstream/stream"
)

// Number is what a state can hold.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// Key is what can index a state.
type Key interface {
	~string | ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

func isFloat[T Number]() bool { return T(1)/T(2) != 0 }

// difference returns |a-b|. Integers are subtracted as such: as float64 large ones would all be equal.
func difference[T Number](a, b T) float64 {
	if isFloat[T]() {
		return math.Abs(float64(a) - float64(b))
	}
	if a < b {
		a, b = b, a
	}
	return float64(uint64(a) - uint64(b))
}

func finite[T Number](v T) bool {
	f := float64(v)
	return f-f == 0
}

// numberBits returns what encodeNumber writes: a float as a float64, an integer extended to 64 bits.
func numberBits[T Number](v T) uint64 {
	if isFloat[T]() {
		return math.Float64bits(float64(v))
	}
	return uint64(v)
}

// encodeNumber appends the 8 bytes of v.
func encodeNumber[T Number](dst []byte, v T) []byte {
	return binary.LittleEndian.AppendUint64(dst, numberBits(v))
}

// decodeNumber is the inverse of encodeNumber. It refuses what a T cannot hold.
func decodeNumber[T Number](b []byte) (T, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("%w: number of %d bytes", stream.ErrState, len(b))
	}
	bits := binary.LittleEndian.Uint64(b)
	if isFloat[T]() {
		f := math.Float64frombits(bits)
		if v := T(f); finite(f) && float64(v) == f {
			return v, nil
		}
	} else if v := T(bits); uint64(v) == bits {
		return v, nil
	}
	return 0, fmt.Errorf("%w: bits %#x are no %T", stream.ErrState, bits, T(0))
}

// encodeKey appends the bytes of k: a string as it is, an integer as 8 bytes that sort like the integers. It uses
// reflection because a type parameter that may be a string cannot be converted to an integer; only backups pay for it.
func encodeKey[K Key](dst []byte, k K) []byte {
	v := reflect.ValueOf(k)
	switch {
	case v.Kind() == reflect.String:
		return append(dst, v.String()...)
	case v.CanInt():
		return binary.BigEndian.AppendUint64(dst, uint64(v.Int())^1<<63)
	}
	return binary.BigEndian.AppendUint64(dst, v.Uint())
}

// decodeKey is the inverse of encodeKey. It refuses what a K cannot hold.
func decodeKey[K Key](b []byte) (K, error) {
	var k K
	v := reflect.ValueOf(&k).Elem()
	if v.Kind() == reflect.String {
		v.SetString(string(b))
		return k, nil
	}
	if len(b) != 8 {
		return k, fmt.Errorf("%w: integer key of %d bytes", stream.ErrState, len(b))
	}
	bits := binary.BigEndian.Uint64(b)
	if v.CanInt() {
		if i := int64(bits ^ 1<<63); !v.OverflowInt(i) {
			v.SetInt(i)
			return k, nil
		}
	} else if !v.OverflowUint(bits) {
		v.SetUint(bits)
		return k, nil
	}
	return k, fmt.Errorf("%w: key %#x is no %T", stream.ErrState, bits, k)
}
