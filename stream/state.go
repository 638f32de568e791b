package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrState is wrapped by the errors of a StateReader about bytes that are not a state.
var ErrState = errors.New("stream: malformed state")

// StateWriter collects the elements of a state that a backup holds. The key of an element is the state's own choice:
// an index, a map key. Writing a key again replaces the element.
type StateWriter struct {
	buf    []byte
	whole  bool
	packed bool   // buf ends among packed elements, see packed.go
	next   uint64 // the index after that of the last one
}

// NewStateWriter returns a writer that appends to buf. whole asks for every element.
func NewStateWriter(buf []byte, whole bool) *StateWriter { return &StateWriter{buf: buf, whole: whole} }

// Reset makes w ready for another backup, keeping its buffer.
func (w *StateWriter) Reset(whole bool) { w.buf, w.whole, w.packed = w.buf[:0], whole, false }

// Whole says whether every element is asked for; elements not written are then gone.
func (w *StateWriter) Whole() bool { return w.whole }

// Put saves one element. The slices are copied. A key or a value must be shorter than 1 GiB.
func (w *StateWriter) Put(key, value []byte) {
	w.unpack()
	w.buf = binary.AppendUvarint(w.buf, uint64(len(key)))
	w.buf = append(w.buf, key...)
	w.buf = binary.AppendUvarint(w.buf, uint64(len(value))+1)
	w.buf = append(w.buf, value...)
}

// PutUint64 saves an element whose key is an index and whose value is 8 bytes, without going through slices. To who reads it
// it is Put with both numbers in little-endian order, but it takes less room: 1 byte if the index follows the one before and
// the value is the bits of a whole float64 below 128, 2 to 8 for other small numbers and near indices, 17 at most. Writing in
// the order of the indices is therefore best.
func (w *StateWriter) PutUint64(index, value uint64) {
	if w.packed && index == w.next {
		if n, ok := smallFloat(value); ok {
			w.buf = append(w.buf, n)
			w.next++
			return
		}
	}
	w.putPacked(index, value)
}

// PutUint64s is Put with an index and a value of 16 bytes, all numbers in little-endian order. It takes 17 bytes if the index
// follows the one before, 18 to 20 if it is near, 25 at most.
func (w *StateWriter) PutUint64s(index, first, second uint64) {
	w.putTag(index, formTwo)
	w.buf = binary.LittleEndian.AppendUint64(w.buf, first)
	w.buf = binary.LittleEndian.AppendUint64(w.buf, second)
}

// Delete says that the element of key is no longer part of the state.
func (w *StateWriter) Delete(key []byte) {
	w.unpack()
	w.buf = binary.AppendUvarint(w.buf, uint64(len(key)))
	w.buf = append(w.buf, key...)
	w.buf = binary.AppendUvarint(w.buf, 0)
}

// Bytes returns what was written, valid until the next write or Reset.
func (w *StateWriter) Bytes() []byte {
	w.unpack()
	return w.buf
}

// Len is how many bytes were written so far, give or take a few. Asking for it costs nothing.
func (w *StateWriter) Len() int { return len(w.buf) }

// StateReader yields the elements of a backup, oldest first: a later element of the same key replaces an earlier
// one. Chunks are read one by one, and of a chunk that is used up the reader keeps at most the element that was cut, so
// a restore needs little memory beside the state itself: one chunk and the largest element.
type StateReader struct {
	next       func() ([]byte, error)
	rest       []byte // of the current chunk
	cut        []byte // an element of several chunks; its memory is used again for the next
	key, value []byte
	deleted    bool
	err        error

	packed           bool    // rest goes on with packed elements, see packed.go
	index            uint64  // that a packed element has unless it says otherwise
	number, unpacked [8]byte // key and value of a packed element
}

// maxField bounds the length of a key or a value, so that sums of lengths cannot overflow.
const maxField = 1 << 30

// NewStateReader reads chunks until next returns io.EOF itself, not an error that wraps it. Chunks may be cut anywhere,
// also within an element, and may be empty. A chunk need stay valid only until next is called again, and next is called
// by Next only.
func NewStateReader(next func() ([]byte, error)) *StateReader { return &StateReader{next: next} }

// Next advances to the next element. It returns false at the end or on an error, which Err tells. Elements are slices of
// the chunks, without a copy, but for packed numbers and those that were cut.
func (r *StateReader) Next() bool {
	for r.err == nil {
		if len(r.rest) == 0 {
			r.rest, r.err = r.next()
			continue
		}
		if r.packed && r.rest[0] < packedTag { // most are, where there are many
			r.foundNumber(r.index, float64Bits(r.rest[0]))
			r.rest = r.rest[1:]
			return true
		}
		isElement, err := r.step()
		if r.err = err; isElement {
			return true
		}
	}
	if r.err == io.EOF && r.packed {
		r.err = fmt.Errorf("%w: the end comes among packed elements: %w", ErrState, io.ErrUnexpectedEOF)
	}
	return r.end()
}

