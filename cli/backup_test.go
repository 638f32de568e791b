package cli_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cli"
	"github.com/afstream/afstream/internal/thorough"
)

// backupServer is a process that runs afstream backup.
type backupServer struct {
	t   *testing.T
	dir string
	url string // of its NATS server, the same after each start
	cmd *exec.Cmd
}

func startBackupServer(t *testing.T) *backupServer {
	s := &backupServer{t: t, dir: t.TempDir()}
	s.start("127.0.0.1:0")
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	})
	return s
}

func (s *backupServer) start(listen string) {
	s.cmd = exec.Command("afstream", "backup", "--dir", s.dir, "--listen", listen)
	errs, err := s.cmd.StderrPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, s.cmd.Start())
	line := readTo(s.t, errs, `backup server "main" of cluster "afstream" serves `+s.dir+" at nats://127.0.0.1:").Text()
	s.url = line[strings.Index(line, "nats://"):]
}

// restart kills the process without notice, and starts it again.
func (s *backupServer) restart() {
	require.NoError(s.t, s.cmd.Process.Kill())
	require.Error(s.t, s.cmd.Wait())
	s.start(strings.TrimPrefix(s.url, "nats://"))
}

// TestBackupServerIsKilled: the job goes on and its bounds hold, through a failure of its own before and after.
func TestBackupServerIsKilled(t *testing.T) {
	thorough.Only(t)
	t.Parallel() // it waits more than it works
	server := startBackupServer(t)
	var out bytes.Buffer
	killed := 0
	errs := &trigger{mark: "recovered  sketch/0", do: func() { server.restart(); killed++ }}
	job := exec.CommandContext(t.Context(), "afstream", strings.Fields("run heavy-hitter --items 500000 --workers 2 --theta 1000 --source-replay=false "+
		"--fail sketch/0@20% --fail sketch/1@60% --verify --backup-server "+server.url)...)
	job.Stdout, job.Stderr = &out, errs
	require.NoError(t, job.Run(), errs.String())
	require.Equal(t, 1, killed)
	require.Contains(t, errs.String(), "recovered  sketch/1")
	require.Contains(t, out.String(), "verdict: all bounds kept")

	require.NoError(t, server.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, server.cmd.Wait(), "an interrupted server has done its work")
}

// TestBackupServerIsThere: one server of a name and a cluster, and a cluster without one.
func TestBackupServerIsThere(t *testing.T) {
	thorough.Only(t)
	t.Parallel() // it waits more than it works
	server := startBackupServer(t)
	code, _, errs := program(t.Context(), "backup", "--dir", t.TempDir(), "--nats", server.url)
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, errs, "another backup server of this name is running")
	code, _, errs = program(t.Context(), "backup", "--dir", server.dir, "--nats", server.url, "--name", "other")
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, errs, "directory is in use")
	code, _, errs = program(t.Context(), "run", "wordcount", "--backup-server", server.url, "--cluster", "other")
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, errs, "is it running? Start it with: afstream backup --cluster other")
}
