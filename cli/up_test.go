package cli_test

import (
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cli"
	"github.com/afstream/afstream/internal/thorough"
)

// begin starts a process that says a word when it is ready, and returns the line. It is killed at the end if it still runs.
func begin(t *testing.T, mark string, args ...string) (*exec.Cmd, string) {
	t.Helper()
	c := exec.Command("afstream", args...)
	errs, err := c.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	line := readTo(t, errs, mark).Text()
	go func() { _, _ = io.Copy(io.Discard, errs) }() // ends with the process
	return c, line
}

// until asks again and again, but leaves most of the machine to those it waits for, which takes seconds; so five minutes mean
// never.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !holds(); time.Sleep(50 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "waited for five minutes")
	}
}

// TestUp is the tour: a cluster in one process, a node that joins, a job, the node killed, the result, verified.
func TestUp(t *testing.T) {
	thorough.Only(t)
	t.Parallel() // it waits more than it works
	dir := t.TempDir()
	_, line := begin(t, "is up at", "up", "--dir", dir, "--listen", "127.0.0.1:0", "--name", "one", "--slots", "3")
	url := strings.TrimSuffix(line[strings.Index(line, "nats://"):strings.Index(line, ", with node")], ",")
	two, _ := begin(t, "takes 4 workers", "node", "--nats", url, "--name", "two", "--slots", "4")
	ask := func(command string, args ...string) string {
		t.Helper()
		words := append(strings.Fields(command), "--nats", url)
		code, stdout, stderr := program(t.Context(), append(words, args...)...)
		require.Equal(t, cli.ExitOK, code, stderr)
		return stdout
	}
	until(t, func() bool { return strings.Contains(ask("node list"), "two") })
	id := strings.TrimSpace(ask("job submit heavy-hitter", "--items", "3M", "--theta", "1000"))
	inspect := func() (state string, two int) {
		var d struct {
			Summary struct{ State string }
			Workers []struct{ Node, Phase string }
		}
		require.NoError(t, json.Unmarshal([]byte(ask("job inspect", "-o", "json", id)), &d))
		for _, w := range d.Workers {
			if w.Node == "two" && w.Phase == "running" {
				two++
			}
		}
		return d.Summary.State, two
	}
	state, hosted := "", 0
	until(t, func() bool {
		state, hosted = inspect()
		return state == "finished" || hosted > 0
	})
	require.NoError(t, two.Process.Kill())
	third, _ := begin(t, "takes 4 workers", "node", "--nats", url, "--name", "three", "--slots", "4")
	until(t, func() bool {
		state, _ = inspect()
		require.NotEqual(t, "failed", state)
		return state == "finished"
	})
	require.Contains(t, ask("job result", "--verify", id), "all bounds kept")
	require.Contains(t, ask("job logs", id), "worker runs")
	ask("job delete", id)
	require.Equal(t, "no jobs\n", ask("job list"))
	require.NoError(t, third.Process.Kill())
}
