package spacesaving

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/afstream/afstream/connector"
)

// AppendBinary appends a form that depends on nothing but what e says; the error is always nil. It implements
// encoding.BinaryAppender.
func (e Estimates) AppendBinary(dst []byte) ([]byte, error) {
	dst = appendFloat(appendFloat(dst, e.absent), e.total)
	order := slices.SortedFunc(maps.Keys(e.keys), func(a, b connector.Key) int { return compareKeys(&a, &b) })
	for _, key := range order {
		one, _ := key.AppendBinary(appendFloat(nil, e.keys[key])) // its error is always nil
		dst = append(binary.AppendUvarint(dst, uint64(len(one))), one...)
	}
	return dst, nil
}

// UnmarshalBinary decodes what AppendBinary made and keeps nothing of src. Anything else is an error wrapping ErrPartial
// and leaves e as it was.
func (e *Estimates) UnmarshalBinary(src []byte) error {
	if len(src) < 16 || !isSum(float(src)) || !isSum(float(src[8:])) {
		return fmt.Errorf("%w: estimates of %d bytes", ErrPartial, len(src))
	}
	read := Estimates{absent: float(src), total: float(src[8:]), keys: map[connector.Key]float64{}}
	for rest := src[16:]; len(rest) > 0; {
		length, n := binary.Uvarint(rest)
		if n <= 0 || length < 8 || length > uint64(len(rest)-n) {
			return fmt.Errorf("%w: key cut short", ErrPartial)
		}
		one := rest[n : n+int(length)]
		rest = rest[n+int(length):]
		var key connector.Key
		if err := key.UnmarshalBinary(one[8:]); err != nil {
			return fmt.Errorf("%w: %w", ErrPartial, err)
		}
		if !isSum(float(one)) {
			return fmt.Errorf("%w: key %q weighs %v", ErrPartial, key, float(one))
		}
		read.keys[key] = float(one)
	}
	*e = read
	return nil
}
