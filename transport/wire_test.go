package transport

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/stream"
)

// edges returns two edges: of numbers, which travel in bulk, and of strings, one by one.
func edges(t require.TestingT) []*stream.Edge {
	top := stream.New("wire")
	numbers := stream.From(top, "numbers", func(int, int) (stream.Source[uint64], error) { return nil, nil })
	words := stream.From(top, "words", func(int, int) (stream.Source[string], error) { return nil, nil })
	stream.To(numbers, "to-numbers", func(int, int) (stream.Sink[uint64], error) { return nil, nil })
	stream.To(words, "to-words", func(int, int) (stream.Sink[string], error) { return nil, nil })
	nodes, err := top.Build()
	require.NoError(t, err)
	var all []*stream.Edge
	for _, name := range []string{"to-numbers", "to-words"} {
		for _, n := range nodes {
			if n.Name == name {
				all = append(all, n.Inputs...)
			}
		}
	}
	require.Len(t, all, 2)
	return all
}

// decoder reads slabs of edges.
func decoder(edges []*stream.Edge) Decode {
	return func(edge int, items []byte) (stream.Slab, error) {
		if edge >= len(edges) {
			return nil, fmt.Errorf("%w: no edge %d", ErrWire, edge)
		}
		return edges[edge].Decode(items)
	}
}

// words makes a slab of strings of the given lengths.
func words(t require.TestingT, e *stream.Edge, sizes ...int) stream.Slab {
	var wire []byte
	for i, n := range sizes {
		item := append([]byte{0xdb}, binary.BigEndian.AppendUint32(nil, uint32(n))...) // a msgpack string
		item = append(item, bytes.Repeat([]byte{byte('a' + i%26)}, n)...)
		wire = append(binary.LittleEndian.AppendUint32(wire, uint32(len(item))), item...)
	}
	s, err := e.Decode(wire)
	require.NoError(t, err)
	return s
}

// numbers makes a slab of n numbers from first on.
func numbers(t require.TestingT, e *stream.Edge, first uint64, n int) stream.Slab {
	var wire []byte
	for i := range uint64(n) {
		wire = append(wire, 9, 0, 0, 0, 0xcf) // a msgpack number
		wire = binary.BigEndian.AppendUint64(wire, first+i)
	}
	s, err := e.Decode(wire)
	require.NoError(t, err)
	return s
}

func items(t require.TestingT, s stream.Slab, from, to int) []byte {
	wire, err := s.AppendItems(nil, from, to)
	require.NoError(t, err)
	return wire
}

// pack writes frames into messages of at most limit bytes.
func pack(t require.TestingT, frames []Frame, limit int) [][]byte {
	var msgs [][]byte
	msg := Begin(nil, 7)
	seal := func() {
		Seal(msg)
		require.LessOrEqual(t, len(msg), limit)
		msgs = append(msgs, msg)
		msg = Begin(nil, 7)
	}
	for i := range frames {
		for next, again := 0, true; again; {
			at, whole := next, len(msg) == SealBytes
			var err error
			before := len(msg)
			msg, next, err = AppendFrame(msg, &frames[i], next, limit, whole)
			require.NoError(t, err)
			again = next < frames[i].Count || len(msg) == before
			if again {
				require.False(t, whole && next == at && frames[i].Count > 0, "no progress")
				seal()
			}
		}
	}
	seal()
	return msgs
}

func drawFrame(rt *rapid.T, all []*stream.Edge) Frame {
	f := Frame{
		Kind:    Kind(rapid.IntRange(0, 3).Draw(rt, "kind")),
		Channel: Channel{From: rapid.IntRange(0, 300).Draw(rt, "from"), To: rapid.IntRange(0, 9).Draw(rt, "to")},
		Epoch:   rapid.Uint64().Draw(rt, "epoch"), First: rapid.Uint64Max(1<<63).Draw(rt, "first"), Level: rapid.Uint64().Draw(rt, "level"),
	}
	switch f.Kind {
	case Punctuation:
		f.Count = rapid.IntRange(0, 1).Draw(rt, "count")
		f.Window = stream.Window{Number: rapid.Uint64().Draw(rt, "window"), Last: rapid.Bool().Draw(rt, "last")}
	case Paused:
		f.Window.Number = rapid.Uint64().Draw(rt, "round")
	case Data:
		f.Channel.Edge = rapid.IntRange(0, 1).Draw(rt, "edge")
		if f.Channel.Edge == 0 {
			f.Count = rapid.IntRange(1, 300).Draw(rt, "count")
			f.Slab = numbers(rt, all[0], f.First, f.Count)
			break
		}
		sizes := rapid.SliceOfN(rapid.IntRange(0, 300), 1, 40).Draw(rt, "sizes")
		f.Count, f.Slab = len(sizes), words(rt, all[1], sizes...)
	}
	return f
}

