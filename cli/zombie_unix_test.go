//go:build unix

package cli_test

import (
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cli"
)

// TestZombieRun is a run that is stopped, replaced by another run of the same job, and wakes up again.
func TestZombieRun(t *testing.T) {
	server := startBackupServer(t)
	zombie := exec.Command("afstream", strings.Fields("run heavy-hitter --items 1e15 --theta 1000 --fail sketch/0@100000 --backup-server "+server.url)...)
	errs, err := zombie.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, zombie.Start())
	readTo(t, errs, "recovered")
	require.NoError(t, zombie.Process.Signal(syscall.SIGSTOP))
	heavyHitters(t, "--items", "200k", "--fail", "sketch/0@50%", "--verify", "--backup-server", server.url)
	require.NoError(t, zombie.Process.Signal(syscall.SIGCONT))
	rest, err := io.ReadAll(errs)
	require.NoError(t, err)
	var exit *exec.ExitError
	require.ErrorAs(t, zombie.Wait(), &exit)
	require.Equal(t, cli.ExitFailed, exit.ExitCode())
	require.Contains(t, string(rest), "a newer epoch owns this state")
}
