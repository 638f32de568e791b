package stream

import (
	"encoding"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"

	"github.com/vmihailenco/msgpack/v5"
)

// ErrWire is wrapped by errors about items that cannot be read back from their wire form.
var ErrWire = errors.New("stream: malformed items")

// binaryItem is an item that has its own wire form. It is asked of the pointer to an item.
type binaryItem interface {
	encoding.BinaryAppender
	encoding.BinaryUnmarshaler
}

// codec is how items of one type travel: those with a wire form of their own take what that takes, some nanoseconds;
// those of a fixed size without pointers are copied in bulk, at about a nanosecond; all others are msgpack, at about a
// microsecond. Only items that leave the process or enter an item log are ever encoded. It never changes.
type codec[T any] struct {
	own  bool
	bulk *bulk // nil if the type has a form of its own, or needs msgpack
	err  error // why items of this type would not come back
}

// newCodec looks at the type, which costs some microseconds: once per edge, never per slab.
func newCodec[T any]() *codec[T] {
	t := reflect.TypeFor[T]()
	if _, own := any(new(T)).(binaryItem); own {
		return &codec[T]{own: true}
	}
	if b := newBulk(t); b != nil {
		return &codec[T]{bulk: b}
	}
	c := &codec[T]{}
	if err := checkWire(t, nil); err != nil {
		c.err = fmt.Errorf("stream: encode %v: %w", t, err)
	}
	return c
}

// append writes items: in bulk, or each with its length before it. What decode would not give back as it was is
// refused here, with an error that names the type.
func (c *codec[T]) append(dst []byte, items []T) ([]byte, error) {
	if c.err != nil {
		return nil, c.err
	}
	if c.bulk != nil && len(items) > 0 {
		return appendBulk(dst, c.bulk, items), nil
	}
	var err error
	for i := range items {
		start := len(dst)
		dst = append(dst, 0, 0, 0, 0)
		if c.own {
			dst, err = any(&items[i]).(binaryItem).AppendBinary(dst)
		} else {
			dst, err = appendMsgpack(dst, &items[i])
		}
		if err != nil {
			return nil, fmt.Errorf("stream: encode %v: %w", reflect.TypeFor[T](), err)
		}
		n := len(dst) - start - 4
		if uint64(n) >= bulkMark {
			return nil, fmt.Errorf("stream: encode %v: an item of %d bytes is too long", reflect.TypeFor[T](), n)
		}
		binary.LittleEndian.PutUint32(dst[start:], uint32(n))
	}
	return dst, nil
}

// appendMsgpack writes one item, which may be too deep for the reader's guard.
func appendMsgpack(dst []byte, item any) ([]byte, error) {
	b, err := msgpack.Marshal(item)
	if err == nil {
		err = checkMsgpack(b)
	}
	return append(dst, b...), err
}

// decode appends what append wrote to items. It allocates no more than in proportion to the bytes it is given. With an
// error it returns no items.
func (c *codec[T]) decode(items []T, wire []byte) ([]T, error) {
	if c.err != nil { // nobody can have written it, and into interfaces msgpack believes any length, see checkMsgpack
		return nil, fmt.Errorf("%w: %w", ErrWire, c.err)
	}
	if len(wire) >= 4 && binary.LittleEndian.Uint32(wire) == bulkMark {
		return decodeBulk(items, wire[4:], c.bulk)
	}
	for len(wire) > 0 {
		if len(wire) < 4 {
			return nil, fmt.Errorf("%w: %d stray bytes", ErrWire, len(wire))
		}
		n := binary.LittleEndian.Uint32(wire)
		wire = wire[4:]
		if uint64(n) > uint64(len(wire)) {
			return nil, fmt.Errorf("%w: item of %d bytes in %d", ErrWire, n, len(wire))
		}
		var item T
		if err := decodeItem(wire[:n:n], &item); err != nil {
			return nil, err
		}
		items = append(items, item)
		wire = wire[n:]
	}
	return items, nil
}

// decodeItem reads one item that fills wire. Own wire forms are trusted to check their lengths.
func decodeItem[T any](wire []byte, item *T) error {
	if own, ok := any(item).(binaryItem); ok {
		if err := own.UnmarshalBinary(wire); err != nil {
			return fmt.Errorf("%w: %T: %w", ErrWire, *item, err)
		}
		return nil
	}
	if err := checkMsgpack(wire); err != nil {
		return fmt.Errorf("%w: %T: %w", ErrWire, *item, err)
	}
	if err := msgpack.Unmarshal(wire, item); err != nil {
		return fmt.Errorf("%w: %T: %w", ErrWire, *item, err)
	}
	return nil
}
