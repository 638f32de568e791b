package stream

import (
	"encoding/binary"
	"errors"
)

var errMsgpack = errors.New("msgpack: lengths do not fit the bytes there are")

// msgpackDepth bounds nesting, so that a few bytes cannot exhaust the stack.
const msgpackDepth = 64

// checkMsgpack walks one msgpack value and checks every length in it against the bytes that are left. The decoder
// itself believes the lengths: five bytes can make it ask for 32 GiB.
func checkMsgpack(b []byte) error {
	rest, ok := skipMsgpack(b, msgpackDepth)
	if !ok || len(rest) > 0 {
		return errMsgpack
	}
	return nil
}

// skipMsgpack returns what follows the first value of b.
func skipMsgpack(b []byte, depth int) ([]byte, bool) {
	if len(b) == 0 || depth == 0 {
		return nil, false
	}
	c := b[0]
	b = b[1:]
	switch {
	case c <= 0x7f || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3: // small integers, nil, booleans
		return b, true
	case c <= 0x8f:
		return skipValues(b, 2*uint64(c&0x0f), depth)
	case c <= 0x9f:
		return skipValues(b, uint64(c&0x0f), depth)
	case c <= 0xbf:
		return skipBytes(b, uint64(c&0x1f))
	case c == 0xc1:
		return nil, false
	case c >= 0xca && c <= 0xd3: // floats and integers of 4 8 1 2 4 8 1 2 4 8 bytes
		return skipBytes(b, [...]uint64{4, 8, 1, 2, 4, 8, 1, 2, 4, 8}[c-0xca])
	case c >= 0xd4 && c <= 0xd8: // extensions of 1 2 4 8 16 bytes, and their type
		return skipBytes(b, 1+1<<(c-0xd4))
	}
	return skipCounted(c, b, depth)
}

// skipCounted skips what follows a tag with a length field: bytes, extensions, strings, arrays and maps.
func skipCounted(c byte, b []byte, depth int) ([]byte, bool) {
	size := map[byte]int{0xc4: 1, 0xc5: 2, 0xc6: 4, 0xc7: 1, 0xc8: 2, 0xc9: 4, 0xd9: 1, 0xda: 2, 0xdb: 4,
		0xdc: 2, 0xdd: 4, 0xde: 2, 0xdf: 4}[c]
	if len(b) < size {
		return nil, false
	}
	var n uint64
	switch size {
	case 1:
		n = uint64(b[0])
	case 2:
		n = uint64(binary.BigEndian.Uint16(b))
	case 4:
		n = uint64(binary.BigEndian.Uint32(b))
	}
	b = b[size:]
	switch c {
	case 0xc7, 0xc8, 0xc9:
		return skipBytes(b, n+1)
	case 0xdc, 0xdd:
		return skipValues(b, n, depth)
	case 0xde, 0xdf:
		return skipValues(b, 2*n, depth)
	}
	return skipBytes(b, n)
}

func skipBytes(b []byte, n uint64) ([]byte, bool) {
	if n > uint64(len(b)) {
		return nil, false
	}
	return b[n:], true
}

func skipValues(b []byte, n uint64, depth int) ([]byte, bool) {
	if n > uint64(len(b)) { // every value takes at least a byte
		return nil, false
	}
	ok := true
	for ; n > 0 && ok; n-- {
		b, ok = skipMsgpack(b, depth-1)
	}
	return b, ok
}
