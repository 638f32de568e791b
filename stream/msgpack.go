package stream

import "errors"

var errMsgpack = errors.New("msgpack: nested too deep, or lengths do not fit the bytes there are")

// msgpackDepth bounds nesting, so that a few bytes cannot exhaust the stack.
const msgpackDepth = 64

// checkMsgpack walks one msgpack value and checks every length in it against the bytes that are left. The decoder
// itself believes the lengths: five bytes can make it ask for 32 GiB.
//
// An extension (times are some) counts as so many bytes. If the decoder expects a map there, it looks into the extension and
// believes a length found there, which by its bytes alone cannot be told from a time: into a map of values of one type
// up to a million entries, some hundred megabytes, before it finds that they are missing; into a map of interfaces, without
// limit. Items hold no interfaces (checkWire), so decoding one costs no more than that, with an error.
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
	n, b, ok := takeLength(b, lengthBytes(c))
	if !ok {
		return nil, false
	}
	switch c {
	case 0xc7, 0xc8, 0xc9: // extensions, which have a type besides
		return skipBytes(b, n+1)
	case 0xdc, 0xdd:
		return skipValues(b, n, depth)
	case 0xde, 0xdf:
		return skipValues(b, 2*n, depth)
	}
	return skipBytes(b, n)
}

// lengthBytes returns how long the length field is that follows tag c.
func lengthBytes(c byte) int {
	switch c {
	case 0xc4, 0xc7, 0xd9:
		return 1
	case 0xc5, 0xc8, 0xda, 0xdc, 0xde:
		return 2
	}
	return 4 // 0xc6, 0xc9, 0xdb, 0xdd, 0xdf
}

// takeLength reads a big-endian number of size bytes off b.
func takeLength(b []byte, size int) (n uint64, rest []byte, ok bool) {
	if len(b) < size {
		return 0, nil, false
	}
	for _, x := range b[:size] {
		n = n<<8 | uint64(x)
	}
	return n, b[size:], true
}

// skipBytes returns what follows the first n bytes of b.
func skipBytes(b []byte, n uint64) ([]byte, bool) {
	if n > uint64(len(b)) {
		return nil, false
	}
	return b[n:], true
}

// skipValues returns what follows the first n values of b.
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
