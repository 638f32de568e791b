//go:build unix

package connector

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/stream"
)

// TestNamedPipe: a pipe is not waited for when it is opened, nor read twice.
func TestNamedPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe.txt")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	s := open(t, KeyedOptions{Path: path})
	_, replays := s.(stream.Replayable)
	require.False(t, replays)
	done := make(chan error)
	go func() { // waits for the reader as the reader waits for it
		w, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_, err = io.WriteString(w, "a 2\nb 3\n")
			err = errors.Join(err, w.Close())
		}
		done <- err
	}()
	items, err := drain(s, 10)
	require.NoError(t, err)
	require.NoError(t, <-done)
	require.Equal(t, []pair{{"a", 2}, {"b", 3}}, pairs(items))

	s = open(t, KeyedOptions{Path: path})
	go func() {
		_, err := s.Read(make([]Keyed, 1))
		done <- err
	}()
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-done, ErrClosed, "though nobody writes")
	w, err := os.OpenFile(path, os.O_RDWR, 0) // lets the pump go, if it got as far as opening
	require.NoError(t, err)
	require.NoError(t, goleak.Find())
	require.NoError(t, w.Close())
}
