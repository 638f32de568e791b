package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/afstream/afstream/stream"
)

// A message between processes is sealed: 12 bytes that say what it is and that it is whole, and a body.
//
//	version 1 | kind 1 | 0 0 | length of the body 4 | CRC32C of the 8 bytes before and the body 4 | body
//
// A body holds frames or acknowledgements one after the other. Numbers of fixed size are little-endian, the others
// are unsigned varints:
//
//	frame: kind 1 | edge | from | to | epoch | first | count | level | what the kind adds
//	  Data adds:        codec 1 | length of the items 4 | items, as stream.Slab.AppendItems writes them
//	  Punctuation adds: number of the window | 1 if it is the last, else 0
//	  Paused adds:      round
//	ack:   flags 1 | edge | from | to | epoch | acked | committed
//
// Every frame carries its whole header, so a reader needs no state and a frame may be dropped alone.

// WireVersion is the version of the messages that this build writes, and the only one that it reads.
const WireVersion = 1

// SealBytes is what a message takes besides its body.
const SealBytes = 12

// itemCodec is the one way in which items are written: by the codec of their edge.
const itemCodec = 1

var (
	// ErrWire is wrapped by errors about messages that are damaged or were not written by this package.
	ErrWire = errors.New("transport: malformed message")
	// ErrVersion is wrapped by errors about messages of another build's version.
	ErrVersion = errors.New("transport: message of another version")
	// ErrTooLarge is wrapped by errors about single items that no message can hold.
	ErrTooLarge = errors.New("transport: item too large")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Decode rebuilds a slab of edge from what [stream.Slab.AppendItems] wrote, as [stream.Edge.Decode] does.
type Decode func(edge int, items []byte) (stream.Slab, error)

// Begin appends the head of a message to dst, which is empty. Append the body, and then [Seal].
func Begin(dst []byte, kind byte) []byte {
	return append(dst, WireVersion, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
}

// Seal completes a message. A body that was changed afterwards must be sealed again.
func Seal(msg []byte) {
	binary.LittleEndian.PutUint32(msg[4:], uint32(len(msg)-SealBytes))
	binary.LittleEndian.PutUint32(msg[8:], sum(msg))
}

func sum(msg []byte) uint32 {
	return crc32.Update(crc32.Checksum(msg[:8], castagnoli), castagnoli, msg[SealBytes:])
}

// Unseal checks that a message is whole and returns its kind and its body, which shares the memory of msg.
func Unseal(msg []byte) (kind byte, body []byte, err error) {
	switch {
	case len(msg) < SealBytes:
		return 0, nil, fmt.Errorf("%w: %d bytes", ErrWire, len(msg))
	case msg[0] != WireVersion:
		return 0, nil, fmt.Errorf("%w: %d, this build reads %d: run one build of the program everywhere", ErrVersion, msg[0], WireVersion)
	case uint64(binary.LittleEndian.Uint32(msg[4:])) != uint64(len(msg)-SealBytes):
		return 0, nil, fmt.Errorf("%w: body of %d bytes in %d", ErrWire, binary.LittleEndian.Uint32(msg[4:]), len(msg)-SealBytes)
	case binary.LittleEndian.Uint32(msg[8:]) != sum(msg):
		return 0, nil, fmt.Errorf("%w: wrong checksum", ErrWire)
	}
	return msg[1], msg[SealBytes:], nil
}

// AppendFrame appends f, without its first skip items, as far as dst may grow to limit bytes. A slab that does not fit
// is cut: next is the item to go on with, in a frame of its own, and the frame is complete when next is f.Count. With
// nothing appended next is skip; then there is room in an empty message, or the error wraps [ErrTooLarge] and names the item:
// whole says that dst holds nothing else yet. Frames without items are tiny and always fit into an empty message.
func AppendFrame(dst []byte, f *Frame, skip, limit int, whole bool) (out []byte, next int, err error) {
	if f.Kind != Data {
		out = appendHead(dst, f, 0, f.Count)
		switch f.Kind {
		case Punctuation:
			last := byte(0)
			if f.Window.Last {
				last = 1
			}
			out = append(binary.AppendUvarint(out, f.Window.Number), last)
		case Paused:
			out = binary.AppendUvarint(out, f.Window.Number)
		}
		if len(out) > limit && !whole {
			return dst, 0, nil
		}
		return out, f.Count, nil
	}
	for to := f.Count; ; {
		out, err = appendData(dst, f, skip, to)
		if err != nil || len(out) <= limit {
			return out, to, err
		}
		n := to - skip
		if n == 1 && whole {
			return dst, skip, fmt.Errorf("%w: item %d of channel %d->%d, edge %d, takes %d bytes and a message holds %d: make items smaller, or raise max_payload of the NATS server",
				ErrTooLarge, f.First+uint64(skip), f.Channel.From, f.Channel.To, f.Channel.Edge, len(out)-len(dst), limit-len(dst))
		}
		if n == 1 || !whole {
			return dst, skip, nil
		}
		// As many as would fit if all were of one size; fewer with every try, whatever their sizes.
		fit := int(int64(n) * int64(limit-len(dst)) / int64(len(out)-len(dst)))
		to = skip + max(1, min(fit, n*7/8))
	}
}

// appendData appends items [from, to) of a frame.
func appendData(dst []byte, f *Frame, from, to int) ([]byte, error) {
	out := append(appendHead(dst, f, from, to), itemCodec, 0, 0, 0, 0)
	start := len(out)
	out, err := f.Slab.AppendItems(out, from, to)
	if err != nil {
		return dst, fmt.Errorf("channel %d->%d, edge %d: %w", f.Channel.From, f.Channel.To, f.Channel.Edge, err)
	}
	if uint64(len(out)-start) > math.MaxUint32 {
		return out, nil // beyond any limit
	}
	binary.LittleEndian.PutUint32(out[start-4:], uint32(len(out)-start))
	return out, nil
}

func appendHead(dst []byte, f *Frame, from, to int) []byte {
	dst = appendChannel(append(dst, byte(f.Kind)), f.Channel)
	for _, n := range [...]uint64{f.Epoch, f.First + uint64(from), uint64(to - from), f.Level} {
		dst = binary.AppendUvarint(dst, n)
	}
	return dst
}

func appendChannel(dst []byte, c Channel) []byte {
	for _, n := range [...]int{c.Edge, c.From, c.To} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	return dst
}

// TakeFrame reads the first frame of a body and returns what follows it. It allocates what decode does, which gets no more
// than the bytes there are. An error wraps [ErrWire], or is decode's.
func TakeFrame(body []byte, decode Decode) (f Frame, rest []byte, err error) {
	r := reader{rest: body}
	f.Kind, f.Channel = Kind(r.byte()), r.channel()
	f.Epoch, f.First, f.Count, f.Level = r.number(), r.number(), r.int(), r.number()
	switch f.Kind {
	case Data:
		return takeItems(f, r, decode)
	case Punctuation:
		f.Window = stream.Window{Number: r.number(), Last: r.flag()}
		r.require(f.Count <= 1)
	case Blocked:
		r.require(f.Count == 0)
	case Paused:
		f.Window.Number = r.number()
		r.require(f.Count == 0)
	default:
		r.require(false)
	}
	if r.bad {
		return Frame{}, nil, fmt.Errorf("%w: frame in %d bytes", ErrWire, len(body))
	}
	return f, r.rest, nil
}

func takeItems(f Frame, r reader, decode Decode) (Frame, []byte, error) {
	codec := r.byte()
	items := r.bytes(4)
	if !r.bad {
		items = r.bytes(uint64(binary.LittleEndian.Uint32(items)))
	}
	switch {
	case r.bad:
		return Frame{}, nil, fmt.Errorf("%w: frame of %d items is cut off", ErrWire, f.Count)
	case codec != itemCodec:
		return Frame{}, nil, fmt.Errorf("%w: items by codec %d, this build knows %d: run one build of the program everywhere", ErrVersion, codec, itemCodec)
	}
	s, err := decode(f.Channel.Edge, items)
	if err != nil {
		return Frame{}, nil, fmt.Errorf("channel %d->%d, edge %d: %w", f.Channel.From, f.Channel.To, f.Channel.Edge, err)
	}
	if s.Len() != f.Count {
		n := s.Len()
		s.Release()
		return Frame{}, nil, fmt.Errorf("%w: frame of %d items holds %d", ErrWire, f.Count, n)
	}
	f.Slab = s
	return f, r.rest, nil
}

// Flags of an acknowledgement.
const (
	ackResume = 1 << iota
	ackLive
)

// AckBytes is what an acknowledgement takes at most.
const AckBytes = 1 + 3*5 + 3*binary.MaxVarintLen64

// AppendAck appends an acknowledgement.
func AppendAck(dst []byte, a Ack) []byte {
	flags := byte(0)
	if a.Resume {
		flags |= ackResume
	}
	if a.Live {
		flags |= ackLive
	}
	dst = appendChannel(append(dst, flags), a.Channel)
	for _, n := range [...]uint64{a.Epoch, a.Acked, a.Committed} {
		dst = binary.AppendUvarint(dst, n)
	}
	return dst
}

// TakeAck reads the first acknowledgement of a body and returns what follows it.
func TakeAck(body []byte) (a Ack, rest []byte, err error) {
	r := reader{rest: body}
	flags := r.byte()
	r.require(flags&^(ackResume|ackLive) == 0)
	a = Ack{
		Channel: r.channel(), Resume: flags&ackResume != 0, Live: flags&ackLive != 0,
		Epoch: r.number(), Acked: r.number(), Committed: r.number(),
	}
	if r.bad {
		return Ack{}, nil, fmt.Errorf("%w: acknowledgement in %d bytes", ErrWire, len(body))
	}
	return a, r.rest, nil
}

// reader takes values off a body. After the first that is not there all are zero.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) require(ok bool) {
	if !ok {
		r.bad, r.rest = true, nil
	}
}

func (r *reader) bytes(n uint64) []byte {
	r.require(n <= uint64(len(r.rest)))
	if r.bad {
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.bytes(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (r *reader) flag() bool {
	b := r.byte()
	r.require(b <= 1)
	return b == 1
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	r.require(size > 0)
	if r.bad {
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// int reads a number that counts items, or partitions.
func (r *reader) int() int {
	n := r.number()
	r.require(n <= math.MaxInt32)
	if r.bad {
		return 0
	}
	return int(n)
}

func (r *reader) channel() Channel {
	return Channel{Edge: r.int(), From: r.int(), To: r.int()}
}
