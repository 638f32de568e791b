package job

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// Code is the code of an airport, up to 8 bytes of which none is 0, the first of them in the highest bits: codes are in order as
// their texts are. The zero Code is the empty text. A row of a join that held a string instead would keep the garbage collector busy
// with its pairs, a third of the join's time, and would not be copied as it lies in memory when it leaves its process.
type Code uint64

// codeBytes is how many bytes a Code has.
const codeBytes = 8

var errCode = errors.New("no code of an airport")

// newCode returns the Code of a text. The error says what is wrong with the text.
func newCode[T string | []byte](text T) (Code, error) {
	var b [codeBytes]byte
	n := copy(b[:], text)
	if n < len(text) {
		return 0, fmt.Errorf("%w: %.40q has %d bytes, want at most %d", errCode, text, len(text), codeBytes)
	}
	if bytes.IndexByte(b[:n], 0) >= 0 {
		return 0, fmt.Errorf("%w: %q has a zero byte", errCode, text)
	}
	return Code(binary.BigEndian.Uint64(b[:])), nil
}

// append appends the text of c.
func (c Code) append(dst []byte) []byte {
	var b [codeBytes]byte
	binary.BigEndian.PutUint64(b[:], uint64(c))
	return append(dst, bytes.TrimRight(b[:], "\x00")...)
}

// String returns the text of c.
func (c Code) String() string { return string(c.append(nil)) }

// MarshalJSON implements json.Marshaler.
func (c Code) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }
