package link

import (
	"encoding/binary"
	"fmt"

	"github.com/afstream/afstream/transport"
)

// Kinds of messages of a link.
const (
	kindContent byte = 1 + iota // frames or acknowledgements; the only kind that is numbered and sent again
	kindAnswer                  // only the header
	kindProbe                   // asks for an answer
	kindHello                   // the sender has begun to listen, or was cut off: all under way to it may be lost
)

// header begins the body of every message. What it says of the other direction is the newest there is, also in a
// message that is sent again.
type header struct {
	number  uint64 // of a content, from 1; 0 of other kinds
	got     uint64 // all contents of the other direction up to here have arrived
	taken   uint64 // and were used up to here
	missing uint64 // unless 0: this one has arrived, and none between got and this
}

const headerBytes = 4 * 8

// begin starts a message in an empty buffer.
func begin(buf []byte, kind byte) []byte {
	return append(transport.Begin(buf, kind), make([]byte, headerBytes)...)
}

// complete writes the header into a message that was begun, and seals it.
func complete(msg []byte, h header) {
	for i, n := range [...]uint64{h.number, h.got, h.taken, h.missing} {
		binary.LittleEndian.PutUint64(msg[transport.SealBytes+8*i:], n)
	}
	transport.Seal(msg)
}

// parse takes a message apart; content shares its memory.
func parse(msg []byte) (kind byte, h header, content []byte, err error) {
	kind, body, err := transport.Unseal(msg)
	if err != nil {
		return 0, header{}, nil, err
	}
	if len(body) < headerBytes || kind < kindContent || kind > kindHello {
		return 0, header{}, nil, fmt.Errorf("%w: link message of kind %d and %d bytes", transport.ErrWire, kind, len(body))
	}
	for i, p := range [...]*uint64{&h.number, &h.got, &h.taken, &h.missing} {
		*p = binary.LittleEndian.Uint64(body[8*i:])
	}
	content = body[headerBytes:]
	numbered := kind == kindContent
	if numbered != (h.number > 0) || numbered != (len(content) > 0) {
		return 0, header{}, nil, fmt.Errorf("%w: link message of kind %d, number %d, %d bytes", transport.ErrWire, kind, h.number, len(content))
	}
	return kind, h, content, nil
}
