package cli_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cli"
	"github.com/afstream/afstream/internal/thorough"
)

// TestNodeKeepsBackups kills the node that runs a job and keeps its only backups, and starts it again.
func TestNodeKeepsBackups(t *testing.T) {
	thorough.Only(t)
	_, line := begin(t, "is up at", "up", "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--name", "one", "--slots", "2")
	t.Setenv("AFSTREAM_NATS", "nats://"+strings.Split(strings.Split(line, "nats://")[1], ",")[0])
	ask := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := run(t.Context(), args...)
		require.Equal(t, cli.ExitOK, code, stderr)
		return stdout
	}
	node := []string{"node", "--name", "two", "--slots", "4", "--backup-dir", t.TempDir()}
	two, _ := begin(t, `backup server "two"`, node...)
	// Error-free waits for a backup with each item: so the job takes some seconds.
	ask("job", "submit", "heavy-hitter", "--guarantee", "error-free", "--items", "10k", "--id", "hh", "--backup-name", "two")
	reaches := func(state, not string) {
		t.Helper()
		until(t, func() bool {
			about := ask("job", "inspect", "hh")
			if strings.Contains(about, "\n"+state) {
				return true
			}
			require.NotContains(t, about, "\n"+not)
			return false
		})
	}
	reaches("running", "finished")
	require.NoError(t, two.Process.Kill())
	begin(t, `backup server "two"`, node...)
	reaches("finished", "failed")
	require.Contains(t, ask("job", "result", "--verify", "hh"), "all bounds kept")
}