// Frames of all kinds, cut to messages of any size, come back in order with every item once, and no message is larger
// than allowed.
func TestFramesRoundTrip(t *testing.T) {
	all := edges(t)
	decode := decoder(all)
	rapid.Check(t, func(rt *rapid.T) {
		var frames []Frame
		for range rapid.IntRange(1, 6).Draw(rt, "frames") {
			frames = append(frames, drawFrame(rt, all))
		}
		var back []Frame
		for _, msg := range pack(rt, frames, rapid.IntRange(450, 9000).Draw(rt, "limit")) {
			kind, body, err := Unseal(msg)
			require.NoError(rt, err)
			require.EqualValues(rt, 7, kind)
			for len(body) > 0 {
				var f Frame
				f, body, err = TakeFrame(body, decode)
				require.NoError(rt, err)
				back = append(back, f)
			}
		}
		for _, want := range frames {
			back = requireFrame(rt, want, back)
		}
		require.Empty(rt, back)
	})
}

// requireFrame takes the parts of want off back.
func requireFrame(t require.TestingT, want Frame, back []Frame) []Frame {
	if want.Kind != Data {
		require.NotEmpty(t, back)
		require.Equal(t, want, back[0])
		return back[1:]
	}
	for at := 0; at < want.Count; {
		require.NotEmpty(t, back)
		got := back[0]
		require.Equal(t, items(t, want.Slab, at, at+got.Count), items(t, got.Slab, 0, got.Count))
		expect := want
		expect.First, expect.Count, expect.Slab = want.First+uint64(at), got.Count, got.Slab
		require.Equal(t, expect, got)
		require.Positive(t, got.Count)
		at += got.Count
		back = back[1:]
	}
	return back
}

// One large item among small ones: the slab is cut around it, and only one that fits no message is refused, by name.
func TestLargeItems(t *testing.T) {
	all := edges(t)
	f := Frame{Channel: Channel{Edge: 1, From: 2, To: 3}, First: 100, Count: 5, Slab: words(t, all[1], 10, 10, 900, 10, 900)}
	require.Len(t, pack(t, []Frame{f}, 1000), 3)
	_, next, err := AppendFrame(Begin(nil, 0), &f, 2, 900, true)
	require.Equal(t, 2, next)
	require.ErrorIs(t, err, ErrTooLarge)
	require.EqualError(t, err, "transport: item too large: item 102 of channel 2->3, edge 1, takes 920 bytes and a message holds 888: make items smaller, or raise max_payload of the NATS server")
}

func TestAcksRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := Ack{
			Channel: Channel{Edge: rapid.IntRange(0, 1<<31-1).Draw(rt, "edge"), From: 1, To: rapid.IntRange(0, 300).Draw(rt, "to")},
			Resume:  rapid.Bool().Draw(rt, "resume"), Live: rapid.Bool().Draw(rt, "live"),
			Epoch: rapid.Uint64().Draw(rt, "epoch"), Acked: rapid.Uint64().Draw(rt, "acked"), Committed: rapid.Uint64().Draw(rt, "committed"),
		}
		wire := AppendAck(nil, a)
		require.LessOrEqual(rt, len(wire), AckBytes)
		got, rest, err := TakeAck(append(wire, 1, 2))
		require.NoError(rt, err)
		require.Equal(rt, a, got)
		require.Equal(rt, []byte{1, 2}, rest)
	})
}

