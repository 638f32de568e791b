package stream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// element is one call of a StateWriter, and what a StateReader is to say of it.
type element struct {
	key, value []byte
	deleted    bool
}

func drawElements(t *rapid.T) []element {
	field := rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 20), rapid.SliceOfN(rapid.Byte(), 120, 400))
	return some(t, 12, func(t *rapid.T) element {
		e := element{key: field.Draw(t, "key"), deleted: rapid.Bool().Draw(t, "deleted")}
		if !e.deleted {
			e.value = field.Draw(t, "value")
		}
		return e
	})
}

func write(w *StateWriter, all []element) {
	for _, e := range all {
		if e.deleted {
			w.Delete(e.key)
		} else {
			w.Put(e.key, e.value)
		}
	}
}

// pieces returns a next function that delivers state in pieces that end at cuts, all in one buffer that is overwritten
// by each call, and spoilt by the last.
func pieces(state []byte, cuts []int, end error) func() ([]byte, error) {
	cuts = append(slices.Sorted(slices.Values(cuts)), len(state))
	buf := make([]byte, len(state))
	at := 0
	return func() ([]byte, error) {
		for i := range buf {
			buf[i] = 0xee
		}
		if len(cuts) == 0 {
			return nil, end
		}
		n := copy(buf, state[at:cuts[0]])
		at, cuts = cuts[0], cuts[1:]
		return buf[:n], nil
	}
}

// readAll copies what a reader yields.
func readAll(r *StateReader) []element {
	var all []element
	for r.Next() {
		all = append(all, element{bytes.Clone(r.Key()), bytes.Clone(r.Value()), r.Deleted()})
	}
	return all
}

// What was written is read again, wherever the state is cut into chunks and whatever becomes of their memory.
func TestStateRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := drawElements(rt)
		w := NewStateWriter([]byte("kept"), rapid.Bool().Draw(rt, "whole"))
		write(w, want)
		state, ok := bytes.CutPrefix(w.Bytes(), []byte("kept"))
		require.True(rt, ok)
		cuts := rapid.SliceOfN(rapid.IntRange(0, len(state)), 0, 40).Draw(rt, "cuts")
		r := NewStateReader(pieces(state, cuts, io.EOF))
		got := readAll(r)
		require.NoError(rt, r.Err())
		require.Len(rt, got, len(want))
		for i := range want {
			require.Equal(rt, want[i].deleted, got[i].deleted)
			require.True(rt, bytes.Equal(want[i].key, got[i].key))
			require.True(rt, bytes.Equal(want[i].value, got[i].value))
			require.Equal(rt, got[i].deleted, got[i].value == nil, "an empty value is not a deleted element")
		}
		require.False(rt, r.Next())
		require.Empty(rt, r.Key())
	})
}

// Every cut there is, of elements with long and short lengths.
func TestStateCutAnywhere(t *testing.T) {
	w := NewStateWriter(nil, true)
	want := []element{
		{[]byte("k"), []byte("v"), false},
		{bytes.Repeat([]byte("K"), 200), bytes.Repeat([]byte("V"), 300), false},
		{[]byte{}, []byte{}, false},
		{bytes.Repeat([]byte("D"), 130), nil, true},
		{[]byte("end"), []byte("end"), false},
	}
	write(w, want)
	for i := range w.Bytes() {
		for _, cuts := range [][]int{{i}, {i, i + 1}, {i, i + 1, min(i+2, len(w.Bytes()))}} {
			r := NewStateReader(pieces(w.Bytes(), cuts, io.EOF))
			require.Equal(t, want, readAll(r))
			require.NoError(t, r.Err())
		}
	}
	single := make([]int, len(w.Bytes()))
	for i := range single {
		single[i] = i
	}
	require.Equal(t, want, readAll(NewStateReader(pieces(w.Bytes(), single, io.EOF))))
}

// A state that ends anywhere but between two elements is an error, never a shorter state.
func TestStateThatEndsTooEarly(t *testing.T) {
	w := NewStateWriter(nil, true)
	whole := map[int]bool{0: true}
	for _, e := range []element{{[]byte("a"), []byte("1"), false}, {bytes.Repeat([]byte("b"), 200), nil, true}, {nil, nil, false}} {
		write(w, []element{e})
		whole[len(w.Bytes())] = true
	}
	for end := range len(w.Bytes()) + 1 {
		for _, cuts := range [][]int{nil, {end / 2}} {
			r := NewStateReader(pieces(w.Bytes()[:end], cuts, io.EOF))
			readAll(r)
			if whole[end] {
				require.NoError(t, r.Err())
				continue
			}
			require.ErrorIs(t, r.Err(), ErrState, "%d bytes", end)
			require.ErrorIs(t, r.Err(), io.ErrUnexpectedEOF)
		}
	}
}

// Errors of the chunks come through as they are, also in the middle of an element, and one that merely wraps io.EOF is
// no end.
func TestStateReaderPassesErrorsOn(t *testing.T) {
	w := NewStateWriter(nil, true)
	w.Put([]byte("key"), []byte("value"))
	for _, end := range []error{errors.New("disk on fire"), fmt.Errorf("read chunk 7: %w", io.EOF)} {
		for _, n := range []int{0, 5, len(w.Bytes())} {
			r := NewStateReader(pieces(w.Bytes()[:n], nil, end))
			readAll(r)
			require.Equal(t, end, r.Err())
			require.False(t, r.Next(), "an error stays")
		}
	}
}

