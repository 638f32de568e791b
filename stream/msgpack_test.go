package stream

import (
	"bytes"
	"encoding/binary"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// allocated returns how many bytes of heap f takes, with those of other goroutines meanwhile.
func allocated(f func()) uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	before := s[0].Value.Uint64()
	f()
	metrics.Read(s)
	return s[0].Value.Uint64() - before
}

// drawValue draws a value of any form that msgpack has, at most depth deep.
func drawValue(t *rapid.T, depth int) any {
	kind := rapid.IntRange(0, 10).Draw(t, "kind")
	if depth == 0 {
		kind %= 8
	}
	switch kind {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Int64().Draw(t, "int")
	case 3:
		return rapid.Uint64().Draw(t, "uint")
	case 4:
		return rapid.SampledFrom([]any{float32(1.5), 2.5}).Draw(t, "float")
	case 5:
		return strings.Repeat("s", rapid.SampledFrom([]int{0, 1, 31, 32, 255, 256, 65535, 65536}).Draw(t, "string"))
	case 6:
		return bytes.Repeat([]byte("b"), rapid.SampledFrom([]int{0, 1, 255, 256, 65535, 65536}).Draw(t, "bytes"))
	case 7:
		return time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "seconds"), rapid.Int64Range(0, 999).Draw(t, "nanoseconds"))
	case 8:
		all := make([]any, rapid.SampledFrom([]int{0, 1, 15, 16, 20}).Draw(t, "array"))
		for i := range all {
			if i < 3 {
				all[i] = drawValue(t, depth-1)
			}
		}
		return all
	case 9:
		return make([]int8, rapid.SampledFrom([]int{65535, 65536}).Draw(t, "long array"))
	}
	all := map[string]any{}
	for range rapid.IntRange(0, 20).Draw(t, "map") {
		all[rapid.String().Draw(t, "key")] = nil
	}
	all["last"] = drawValue(t, depth-1)
	return all
}

// Whatever the encoder writes the guard lets pass, and nothing of it that was cut off or goes on.
func TestCheckMsgpackAcceptsWhatIsWritten(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var out bytes.Buffer
		enc := msgpack.NewEncoder(&out)
		enc.UseCompactInts(rapid.Bool().Draw(rt, "compact ints"))
		enc.UseCompactFloats(rapid.Bool().Draw(rt, "compact floats"))
		require.NoError(rt, enc.Encode(drawValue(rt, 4)))
		b := out.Bytes()
		require.NoError(rt, checkMsgpack(b))
		require.ErrorIs(rt, checkMsgpack(append(bytes.Clone(b), 0xc0)), errMsgpack)
		cut := rapid.IntRange(0, len(b)-1).Draw(rt, "cut")
		require.ErrorIs(rt, checkMsgpack(b[:cut]), errMsgpack)
	})
}

// Every tag with the shortest and with too short a rest.
func TestCheckMsgpackTags(t *testing.T) {
	for tag, rest := range map[byte]int{
		0x00: 0, 0x7f: 0, 0xe0: 0, 0xff: 0, 0xc0: 0, 0xc2: 0, 0xc3: 0, // themselves
		0x80: 0, 0x90: 0, 0xa0: 0, 0x8f: 30, 0x9f: 15, 0xbf: 31, // counts in the tag
		0xc4: 1, 0xc5: 2, 0xc6: 4, 0xd9: 1, 0xda: 2, 0xdb: 4, // bytes and strings: empty
		0xc7: 2, 0xc8: 3, 0xc9: 5, // extensions: empty, and their type
		0xca: 4, 0xcb: 8, 0xcc: 1, 0xcd: 2, 0xce: 4, 0xcf: 8, 0xd0: 1, 0xd1: 2, 0xd2: 4, 0xd3: 8, // numbers
		0xd4: 2, 0xd5: 3, 0xd6: 5, 0xd7: 9, 0xd8: 17, // extensions of fixed size
		0xdc: 2, 0xdd: 4, 0xde: 2, 0xdf: 4, // arrays and maps: empty
	} {
		b := append([]byte{tag}, make([]byte, rest)...)
		require.NoError(t, checkMsgpack(b), "%#x", tag)
		require.ErrorIs(t, checkMsgpack(append(b, 0)), errMsgpack, "%#x", tag)
		require.ErrorIs(t, checkMsgpack(b[:len(b)-1]), errMsgpack, "%#x", tag)
	}
	require.ErrorIs(t, checkMsgpack([]byte{0xc1}), errMsgpack)
	for _, counted := range []string{"\xc6\xff\xff\xff\xff", "\xdb\x00\x00\x00\x02a", "\xdd\xff\xff\xff\xff", "\xdf\xff\xff\xff\xff",
		"\xc9\xff\xff\xff\xff\x01", "\xdf\x00\x00\x00\x01\x00", "\xdc\x00\x01"} {
		require.ErrorIs(t, checkMsgpack([]byte(counted)), errMsgpack, "%q", counted)
	}
}

