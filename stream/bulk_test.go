package stream

import (
	"math"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// reading is an item that travels in bulk: fields that msgpack would not see, padding, a bool and nested types.
type reading struct {
	key   uint64
	Fresh bool
	At    [3]struct{ X, Y float32 }
	Level complex64
	grade int8
	Took  time.Duration
}

// drawFloat32 draws what is no NaN, which would not be equal to itself.
func drawFloat32(t *rapid.T, label string) float32 { return float32(rapid.Float64().Draw(t, label)) }

func drawReading(t *rapid.T) reading {
	r := reading{
		key: rapid.Uint64().Draw(t, "key"), Fresh: rapid.Bool().Draw(t, "fresh"), Level: complex(drawFloat32(t, "level"), 1),
		grade: int8(rapid.Uint64().Draw(t, "grade")), Took: time.Duration(rapid.Int64().Draw(t, "took")),
	}
	for i := range r.At {
		r.At[i].X, r.At[i].Y = drawFloat32(t, "x"), drawFloat32(t, "y")
	}
	return r
}

func TestBulkRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		requireRoundTrip(rt, some(rt, 9, drawReading))
		requireRoundTrip(rt, some(rt, 20, func(t *rapid.T) float64 { return rapid.Float64().Draw(t, "number") }))
		requireRoundTrip(rt, some(rt, 20, func(t *rapid.T) int8 { return int8(rapid.Uint64().Draw(t, "byte")) }))
		requireRoundTrip(rt, some(rt, 20, func(t *rapid.T) bool { return rapid.Bool().Draw(t, "bool") }))
		requireRoundTrip(rt, some(rt, 20, func(t *rapid.T) [2]uint16 { return [2]uint16{uint16(rapid.Uint64().Draw(t, "a")), 7} }))
	})
	wire, err := appendItems(nil, make([]reading, 100))
	require.NoError(t, err)
	require.Len(t, wire, bulkHead+100*int(unsafe.Sizeof(reading{})), "nothing per item besides the item")
}

type texted int

func (texted) MarshalText() ([]byte, error) { return nil, nil }

// Which types are copied, and which keep the form that they have or need.
func TestWhatTravelsInBulk(t *testing.T) {
	for _, v := range []any{
		uint8(0), int(0), 1.5, complex128(0), true, [4]int{}, [1000]byte{}, time.Second, reading{}, struct{ A, _ int }{},
	} {
		require.NotNil(t, newBulk(reflect.TypeOf(v)), "%T", v)
	}
	for _, v := range []any{
		"", []int{}, new(int), map[int]int{}, time.Time{}, struct{}{}, [0]int{}, struct{ S string }{}, uintptr(0), unsafe.Pointer(nil),
		texted(0), [2]texted{}, struct{ T texted }{},
		struct {
			A int `msgpack:"-"`
		}{}, [1 << 20]bool{}, [1 << 20]struct{ A int }{},
	} {
		require.Nil(t, newBulk(reflect.TypeOf(v)), "%T", v)
	}
	require.Nil(t, newCodec[point]().bulk, "it has a form of its own")
}

// Builds that differ in a type refuse each other's items by its name.
func TestBulkOfAnotherBuild(t *testing.T) {
	layouts := map[uint64]string{}
	for _, v := range []any{
		struct{ A, B int32 }{}, struct{ B, A int32 }{}, struct{ A, B uint32 }{}, struct{ A, B float32 }{}, struct{ A [2]int32 }{},
		struct{ A int64 }{}, struct{ A, B int64 }{}, struct{ A [3]int64 }{}, struct{ A [4]int64 }{}, int64(0), uint64(0), 1.5, time.Second, [1]int64{},
		struct{ A struct{ B int64 } }{}, struct{ A struct{ C int64 } }{}, struct{ A, B bool }{}, struct{ A [2]bool }{},
	} {
		b := newBulk(reflect.TypeOf(v))
		require.Empty(t, layouts[b.fingerprint], "%T", v)
		layouts[b.fingerprint] = b.name
	}
	wire, err := appendItems(nil, []reading{{}})
	require.NoError(t, err)
	wire[4]++
	_, err = decodeItems[reading](wire)
	require.ErrorIs(t, err, ErrWire)
	require.ErrorContains(t, err, "github.com/afstream/afstream/stream.reading has another layout in the build that wrote it")
	_, err = decodeItems[plain](wire)
	require.ErrorIs(t, err, ErrWire)
	require.ErrorContains(t, err, "stream.plain was sent in bulk")
}

