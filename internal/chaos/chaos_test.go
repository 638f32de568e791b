//go:build e2e && unix

package chaos

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/backup/remote"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/cluster/clustertest"
	"github.com/afstream/afstream/cluster/overnats"
)

var tools = NewTools()

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

func connect(t *testing.T, urls string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func shell(script string) Command {
	return Command{Name: "sh", Path: "sh", Args: []string{"-c", script}}
}

// TestProcess: what it says is told per start, signals reach all of its group, and it ends with the test.
func TestProcess(t *testing.T) {
	var pid int
	t.Run("", func(t *testing.T) {
		p := Start(t, shell(`trap 'echo bye; exit 3' INT; echo one; echo two >&2; while :; do sleep 0.05; done`))
		p.Await("one")
		p.Await("two")
		require.Equal(t, 3, p.Interrupt())
		p.Await("bye")
		p.Start()
		p.Await("two")
		require.NotContains(t, p.Output(), "bye")
		p.Kill()
		require.Equal(t, -1, p.Wait())
		require.True(t, p.Ended())

		// It must not fork meanwhile: a shell whose child was stopped before it ran anything is not stopped but waits.
		p = Start(t, shell(`echo one; exec sleep 1000`))
		p.Await("one")
		p.Stop()
		require.Eventually(t, func() bool { return state(t, p.PID()) == "T" }, patience, time.Millisecond)
		p.Continue()
		require.Eventually(t, func() bool { return state(t, p.PID()) != "T" }, patience, time.Millisecond)
		pid = p.PID()
	})
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
}

// state is the letter of what a process does, T if it was stopped.
func state(t *testing.T, pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil {
		_, after, _ := strings.Cut(string(stat), ") ")
		return after[:1]
	}
	out, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))[:1]
}

// TestProxy: what hangs arrives later, in order; what is slow takes its time; what is cut is gone.
func TestProxy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() { // an echo; ends with l
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	defer all.Wait()
	defer l.Close()
	p := NewProxy(t, l.Addr().String())
	c, err := net.Dial("tcp", p.Address())
	require.NoError(t, err)
	defer c.Close()
	say := func(text string) {
		_, err := c.Write([]byte(text))
		require.NoError(t, err)
	}
	hear := func(within time.Duration) (string, error) {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(within)))
		b := make([]byte, 100)
		n, err := c.Read(b)
		return string(b[:n]), err
	}
	say("a")
	got, err := hear(patience)
	require.NoError(t, err)
	require.Equal(t, "a", got)
	for _, hang := range []func(){p.Hang, p.HangUp, p.HangDown} {
		hang()
		say("b")
		_, err = hear(50 * time.Millisecond)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		p.Heal()
		got, err = hear(patience)
		require.NoError(t, err)
		require.Equal(t, "b", got)
	}
	p.Delay(50 * time.Millisecond)
	began := time.Now()
	say("c")
	got, err = hear(patience)
	require.NoError(t, err)
	require.Equal(t, "c", got)
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)

	p.Cut()
	_, err = hear(patience)
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	c, err = net.Dial("tcp", p.Address())
	if err == nil {
		_, err = hear(patience)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		c.Close()
	}
	require.Error(t, err)
	p.Heal()
	p.Delay(0)
	c, err = net.Dial("tcp", p.Address())
	require.NoError(t, err)
	say("d")
	got, err = hear(patience)
	require.NoError(t, err)
	require.Equal(t, "d", got)
	p.Drop()
	_, err = hear(patience)
	require.ErrorIs(t, err, io.EOF)
	c.Close()
}

// TestClusterOfThree: with three copies records go on through the death of each server in turn, writes are linearizable, and a watch
// ends up with what there is.
func TestClusterOfThree(t *testing.T) {
	t.Parallel() // it waits more than it works
	servers := StartNATS(t, tools, 3)
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	open := func() *overnats.Fabric {
		f, err := overnats.Open(ctx, connect(t, URLs(servers)), "test", 3)
		require.NoError(t, err)
		return f
	}
	h := clustertest.NewHistory()
	racing, stopRace := context.WithCancel(ctx)
	defer stopRace()
	var all sync.WaitGroup
	for i := range 4 {
		f := open()
		r := h.Record(f)
		all.Go(func() {
			for n := 0; racing.Err() == nil; n++ {
				clustertest.Compete(racing, r, i+4*n, 4)
				time.Sleep(20 * time.Millisecond) // of other work
			}
		})
	}
	var mu sync.Mutex
	seen := map[string]string{}
	watcher := open()
	all.Go(func() {
		for racing.Err() == nil {
			if err := watcher.Watch(racing, "", func(r cluster.Record) {
				mu.Lock()
				defer mu.Unlock()
				seen[r.Key] = string(r.Value)
			}, func() {}); err != nil {
				t.Log(err)
			}
		}
	})
	last := open()
	for i, s := range servers {
		s.Kill()
		began := time.Now()
		require.Eventually(t, func() bool { // a write that is noticed by the watch
			key, value := fmt.Sprint("alive.", i), time.Now().String()
			ask, stop := context.WithTimeout(ctx, time.Second)
			defer stop()
			got, _ := last.Get(ask, key)
			_, err := uint64(0), error(nil)
			if got.Value == nil {
				_, err = last.Create(ask, key, []byte(value))
			} else {
				_, err = last.Update(ask, key, []byte(value), got.Revision)
			}
			if err != nil {
				return false
			}
			for range 200 {
				mu.Lock()
				ok := seen[key] == value
				mu.Unlock()
				if ok {
					return true
				}
				time.Sleep(10 * time.Millisecond)
			}
			return false
		}, patience, 100*time.Millisecond)
		t.Logf("server %d is dead: the others and the watch go on after %v", i, time.Since(began).Round(time.Millisecond))
		s.Start()
		s.Await("Server is ready")
		caughtUp(ctx, t, servers)
	}
	stopRace()
	all.Wait()
	clustertest.LookAgain(ctx, h.Record(last))
	h.Check(t)
}

