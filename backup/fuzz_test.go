package backup

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// fuzzRecord feeds decode with data as it is and with data as the fields of a record whose checksum is right, since
// hardly any input would get past the checksum otherwise.
func fuzzRecord(f *testing.F, kinds []byte, seed []byte, decode func(t *testing.T, v []byte)) {
	f.Add(seed)
	f.Add(seed[recordHead : len(seed)-recordTail])
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, data []byte) {
		decode(t, data)
		for _, kind := range kinds {
			decode(t, sealRecord(append(startRecord(nil, kind), data...), 0))
		}
	})
}

var fuzzStep = step{
	epoch: 3, closing: 9, inputs: []Input{at(1, 2, 3), at(4, 5, 1<<63)}, outputs: []uint64{7, 8}, source: []byte("src"),
}

func FuzzManifest(f *testing.F) {
	seed := manifest{generation: 5, chunks: 2, bytes: 10, sum: 1 << 31, previous: 4, previousDeltas: 99, step: fuzzStep}
	fuzzRecord(f, []byte{kindManifest}, appendManifest(nil, &seed), func(t *testing.T, v []byte) {
		var m, again manifest
		if decodeManifest(v, 5, &m) == "" {
			require.Empty(t, decodeManifest(appendManifest(nil, &m), 5, &again))
			require.Equal(t, m, again)
		}
	})
}

func FuzzDelta(f *testing.F) {
	seed := delta{generation: 5, n: 6, first: 4, final: true, step: fuzzStep, data: []byte("elements")}
	fuzzRecord(f, []byte{kindDelta, kindPiece}, appendDelta(nil, &seed), func(t *testing.T, v []byte) {
		var d, again delta
		if decodeDelta(v, 5, 6, &d) == "" {
			require.Empty(t, decodeDelta(appendDelta(nil, &d), 5, 6, &again))
			require.Equal(t, d, again)
		}
	})
}

func FuzzMark(f *testing.F) {
	seed := mark{epoch: 3, generation: 5, deltas: 6, inputs: []Input{at(1, 2, 3), at(4, 5, 1<<63)}}
	fuzzRecord(f, []byte{kindMark}, appendMark(nil, &seed), func(t *testing.T, v []byte) {
		if m, why := decodeMark(v); why == "" {
			again, why := decodeMark(appendMark(nil, &m))
			require.Empty(t, why)
			require.Equal(t, m, again)
		}
	})
}

func FuzzChunk(f *testing.F) {
	fuzzRecord(f, []byte{kindChunk}, appendChunk(nil, 5, 6, []byte("elements")), func(t *testing.T, v []byte) {
		if data, why := decodeChunk(v, 5, 6); why == "" {
			again, why := decodeChunk(appendChunk(nil, 5, 6, data), 5, 6)
			require.Empty(t, why)
			require.Equal(t, data, again)
		}
	})
}

func FuzzResult(f *testing.F) {
	fuzzRecord(f, []byte{kindResult}, appendResult(nil, 5, 6, []byte("rows")), func(t *testing.T, v []byte) {
		if data, why := decodeResult(v, 5, 6); why == "" {
			again, why := decodeResult(appendResult(nil, 5, 6, data), 5, 6)
			require.Empty(t, why)
			require.Equal(t, data, again)
		}
	})
}

func FuzzLogEntry(f *testing.F) {
	seed := LogEntry{Channel: 1, Epoch: 2, First: 3, Count: 4, Kind: 5, Items: []byte("items")}
	fuzzRecord(f, []byte{kindLog}, appendLogEntry(nil, 6, &seed), func(t *testing.T, v []byte) {
		var e, again LogEntry
		if decodeLogEntry(v, 6, &e) == "" {
			require.Empty(t, decodeLogEntry(appendLogEntry(nil, 6, &e), 6, &again))
			require.Equal(t, e, again)
			require.False(t, e.end().Less(Position{e.Epoch, e.First}))
		}
	})
}

func FuzzNumbers(f *testing.F) {
	fuzzRecord(f, []byte{kindWorker}, appendNumbers(nil, kindWorker, 1<<63, 2), func(t *testing.T, v []byte) {
		var a, b, c, d uint64
		if decodeNumbers(v, kindWorker, &a, &b) == "" {
			require.Empty(t, decodeNumbers(appendNumbers(nil, kindWorker, a, b), kindWorker, &c, &d))
			require.Equal(t, []uint64{a, b}, []uint64{c, d})
		}
	})
}

// FuzzLoad puts an arbitrary record among those of a partition: Load must cope, and the worker must be able to go on.
func FuzzLoad(f *testing.F) {
	good := appendDelta(nil, &delta{generation: 1, n: 1, first: 1, final: true, step: fuzzStep})
	f.Add([]byte{kindDelta, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1}, good)
	f.Add([]byte{kindManifest, 0, 0, 0, 0, 0, 0, 0, 2}, appendManifest(nil, &manifest{generation: 2}))
	f.Add([]byte{kindManifest, 255, 255, 255, 255, 255, 255, 255, 255}, []byte{})
	f.Add([]byte{kindLog, 255, 255, 255, 255, 255, 255, 255, 255}, []byte{1})
	f.Add([]byte{kindLog, 1}, []byte{})
	f.Add([]byte{kindChunk, 0}, []byte("x"))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if len(key) == 0 || len(key) > 100 || len(value) > 1000 {
			t.Skip()
		}
		s := NewMemory()
		p, _ := load(t, s, 1)
		require.NoError(t, commitWait(p, whole("base", 1)))
		require.NoError(t, commitWait(p, part("delta", 2)))
		put(t, s, slices.Concat(p.prefix, key), value)
		p, r := load(t, s, 2)
		for err := error(nil); err == nil; {
			_, err = r.Chunks()
		}
		require.NoError(t, commitWait(p, whole("next", 3)))
		require.NoError(t, commitWait(p, part("last", 4)))
		require.NoError(t, appendWait(p, entry(1, 1, 1, 1)))
		p, r = load(t, s, 3)
		require.Equal(t, []string{"[next]", "last"}, elements(t, r))
		require.Contains(t, logged(t, p), "1/1:1+1 2 i1")
	})
}
