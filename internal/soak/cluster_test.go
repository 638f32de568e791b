//go:build e2e && linux

package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/cluster/overnats"
	"github.com/afstream/afstream/internal/chaos"
)

var tools = chaos.NewTools()

func TestMain(m *testing.M) {
	code := m.Run()
	if err := tools.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// process is one of a cluster.
type process struct {
	*chaos.Process
	name, ready string // ready is what it says when it is
}

// start starts it again.
func (p *process) start() {
	p.Start()
	p.Await(p.ready)
}

// testCluster is a NATS server, controllers c0, c1 ..., a backup server and nodes n0, n1 ...
type testCluster struct {
	t           testing.TB
	bin         string
	nats        *chaos.NATS
	store       string // directory of backups
	controllers []*process
	backup      *process
	nodes       []*process
	fabric      *overnats.Fabric
	nc          *nats.Conn
}

// startCluster returns one that ends with the test.
func startCluster(t testing.TB, controllers, nodes int) *testCluster {
	t.Helper()
	c := &testCluster{t: t, bin: tools.Afstream(t), store: t.TempDir(), nats: chaos.StartNATS(t, tools, 1)[0]}
	for i := range controllers {
		c.controllers = append(c.controllers, c.start(fmt.Sprint("c", i), "is ready to lead", "controller"))
	}
	c.backup = c.start("backup", "serves", "backup", "--dir", c.store)
	for i := range nodes {
		c.nodes = append(c.nodes, c.start(fmt.Sprint("n", i), "takes", "node"))
	}
	nc, err := nats.Connect(c.nats.URL(), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	c.nc = nc
	c.fabric, err = overnats.Open(t.Context(), nc, "afstream", 1)
	require.NoError(t, err)
	return c
}

func (c *testCluster) start(name, ready string, args ...string) *process {
	c.t.Helper()
	args = append(args, "--nats", c.nats.URL())
	if args[0] != "backup" {
		args = append(args, "--name", name)
	}
	p := &process{Process: chaos.Start(c.t, chaos.Command{Name: name, Path: c.bin, Args: args}), name: name, ready: ready}
	p.Await(ready)
	return p
}

// run runs a command of afstream that ends, and returns what it prints. Any goroutine may call.
func (c *testCluster) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.bin, args...)
	cmd.Env = append(cmd.Environ(), "AFSTREAM_NATS="+c.nats.URL())
	var said, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &failed
	if err := cmd.Run(); err != nil {
		return said.String(), fmt.Errorf("afstream %s: %w\n%s%s", strings.Join(args, " "), errors.Join(ctx.Err(), err), said.String(), failed.String())
	}
	return said.String(), nil
}

// job returns a job's record.
func (c *testCluster) job(id string) *cluster.Job {
	c.t.Helper()
	r, err := c.fabric.Get(c.t.Context(), cluster.JobKey(id))
	require.NoError(c.t, err)
	j, err := cluster.DecodeJob(r.Value)
	require.NoError(c.t, err)
	return j
}

// failuresOf is how many failures of workers a job's record knows.
func failuresOf(record []byte) (failures uint64, err error) {
	j, err := cluster.DecodeJob(record)
	if err != nil {
		return 0, err
	}
	for i := range j.Workers {
		failures += j.Workers[i].Failures
	}
	return failures, nil
}

// beats keeps the last beat of each node.
type beats struct {
	mu         sync.Mutex
	last       map[string]*cluster.Beat
	goroutines map[string]int
}

// listen hears the nodes of a cluster until the test ends.
func (c *testCluster) listen() *beats {
	b := &beats{last: map[string]*cluster.Beat{}, goroutines: map[string]int{}}
	stop, err := c.fabric.Subscribe(cluster.Subjects{Cluster: "afstream"}.Beat("*"), func(_ string, message []byte) {
		beat, err := cluster.DecodeBeat(message)
		if err != nil {
			return
		}
		var more struct{ Goroutines int }
		_ = json.Unmarshal(message, &more)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.last[beat.Node], b.goroutines[beat.Node] = beat, more.Goroutines
	})
	require.NoError(c.t, err)
	c.t.Cleanup(stop)
	return b
}

// count is how many goroutines a node has; 0 if it does not tell.
func (b *beats) count(node string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.goroutines[node]
}

// running is how many workers of a job run, of the incarnations that its record names.
func (b *beats) running(j *cluster.Job) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range j.Workers {
		w := &j.Workers[i]
		beat := b.last[w.Node]
		if beat == nil || beat.Session != w.Session {
			continue
		}
		for _, s := range beat.Workers {
			if s.Job == j.ID && s.Operator == w.Operator && s.Index == w.Index && s.Epoch == w.Epoch && s.Phase == cluster.Working {
				n++
			}
		}
	}
	return n
}

// taken is what a process has of the machine.
type taken struct{ memory, threads, files int }

// take asks the system. A process that is just being started may have nothing.
func take(pid int) (x taken) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		var kB int
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kB); n == 1 {
			x.memory = kB << 10
		}
		_, _ = fmt.Sscanf(line, "Threads: %d", &x.threads)
	}
	files, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	x.files = len(files)
	return x
}

// onDisk is how many bytes a directory takes there: files may have holes, and go while they are counted.
func onDisk(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			bytes += s.Blocks * 512
		}
		return nil
	})
	return bytes
}

// eventually polls until it is so, and returns how long that took.
func eventually(t testing.TB, what string, within time.Duration, f func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !f() {
		if time.Since(began) > within {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began)
}