// caughtUp waits until all copies are whole again: the next server may die only then.
func caughtUp(ctx context.Context, t *testing.T, servers []*NATS) {
	t.Helper()
	nc := connect(t, URLs(servers))
	defer nc.Close()
	require.Eventually(t, func() bool {
		ask, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		m, err := nc.RequestWithContext(ask, "$JS.API.STREAM.INFO.KV_afstream_test", nil)
		return err == nil && strings.Count(string(m.Data), `"current":true`) == 2 && !strings.Contains(string(m.Data), `"offline":true`)
	}, patience, 200*time.Millisecond)
}

// TestBackupServer: kept from NATS, stopped and killed; its client goes on.
func TestBackupServer(t *testing.T) {
	t.Parallel() // it waits more than it works
	server := StartNATS(t, tools, 1)[0]
	proxy := NewProxy(t, server.Address())
	process := Start(t, Command{Name: "backup server", Path: tools.Afstream(t), Args: []string{"backup", "--dir", t.TempDir(), "--nats", proxy.URL()}})
	process.Await(`backup server "main" of cluster "afstream" serves`)
	hurt(t, server.URL(), map[string][2]func(){
		"hangs":    {proxy.Hang, proxy.Heal},
		"is cut":   {proxy.Cut, proxy.Heal},
		"is slow":  {func() { proxy.Delay(20 * time.Millisecond) }, func() { proxy.Delay(0) }},
		"is still": {process.Stop, process.Continue},
		"is dead": {process.Kill, func() {
			process.Start()
			process.Await("serves")
		}},
	})
	require.Equal(t, 0, process.Interrupt())
}

// TestNamespace: a server in a network of its own, whose cable is unplugged.
func TestNamespace(t *testing.T) {
	t.Parallel() // it waits more than it works
	space := NewNamespace(t)
	server := StartNATSAt(t, tools, space.Host(), 1)[0]
	process := Start(t, Command{
		Name: "backup server", Path: tools.Afstream(t), In: space,
		Args: []string{"backup", "--dir", t.TempDir(), "--nats", server.URL()},
	})
	process.Await("serves")
	hurts := map[string][2]func(){"is unplugged": {space.Cut, space.Heal}}
	if space.Shape(10*time.Millisecond, 0.05) {
		hurts["loses"] = [2]func(){func() { space.Shape(20*time.Millisecond, 0.2) }, func() { space.Shape(0, 0) }}
	}
	hurt(t, server.URL(), hurts)
}

// hurt has a client write before, while, and after the backup server is hurt, and read all in the end.
func hurt(t *testing.T, url string, hurts map[string][2]func()) {
	t.Helper()
	client, err := remote.Open(t.Context(), connect(t, url), remote.ClientOptions{Cluster: "afstream"})
	require.NoError(t, err)
	defer client.Close()
	var want []string
	for name, do := range hurts {
		done := make(chan error, 3)
		write := func(when string) {
			key := name + " " + when
			want = append(want, key)
			client.Apply(&backup.Batch{Owner: "o", Epoch: 1, Puts: []backup.Entry{{Key: []byte(key), Value: []byte("v")}}}, func(err error) { done <- err })
		}
		write("before")
		require.NoError(t, <-done, name)
		do[0]()
		write("while")
		time.Sleep(300 * time.Millisecond) // it may get there now, or not
		do[1]()
		write("after")
		require.NoError(t, <-done, name)
		require.NoError(t, <-done, name)
	}
	var keys []string
	require.NoError(t, client.Scan(nil, func(key, _ []byte) error {
		keys = append(keys, string(key))
		return nil
	}))
	require.ElementsMatch(t, want, keys)
}
