package stream

import (
	"encoding/binary"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// indices and values are those that the forms of packed elements treat apart, and any.
var (
	indices = rapid.OneOf(rapid.Uint64Range(0, 20), rapid.SampledFrom([]uint64{1 << 48, 1<<48 - 1, 1 << 49, 1<<63 - 1, 1 << 63, math.MaxUint64}), rapid.Uint64())
	values  = rapid.OneOf(
		rapid.Uint64Range(0, 300),
		rapid.Map(rapid.Uint64Range(0, 300), func(n uint64) uint64 { return math.Float64bits(float64(n)) }),
		rapid.Map(rapid.Uint64(), func(n uint64) uint64 { return math.Float64bits(float64(n)) }),
		rapid.Map(rapid.Float64(), math.Float64bits),
		rapid.Map(rapid.Float32(), func(f float32) uint64 { return math.Float64bits(float64(f)) }),
		rapid.SampledFrom([]uint64{
			math.Float64bits(127), math.Float64bits(128), math.Float64bits(-1), math.Float64bits(math.Copysign(0, -1)), math.Float64bits(1<<53 - 1),
			math.Float64bits(1 << 53), math.Float64bits(math.NaN()), math.Float64bits(math.Inf(1)), math.Float64bits(math.Inf(-1)), math.MaxUint64, 1,
		}),
		rapid.Map(rapid.IntRange(0, 63), func(n int) uint64 { return 1 << n }),
		rapid.Uint64(),
	)
)

// What is packed reads as if it had been put, wherever it is cut and whatever stands between, and in 17 bytes at most, or 25 of two numbers.
func TestPackedIsPut(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := NewStateWriter(nil, false)
		var want []element
		for range rapid.IntRange(1, 30).Draw(rt, "elements") {
			if rapid.IntRange(0, 5).Draw(rt, "other") == 0 {
				e := element{key: []byte("other"), value: []byte("value")}
				if e.deleted = rapid.Bool().Draw(rt, "deleted"); e.deleted {
					e.value = nil
				}
				write(w, []element{e})
				want = append(want, e)
				continue
			}
			index, value := indices.Draw(rt, "index"), values.Draw(rt, "value")
			if rapid.Bool().Draw(rt, "next") {
				index = w.next
			}
			before, began, most := w.Len(), w.packed, 17
			e := element{binary.LittleEndian.AppendUint64(nil, index), binary.LittleEndian.AppendUint64(nil, value), false}
			if rapid.Bool().Draw(rt, "two") {
				second := values.Draw(rt, "second")
				w.PutUint64s(index, value, second)
				e.value, most = binary.LittleEndian.AppendUint64(e.value, second), 25
			} else {
				w.PutUint64(index, value)
			}
			if began {
				require.LessOrEqual(rt, w.Len()-before, most)
			}
			want = append(want, e)
		}
		state := w.Bytes()
		require.Equal(rt, state, w.Bytes(), "asking again adds nothing")
		cuts := rapid.SliceOfN(rapid.IntRange(0, len(state)), 0, 40).Draw(rt, "cuts")
		r := NewStateReader(pieces(state, cuts, io.EOF))
		require.Equal(rt, want, readAll(r))
		require.NoError(rt, r.Err())
	})
}

// Commits follow each other in one reader, so each begins and ends by itself.
func TestPackedOneAfterTheOther(t *testing.T) {
	w := NewStateWriter(nil, true)
	w.PutUint64(7, 9)
	all := append([]byte(nil), w.Bytes()...)
	w.Reset(false)
	w.PutUint64(8, math.Float64bits(1))
	all = append(all, w.Bytes()...)
	w.PutUint64(9, math.Float64bits(2)) // after Bytes
	all = append(all, w.Bytes()...)
	var got [][2]uint64
	r := NewStateReader(pieces(all, nil, io.EOF))
	for r.Next() {
		index, value, err := r.Uint64()
		require.NoError(t, err)
		got = append(got, [2]uint64{index, value})
	}
	require.NoError(t, r.Err())
	require.Equal(t, [][2]uint64{{7, 9}, {8, math.Float64bits(1)}, {8, math.Float64bits(1)}, {9, math.Float64bits(2)}}, got)
}

// States that were saved before elements were packed are read as ever.
func TestUnpackedElementsOfNumbers(t *testing.T) {
	w := NewStateWriter(nil, true)
	w.Put(binary.LittleEndian.AppendUint64(nil, 5), binary.LittleEndian.AppendUint64(nil, 6))
	r := NewStateReader(pieces(w.Bytes(), nil, io.EOF))
	require.True(t, r.Next())
	index, value, err := r.Uint64()
	require.NoError(t, err)
	require.Equal(t, [2]uint64{5, 6}, [2]uint64{index, value})
}

// What packing is for.
func TestPackedSize(t *testing.T) {
	size := func(value func(i uint64) float64, every uint64) float64 {
		w := NewStateWriter(nil, true)
		for i := range uint64(10_000) {
			w.PutUint64(i*every, math.Float64bits(value(i)))
		}
		return float64(len(w.Bytes())) / 10_000
	}
	require.InDelta(t, 1, size(func(i uint64) float64 { return float64(i % 128) }, 1), 0.01, "small counts, one beside the other")
	require.InDelta(t, 3, size(func(i uint64) float64 { return float64(i % 128) }, 3), 0.02, "with gaps")
	require.InDelta(t, 3, size(func(i uint64) float64 { return float64(1000 + i%50_000) }, 1), 0.01)
	w := NewStateWriter(nil, true)
	for i := range uint64(10_000) {
		w.PutUint64s(i*200, 1<<60+i, 1<<61+i)
	}
	require.InDelta(t, 19, float64(len(w.Bytes()))/10_000, 0.01, "two numbers, with gaps")
	require.InDelta(t, 9, size(func(i uint64) float64 { return float64(i) + 0.1 }, 1), 0.01, "no whole numbers")
}

// A state that ends among packed elements is an error, never a shorter one.
func TestPackedThatEndTooEarly(t *testing.T) {
	w := NewStateWriter(nil, true)
	w.PutUint64(0, math.Float64bits(1))
	w.PutUint64(1, math.Float64bits(0.3))
	w.PutUint64(1<<20, 1<<40+1)
	w.PutUint64(1<<60, 1)
	w.PutUint64s(1<<60+9, 1, 2)
	for end := 1; end < len(w.Bytes()); end++ {
		for _, cuts := range [][]int{nil, {end / 2}} {
			r := NewStateReader(pieces(w.Bytes()[:end], cuts, io.EOF))
			readAll(r)
			require.ErrorIs(t, r.Err(), ErrState, "%d bytes", end)
			require.ErrorIs(t, r.Err(), io.ErrUnexpectedEOF, "%d bytes", end)
		}
	}
}

func TestPackedThatAreNone(t *testing.T) {
	for name, tail := range map[string]string{
		"place":  "\xe0",
		"form":   "\x98",
		"end":    "\xfe",
		"index":  "\xa0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"index2": "\xa0\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
	} {
		state := []byte(packedStart + tail)
		for cut := range state {
			r := NewStateReader(pieces(state, []int{cut}, io.EOF))
			require.Empty(t, readAll(r), name)
			require.ErrorIs(t, r.Err(), ErrState, name)
			require.NotErrorIs(t, r.Err(), io.ErrUnexpectedEOF, name)
		}
	}
}
