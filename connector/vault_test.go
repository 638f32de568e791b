package connector

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/stream"
)

// shelf is a vault of one sink in memory.
type shelf struct {
	parts map[int][][]byte
	err   error
	read  bool // Read gives what is there without its last byte
}

func (s *shelf) Open(stream.Placement) error { return s.err }

func (s *shelf) Save(p stream.Placement, n uint64, chunk []byte) error {
	if len(chunk) > MaxChunk || n != uint64(len(s.parts[p.Partition])) {
		return errors.New("a chunk that does not fit")
	}
	if s.parts == nil {
		s.parts = map[int][][]byte{}
	}
	s.parts[p.Partition] = append(s.parts[p.Partition], bytes.Clone(chunk))
	return s.err
}

func (s *shelf) Drop(p stream.Placement, n uint64) error {
	if have := s.parts[p.Partition]; uint64(len(have)) > n {
		s.parts[p.Partition] = have[:n]
	}
	return s.err
}

func (s *shelf) Read(_ string, take func(part int, chunk []byte) error) error {
	for part := range 4 {
		for i, chunk := range s.parts[part] {
			if s.read && i == len(s.parts[part])-1 {
				chunk = chunk[:len(chunk)-1]
			}
			if err := take(part, chunk); err != nil {
				return err
			}
		}
	}
	return s.err
}

func opened[T any](t require.TestingT, c *Collector[T]) *vaultSink[T] {
	sink, err := Collect(c)(0, 1)
	require.NoError(t, err)
	s := sink.(*vaultSink[T])
	require.NoError(t, s.Open(context.Background(), stream.Placement{Operator: "out", Partitions: 1, Epoch: 1}))
	return s
}

// TestVaultSinkProperties runs incarnations of a sink that write, flush, commit and die at random: what is recalled is what
// was written before the commit that the last one began with, and what that one wrote.
func TestVaultSinkProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		v := &shelf{}
		var c, found Collector[string]
		c.Keep(v)
		var committed, written []string
		var state []byte
		s := opened(rt, &c)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0: // a flush for a commit that is never made
				require.NoError(rt, s.Flush())
			case 1:
				require.NoError(rt, s.Flush())
				w := stream.NewStateWriter(nil, true)
				require.NoError(rt, s.BackupState(w))
				state, committed = bytes.Clone(w.Bytes()), written
			case 2:
				s, written = opened(rt, &c), committed[:len(committed):len(committed)]
				if state != nil {
					require.NoError(rt, s.RestoreState(stream.NewStateReader(once(state))))
				}
			default:
				size := rapid.SampledFrom([]int{1, 1000, MaxChunk, 3 * MaxChunk}).Draw(rt, "size")
				items := []string{strings.Repeat("x", size), "y"}
				require.NoError(rt, s.Write(items))
				written = append(written, items...)
			}
		}
		require.NoError(rt, s.Close())
		require.NoError(rt, found.Recall(v, "out"))
		got := found.Items()
		require.Len(rt, got, len(written))
		for i := range got {
			require.True(rt, got[i] == written[i], "item %d", i)
		}
	})
}

func once(b []byte) func() ([]byte, error) {
	return func() ([]byte, error) {
		if b == nil {
			return nil, io.EOF
		}
		all := b
		b = nil
		return all, nil
	}
}

func TestVaultFailures(t *testing.T) {
	broken := errors.New("broken")
	v := &shelf{}
	var c Collector[pair]
	c.Keep(v)
	s := opened(t, &c)
	require.ErrorContains(t, s.Write([]pair{{"a", 1}}), "would be lost", "its fields are not exported")

	var n Collector[int]
	n.Keep(v)
	numbers := opened(t, &n)
	require.NoError(t, numbers.Write(nil))
	require.NoError(t, numbers.Write([]int{1, 2, 3}))
	require.NoError(t, numbers.Flush())
	v.read = true
	require.ErrorIs(t, n.Recall(v, "out"), ErrVault)
	v.read = false
	var text Collector[string]
	require.ErrorIs(t, text.Recall(v, "out"), stream.ErrWire, "another type")
	v.err = broken
	require.ErrorIs(t, n.Recall(v, "out"), broken)
	require.NoError(t, numbers.Write([]int{4}))
	require.ErrorIs(t, numbers.Flush(), broken)
	require.ErrorIs(t, numbers.RestoreState(stream.NewStateReader(func() ([]byte, error) { return nil, broken })), broken)
	require.Error(t, numbers.RestoreState(stream.NewStateReader(once([]byte{1, 2, 2, 3}))))
}
