package backup

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// interruptedStore loses the snapshot of some scans after some of their keys.
type interruptedStore struct {
	Store
	scans, every int
}

func (s *interruptedStore) Scan(prefix []byte, fn func(key, value []byte) error) error {
	s.scans++
	if s.every == 0 || s.scans%s.every != 0 {
		return s.Store.Scan(prefix, fn)
	}
	n := 0
	err := s.Store.Scan(prefix, func(key, value []byte) error {
		if n++; n > 2 {
			return ErrInterrupted
		}
		return fn(key, value)
	})
	if err == nil {
		err = ErrInterrupted
	}
	return err
}

// A worker that recovers while its store is started again gets the same state.
func TestLoadThroughInterruptions(t *testing.T) {
	s := &interruptedStore{Store: NewMemory()}
	p, _ := load(t, s, 1)
	require.NoError(t, commitWait(p, whole("base", 1)))
	for _, e := range []string{"a", "b", "c", "d"} {
		require.NoError(t, commitWait(p, part(e, 2)))
	}
	s.every, s.scans = 7, 5 // the second one is interrupted
	p, r := load(t, s, 2)
	require.Greater(t, s.scans, 7)
	s.every, s.scans = 2, 1 // the next one is interrupted
	require.Equal(t, []string{"[base]", "a", "b", "c", "d"}, elements(t, r))
	require.Empty(t, r.Damaged)
	s.every = 1
	_, err := p.Load()
	require.ErrorIs(t, err, ErrInterrupted, "not for ever")
	s.every = 0
	_, r = load(t, s, 3)
	require.Equal(t, []string{"[base]", "a", "b", "c", "d"}, elements(t, r))
	_, err = r.Chunks()
	require.Equal(t, io.EOF, err)
}
