package logreg

import (
	"encoding/binary"
	"errors"
	"math"
)

var errPrequential = errors.New("logreg: malformed counts of predictions")

// AppendBinary appends the counts, a byte for each small one; the error is always nil. It implements
// encoding.BinaryAppender.
func (q *Prequential) AppendBinary(dst []byte) ([]byte, error) {
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(q.loss))
	dst = binary.AppendUvarint(dst, q.correct)
	for label := range q.histogram {
		for _, n := range q.histogram[label] {
			dst = binary.AppendUvarint(dst, n)
		}
	}
	return dst, nil
}

// UnmarshalBinary decodes what AppendBinary made. An error leaves q as it was.
func (q *Prequential) UnmarshalBinary(src []byte) error {
	if len(src) < 8 {
		return errPrequential
	}
	read := Prequential{loss: math.Float64frombits(binary.LittleEndian.Uint64(src))}
	src = src[8:]
	next := func(to *uint64) bool {
		n, size := binary.Uvarint(src)
		if size <= 0 || n > 1<<53 {
			return false
		}
		*to, src = n, src[size:]
		return true
	}
	ok := read.loss >= 0 && !math.IsInf(read.loss, 1) && next(&read.correct)
	for label := range read.histogram {
		for i := range read.histogram[label] {
			ok = ok && next(&read.histogram[label][i])
		}
	}
	if !ok || len(src) > 0 {
		return errPrequential
	}
	*q = read
	return nil
}
