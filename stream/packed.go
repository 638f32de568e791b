package stream

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// Elements of PutUint64 and PutUint64s are packed: most states of many such elements write them in the order of their indices, and most of
// their values are small whole numbers, so that 1 or 2 bytes instead of 18 are written, sent, kept and read again for each.
//
// Packed elements stand between packedStart, which is no length of a key, and packedEnd. Each is
//
//	n                         n < 128: the next index, and the bits of float64(n)
//	tag [index] [value]       tag = packedTag | how<<5 | form
//
// The first "next index" is 0. how says where the index is, form which bytes of the value follow, in little-endian order.
const (
	packedStart = "\xff\xff\xff\xff\x7f"
	packedEnd   = 0xff
	packedTag   = 0x80

	howNext = 0 // it is the next one
	howStep = 1 // the distance from that follows, zigzag
	howFull = 2 // it follows in 8 bytes

	// Forms 0 to 8: so many low bytes of the value, and no others are set.
	formFloat = 8            // and 1 to 7: so many bytes of a whole number whose float64 has the value as bits
	formHigh  = 15           // and 1 to 7: so many high bytes of the value, and no others are set
	formTwo   = formHigh + 8 // both numbers of PutUint64s follow
)

// smallFloat returns the number below packedTag whose float64 has these bits.
func smallFloat(value uint64) (n byte, ok bool) {
	f := math.Float64frombits(value)
	if !(f >= 0 && f < packedTag) {
		return 0, false
	}
	n = byte(f)
	return n, math.Float64bits(float64(n)) == value
}

func float64Bits(n byte) uint64 { return math.Float64bits(float64(n)) }

// putPacked is PutUint64 for all cases.
func (w *StateWriter) putPacked(index, value uint64) {
	form, size, body := formOf(value)
	w.putTag(index, form)
	w.buf = binary.LittleEndian.AppendUint64(w.buf, body)
	w.buf = w.buf[:len(w.buf)-8+size]
}

// putTag begins a packed element.
func (w *StateWriter) putTag(index uint64, form byte) {
	if !w.packed {
		w.buf = append(w.buf, packedStart...)
		w.packed, w.next = true, 0
	}
	step := int64(index - w.next) // modulo 2^64, as the reader adds it
	zigzag := uint64(step<<1) ^ uint64(step>>63)
	switch {
	case step == 0:
		w.buf = append(w.buf, packedTag|howNext<<5|form)
	case zigzag < 1<<49: // up to 7 bytes
		w.buf = append(w.buf, packedTag|howStep<<5|form)
		w.buf = binary.AppendUvarint(w.buf, zigzag)
	default:
		w.buf = append(w.buf, packedTag|howFull<<5|form)
		w.buf = binary.LittleEndian.AppendUint64(w.buf, index)
	}
	w.next = index + 1
}

// formOf returns the shortest form of a value, and its bytes as the lowest of body.
func formOf(value uint64) (form byte, size int, body uint64) {
	size = (bits.Len64(value) + 7) / 8
	form, body = byte(size), value
	if zeros := bits.TrailingZeros64(value) / 8; value != 0 && 8-zeros < size {
		size = 8 - zeros
		form, body = byte(formHigh+size), value>>(8*zeros)
	}
	if f := math.Float64frombits(value); f >= 1 && f < 1<<53 {
		n := uint64(f)
		if s := (bits.Len64(n) + 7) / 8; s < size && math.Float64bits(float64(n)) == value {
			form, size, body = byte(formFloat+s), s, n
		}
	}
	return form, size, body
}

// unpack ends packed elements, so that others may follow.
func (w *StateWriter) unpack() {
	if w.packed {
		w.buf = append(w.buf, packedEnd)
		w.packed = false
	}
}

// found makes a packed element the current one, whose value the caller sets.
func (r *StateReader) found(index uint64) {
	binary.LittleEndian.PutUint64(r.number[:], index)
	r.key, r.deleted = r.number[:], false
	r.index = index + 1
}

// foundNumber is found for an element of one number.
func (r *StateReader) foundNumber(index, value uint64) {
	r.found(index)
	binary.LittleEndian.PutUint64(r.unpacked[:], value)
	r.value = r.unpacked[:]
}

// parsePacked is parse among packed elements.
func (r *StateReader) parsePacked(b []byte) (need int, isElement bool, err error) {
	tag := b[0]
	if tag < packedTag {
		r.foundNumber(r.index, float64Bits(tag))
		return 1, true, nil
	}
	if tag == packedEnd {
		r.packed = false
		return 1, false, nil
	}
	how, form := tag>>5&3, tag&31
	if how > howFull || form > formTwo {
		return 0, false, fmt.Errorf("%w: a packed element that is none", ErrState)
	}
	index, at := r.index, 1
	switch how {
	case howStep:
		zigzag, size := binary.Uvarint(b[at:])
		if size < 0 || size == 0 && len(b)-at >= binary.MaxVarintLen64 {
			return 0, false, fmt.Errorf("%w: an index that does not end", ErrState)
		}
		if size == 0 {
			return len(b) + 1, false, nil
		}
		index += zigzag>>1 ^ -(zigzag & 1)
		at += size
	case howFull:
		if at += 8; at > len(b) {
			return at, false, nil
		}
		index = binary.LittleEndian.Uint64(b[1:])
	}
	size := sizeOf(form)
	if at+size > len(b) {
		return at + size, false, nil
	}
	end := at + size
	if form == formTwo {
		r.found(index)
		r.value = b[at:end:end]
	} else {
		r.foundNumber(index, unform(form, lowest(b[at:], size)))
	}
	return end, true, nil
}

// sizeOf is how many bytes of a value follow in a form.
func sizeOf(form byte) int {
	switch {
	case form <= formFloat:
		return int(form)
	case form <= formHigh:
		return int(form - formFloat)
	case form < formTwo:
		return int(form - formHigh)
	}
	return 16
}

// lowest reads the first size bytes of b, of 8 at most.
func lowest(b []byte, size int) uint64 {
	if len(b) >= 8 {
		return binary.LittleEndian.Uint64(b) & (1<<(8*size) - 1) // a shift by 64 gives 0
	}
	var v uint64
	for i := range size {
		v |= uint64(b[i]) << (8 * i)
	}
	return v
}

// unform returns the value of which a form holds these bytes.
func unform(form byte, body uint64) uint64 {
	switch {
	case form <= formFloat:
		return body
	case form <= formHigh:
		return math.Float64bits(float64(body))
	}
	return body << (64 - 8*(form-formHigh))
}
