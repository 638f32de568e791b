package stream

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// plain is an item without a wire form of its own.
type plain struct {
	Word   string
	Count  int64
	Weight float64
	Tags   []string
	By     map[string]uint32
	Inner  *plain
	At     [2]uint16
	Skip   func() `msgpack:"-"`
}

// appendItems and decodeItems are how the items of one slab are written and read.
func appendItems[T any](dst []byte, items []T) ([]byte, error) {
	return newCodec[T]().append(dst, items)
}

func decodeItems[T any](wire []byte) ([]T, error) { return newCodec[T]().decode(nil, wire) }

// point has a wire form of its own, of 16 bytes, and would lose its fields by msgpack.
type point struct{ x, y uint64 }

var errPoint = errors.New("no point")

func (p *point) AppendBinary(b []byte) ([]byte, error) {
	if p.x == math.MaxUint64 {
		return nil, errPoint
	}
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, p.x), p.y), nil
}

func (p *point) UnmarshalBinary(b []byte) error {
	if len(b) != 16 {
		return errPoint
	}
	p.x, p.y = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	return nil
}

// some draws up to most items. It is in place of rapid.SliceOf, of which package rapid would compile some 10 kB for each type.
func some[T any](t *rapid.T, most int, draw func(t *rapid.T) T) []T {
	items := []T{}
	for range rapid.IntRange(0, most).Draw(t, "items") {
		items = append(items, draw(t))
	}
	return items
}

func drawPlain(t *rapid.T) plain {
	p := plain{
		Word: rapid.String().Draw(t, "word"), Count: rapid.Int64().Draw(t, "count"), Weight: rapid.Float64().Draw(t, "weight"),
		Tags: []string{rapid.String().Draw(t, "tag")},
		By:   map[string]uint32{},
		At:   [2]uint16{uint16(rapid.Uint64().Draw(t, "at")), 7},
	}
	p.Tags = append(p.Tags, some(t, 3, func(t *rapid.T) string { return rapid.String().Draw(t, "tag") })...)
	for _, key := range p.Tags {
		p.By[key+rapid.String().Draw(t, "by")] = uint32(rapid.Uint64().Draw(t, "of"))
	}
	if rapid.Bool().Draw(t, "inner") {
		p.Inner = &plain{Word: "inner", Tags: []string{""}, By: map[string]uint32{"": 1}}
	}
	return p
}

// requireRoundTrip writes items after what is there already, and reads them back.
func requireRoundTrip[T any](t require.TestingT, items []T) {
	wire, err := appendItems([]byte("before"), items)
	require.NoError(t, err)
	require.Equal(t, "before", string(wire[:6]))
	back, err := decodeItems[T](wire[6:])
	require.NoError(t, err)
	require.Len(t, back, len(items))
	for i := range items {
		require.Equal(t, items[i], back[i])
	}
}

func TestItemsRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		requireRoundTrip(rt, some(rt, 5, drawPlain))
		requireRoundTrip(rt, some(rt, 5, func(t *rapid.T) point {
			return point{rapid.Uint64Max(math.MaxUint64-1).Draw(t, "x"), rapid.Uint64().Draw(t, "y")}
		}))
		requireRoundTrip(rt, some(rt, 20, func(t *rapid.T) string { return rapid.String().Draw(t, "string") }))
		requireRoundTrip(rt, some(rt, 20, func(t *rapid.T) uint64 { return rapid.Uint64().Draw(t, "number") }))
		requireRoundTrip(rt, some(rt, 20, func(t *rapid.T) []byte { return rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "bytes") }))
		requireRoundTrip(rt, some(rt, 20, func(t *rapid.T) bool { return rapid.Bool().Draw(t, "boolean") }))
	})
	requireRoundTrip(t, []*int32{new(int32)})
	requireRoundTrip(t, []time.Duration{time.Hour})
	at := time.Unix(1, 2)
	wire, err := appendItems(nil, []time.Time{at})
	require.NoError(t, err, "it has unexported fields and a form of its own")
	back, err := decodeItems[time.Time](wire)
	require.NoError(t, err)
	require.True(t, at.Equal(back[0]))
}

type hidden struct {
	Shown  string
	unseen int
}

type loop struct{ Next []*loop }

