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
type codec[T any] struct{ form }

// form is what a codec knows of the type of its items.
type form struct {
	own  bool
	bulk *bulk // nil if the type has a form of its own, or needs msgpack
	err  error // why items of this type would not come back
}

// newCodec looks at the type, which costs some microseconds: once per edge, never per slab.
func newCodec[T any]() *codec[T] { return &codec[T]{formOfItems(new(T))} }

// formOfItems looks at the type of what a pointer leads to.
func formOfItems(item any) form {
	t := reflect.TypeOf(item).Elem()
	if _, own := item.(binaryItem); own {
		return form{own: true}
	}
	if b := newBulk(t); b != nil {
		return form{bulk: b}
	}
	if err := checkWire(t, nil); err != nil {
		return form{err: fmt.Errorf("stream: encode %v: %w", t, err)}
	}
	return form{}
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
		if dst, err = appendItem(dst, &items[i], c.own); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// appendItem writes the item that a pointer leads to, with its length before it. Like all here that need not know the type of
// items it is compiled once, and not for each of them: programs have many.
func appendItem(dst []byte, item any, own bool) (_ []byte, err error) {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	if own {
		dst, err = item.(binaryItem).AppendBinary(dst)
	} else {
		dst, err = appendMsgpack(dst, item)
	}
	if err != nil {
		return nil, fmt.Errorf("stream: encode %v: %w", reflect.TypeOf(item).Elem(), err)
	}
	n := len(dst) - start - 4
	if uint64(n) >= bulkMark {
		return nil, fmt.Errorf("stream: encode %v: an item of %d bytes is too long", reflect.TypeOf(item).Elem(), n)
	}
	binary.LittleEndian.PutUint32(dst[start:], uint32(n))
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
	wire, bulk, err := c.open(wire, (*T)(nil))
	if err != nil {
		return nil, err
	}
	if bulk {
		return decodeBulk(items, wire), nil
	}
	for len(wire) > 0 {
		var item T
		if wire, err = decodeItem(wire, &item); err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

// open says whether items came in bulk, and returns what holds them then. of is a pointer to an item, or nil.
func (f *form) open(wire []byte, of any) (rest []byte, bulk bool, err error) {
	if f.err != nil { // nobody can have written it, and into interfaces msgpack believes any length, see checkMsgpack
		return nil, false, fmt.Errorf("%w: %w", ErrWire, f.err)
	}
	if len(wire) < 4 || binary.LittleEndian.Uint32(wire) != bulkMark {
		return wire, false, nil
	}
	rest, err = f.bulk.content(wire[4:], reflect.TypeOf(of).Elem())
	return rest, true, err
}

// decodeItem reads the first item of wire into what a pointer leads to, and returns the rest. Own wire forms are trusted to
// check their lengths.
func decodeItem(wire []byte, item any) (rest []byte, err error) {
	if len(wire) < 4 {
		return nil, fmt.Errorf("%w: %d stray bytes", ErrWire, len(wire))
	}
	n := binary.LittleEndian.Uint32(wire)
	wire = wire[4:]
	if uint64(n) > uint64(len(wire)) {
		return nil, fmt.Errorf("%w: item of %d bytes in %d", ErrWire, n, len(wire))
	}
	one := wire[:n:n]
	if own, ok := item.(binaryItem); ok {
		err = own.UnmarshalBinary(one)
	} else if err = checkMsgpack(one); err == nil {
		err = msgpack.Unmarshal(one, item)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %v: %w", ErrWire, reflect.TypeOf(item).Elem(), err)
	}
	return wire[n:], nil
}