// Nesting is bounded before the decoder recurses.
func TestCheckMsgpackDepth(t *testing.T) {
	nested := func(tag string, depth int) []byte { return []byte(strings.Repeat(tag, depth) + "\xc0") }
	for _, tag := range []string{"\x91", "\x81\xc0", "\xdc\x00\x01", "\xdf\x00\x00\x00\x01\xc0"} {
		require.NoError(t, checkMsgpack(nested(tag, msgpackDepth-1)))
		require.ErrorIs(t, checkMsgpack(nested(tag, msgpackDepth)), errMsgpack)
		require.ErrorIs(t, checkMsgpack(nested(tag, 1_000_000)), errMsgpack)
	}
}

func TestCheckMsgpackAllocatesNothing(t *testing.T) {
	b, err := msgpack.Marshal(map[string]any{"a": []string{strings.Repeat("x", 300)}, "b": time.Unix(1, 1)})
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		if checkMsgpack(b) != nil {
			panic("refused")
		}
	}))
}

// What the guard accepts the decoder may still refuse, but it takes no more memory than in proportion to the bytes,
// into whatever type. (The factor is that of the worst type here: an entry of a map is two bytes on the wire.) Extensions
// are the exception, see checkMsgpack, and left out.
func FuzzCheckMsgpack(f *testing.F) {
	b, err := msgpack.Marshal(plain{Word: "w", Tags: []string{"a"}, By: map[string]uint32{"k": 1}, Inner: &plain{}})
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte("\xdd\xff\xff\xff\xff"))
	f.Add([]byte("\xdf\x00\x00\x00\x02\x01\x01\x02\x02"))
	f.Add([]byte("\xd7\xff\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if slices.ContainsFunc(b, isExtension) || checkMsgpack(b) != nil {
			return
		}
		used := allocated(func() {
			for _, into := range []any{new(any), new([]any), new([][]string), new(map[string]any), new(map[string][]byte),
				new(map[uint64]uint64), new(plain), new([]plain), new(string), new([]byte), new(time.Time)} {
				_ = msgpack.Unmarshal(b, into)
			}
		})
		require.Less(t, used, uint64(1<<20+8192*len(b)))
	})
}

// An extension where a map is expected has a length of its own inside, here of 805 million.
func TestLengthsInsideExtensions(t *testing.T) {
	item := []byte("\xd70\xdf0\x01\xbb00\xff\x80")
	wire := append(binary.LittleEndian.AppendUint32(nil, uint32(len(item))), item...)
	var err error
	used := allocated(func() { _, err = decodeItems[map[string][]byte](wire) })
	require.ErrorIs(t, err, ErrWire)
	require.Less(t, used, uint64(256<<20))
	_, err = decodeItems[map[string]any](wire)
	require.ErrorIs(t, err, ErrWire)
	require.ErrorContains(t, err, "interface")
	_, err = decodeItems[plain](wire)
	require.ErrorIs(t, err, ErrWire)
}

// isExtension says whether a byte may be the tag of an extension.
func isExtension(c byte) bool { return c >= 0xc7 && c <= 0xc9 || c >= 0xd4 && c <= 0xd8 }
