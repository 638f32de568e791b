package connector

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// MaxKeyLen is the length in bytes of the longest text a Key holds in full.
const MaxKeyLen = 39

// prefixLen is how much of a longer text a Key keeps; its hash takes the rest.
const prefixLen = MaxKeyLen - 8

// ErrBadKey is returned when bytes that should hold an encoded Key do not.
var ErrBadKey = errors.New("connector: malformed key")

// Key is a short byte string held inline: 40 bytes, no pointer, comparable with ==,
// usable as a map key. It is either text (any bytes, UTF-8 or not) or the endpoints
// of a packet in binary form; the two never compare equal. The zero Key is the empty
// text.
//
// Text longer than MaxKeyLen keeps its first 31 bytes and the 64-bit hash of the
// whole, so that long keys with a common beginning stay distinct (up to a collision
// of XXH64) and still can be read: String shows the beginning, "~" and the hash.
type Key struct {
	// n is the text's length, or one of the kinds below, whose length is fixed.
	n uint8
	// b holds the bytes; those beyond the key's length are zero, or == would lie.
	b [MaxKeyLen]byte
}

// Kinds of keys other than plain text. The values go into item logs: append only.
const (
	kindShortened uint8 = 0x80 + iota // 31 bytes of text, 8 of hash
	kindAddr4                         // 4
	kindAddr6                         // 16
	kindPair4                         // source, destination
	kindPair6
	kindFlow4 // source, destination, source port, destination port, protocol
	kindFlow6
)

// kindLen returns how many bytes a key of kind n has, or -1 if there is no such kind.
func kindLen(n uint8) int {
	switch n {
	case kindShortened:
		return MaxKeyLen
	case kindAddr4:
		return 4
	case kindAddr6:
		return 16
	case kindPair4:
		return 8
	case kindPair6:
		return 32
	case kindFlow4:
		return 13
	case kindFlow6:
		return 37
	}
	if n <= MaxKeyLen {
		return int(n)
	}
	return -1
}

// MakeKey returns the key of a text. It copies text and never allocates.
func MakeKey(text []byte) Key {
	var k Key
	k.set(text)
	return k
}

// set makes k the key of text, in place because k usually lies in a slab.
func (k *Key) set(text []byte) {
	if len(text) > MaxKeyLen {
		*k = Key{n: kindShortened}
		copy(k.b[:prefixLen], text)
		binary.BigEndian.PutUint64(k.b[prefixLen:], xxhash.Sum64(text))
		return
	}
	*k = Key{n: uint8(len(text))}
	copy(k.b[:], text)
}

// bytes returns the key's bytes, which alias k.
func (k *Key) bytes() []byte {
	l := kindLen(k.n)
	if l < 0 {
		return nil // unreachable: n is unexported and every decoder checks it
	}
	return k.b[:l]
}

// Hash returns the key's 64-bit hash, the same in every process and version: XXH64
// of the text, also where the key was shortened, and of kind and bytes for packets.
func (k Key) Hash() uint64 { return k.hash() }

// hash is Hash without a copy of the key.
func (k *Key) hash() uint64 {
	if k.n <= MaxKeyLen {
		return xxhash.Sum64(k.b[:k.n])
	}
	if k.n == kindShortened {
		return binary.BigEndian.Uint64(k.b[prefixLen:])
	}
	// The kind is mixed in by a multiple of the golden ratio so that four bytes of
	// text and an IPv4 address of the same bytes part ways.
	return xxhash.Sum64(k.bytes()) ^ uint64(k.n)*0x9e3779b97f4a7c15
}

// Text returns the key's text and whether it is there in full: false for shortened
// text, of which the kept beginning is returned, and for packet endpoints.
func (k Key) Text() (text string, whole bool) {
	switch {
	case k.n <= MaxKeyLen:
		return string(k.b[:k.n]), true
	case k.n == kindShortened:
		return string(k.b[:prefixLen]), false
	default:
		return "", false
	}
}

// String returns the key for people: the text as it is, shortened text as
// beginning~hash, packets as 10.0.0.1, 10.0.0.1>10.0.0.2 or
// 10.0.0.1:80>10.0.0.2:5000/tcp (IPv6 with ports: [2001:db8::1]:80).
func (k Key) String() string {
	b, _ := k.AppendText(nil)
	return string(b)
}

// AppendText appends what String returns; the error is always nil. It implements
// encoding.TextAppender, and thus decides how a Key looks in JSON.
func (k Key) AppendText(dst []byte) ([]byte, error) {
	b := k.bytes()
	switch k.n {
	case kindShortened:
		dst = append(dst, b[:prefixLen]...)
		dst = append(dst, '~')
		return hex.AppendEncode(dst, b[prefixLen:]), nil
	case kindAddr4, kindAddr6:
		return addr(b).AppendTo(dst), nil
	case kindPair4, kindPair6:
		dst = addr(b[:len(b)/2]).AppendTo(dst)
		dst = append(dst, '>')
		return addr(b[len(b)/2:]).AppendTo(dst), nil
	case kindFlow4, kindFlow6:
		return appendFlow(dst, b), nil
	}
	return append(dst, b...), nil
}

// MarshalText implements encoding.TextMarshaler; see AppendText.
func (k Key) MarshalText() ([]byte, error) { return k.AppendText(nil) }

// addr reads an address of 4 or 16 bytes.
func addr(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

// appendFlow appends a flow's endpoints and protocol. Protocols without ports show
// addresses alone.
func appendFlow(dst, b []byte) []byte {
	al := (len(b) - 5) / 2
	src, dstAddr := addr(b[:al]), addr(b[al:2*al])
	sport := binary.BigEndian.Uint16(b[2*al:])
	dport := binary.BigEndian.Uint16(b[2*al+2:])
	proto := b[2*al+4]
	if hasPorts(proto) {
		dst = netip.AddrPortFrom(src, sport).AppendTo(dst)
		dst = append(dst, '>')
		dst = netip.AddrPortFrom(dstAddr, dport).AppendTo(dst)
	} else {
		dst = src.AppendTo(dst)
		dst = append(dst, '>')
		dst = dstAddr.AppendTo(dst)
	}
	dst = append(dst, '/')
	return append(dst, protocolName(proto)...)
}

// protocolName names the IP protocols that people know by name.
func protocolName(p uint8) string {
	switch p {
	case protoICMP:
		return "icmp"
	case protoTCP:
		return "tcp"
	case protoUDP:
		return "udp"
	case protoICMP6:
		return "icmp6"
	case protoSCTP:
		return "sctp"
	}
	return strconv.Itoa(int(p))
}

// AppendBinary appends the key's encoding, one byte of kind and then its bytes (at
// most 40 in all); the error is always nil. It implements encoding.BinaryAppender.
func (k Key) AppendBinary(dst []byte) ([]byte, error) {
	dst = append(dst, k.n)
	return append(dst, k.bytes()...), nil
}

// UnmarshalBinary decodes what AppendBinary made. Anything else is an error wrapping
// ErrBadKey and leaves k as it was. src is not kept.
func (k *Key) UnmarshalBinary(src []byte) error {
	if len(src) == 0 {
		return fmt.Errorf("%w: no bytes", ErrBadKey)
	}
	want := kindLen(src[0])
	if want < 0 {
		return fmt.Errorf("%w: unknown kind %#x", ErrBadKey, src[0])
	}
	if len(src)-1 != want {
		return fmt.Errorf("%w: %d bytes for kind %#x, want %d", ErrBadKey, len(src)-1, src[0], want)
	}
	*k = Key{n: src[0]}
	copy(k.b[:], src[1:])
	return nil
}
