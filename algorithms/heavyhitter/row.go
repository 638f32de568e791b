package heavyhitter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/afstream/afstream/connector"
)

// ErrRow is wrapped by the errors of Row.UnmarshalBinary.
var ErrRow = errors.New("heavyhitter: malformed row")

// Row is one heavy hitter.
type Row struct {
	Rank     int           `json:"rank"` // 1 is the heaviest
	Key      connector.Key `json:"key"`
	Estimate float64       `json:"estimate"` // weight, in the unit of the items
	Share    float64       `json:"share"`    // of the total weight
}

// rowHeader is the fixed part of an encoded Row.
const rowHeader = 24

// AppendBinary appends the wire form of r. It implements encoding.BinaryAppender.
func (r Row) AppendBinary(dst []byte) ([]byte, error) {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Rank))
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(r.Estimate))
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(r.Share))
	return r.Key.AppendBinary(dst)
}

// UnmarshalBinary decodes what AppendBinary made and keeps nothing of src. The error wraps ErrRow and leaves r as it
// was. It implements encoding.BinaryUnmarshaler.
func (r *Row) UnmarshalBinary(src []byte) error {
	if len(src) <= rowHeader {
		return fmt.Errorf("%w: %d bytes", ErrRow, len(src))
	}
	q := Row{
		Rank:     int(binary.LittleEndian.Uint64(src)),
		Estimate: math.Float64frombits(binary.LittleEndian.Uint64(src[8:])),
		Share:    math.Float64frombits(binary.LittleEndian.Uint64(src[16:])),
	}
	if q.Rank < 1 || !isSum(q.Estimate) || !isSum(q.Share) {
		return fmt.Errorf("%w: rank %d, estimate %v, share %v", ErrRow, q.Rank, q.Estimate, q.Share)
	}
	if err := q.Key.UnmarshalBinary(src[rowHeader:]); err != nil {
		return fmt.Errorf("%w: %w", ErrRow, err)
	}
	*r = q
	return nil
}
