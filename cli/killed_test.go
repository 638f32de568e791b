package cli_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cli"
)

// TestKilledProcess leaves its backups behind, and the next one removes them.
func TestKilledProcess(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	left := func() []os.DirEntry {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		return entries
	}
	c := exec.Command("afstream", strings.Fields("run heavy-hitter --items 1e15 --fail sketch/0@100000")...)
	errs, err := c.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	readTo(t, errs, "recovered")
	code, _, stderr := run(t.Context(), "run", "heavy-hitter")
	require.Equal(t, cli.ExitOK, code, stderr)
	require.Len(t, left(), 1, "those of a process that lives stay")
	require.NoError(t, c.Process.Kill())
	require.Error(t, c.Wait())
	require.Len(t, left(), 1)
	code, _, stderr = run(t.Context(), "run", "heavy-hitter", "--log-level", "info")
	require.Equal(t, cli.ExitOK, code)
	require.Contains(t, stderr, "removed backups of a killed process")
	require.Empty(t, left())
}