// What was written one by one, by a build or a machine without the bulk form, is read as ever.
func TestBulkTypesOneByOne(t *testing.T) {
	wire, err := (&codec[int64]{}).append(nil, []int64{1, math.MinInt64})
	require.NoError(t, err)
	items, err := decodeItems[int64](wire)
	require.NoError(t, err)
	require.Equal(t, []int64{1, math.MinInt64}, items)
}

func TestBulkErrors(t *testing.T) {
	wire, err := appendItems(nil, []reading{{}, {}})
	require.NoError(t, err)
	size := int(unsafe.Sizeof(reading{}))
	for cut := 5; cut < len(wire); cut++ {
		items, err := decodeItems[reading](wire[:cut])
		if cut == bulkHead || cut == bulkHead+size {
			require.NoError(t, err)
			require.Len(t, items, (cut-bulkHead)/size)
			continue
		}
		require.ErrorIs(t, err, ErrWire, "%d", cut)
	}
	wire[bulkHead+size+int(unsafe.Offsetof(reading{}.Fresh))] = 2
	_, err = decodeItems[reading](wire)
	require.ErrorIs(t, err, ErrWire)
	require.ErrorContains(t, err, "a bool that is neither true nor false")
}

// A decoder gives what Decode gives, and the slab that was released comes round again.
func TestDecoderUsesSlabsAgain(t *testing.T) {
	e := sender[int64](t, output{Shuffle(), 1}).Outputs[0]
	decode := e.Decoder()
	wire, err := appendItems(nil, []int64{1, 2, 3})
	require.NoError(t, err)
	var last Slab
	for range 3 {
		s, err := decode(wire)
		require.NoError(t, err)
		require.Equal(t, 3, s.Len())
		again, err := s.AppendItems(nil, 0, 3)
		require.NoError(t, err)
		require.Equal(t, wire, again)
		require.True(t, last == nil || last == s)
		last = s
		s.Release()
		_, err = decode(wire[:5])
		require.ErrorIs(t, err, ErrWire)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s, _ := decode(wire)
		s.Release()
	}))
}

func FuzzDecodeBulk(f *testing.F) {
	wire, err := appendItems(nil, []reading{{key: 1}, {Fresh: true}})
	require.NoError(f, err)
	f.Add(wire)
	f.Fuzz(func(t *testing.T, wire []byte) {
		used := allocated(func() {
			items, err := decodeItems[reading](wire)
			if err != nil {
				require.ErrorIs(t, err, ErrWire)
				return
			}
			again, err := appendItems(nil, items)
			require.NoError(t, err)
			back, err := decodeItems[reading](again)
			require.NoError(t, err)
			require.Len(t, back, len(items))
		})
		require.Less(t, used, uint64(1<<20+4096*len(wire)))
	})
}

// BenchmarkBulk is what items of 24 bytes cost in bulk.
func BenchmarkBulk(b *testing.B) {
	type item struct {
		Key   uint64
		At    int64
		Value float64
	}
	c := newCodec[item]()
	items := make([]item, SlabItems)
	wire, err := c.append(nil, items)
	require.NoError(b, err)
	perItem := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*SlabItems), "ns/item")
	}
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if wire, err = c.append(wire[:0], items); err != nil {
				b.Fatal(err)
			}
		}
		perItem(b)
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if items, err = c.decode(items[:0], wire); err != nil {
				b.Fatal(err)
			}
		}
		perItem(b)
	})
}
