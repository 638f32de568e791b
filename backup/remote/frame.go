package remote

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// version is that of all messages between clients and servers. A message of another version is not looked into.
const version = 1

// frameHead is what precedes the body of a message: version, kind, CRC32C of both and the body.
const frameHead = 1 + 1 + 4

// Kinds of messages, those of clients first.
const (
	kindHello   = 'h' // a client asks for a session
	kindApply   = 'a' // a batch, or a part of one
	kindProbe   = 'p' // a client asks what has become of its batches
	kindBye     = 'b' // a session ends
	kindFence   = 'f'
	kindScan    = 's'
	kindTake    = 't' // a client has consumed chunks of a scan
	kindWelcome = 'W' // a session
	kindStatus  = 'S' // what has become of batches
	kindFenced  = 'F' // how a fence ended, or why there is no session
	kindChunk   = 'C' // of a scan
	kindNoScan  = 'N' // the server knows no such scan
	kindBusy    = 'B' // the server has too much to do: ask again
)

// errFrame is wrapped by every error about a message that is cut short, altered or makes no sense.
var errFrame = errors.New("backup server: invalid message")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// startFrame begins a message in dst, which must be empty; append the body and seal it.
func startFrame(dst []byte, kind byte) []byte {
	return append(dst[:0], version, kind, 0, 0, 0, 0)
}

// seal completes a message.
func seal(frame []byte) []byte {
	binary.LittleEndian.PutUint32(frame[2:], frameSum(frame))
	return frame
}

func frameSum(frame []byte) uint32 {
	return crc32.Update(crc32.Checksum(frame[:2], castagnoli), castagnoli, frame[frameHead:])
}

// openFrame checks a message and returns its kind and a reader of its body.
func openFrame(frame []byte) (kind byte, r reader, err error) {
	switch {
	case len(frame) < frameHead:
		return 0, r, fmt.Errorf("%w: %d bytes", errFrame, len(frame))
	case frame[0] != version:
		return 0, r, fmt.Errorf("%w: version %d, want %d: run the same afstream everywhere", errFrame, frame[0], version)
	case binary.LittleEndian.Uint32(frame[2:]) != frameSum(frame):
		return 0, r, fmt.Errorf("%w: wrong checksum", errFrame)
	}
	return frame[1], reader{rest: frame[frameHead:]}, nil
}

// reader takes a body apart. After the first fault everything it returns is zero, and end reports it. Slices it returns
// are parts of the message.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) fail() { r.rest, r.bad = nil, true }

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// count reads how many things follow that take at least size bytes each, so that nobody reserves room for more than can
// be there.
func (r *reader) count(size int) int {
	n := r.number()
	if n > uint64(len(r.rest)/size) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) take(n int) []byte {
	if n > len(r.rest) {
		r.fail()
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// bytes reads a length and so many bytes.
func (r *reader) bytes() []byte { return r.take(r.count(1)) }

func (r *reader) id() (id ident) {
	copy(id[:], r.take(len(id)))
	return id
}

func (r *reader) end(what string) error {
	if r.bad || len(r.rest) > 0 {
		return fmt.Errorf("%w: %s", errFrame, what)
	}
	return nil
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}
