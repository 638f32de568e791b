package job

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/controller"
)

// TestSweep: only what a dead process has left is removed.
func TestSweep(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no locks that end with the process")
	}
	parent := t.TempDir()
	t.Setenv("TMPDIR", parent)
	log := slog.New(slog.DiscardHandler)
	live, err := newTempDir(log)
	require.NoError(t, err)
	require.Equal(t, parent, filepath.Dir(live.path))
	require.NoError(t, os.MkdirAll(live.backups(), 0o700))

	dead, err := newTempDir(log)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(dead.backups(), "deep"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dead.backups(), "deep", "file"), []byte("x"), 0o600))
	require.NoError(t, dead.lock.Close(), "which is what its death does")

	unlocked := filepath.Join(parent, tempPrefix+"other") // by somebody else, or just being made
	require.NoError(t, os.Mkdir(unlocked, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(unlocked, tempOwner+".new"), nil, 0o600))
	another := filepath.Join(parent, "another") // of another name
	require.NoError(t, os.Mkdir(another, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(another, tempOwner), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(parent, tempPrefix+"file"), nil, 0o600))
	require.NoError(t, os.Symlink(another, filepath.Join(parent, tempPrefix+"link")))

	var told bytes.Buffer
	sweep(parent, slog.New(slog.NewTextHandler(&told, nil)))
	require.NoDirExists(t, dead.path)
	require.Contains(t, told.String(), dead.path)
	require.DirExists(t, live.backups())
	require.DirExists(t, unlocked)
	require.FileExists(t, filepath.Join(another, tempOwner))
	require.FileExists(t, filepath.Join(parent, tempPrefix+"file"))
	require.FileExists(t, filepath.Join(parent, tempPrefix+"link", tempOwner))
	require.Nil(t, leftover(live.path))

	require.NoError(t, live.remove())
	require.NoDirExists(t, live.path)
	sweep(filepath.Join(parent, "not-there"), log)
}

// TestTakenOverMeanwhile: a directory that another process removes before its lock was had is not removed again, since
// there may be another of its name by then.
func TestTakenOverMeanwhile(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	d, err := newTempDir(slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	owner := filepath.Join(d.path, tempOwner)
	f, err := os.OpenFile(owner, os.O_RDWR, 0)
	require.NoError(t, err)
	require.True(t, isStill(owner, f))
	require.NoError(t, d.remove())
	require.False(t, isStill(owner, f))
	require.NoError(t, os.Mkdir(d.path, 0o700))
	require.NoError(t, os.WriteFile(owner, nil, 0o600))
	require.False(t, isStill(owner, f))
	require.NoError(t, f.Close())
}

// TestTemporaryBackupsOfARun are those of a process that lives, while the job runs, and gone at its end.
func TestTemporaryBackupsOfARun(t *testing.T) {
	parent := t.TempDir()
	t.Setenv("TMPDIR", parent)
	h := injected(t, generated(20_000), "sketch/0@5000")
	seen := false
	h.OnEvent = func(controller.Event) {
		found, err := filepath.Glob(filepath.Join(parent, tempPrefix+"*"))
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Nil(t, leftover(found[0]))
		seen = true
	}
	_, err := h.Run(t.Context())
	require.NoError(t, err)
	require.True(t, seen)
	left, err := os.ReadDir(parent)
	require.NoError(t, err)
	require.Empty(t, left)

	t.Setenv("TMPDIR", filepath.Join(parent, "none"))
	_, err = h.Run(t.Context())
	require.ErrorContains(t, err, "make temporary directory for backups")
}
