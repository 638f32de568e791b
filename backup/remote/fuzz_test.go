package remote

import (
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
)

// fuzzFrame feeds decode with data as it is and as the body of a message whose checksum is right, since hardly any input
// would get past that otherwise.
func fuzzFrame(f *testing.F, kinds []byte, seed []byte, decode func(t *testing.T, kind byte, r reader)) {
	f.Add(seed)
	f.Add(seed[frameHead:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		if kind, r, err := openFrame(data); err == nil {
			decode(t, kind, r)
		}
		for _, k := range kinds {
			kind, r, err := openFrame(seal(append(startFrame(nil, k), data...)))
			require.NoError(t, err)
			require.Equal(t, k, kind)
			decode(t, kind, r)
		}
	})
}

// body is a reader of what an encoder has made.
func body(t *testing.T, frame []byte) reader {
	_, r, err := openFrame(frame)
	require.NoError(t, err)
	return r
}

func FuzzApply(f *testing.F) {
	seed := apply{session: ident{1}, boot: 1, round: 2, base: 3, sure: 2, seq: 4, offset: 5, total: 10, piece: []byte("piece")}
	fuzzFrame(f, []byte{kindApply}, appendApply(nil, &seed), func(t *testing.T, _ byte, r reader) {
		if a, err := decodeApply(r); err == nil {
			again, err := decodeApply(body(t, appendApply(nil, &a)))
			require.NoError(t, err)
			require.Equal(t, a, again)
			require.LessOrEqual(t, a.offset+len(a.piece), a.total)
		}
	})
}

func FuzzProbe(f *testing.F) {
	seed := probe{session: ident{1}, boot: 1, round: 2, base: 3, sure: 2, sent: 4}
	fuzzFrame(f, []byte{kindProbe}, appendProbe(nil, &seed), func(t *testing.T, _ byte, r reader) {
		if p, err := decodeProbe(r); err == nil {
			again, err := decodeProbe(body(t, appendProbe(nil, &p)))
			require.NoError(t, err)
			require.Equal(t, p, again)
		}
	})
}

func FuzzStatus(f *testing.F) {
	seed := status{store: ident{1}, session: ident{2}, boot: 1, flags: flagGoBack, round: 3, next: 4, outcomes: []outcome{
		{5, result{}}, {6, result{codeFenced, "fenced"}},
	}}
	fuzzFrame(f, []byte{kindStatus}, appendStatus(nil, &seed), func(t *testing.T, _ byte, r reader) {
		if s, err := decodeStatus(r); err == nil {
			again, err := decodeStatus(body(t, appendStatus(nil, &s)))
			require.NoError(t, err)
			require.Equal(t, s, again)
		}
	})
}

func FuzzCall(f *testing.F) {
	f.Add(appendCall(nil, kindFence, &call{id: 1, owner: "o", epoch: 2})[frameHead:])
	f.Add(appendCall(nil, kindScan, &call{id: 1, bytes: []byte("prefix")})[frameHead:])
	seed := appendCall(nil, kindTake, &call{id: 1, upTo: 2, again: true})
	fuzzFrame(f, []byte{kindHello, kindFence, kindScan, kindTake}, seed, func(t *testing.T, kind byte, r reader) {
		if c, err := decodeCall(kind, r); err == nil {
			again, err := decodeCall(kind, body(t, appendCall(nil, kind, &c)))
			require.NoError(t, err)
			require.Equal(t, c, again)
		}
	})
}