// step takes the next thing from the chunks, which may be the beginning or the end of packed elements.
func (r *StateReader) step() (isElement bool, err error) {
	need, isElement, err := r.parse(r.rest)
	if err == nil && need <= len(r.rest) {
		r.rest = r.rest[need:]
		return isElement, nil
	}
	if err != nil {
		return false, err
	}
	return r.join(need)
}

// end leaves no element.
func (r *StateReader) end() bool {
	r.key, r.value, r.deleted, r.rest = nil, nil, false, nil
	return false
}

// join collects what the current chunk only begins, and of which need bytes are known to exist. It takes no byte that does
// not belong to it.
func (r *StateReader) join(need int) (isElement bool, err error) {
	r.cut = r.cut[:0]
	for len(r.cut) < need {
		n := min(need-len(r.cut), len(r.rest))
		r.cut = append(r.cut, r.rest[:n]...)
		r.rest = r.rest[n:]
		if len(r.cut) == need {
			need, isElement, err = r.parse(r.cut)
		} else {
			r.rest, err = r.next()
		}
		if err == io.EOF {
			return false, fmt.Errorf("%w: the end comes %d bytes into an element of at least %d: %w",
				ErrState, len(r.cut), need, io.ErrUnexpectedEOF)
		}
		if err != nil {
			return false, err
		}
	}
	return isElement, nil
}

// parse makes the element that b begins with the current one and returns its length. If b holds only a part of it, the
// result is more than len(b): the length as far as it can be told, which is never too much.
func (r *StateReader) parse(b []byte) (need int, isElement bool, err error) {
	if r.packed {
		return r.parsePacked(b)
	}
	if b[0] == packedStart[0] {
		if n := min(len(b), len(packedStart)); string(b[:n]) == packedStart[:n] {
			if n == len(packedStart) {
				r.packed, r.index = true, 0
			}
			return len(packedStart), false, nil
		}
	}
	need, err = r.parseElement(b)
	return need, true, err
}

// parseElement is parse for one that is not packed.
func (r *StateReader) parseElement(b []byte) (need int, err error) {
	keyAt, n, err := fieldLength(b, 0)
	if err != nil || keyAt == 0 {
		return len(b) + 1, err
	}
	keyEnd := keyAt + n
	if keyEnd >= len(b) { // the length of the value follows
		return keyEnd + 1, nil
	}
	size, stored, err := fieldLength(b, keyEnd)
	if err != nil || size == 0 {
		return len(b) + 1, err
	}
	valueAt := keyEnd + size
	end := valueAt + max(stored-1, 0)
	if end > len(b) {
		return end, nil
	}
	r.key, r.value, r.deleted = b[keyAt:keyEnd:keyEnd], b[valueAt:end:end], stored == 0
	if r.deleted {
		r.value = nil
	}
	return end, nil
}

// fieldLength reads the length that b[at:] begins with. A size of 0 means that it is not all there.
func fieldLength(b []byte, at int) (size, n int, err error) {
	if b[at] < 0x80 { // most are short
		return 1, int(b[at]), nil
	}
	stored, size := binary.Uvarint(b[at:])
	if size < 0 || stored > maxField {
		return 0, 0, fmt.Errorf("%w: a length that is none", ErrState)
	}
	if size == 0 && len(b)-at >= binary.MaxVarintLen64 {
		return 0, 0, fmt.Errorf("%w: a length that does not end", ErrState)
	}
	return size, int(stored), nil
}

// Key returns the key of the current element, valid until the next call of Next.
func (r *StateReader) Key() []byte { return r.key }

// Value returns the value of the current element, valid until the next call of Next. It is nil if the element was
// deleted.
func (r *StateReader) Value() []byte { return r.value }

// Deleted says that the current element was deleted.
func (r *StateReader) Deleted() bool { return r.deleted }

// Uint64 returns the current element as PutUint64 wrote it, or an error that wraps ErrState if it is not of that form.
func (r *StateReader) Uint64() (index, value uint64, err error) {
	if len(r.key) != 8 || len(r.value) != 8 {
		return 0, 0, fmt.Errorf("%w: element of %d and %d bytes, want 8 and 8", ErrState, len(r.key), len(r.value))
	}
	return binary.LittleEndian.Uint64(r.key), binary.LittleEndian.Uint64(r.value), nil
}

// Err returns what ended the reading, nil at a proper end: the error of next as it is, or one that wraps ErrState.
func (r *StateReader) Err() error {
	if r.err == io.EOF {
		return nil
	}
	return r.err
}
