package heavyhitter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
)

// ErrPartial is wrapped by the errors of Partial.UnmarshalBinary and of Merge.Process.
var ErrPartial = errors.New("heavyhitter: malformed partial sketch")

// What one Partial holds at most: about 64 KiB in its wire form.
const (
	maxCells      = 4096
	maxCandidates = 512
)

// Partial is a piece of the sketch of one partition: some counters, or some candidates. The order in which pieces
// arrive does not matter. Its slices must not be changed.
type Partial struct {
	Rows, Width int         // shape of the whole sketch
	First       int         // index of Cells[0], row by row
	Cells       []float64   // counters that follow each other; at most 4096
	Total       float64     // sum of all weights, in one of the pieces and 0 in the others
	Candidates  []Candidate // at most 512
}

// partials yields the pieces of s: runs of counters without the zeros at their ends, then the candidates by hash with
// the total in their first piece.
func (s *Sketch) partials() iter.Seq[Partial] {
	rows, width := s.options.Rows, s.options.Width
	return func(yield func(Partial) bool) {
		for first := 0; first < rows*width; first += maxCells {
			cells := s.counts.AppendCells(nil, first, min(maxCells, rows*width-first))
			from, to := trimZeros(cells)
			if from < to && !yield(Partial{Rows: rows, Width: width, First: first + from, Cells: cells[from:to]}) {
				return
			}
		}
		total := s.counts.Total()
		keys := s.candidates.sorted()
		for first := true; first || len(keys) > 0; first = false {
			n := min(len(keys), maxCandidates)
			if !yield(Partial{Rows: rows, Width: width, Total: total, Candidates: keys[:n:n]}) {
				return
			}
			keys, total = keys[n:], 0
		}
	}
}

// trimZeros returns the part of cells between the zeros at its ends.
func trimZeros(cells []float64) (from, to int) {
	to = len(cells)
	for to > 0 && cells[to-1] == 0 {
		to--
	}
	for from < to && cells[from] == 0 {
		from++
	}
	return from, to
}

// AppendBinary appends the wire form of p. The error wraps ErrPartial for a piece that is too large or whose shape is
// no shape. It implements encoding.BinaryAppender.
func (p Partial) AppendBinary(dst []byte) ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	for _, n := range []int{p.Rows, p.Width, p.First, len(p.Cells), len(p.Candidates)} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(p.Total))
	for _, v := range p.Cells {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
	}
	for i := range p.Candidates {
		c := &p.Candidates[i]
		dst = binary.LittleEndian.AppendUint64(dst, c.Hash)
		at := len(dst)
		var err error
		if dst, err = c.Key.AppendBinary(append(dst, 0)); err != nil {
			return nil, fmt.Errorf("encode key %q: %w", c.Key, err)
		}
		dst[at] = byte(len(dst) - at - 1) // a key takes 40 bytes at most
	}
	return dst, nil
}

// UnmarshalBinary decodes what AppendBinary made and keeps nothing of src. The error wraps ErrPartial and leaves p as
// it was. It implements encoding.BinaryUnmarshaler.
func (p *Partial) UnmarshalBinary(src []byte) error {
	d := decoder{rest: src}
	q := Partial{Rows: d.int(), Width: d.int(), First: d.int()}
	cells, keys := d.int(), d.int()
	q.Total = math.Float64frombits(d.uint64())
	if d.bad || cells > maxCells || keys > maxCandidates || cells*8+keys*9 > len(d.rest) {
		return fmt.Errorf("%w: %d counters and %d candidates in %d bytes", ErrPartial, cells, keys, len(src))
	}
	for range cells {
		q.Cells = append(q.Cells, math.Float64frombits(d.uint64()))
	}
	for range keys {
		c := Candidate{Hash: d.uint64()}
		if err := c.Key.UnmarshalBinary(d.take(int(d.byte()))); err != nil {
			return fmt.Errorf("%w: %w", ErrPartial, err)
		}
		q.Candidates = append(q.Candidates, c)
	}
	if d.bad || len(d.rest) > 0 {
		return fmt.Errorf("%w: cut short, or %d bytes too long", ErrPartial, len(d.rest))
	}
	if err := q.check(); err != nil {
		return err
	}
	*p = q
	return nil
}

// check reports what no sketch can have emitted.
func (p *Partial) check() error {
	if p.Rows < 1 || p.Width < 1 || p.Rows > math.MaxInt32 || p.Width > math.MaxInt32/p.Rows {
		return fmt.Errorf("%w: shape %dx%d", ErrPartial, p.Rows, p.Width)
	}
	if p.First < 0 || p.First > p.Rows*p.Width-len(p.Cells) || len(p.Cells) > maxCells || len(p.Candidates) > maxCandidates {
		return fmt.Errorf("%w: %d counters from %d on, %d candidates", ErrPartial, len(p.Cells), p.First, len(p.Candidates))
	}
	ok := isSum(p.Total)
	for _, v := range p.Cells {
		ok = ok && isSum(v)
	}
	if !ok {
		return fmt.Errorf("%w: a sum is negative or not finite", ErrPartial)
	}
	return nil
}

func isSum(v float64) bool { return v >= 0 && v <= math.MaxFloat64 }

// decoder takes fields off a byte string; after the first that is not there it is bad and all others are zero.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) int() int {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || v > math.MaxInt32 {
		d.bad, n, v = true, 0, 0
	}
	d.rest = d.rest[n:]
	return int(v)
}

func (d *decoder) take(n int) []byte {
	if n > len(d.rest) {
		d.bad = true
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}
