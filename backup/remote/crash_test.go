package remote

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
)

// Variables that make the test binary a server to be killed; see TestMain.
const (
	crashURLVariable = "BACKUP_REMOTE_CRASH_URL"
	crashDirVariable = "BACKUP_REMOTE_CRASH_DIR"
)

func crashServer() error {
	nc, err := nats.Connect(os.Getenv(crashURLVariable))
	if err != nil {
		return err
	}
	store, err := backup.OpenBadger(os.Getenv(crashDirVariable), backup.BadgerOptions{})
	if err != nil {
		return err
	}
	if _, err := Serve(nc, store, ServerOptions{Cluster: "test"}); err != nil {
		return err
	}
	fmt.Println("serving")
	select {}
}

// startProcess starts such a server and waits until it serves.
func startProcess(t *testing.T, url, dir string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashURLVariable+"="+url, crashDirVariable+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "serving\n", line)
	return cmd
}

// load keeps a window of batches under way: batch n puts key n and replaces the only key that begins with m. It calls at
// with the number of each batch that is durable.
func load(t *testing.T, c *Client, batches int, at func(n int)) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	free := make(chan struct{}, 50)
	for n := 1; n <= batches; n++ {
		free <- struct{}{}
		wg.Add(1)
		b := put("o", 1, fmt.Sprintf("k%06d", n), strings.Repeat("v", n%3000))
		b.Puts = append(b.Puts, backup.Entry{Key: fmt.Appendf(nil, "m%d", n)})
		b.Deletes = [][]byte{fmt.Appendf(nil, "m%d", n-1)}
		c.Apply(b, func(err error) {
			defer wg.Done()
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			at(n)
			mu.Unlock()
			<-free
		})
	}
	wg.Wait()
	keys := 0
	require.NoError(t, c.Scan([]byte("k"), func(key, value []byte) error {
		keys++
		if want := fmt.Sprintf("k%06d", keys); want != string(key) || len(value) != keys%3000 {
			return fmt.Errorf("%d bytes at %q, want %q", len(value), key, want)
		}
		return nil
	}))
	require.Equal(t, batches, keys)
	require.Equal(t, []string{fmt.Sprintf("m%d=", batches)}, contents(t, c, "m"), "a batch was applied twice, or out of order")
}

// A server is killed again and again under load: the client notices nothing, and all is there once.
func TestKilledServer(t *testing.T) {
	t.Parallel() // it waits more than it works
	url, dir := startNATS(t, nil), t.TempDir()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	server := startProcess(t, url, dir)
	defer func() {
		require.NoError(t, server.Process.Kill())
		require.Error(t, server.Wait())
	}()
	c := open(t, connect(t, url))
	kill := make(chan struct{})
	var killer sync.WaitGroup
	killer.Go(func() {
		for range kill {
			_ = server.Process.Kill()
			_ = server.Wait()
			server = startProcess(t, url, dir)
		}
	})
	next := 1 + rng.IntN(600)
	load(t, c, 4000, func(n int) {
		if n == next && n < 3500 { // once in a while, at any point
			next += 50 + rng.IntN(1200)
			kill <- struct{}{}
		}
	})
	close(kill)
	killer.Wait()
}

// proxy passes bytes on and cuts each connection after a random number of them.
type proxy struct {
	t        *testing.T
	listener net.Listener
	to       string
	rng      *rand.Rand
	conns    sync.WaitGroup
}

func startProxy(t *testing.T, to string, seed uint64) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{t: t, listener: l, to: strings.TrimPrefix(to, "nats://"), rng: rand.New(rand.NewPCG(seed, 2))}
	p.conns.Go(p.accept)
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		p.conns.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		a, err := p.listener.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = a.Close()
			continue
		}
		there, back := int64(20_000+p.rng.IntN(600_000)), int64(400_000+p.rng.IntN(1_000_000)) // a chunk must get through
		end := func() { _, _ = a.Close(), b.Close() }
		p.conns.Go(func() { defer end(); _, _ = io.CopyN(b, a, there) })
		p.conns.Go(func() { defer end(); _, _ = io.CopyN(a, b, back) })
	}
}

// The connection is cut again and again, within messages.
func TestCutConnection(t *testing.T) {
	t.Parallel() // it waits more than it works
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	url := startNATS(t, nil)
	p := startProxy(t, url, seed)
	serve(t, connect(t, url), openBadger(t, t.TempDir()))
	nc := connect(t, p.url())
	c := open(t, nc)
	load(t, c, 3000, func(int) {})
	require.Positive(t, nc.Stats().Reconnects)
}
