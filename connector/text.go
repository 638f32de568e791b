package connector

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/afstream/afstream/stream"
)

var errTextFields = errors.New("more than a key and a weight")

// textDecoder reads lines "key [weight]".
type textDecoder struct{ *lineReader }

func buildText(c *content, r *rows, from stream.Position) (decoder[Keyed], uint64, error) {
	l := newLineReader(c, r)
	skip, err := l.rewind(from)
	return textDecoder{l}, skip, err
}

// read is rowDecoder's with the parser called directly: through a function value a short
// line, of some 30 ns, takes 5 to 10% longer.
func (d textDecoder) read(dst []Keyed) (int, error) {
	n := d.quick(dst)
	for n < len(dst) {
		line, ok := d.next()
		if !ok {
			if n > 0 {
				return n, nil
			}
			if err := d.fill(); err != nil {
				return 0, err
			}
			continue
		}
		if d.line == 1 {
			line = d.trimBOM(line)
		}
		ok, err := parseText(line, &dst[n])
		if err != nil {
			if err := d.rows.bad(d.line, err); err != nil {
				return n, err
			}
			continue
		}
		if ok {
			n++
		}
		n += d.quick(dst[n:])
	}
	return n, nil
}

// quickWindow is how many bytes a line may be looked at in one piece: a key of 39 bytes, a blank, a weight of 15 digits
// and the end of the line fit.
const quickWindow = 64

// quick parses lines as long as they are plain and lie well within the buffer. That is nearly all lines of nearly all
// inputs, and takes half the time of the general way: one pass over the bytes, the key copied and hashed by words.
func (d textDecoder) quick(dst []Keyed) int {
	l := d.lineReader
	if l.line == 0 || l.long {
		return 0 // a byte order mark may come first
	}
	n, r, buf := 0, l.r, l.buf[:l.w]
	for n < len(dst) && len(buf)-r >= quickWindow {
		size := parseQuick((*[quickWindow]byte)(buf[r:]), &dst[n])
		if size == 0 {
			break
		}
		r += size
		n++
	}
	l.r = r
	l.line += uint64(n)
	return n
}

// parseQuick sets dst from the line at the start of p and returns its length with its end, or 0 if the line has to be
// parsed the general way: blank or longer lines, carriage returns, weights that are not 1 to 15 digits.
func parseQuick(p *[quickWindow]byte, dst *Keyed) int {
	n := 0
	word := binary.LittleEndian.Uint64(p[:])
	end := belowBlank(word)
	for end == 0 {
		if n += 8; n >= MaxKeyLen {
			return 0
		}
		word = binary.LittleEndian.Uint64(p[n:])
		end = belowBlank(word)
	}
	n += bits.TrailingZeros64(end) >> 3
	if n == 0 || n > MaxKeyLen {
		return 0
	}
	dst.Key.set(p[:n])
	dst.Hash = xxhash.Sum64(p[:n]) // of p, whose bytes are not just being written
	if p[n] == '\n' {
		dst.Weight = 1
		return n + 1
	}
	if p[n] != ' ' && p[n] != '\t' {
		return 0
	}
	n++
	weight, most := uint64(0), n+exactDigits
	first := n
	for n < most && p[n&(quickWindow-1)]-'0' <= 9 {
		weight = weight*10 + uint64(p[n&(quickWindow-1)]-'0')
		n++
	}
	if n == first || p[n&(quickWindow-1)] != '\n' {
		return 0
	}
	dst.Weight = float64(weight)
	return n + 1
}

// belowBlank returns a word whose lowest set bit is the top bit of the first byte of w that is a blank or a control
// character, and 0 if w has none. Bits above the lowest may be wrong, see Warren, Hacker's Delight, on finding a zero byte.
func belowBlank(w uint64) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	return (w - ones*(' '+1)) &^ w & tops
}

// blank says whether a byte separates fields. The carriage return of a DOS line is one.
func blank(b byte) bool { return b == ' ' || b == '\t' || b == '\r' }

// parseText sets dst from a line; false if the line is blank.
func parseText(line []byte, dst *Keyed) (bool, error) {
	i := 0
	for i < len(line) && blank(line[i]) {
		i++
	}
	begin := i
	for i < len(line) && !blank(line[i]) {
		i++
	}
	if begin == i {
		return false, nil
	}
	dst.Key.set(line[begin:i])
	dst.Hash = dst.Key.hash()
	for i < len(line) && blank(line[i]) {
		i++
	}
	if i == len(line) {
		dst.Weight = 1
		return true, nil
	}
	begin = i
	for i < len(line) && !blank(line[i]) {
		i++
	}
	field := line[begin:i]
	for i < len(line) && blank(line[i]) {
		i++
	}
	if i < len(line) {
		return false, errTextFields
	}
	var ok bool
	if dst.Weight, ok = parseWeight(field); !ok {
		return false, weightError(field)
	}
	return true, nil
}

// weightError is the error for a field that parseWeight refuses.
func weightError(field []byte) error {
	const most = 32
	if len(field) > most {
		field = append(field[:most:most], "..."...)
	}
	return fmt.Errorf("weight %q is not a finite number of at least 0", field)
}

// exactDigits is how many decimal digits a float64 holds exactly, whichever they are.
const exactDigits = 15

// parseWeight reads a decimal number that is finite and not negative. Digits alone, as
// most weights are, take a few nanoseconds; so do decimal fractions of up to 15 digits,
// for which one division of two exact floats is correctly rounded (Clinger 1990).
func parseWeight(b []byte) (float64, bool) {
	if len(b) == 0 || len(b) > exactDigits {
		return parseAnyWeight(b)
	}
	var m uint64
	digits, fraction := 0, -1 // digits after the point, -1 before it
	for _, c := range b {
		switch {
		case c-'0' <= 9:
			m = m*10 + uint64(c-'0')
			digits++
			if fraction >= 0 {
				fraction++
			}
		case c == '.' && fraction < 0:
			fraction = 0
		default:
			return parseAnyWeight(b)
		}
	}
	switch {
	case digits == 0:
		return 0, false
	case fraction > 0:
		return float64(m) / pow10[fraction], true
	}
	return float64(m), true
}

var pow10 = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// parseAnyWeight takes what parseWeight does not: signs, exponents, many digits. Unlike
// strconv alone it takes decimal digits only, not hexadecimal ones nor underscores.
func parseAnyWeight(b []byte) (float64, bool) {
	for _, c := range b {
		if c-'0' > 9 && c != '+' && c != '-' && c != '.' && c != 'e' && c != 'E' {
			return 0, false
		}
	}
	w, err := strconv.ParseFloat(string(b), 64)
	if err != nil || w < 0 || math.IsInf(w, 0) || math.IsNaN(w) {
		return 0, false
	}
	return w + 0, true // -0 becomes 0
}
