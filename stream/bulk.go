package stream

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"reflect"
	"slices"
	"strings"
	"unsafe"
)

// bulkMark begins items in bulk form. Items one by one begin with the length of the first, which is always less, so a
// reader can tell the two forms apart and reads either: an item log of a build that wrote one by one stays readable.
const bulkMark = math.MaxUint32

// bulkHead is the mark and the fingerprint before the items.
const bulkHead = 4 + 8

// bulk copies the items of a slab as they lie in memory, at a fraction of a nanosecond per item. It is for types of a
// fixed size without pointers and without a wire form of their own.
//
// What lies between the fields for alignment travels along; it holds what other items of this process left there.
type bulk struct {
	name        string // of the type
	size        int    // of one item
	fingerprint uint64 // of name and layout
	bools       []int  // offsets of bytes that must be 0 or 1: the compiler relies on it
}

// newBulk returns the bulk form of type t, nil if it has none. A machine that stores the highest byte first has none
// for any type: its items travel one by one, which all machines read.
func newBulk(t reflect.Type) *bulk {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 || t.Size() == 0 {
		return nil
	}
	b := &bulk{name: typeName(t), size: int(t.Size())}
	layout, ok := b.walk([]byte(b.name), t, 0)
	if !ok || len(b.bools) > maxBulkFields {
		return nil
	}
	h := fnv.New64a()
	h.Write(layout) // never fails
	b.fingerprint = h.Sum64()
	return b
}

// maxBulkFields bounds what walk collects: a large array is described field by field.
const maxBulkFields = 1 << 12

// walk appends what describes a value of type t at an offset within the item: every field with its name, offset, kind
// and size. It reports false if the type cannot be copied.
func (b *bulk) walk(layout []byte, t reflect.Type, at int) ([]byte, bool) {
	if hasOwnForm(t) || len(layout) > maxBulkFields*16 {
		return nil, false
	}
	switch k := t.Kind(); k {
	case reflect.Bool:
		b.bools = append(b.bools, at)
		return fmt.Appendf(layout, " %d:%v", at, k), true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return fmt.Appendf(layout, " %d:%v*%d", at, k, t.Size()), true
	case reflect.Array:
		return b.walkArray(layout, t, at)
	case reflect.Struct:
		return b.walkStruct(layout, t, at)
	}
	return nil, false
}

func (b *bulk) walkArray(layout []byte, t reflect.Type, at int) ([]byte, bool) {
	n, elem := t.Len(), t.Elem()
	layout = fmt.Appendf(layout, " %d:[%d]", at, n)
	if elem.Kind() != reflect.Bool && elem.Kind() != reflect.Struct && elem.Kind() != reflect.Array {
		n = min(n, 1) // the others are as the first
	}
	ok := true
	for i := 0; i < n && ok; i++ {
		layout, ok = b.walk(layout, elem, at+i*int(elem.Size()))
	}
	return layout, ok
}

func (b *bulk) walkStruct(layout []byte, t reflect.Type, at int) ([]byte, bool) {
	ok := true
	for i := 0; i < t.NumField() && ok; i++ {
		f := t.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("msgpack"), ","); name == "-" {
			return nil, false // it is to stay behind
		}
		layout = append(append(layout, ' '), f.Name...)
		layout, ok = b.walk(layout, f.Type, at+int(f.Offset))
	}
	return layout, ok
}

// typeName names a type as the program wrote it, with the path of its package.
func typeName(t reflect.Type) string {
	if t.Name() == "" || t.PkgPath() == "" {
		return t.String()
	}
	return t.PkgPath() + "." + t.Name()
}

// appendBulk writes items. items is not empty.
func appendBulk[T any](dst []byte, b *bulk, items []T) []byte { return b.append(dst, bytesOf(items)) }

func (b *bulk) append(dst, content []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, bulkMark)
	dst = binary.LittleEndian.AppendUint64(dst, b.fingerprint)
	return append(dst, content...)
}

// content returns the items within what follows the mark, as they are to lie in memory. b is nil if their type t has no bulk
// form here.
func (b *bulk) content(wire []byte, t reflect.Type) ([]byte, error) {
	if b == nil {
		return nil, fmt.Errorf("%w: %v was sent in bulk, which this build or machine does not do: run one build of the program everywhere",
			ErrWire, typeName(t))
	}
	if len(wire) < 8 {
		return nil, fmt.Errorf("%w: %s: %d bytes in place of a fingerprint", ErrWire, b.name, len(wire))
	}
	if f := binary.LittleEndian.Uint64(wire); f != b.fingerprint {
		return nil, fmt.Errorf("%w: %s has another layout in the build that wrote it (%016x, here %016x): run one build of the program everywhere",
			ErrWire, b.name, f, b.fingerprint)
	}
	wire = wire[8:]
	if len(wire)%b.size != 0 {
		return nil, fmt.Errorf("%w: %s: %d bytes are no whole number of items of %d", ErrWire, b.name, len(wire), b.size)
	}
	if !b.valid(wire) {
		return nil, fmt.Errorf("%w: %s: a bool that is neither true nor false", ErrWire, b.name)
	}
	return wire, nil
}

// decodeBulk appends the items of such content to items.
func decodeBulk[T any](items []T, content []byte) []T {
	old, n := len(items), len(content)/int(unsafe.Sizeof(*new(T)))
	items = slices.Grow(items, n)[:old+n]
	copy(bytesOf(items[old:]), content)
	return items
}

// valid checks what not every bit pattern is a value of.
func (b *bulk) valid(wire []byte) bool {
	if len(b.bools) == 0 {
		return true
	}
	for ; len(wire) > 0; wire = wire[b.size:] {
		for _, at := range b.bools {
			if wire[at] > 1 {
				return false
			}
		}
	}
	return true
}

// bytesOf returns the memory of items, which must hold no pointers.
func bytesOf[T any](items []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(items))), len(items)*int(unsafe.Sizeof(*new(T))))
}
