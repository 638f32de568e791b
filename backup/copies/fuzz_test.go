package copies

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzProgress(f *testing.F) {
	for _, p := range []progress{
		{known: true, point: point{3, 8}},
		{known: true, torn: true},
		{known: true, point: point{3, 8}, step: &step{before: point{2, 9}, puts: [][]byte{[]byte("a"), []byte("bc")}, deletes: [][]byte{{0}}}},
		{known: true, point: point{3, 8}, step: &step{}},
	} {
		b := appendProgress(nil, &p)
		require.Equal(f, p, decodeProgress(b))
		f.Add(b)
		f.Add(b[:len(b)-4])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// Hardly any input would get past the checksum.
		for _, b := range [][]byte{b, binary.BigEndian.AppendUint32(b[:len(b):len(b)], crc32.Checksum(b, castagnoli))} {
			if p := decodeProgress(b); p.known {
				require.Equal(t, p, decodeProgress(appendProgress(nil, &p)))
			} else {
				require.Equal(t, progress{}, p)
			}
		}
	})
}