func TestStateWithLengthsThatAreNone(t *testing.T) {
	long := binary.AppendUvarint(nil, maxField+1)
	for name, state := range map[string][]byte{
		"key too long":     long,
		"value too long":   append([]byte{1, 'k'}, long...),
		"does not end":     bytes.Repeat([]byte{0xff}, 10),
		"overflows":        append(bytes.Repeat([]byte{0xff}, 9), 2),
		"value's overflow": append([]byte{0}, append(bytes.Repeat([]byte{0xff}, 9), 2)...),
	} {
		for cut := range len(state) {
			r := NewStateReader(pieces(state, []int{cut}, io.EOF))
			require.Empty(t, readAll(r), name)
			require.ErrorIs(t, r.Err(), ErrState, name)
			require.NotErrorIs(t, r.Err(), io.ErrUnexpectedEOF, name)
		}
	}
}

// A length that lies takes no memory but for bytes that are there, and a cut element no byte beyond it.
func TestCutElementTakesNoMoreThanItself(t *testing.T) {
	w := NewStateWriter(nil, true)
	w.Put(bytes.Repeat([]byte("k"), 100), bytes.Repeat([]byte("v"), 100))
	one := len(w.Bytes())
	for range 1000 {
		w.PutUint64(1, 2)
	}
	r := NewStateReader(pieces(w.Bytes(), []int{50}, io.EOF))
	require.Len(t, readAll(r), 1001)
	require.Less(t, cap(r.cut), 2*one)

	r = NewStateReader(pieces(binary.AppendUvarint(nil, maxField), nil, io.EOF))
	require.Empty(t, readAll(r))
	require.Less(t, cap(r.cut), 64)
}

func TestUint64OfAnotherElement(t *testing.T) {
	w := NewStateWriter(nil, true)
	w.Put([]byte("12345678"), []byte("1234567"))
	w.Put([]byte("1234567"), []byte("12345678"))
	w.Delete([]byte("12345678"))
	r := NewStateReader(pieces(w.Bytes(), nil, io.EOF))
	for range 3 {
		require.True(t, r.Next())
		_, _, err := r.Uint64()
		require.ErrorIs(t, err, ErrState)
	}
}

func TestStateWriterReset(t *testing.T) {
	w := NewStateWriter(nil, true)
	require.True(t, w.Whole())
	w.PutUint64(1, 2)
	kept := cap(w.Bytes())
	w.Reset(false)
	require.False(t, w.Whole())
	require.Empty(t, w.Bytes())
	require.Equal(t, kept, cap(w.Bytes()))
	require.Zero(t, testing.AllocsPerRun(10, func() { w.Reset(false); w.PutUint64(3, 4) }))
}

// Whatever the bytes and wherever they are cut: no panic, the same elements as in one piece, none beyond the bytes there
// are, and an error that wraps ErrState or none.
func FuzzStateReader(f *testing.F) {
	w := NewStateWriter(nil, true)
	w.Put([]byte("key"), []byte("value"))
	w.Delete(bytes.Repeat([]byte("x"), 150))
	w.PutUint64(1, 2)
	w.PutUint64(2, math.Float64bits(3))
	w.PutUint64(1<<40, math.Float64bits(0.1))
	w.PutUint64(math.MaxUint64, 1<<60)
	w.PutUint64s(3, 1<<60, 1)
	f.Add(w.Bytes(), uint16(4), uint16(9))
	f.Add(w.Bytes(), uint16(165), uint16(177))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f}, uint16(1), uint16(2))
	f.Add([]byte{0x80, 0x00, 0x81, 0x00}, uint16(1), uint16(3))
	f.Fuzz(func(t *testing.T, state []byte, a, b uint16) {
		cuts := []int{int(a) % (len(state) + 1), int(b) % (len(state) + 1)}
		whole, cut := NewStateReader(pieces(state, nil, io.EOF)), NewStateReader(pieces(state, cuts, io.EOF))
		want, got := readAll(whole), readAll(cut)
		require.Equal(t, want, got)
		bytesRead := 0
		for _, e := range want {
			if len(e.key) == 8 && len(e.value) == 8 { // may be a packed one
				bytesRead++
			} else {
				bytesRead += len(e.key) + len(e.value) + 2
			}
		}
		require.LessOrEqual(t, bytesRead, len(state))
		for _, r := range []*StateReader{whole, cut} {
			if r.Err() != nil {
				require.ErrorIs(t, r.Err(), ErrState)
			}
		}
		require.Equal(t, whole.Err() == nil, cut.Err() == nil)
	})
}

// BenchmarkStateReader reads a base of numbers in chunks of 64 KiB that cut elements.
func BenchmarkStateReader(b *testing.B) {
	w := NewStateWriter(nil, true)
	for i := range uint64(100_000) {
		w.PutUint64(i, i)
	}
	b.SetBytes(int64(len(w.Bytes())))
	b.ReportAllocs()
	for b.Loop() {
		rest := w.Bytes()
		r := NewStateReader(func() ([]byte, error) {
			if len(rest) == 0 {
				return nil, io.EOF
			}
			n := min(64<<10, len(rest))
			c := rest[:n]
			rest = rest[n:]
			return c, nil
		})
		for r.Next() {
			if _, _, err := r.Uint64(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
