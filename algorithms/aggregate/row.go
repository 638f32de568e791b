package aggregate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/afstream/afstream/connector"
)

// ErrRow is wrapped by the errors about rows that no Aggregate can have emitted.
var ErrRow = errors.New("aggregate: malformed row")

// Row is the aggregates of one key.
type Row struct {
	Key connector.Key `json:"key"`
	Aggregates
}

// Aggregates are what is kept of some values, at least one.
type Aggregates struct {
	Count uint64  `json:"count"`
	Sum   float64 `json:"sum"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
}

// Mean returns the mean of the values.
func (a Aggregates) Mean() float64 { return a.Sum / float64(a.Count) }

// merge adds the values of b to those of a. A zero a has no values.
func (a *Aggregates) merge(b *Aggregates) {
	if a.Count == 0 {
		*a = *b
		return
	}
	a.Count += b.Count
	a.Sum += b.Sum
	a.Min = min(a.Min, b.Min)
	a.Max = max(a.Max, b.Max)
}

// check reports aggregates that no values have.
func (a *Aggregates) check() error {
	finite := func(v float64) bool { return math.Abs(v) <= math.MaxFloat64 }
	if a.Count == 0 || !finite(a.Sum) || !finite(a.Min) || !finite(a.Max) || a.Min > a.Max {
		return fmt.Errorf("%w: %+v", ErrRow, *a)
	}
	return nil
}

// aggregatesLen is the length of encoded Aggregates.
const aggregatesLen = 32

func (a *Aggregates) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, a.Count)
	for _, v := range [...]float64{a.Sum, a.Min, a.Max} {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
	}
	return dst
}

func (a *Aggregates) decode(src []byte) error {
	if len(src) != aggregatesLen {
		return fmt.Errorf("%w: aggregates of %d bytes", ErrRow, len(src))
	}
	field := func(i int) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])) }
	b := Aggregates{Count: binary.LittleEndian.Uint64(src), Sum: field(1), Min: field(2), Max: field(3)}
	if err := b.check(); err != nil {
		return err
	}
	*a = b
	return nil
}

// AppendBinary appends the wire form of r; the error is always nil. It implements encoding.BinaryAppender.
func (r Row) AppendBinary(dst []byte) ([]byte, error) {
	return r.Key.AppendBinary(r.append(dst))
}

// UnmarshalBinary decodes what AppendBinary made and keeps nothing of src. The error wraps ErrRow and leaves r as it
// was. It implements encoding.BinaryUnmarshaler.
func (r *Row) UnmarshalBinary(src []byte) error {
	if len(src) < aggregatesLen {
		return fmt.Errorf("%w: %d bytes", ErrRow, len(src))
	}
	var q Row
	if err := q.decode(src[:aggregatesLen]); err != nil {
		return err
	}
	if err := q.Key.UnmarshalBinary(src[aggregatesLen:]); err != nil {
		return fmt.Errorf("%w: %w", ErrRow, err)
	}
	*r = q
	return nil
}