// Every single changed byte and every cut is noticed.
func TestDamagedMessages(t *testing.T) {
	all := edges(t)
	f := Frame{Count: 3, Slab: numbers(t, all[0], 5, 3)}
	msg := pack(t, []Frame{f}, 1000)[0]
	for i := range msg {
		damaged := bytes.Clone(msg)
		damaged[i] ^= 0x10
		_, _, err := Unseal(damaged)
		require.Error(t, err, "%d", i)
		_, _, err = Unseal(msg[:i])
		require.ErrorIs(t, err, ErrWire, "%d", i)
	}
	other := bytes.Clone(msg)
	other[0] = 2
	_, _, err := Unseal(other)
	require.ErrorIs(t, err, ErrVersion)
	_, body, err := Unseal(msg)
	require.NoError(t, err)
	for i := range body {
		_, _, err := TakeFrame(body[:i], decoder(all))
		require.Error(t, err, "%d", i)
	}
	body = bytes.Clone(body)
	body[8] = itemCodec + 1
	_, _, err = TakeFrame(body, decoder(all))
	require.ErrorIs(t, err, ErrVersion)
}

// Whatever the bytes: no panic, and memory in proportion to them. What is read can be written and read again.
func FuzzTakeFrame(f *testing.F) {
	all := edges(f)
	decode := decoder(all)
	for _, frame := range []Frame{
		{Count: 3, Slab: numbers(f, all[0], 5, 3)},
		{Channel: Channel{Edge: 1}, Count: 2, Slab: words(f, all[1], 4, 0)},
		{Kind: Punctuation, Count: 1, Window: stream.Window{Number: 3, Last: true}},
		{Kind: Blocked, First: 9},
		{Kind: Paused, First: 9, Window: stream.Window{Number: 300}},
	} {
		_, body, err := Unseal(pack(f, []Frame{frame}, 1000)[0])
		require.NoError(f, err)
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		used := allocated(func() {
			got, rest, err := TakeFrame(body, decode)
			if err != nil {
				return
			}
			require.Less(t, len(rest), len(body))
			if got.Slab != nil && got.Count == 0 {
				return // an empty slab is read, and never written
			}
			wire, next, err := AppendFrame(nil, &got, 0, 1<<30, true)
			require.NoError(t, err)
			require.Equal(t, got.Count, next)
			again, rest, err := TakeFrame(wire, decode)
			require.NoError(t, err)
			require.Empty(t, rest)
			if got.Slab != nil {
				require.Equal(t, items(t, got.Slab, 0, got.Count), items(t, again.Slab, 0, got.Count))
			}
			again.Slab, got.Slab = nil, nil
			require.Equal(t, got, again)
		})
		require.Less(t, used, uint64(1<<20+8192*len(body)))
	})
}

func FuzzUnseal(f *testing.F) {
	msg := Begin(nil, 3)
	Seal(msg)
	f.Add(msg)
	f.Fuzz(func(t *testing.T, msg []byte) {
		kind, body, err := Unseal(msg)
		if err != nil {
			return
		}
		again := append(Begin(nil, kind), body...)
		Seal(again)
		require.Len(t, again, len(msg))
		require.Equal(t, msg[4:8], again[4:8])
	})
}

func FuzzTakeAck(f *testing.F) {
	f.Add(AppendAck(nil, Ack{Channel: Channel{1, 2, 3}, Resume: true, Acked: 7}))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, _, err := TakeAck(body)
		if err != nil {
			require.ErrorIs(t, err, ErrWire)
			return
		}
		back, rest, err := TakeAck(AppendAck(nil, a))
		require.NoError(t, err)
		require.Empty(t, rest)
		require.Equal(t, a, back)
	})
}

// allocated returns the bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func BenchmarkFrames(b *testing.B) {
	all := edges(b)
	f := Frame{Count: stream.SlabItems, Slab: numbers(b, all[0], 5, stream.SlabItems)}
	var msg []byte
	var err error
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if msg, _, err = AppendFrame(msg[:0], &f, 0, 1<<20, true); err != nil {
				b.Fatal(err)
			}
		}
	})
	decode := all[0].Decoder()
	b.Run("take", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f, _, err := TakeFrame(msg, func(_ int, items []byte) (stream.Slab, error) { return decode(items) })
			if err != nil {
				b.Fatal(err)
			}
			f.Release()
		}
	})
	b.Run("seal", func(b *testing.B) {
		msg := append(Begin(nil, 1), make([]byte, 1<<16)...)
		b.SetBytes(int64(len(msg)))
		for b.Loop() {
			Seal(msg)
		}
	})
}