func FuzzAnswers(f *testing.F) {
	f.Add(appendWelcome(nil, &welcome{id: 1, boot: 2, store: ident{3}, session: ident{4}})[frameHead:])
	f.Add(appendAnswer(nil, kindFenced, &answer{1, result{codeFenced, "fenced"}})[frameHead:])
	seed := appendChunk(nil, &chunk{id: 1, index: 2, last: true, result: result{codeDamaged, "damaged"}, data: []byte("data")})
	fuzzFrame(f, []byte{kindWelcome, kindFenced, kindChunk}, seed, func(t *testing.T, kind byte, r reader) {
		switch kind {
		case kindWelcome:
			if w, err := decodeWelcome(r); err == nil {
				again, err := decodeWelcome(body(t, appendWelcome(nil, &w)))
				require.NoError(t, err)
				require.Equal(t, w, again)
			}
		case kindFenced:
			if a, err := decodeAnswer(r); err == nil {
				again, err := decodeAnswer(body(t, appendAnswer(nil, kind, &a)))
				require.NoError(t, err)
				require.Equal(t, a, again)
			}
		case kindChunk:
			if c, err := decodeChunk(r); err == nil {
				again, err := decodeChunk(body(t, appendChunk(nil, &c)))
				require.NoError(t, err)
				require.Equal(t, c, again)
			}
		}
	})
}

func FuzzBatch(f *testing.F) {
	b := put("o", 1, "k", "v")
	b.Deletes = [][]byte{[]byte("gone"), []byte("too")}
	f.Add(appendBatch(nil, b))
	f.Add([]byte{1, 'o', 1, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, wire []byte) {
		b, err := decodeBatch(wire)
		if err != nil {
			return
		}
		again, err := decodeBatch(appendBatch(nil, b))
		require.NoError(t, err)
		require.Equal(t, b, again)
		if backup.CheckBatch(b) == nil {
			require.LessOrEqual(t, len(appendBatch(nil, b)), maxBatchWire)
		}
	})
}

// FuzzEntries cuts a stream of entries anywhere: what comes out is the same as from the whole.
func FuzzEntries(f *testing.F) {
	f.Add([]byte("\x01\x02kvv\x01\x00l"), uint16(3))
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, uint16(1))
	f.Fuzz(func(t *testing.T, stream []byte, cut uint16) {
		read := func(pieces ...[]byte) (got []string, err error) {
			e := entryReader{fn: func(k, v []byte) error { got = append(got, string(k), string(v)); return nil }}
			for _, p := range pieces {
				if err := e.read(p); err != nil {
					return got, err
				}
			}
			return got, e.end()
		}
		at := int(cut) % (len(stream) + 1)
		whole, err := read(stream)
		parts, errParts := read(stream[:at], stream[at:])
		require.Equal(t, whole, parts)
		require.Equal(t, err == nil, errParts == nil)
	})
}

// FuzzServer sends a message to a server, as it is and with the right checksum, which must not mind, and a client then
// still gets what it wants.
func FuzzServer(f *testing.F) {
	f.Add(byte(kindApply), appendApply(nil, &apply{base: 1, seq: 1, total: 3, piece: []byte("abc")})[frameHead:])
	f.Add(byte(kindBye), make([]byte, 16))
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		if kind == kindScan || kind == kindFence { // these start goroutines
			t.Skip()
		}
		s := &Server{
			store: backup.NewMemory().(backup.Noting), stop: make(chan struct{}), sessions: map[ident]*session{ident{}: {reply: "r"}},
			o:    ServerOptions{MaxBytes: 1 << 20, Logger: slog.New(slog.DiscardHandler)},
			link: link{publish: func(_, _ string, _ []byte) error { return nil }},
		}
		s.receive(&nats.Msg{Reply: "r", Data: data})
		s.receive(&nats.Msg{Reply: "r", Data: seal(append(startFrame(nil, kind), data...))})
		require.GreaterOrEqual(t, s.bytes, 0)
		s.onHello(&call{id: 1}, "x")
		for id, ss := range s.sessions {
			if ss.reply == "x" {
				a := apply{session: id, base: 1, seq: 1, piece: appendBatch(nil, put("o", 1<<62, "fuzz", "v"))}
				a.total = len(a.piece)
				s.onApply(&a, "x")
			}
		}
		require.Contains(t, contents(t, s.store, "fuzz"), "fuzz=v")
	})
}