// What msgpack would lose without a word is refused when it is written, and the error says what to do.
func TestItemsThatWouldNotComeBack(t *testing.T) {
	requireRefused(t, []hidden{{"1", 2}}, "field unseen of stream.hidden would be lost: export it")
	requireRefused(t, []*hidden{{"1", 2}}, "unseen")
	requireRefused(t, []map[string][]hidden{nil}, "unseen")
	requireRefused(t, []struct{ hidden }{}, "unseen")
	requireRefused(t, []*point{{1, 2}}, "field x of stream.point")
	requireRefused(t, []any{1}, "interface {} cannot be read back")
	requireRefused(t, []struct{ Err error }{}, "error cannot be read back")
	requireRefused(t, []chan int{nil}, "chan int")
	requireRefused(t, []point{{math.MaxUint64, 1}}, errPoint.Error())

	deep := &loop{}
	requireRoundTrip(t, []loop{{Next: []*loop{{Next: []*loop{}}}}})
	for range msgpackDepth {
		deep = &loop{Next: []*loop{deep}}
	}
	requireRefused(t, []loop{*deep}, "nested too deep")
}

func requireRefused[T any](t *testing.T, items []T, text string) {
	t.Helper()
	_, err := appendItems(nil, items)
	require.ErrorContains(t, err, text)
	require.ErrorContains(t, err, "stream: encode ")
}

func TestDecodeItemsErrors(t *testing.T) {
	for name, wire := range map[string]string{
		"stray bytes":   "\x01\x00\x00",
		"too long":      "\xff\xff\xff\xff\x01",
		"empty item":    "\x00\x00\x00\x00",
		"trailing":      "\x02\x00\x00\x00\x01\x01",
		"another type":  "\x01\x00\x00\x00\xc3",
		"lying array":   "\x05\x00\x00\x00\xdd\xff\xff\xff\xff",
		"reserved tag":  "\x01\x00\x00\x00\xc1",
		"second broken": "\x01\x00\x00\x00\x07\x01\x00\x00\x00\xc1",
	} {
		items, err := decodeItems[uint64]([]byte(wire))
		require.ErrorIs(t, err, ErrWire, name)
		require.Nil(t, items, name)
	}
	_, err := decodeItems[point]([]byte("\x01\x00\x00\x00\x07"))
	require.ErrorIs(t, err, ErrWire)
	require.ErrorIs(t, err, errPoint)
}

// Whatever the bytes: no panic, an error that wraps ErrWire or items, memory in proportion to the bytes, and items that
// can be written again.
func FuzzDecodeItems(f *testing.F) {
	wire, err := appendItems(nil, []plain{{Word: "w", Tags: []string{"a"}, By: map[string]uint32{"k": 1}, Inner: &plain{}}})
	require.NoError(f, err)
	f.Add(wire)
	f.Add([]byte("\x05\x00\x00\x00\xdd\xff\xff\xff\xff"))
	wire, err = appendItems(nil, []point{{1, 2}, {3, 4}})
	require.NoError(f, err)
	f.Add(wire)
	f.Fuzz(func(t *testing.T, wire []byte) {
		used := allocated(func() {
			requireDecoded[plain](t, wire)
			requireDecoded[string](t, wire)
			requireDecoded[[]float64](t, wire)
			requireDecoded[map[uint32][]byte](t, wire)
			requireDecoded[point](t, wire)
		})
		require.Less(t, used, uint64(1<<20+4096*len(wire)))
	})
}

func requireDecoded[T any](t *testing.T, wire []byte) {
	items, err := decodeItems[T](wire)
	if err != nil {
		require.ErrorIs(t, err, ErrWire)
		return
	}
	again, err := appendItems(nil, items)
	if err != nil {
		require.ErrorIs(t, err, errPoint)
		return
	}
	back, err := decodeItems[T](again)
	require.NoError(t, err)
	require.Len(t, back, len(items))
}

func BenchmarkAppendItems(b *testing.B) {
	points := make([]point, SlabItems)
	words := make([]plain, SlabItems)
	own, packed := newCodec[point](), newCodec[plain]()
	var dst []byte
	var err error
	b.Run("own", func(b *testing.B) {
		for b.Loop() {
			if dst, err = own.append(dst[:0], points); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*SlabItems), "ns/item")
	})
	b.Run("msgpack", func(b *testing.B) {
		for b.Loop() {
			if dst, err = packed.append(dst[:0], words); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*SlabItems), "ns/item")
	})
}
