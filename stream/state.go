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
	buf   []byte
	whole bool
}

// NewStateWriter returns a writer that appends to buf. whole asks for every element.
func NewStateWriter(buf []byte, whole bool) *StateWriter { return &StateWriter{buf: buf, whole: whole} }

// Reset makes w ready for another backup, keeping its buffer.
func (w *StateWriter) Reset(whole bool) { w.buf, w.whole = w.buf[:0], whole }

// Whole says whether every element is asked for; elements not written are then gone.
func (w *StateWriter) Whole() bool { return w.whole }

// Put saves one element. The slices are copied.
func (w *StateWriter) Put(key, value []byte) {
	w.buf = binary.AppendUvarint(w.buf, uint64(len(key)))
	w.buf = append(w.buf, key...)
	w.buf = binary.AppendUvarint(w.buf, uint64(len(value))+1)
	w.buf = append(w.buf, value...)
}

// PutUint64 saves an element whose key is an index and whose value is 8 bytes, without going through slices.
func (w *StateWriter) PutUint64(index, value uint64) {
	w.buf = append(w.buf, uint64Key)
	w.buf = binary.LittleEndian.AppendUint64(w.buf, index)
	w.buf = append(w.buf, uint64Value)
	w.buf = binary.LittleEndian.AppendUint64(w.buf, value)
}

// Lengths as PutUint64 writes them: an 8-byte key, and an 8-byte value (plus one, see Put).
const (
	uint64Key   = 8
	uint64Value = 9
)

// Delete says that the element of key is no longer part of the state.
func (w *StateWriter) Delete(key []byte) {
	w.buf = binary.AppendUvarint(w.buf, uint64(len(key)))
	w.buf = append(w.buf, key...)
	w.buf = binary.AppendUvarint(w.buf, 0)
}

// Bytes returns what was written, valid until the next write or Reset.
func (w *StateWriter) Bytes() []byte { return w.buf }

// StateReader yields the elements of a backup, oldest first: a later element of the same key replaces an earlier
// one. Chunks are read one by one, so a restore needs little memory beside the state itself.
type StateReader struct {
	next       func() ([]byte, error)
	rest       []byte
	key, value []byte
	deleted    bool
	err        error
}

// NewStateReader reads chunks, each a sequence of whole elements, until next returns io.EOF.
func NewStateReader(next func() ([]byte, error)) *StateReader { return &StateReader{next: next} }

// Next advances to the next element. It returns false at the end or on an error, which Err tells.
func (r *StateReader) Next() bool {
	for r.err == nil && len(r.rest) == 0 {
		r.rest, r.err = r.next()
	}
	if r.err != nil {
		return false
	}
	if r.key, r.err = r.field(0); r.err != nil {
		return false
	}
	r.value, r.err = r.field(1)
	r.deleted = r.value == nil
	return r.err == nil
}

// field takes one length-prefixed field; lengths are stored with bias added, and a stored 0 then means none.
func (r *StateReader) field(bias uint64) ([]byte, error) {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		return nil, fmt.Errorf("%w: bad length", ErrState)
	}
	r.rest = r.rest[size:]
	if n < bias {
		return nil, nil
	}
	n -= bias
	if n > uint64(len(r.rest)) {
		return nil, fmt.Errorf("%w: length %d beyond the %d bytes left", ErrState, n, len(r.rest))
	}
	f := r.rest[:n:n]
	r.rest = r.rest[n:]
	return f, nil
}

// Key returns the key of the current element, valid until the next call of Next.
func (r *StateReader) Key() []byte { return r.key }

// Value returns the value of the current element, valid until the next call of Next.
func (r *StateReader) Value() []byte { return r.value }

// Deleted says that the current element was deleted.
func (r *StateReader) Deleted() bool { return r.deleted }

// Uint64 returns the current element as PutUint64 wrote it.
func (r *StateReader) Uint64() (index, value uint64, err error) {
	if len(r.key) != 8 || len(r.value) != 8 {
		return 0, 0, fmt.Errorf("%w: element of %d and %d bytes, want 8 and 8", ErrState, len(r.key), len(r.value))
	}
	return binary.LittleEndian.Uint64(r.key), binary.LittleEndian.Uint64(r.value), nil
}

// Err returns what ended the reading, nil at a proper end.
func (r *StateReader) Err() error {
	if errors.Is(r.err, io.EOF) {
		return nil
	}
	return r.err
}
