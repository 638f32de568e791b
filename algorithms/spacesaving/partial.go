package spacesaving

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
)

// ErrPartial is wrapped by the errors about pieces that no Count can have emitted.
var ErrPartial = errors.New("spacesaving: malformed partial summary")

// maxCounters is how many counters one Partial holds at most: about 30 KiB in its wire form.
const maxCounters = 512

// Partial is a piece of the summary of one partition. The order in which pieces arrive does not matter. Its slice must
// not be changed.
type Partial struct {
	Least    float64   // what a key without a counter in this partition counts
	Absent   float64   // Least, in one of the pieces and 0 in the others
	Total    float64   // weight of all items, in the same piece
	Counters []Counter // at most 512
}

// partials yields the pieces of s, the same for the same counters.
func (s *summary) partials() iter.Seq[Partial] {
	return func(yield func(Partial) bool) {
		p := Partial{Least: s.least(), Absent: s.least(), Total: s.total}
		for _, i := range s.sorted() {
			if len(p.Counters) == maxCounters {
				if !yield(p) {
					return
				}
				p = Partial{Least: s.least()}
			}
			p.Counters = append(p.Counters, s.counters[i])
		}
		yield(p)
	}
}

func isSum(v float64) bool { return v >= 0 && v <= math.MaxFloat64 }

// check reports what no summary can have emitted.
func (p *Partial) check() error {
	if !isSum(p.Least) || !isSum(p.Total) || p.Absent != 0 && p.Absent != p.Least || len(p.Counters) > maxCounters {
		return fmt.Errorf("%w: least %v, absent %v, total %v, %d counters", ErrPartial, p.Least, p.Absent, p.Total, len(p.Counters))
	}
	for i := range p.Counters {
		if err := p.Counters[i].check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Counter) check() error {
	if !isSum(c.Weight) || !(c.Over >= 0 && c.Over <= c.Weight) {
		return fmt.Errorf("%w: key %q weighs %v, %v too much", ErrPartial, c.Key, c.Weight, c.Over)
	}
	return nil
}

// append appends the binary form of c: two numbers and the key.
func (c *Counter) append(dst []byte) []byte {
	dst = appendFloat(appendFloat(dst, c.Weight), c.Over)
	dst, _ = c.Key.AppendBinary(dst) // its error is always nil
	return dst
}

// decode is the inverse of append.
func (c *Counter) decode(src []byte) error {
	if len(src) < 16 {
		return fmt.Errorf("%w: counter of %d bytes", ErrPartial, len(src))
	}
	q := Counter{Weight: float(src), Over: float(src[8:])}
	if err := q.Key.UnmarshalBinary(src[16:]); err != nil {
		return fmt.Errorf("%w: %w", ErrPartial, err)
	}
	if err := q.check(); err != nil {
		return err
	}
	*c = q
	return nil
}

func appendFloat(dst []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
}

func float(src []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(src)) }

// partialHeader is the fixed part of an encoded Partial.
const partialHeader = 24

// AppendBinary appends the wire form of p. The error wraps ErrPartial for a piece that is too large. It implements
// encoding.BinaryAppender.
func (p Partial) AppendBinary(dst []byte) ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	dst = appendFloat(appendFloat(appendFloat(dst, p.Least), p.Absent), p.Total)
	for i := range p.Counters {
		at := len(dst)
		dst = p.Counters[i].append(append(dst, 0))
		dst[at] = byte(len(dst) - at - 1) // 56 bytes at most
	}
	return dst, nil
}

// UnmarshalBinary decodes what AppendBinary made and keeps nothing of src. The error wraps ErrPartial and leaves p as it
// was. It implements encoding.BinaryUnmarshaler.
func (p *Partial) UnmarshalBinary(src []byte) error {
	if len(src) < partialHeader {
		return fmt.Errorf("%w: %d bytes", ErrPartial, len(src))
	}
	q := Partial{Least: float(src), Absent: float(src[8:]), Total: float(src[16:])}
	for rest := src[partialHeader:]; len(rest) > 0; {
		n := 1 + int(rest[0])
		if n > len(rest) || len(q.Counters) == maxCounters {
			return fmt.Errorf("%w: cut short, or too long", ErrPartial)
		}
		var c Counter
		if err := c.decode(rest[1:n]); err != nil {
			return err
		}
		q.Counters = append(q.Counters, c)
		rest = rest[n:]
	}
	if err := q.check(); err != nil {
		return err
	}
	*p = q
	return nil
}
