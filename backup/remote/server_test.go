package remote

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/internal/thorough"
)

// eventually waits for what a goroutine of the server is about to do.
func eventually(t *testing.T, what string, is func() bool) {
	require.Eventually(t, is, 10*time.Second, 2*time.Millisecond, what)
}

func (s *Server) held() (bytes, scans, sessions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes, len(s.scans), len(s.sessions)
}

func impatient(p patience) ServerOptions {
	p.sweep = 5 * time.Millisecond
	for _, d := range []*time.Duration{&p.parts, &p.scan, &p.session, &p.fenced} {
		if *d == 0 {
			*d = time.Hour
		}
	}
	return ServerOptions{Cluster: "test", patience: p}
}

// A worker that was replaced while it could not be heard can write nothing more, whatever client it has.
func TestZombieIsFenced(t *testing.T) {
	url := startNATS(t, nil)
	serve(t, connect(t, url), openBadger(t, t.TempDir()))
	old, young := open(t, connect(t, url)), open(t, connect(t, url))
	require.NoError(t, applyWait(old, put("job/a", 1, "k", "1")))
	require.NoError(t, young.Fence("job/a", 2))
	require.Equal(t, []string{"k=1"}, contents(t, young, ""))
	require.ErrorIs(t, applyWait(old, put("job/a", 1, "k", "zombie")), backup.ErrFenced)
	require.NoError(t, applyWait(old, put("job/b", 1, "l", "1")), "its other owners may")
	require.ErrorIs(t, old.Fence("job/a", 1), backup.ErrFenced)
	require.Equal(t, []string{"k=1", "l=1"}, contents(t, young, ""))
}

// A fence that came while the server was down holds for what waited for the server.
func TestFenceHoldsForWhatWaits(t *testing.T) {
	url, store := startNATS(t, nil), backup.NewMemory()
	s := serve(t, connect(t, url), store)
	old := open(t, connect(t, url))
	require.NoError(t, s.Close())
	done := make(chan error, 1)
	old.Apply(put("o", 1, "k", "zombie"), func(err error) { done <- err })
	require.NoError(t, store.Fence("o", 2))
	serve(t, connect(t, url), store)
	require.ErrorIs(t, <-done, backup.ErrFenced)
	require.Empty(t, contents(t, old, ""))
}

// What clients ask for while there is no server is done when there is one again.
func TestRequestsWaitForTheServer(t *testing.T) {
	url, store := startNATS(t, nil), backup.NewMemory()
	s := serve(t, connect(t, url), store)
	c := open(t, connect(t, url))
	require.NoError(t, applyWait(c, put("o", 1, "a", "1")))
	require.NoError(t, s.Close())
	var wg sync.WaitGroup
	for _, ask := range []func() error{
		func() error { return applyWait(c, put("o", 1, "b", "2")) },
		func() error { return c.Fence("p", 3) },
		func() error { return c.Scan([]byte("a"), func(k, v []byte) error { return nil }) },
	} {
		wg.Go(func() { require.NoError(t, ask()) })
	}
	eventually(t, "all wait", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.calls) == 1 && len(c.scans) == 1 && !c.queue.empty()
	})
	serve(t, connect(t, url), store)
	wg.Wait()
	require.Equal(t, []string{"a=1", "b=2"}, contents(t, c, ""))
}

// A server that stays away is an error that says which and what to do; one that comes back after that is used again.
func TestNoAnswer(t *testing.T) {
	t.Parallel() // it waits more than it works
	url, store := startNATS(t, nil), backup.NewMemory()
	s := serve(t, connect(t, url), store)
	c, err := Open(t.Context(), connect(t, url), ClientOptions{Cluster: "test", retry: 10 * time.Millisecond, Deadline: 100 * time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	for _, err := range []error{
		applyWait(c, put("o", 1, "k", "v")),
		c.Fence("o", 1),
		c.Scan(nil, func(k, v []byte) error { return nil }),
	} {
		require.ErrorIs(t, err, ErrNoAnswer)
		require.ErrorContains(t, err, `no answer from backup server "main" of cluster "test" at nats://127.0.0.1:`)
		require.ErrorContains(t, err, "afstream backup --cluster test")
	}
	serve(t, connect(t, url), store)
	require.NoError(t, applyWait(c, put("o", 1, "l", "v")))
	require.NoError(t, c.Close())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Open(ctx, connect(t, url), ClientOptions{Cluster: "other"})
	require.ErrorIs(t, err, context.Canceled)
}

func TestOneServerOfAName(t *testing.T) {
	url := startNATS(t, nil)
	serve(t, connect(t, url), backup.NewMemory())
	_, err := Serve(connect(t, url), backup.NewMemory(), ServerOptions{Cluster: "test"})
	require.ErrorIs(t, err, ErrTwoServers)
	other, err := Serve(connect(t, url), backup.NewMemory(), ServerOptions{Cluster: "test", Name: "other"})
	require.NoError(t, err)
	require.NoError(t, other.Close())
	_, err = Serve(connect(t, url), backup.NewMemory(), ServerOptions{Cluster: "a.b", Name: "*"})
	require.ErrorContains(t, err, `cluster "a.b"`)
	require.ErrorContains(t, err, `backup server "*"`)
}

// A server without what the client relies on must not be written to.
func TestLostStore(t *testing.T) {
	t.Run("another store", func(t *testing.T) {
		url := startNATS(t, nil)
		s := serve(t, connect(t, url), backup.NewMemory())
		c := open(t, connect(t, url))
		require.NoError(t, applyWait(c, put("o", 1, "k", "v")))
		require.NoError(t, s.Close())
		empty := backup.NewMemory()
		serve(t, connect(t, url), empty)
		require.ErrorIs(t, applyWait(c, put("o", 1, "l", "v")), ErrReplaced)
		require.ErrorIs(t, c.Fence("o", 1), ErrReplaced, "for good")
		require.Empty(t, contents(t, empty, ""))
	})
	t.Run("an older copy", func(t *testing.T) {
		url, dir, copied := startNATS(t, nil), t.TempDir(), t.TempDir()+"/copy"
		store, err := backup.OpenBadger(dir, backup.BadgerOptions{})
		require.NoError(t, err)
		s := serve(t, connect(t, url), store)
		c := open(t, connect(t, url))
		require.NoError(t, applyWait(c, put("o", 1, "k", "v")))
		require.NoError(t, s.Close())
		require.NoError(t, store.Close())
		require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
		store, err = backup.OpenBadger(dir, backup.BadgerOptions{})
		require.NoError(t, err)
		s = serve(t, connect(t, url), store)
		require.NoError(t, applyWait(c, put("o", 1, "k", "w")))
		require.NoError(t, s.Close())
		require.NoError(t, store.Close())
		serve(t, connect(t, url), openBadger(t, copied))
		err = applyWait(c, put("o", 1, "l", "v"))
		require.ErrorIs(t, err, ErrReplaced)
		require.ErrorContains(t, err, "power cut")
	})
	t.Run("a forgotten session", func(t *testing.T) {
		url := startNATS(t, nil)
		s, err := Serve(connect(t, url), backup.NewMemory(), impatient(patience{session: 10 * time.Millisecond}))
		require.NoError(t, err)
		defer s.Close()
		c := open(t, connect(t, url))
		eventually(t, "it is forgotten", func() bool { _, _, n := s.held(); return n == 0 })
		require.ErrorContains(t, applyWait(c, put("o", 1, "k", "v")), "does not know this client")
	})
}

// Sessions that end leave nothing behind.
func TestSessionEnds(t *testing.T) {
	url, store := startNATS(t, nil), backup.NewMemory()
	s := serve(t, connect(t, url), store)
	c, err := Open(t.Context(), connect(t, url), ClientOptions{Cluster: "test"})
	require.NoError(t, err)
	for i := range 2 * windowBatches {
		require.NoError(t, applyWait(c, put("o", 1, "k", fmt.Sprint(i))))
	}
	require.NoError(t, c.Close())
	eventually(t, "it is gone", func() bool { _, _, n := s.held(); return n == 0 })
	require.NoError(t, s.Close())
	n := 0
	require.NoError(t, store.(backup.Noting).Notes(func(k, v []byte) error { n++; return nil }))
	require.Equal(t, 1, n, "the store's own")
}

// The session of a killed client ends soon after others have taken over all that it wrote, and with it what it takes in memory and
// on disk; as long as one of its owners is its own it stays, since it may come back and ask.
func TestSessionOfAKilledClient(t *testing.T) {
	t.Parallel() // it waits more than it works
	url, store := startNATS(t, nil), backup.NewMemory()
	s, err := Serve(connect(t, url), store, impatient(patience{fenced: 200 * time.Millisecond}))
	require.NoError(t, err)
	defer s.Close()
	nc := connect(t, url)
	killed, heir, idle := open(t, nc), open(t, connect(t, url)), open(t, connect(t, url))
	require.NoError(t, applyWait(killed, put("job/a", 1, "k", "1")))
	require.NoError(t, applyWait(killed, put("job/b", 1, "l", "1")))
	nc.Close()
	sessions := func() int { _, _, n := s.held(); return n }
	all := sessions() // one for each client, and one for each hello that was answered too late
	require.NoError(t, heir.Fence("job/a", 2))
	require.NoError(t, heir.Fence("job/b", 1), "that is no newer one")
	time.Sleep(400 * time.Millisecond) // twice the patience: that nothing happens is no event to wait for
	require.Equal(t, all, sessions())
	require.NoError(t, heir.Fence("job/b", 2))
	require.NoError(t, applyWait(heir, put("job/b", 2, "l", "2")))
	eventually(t, "it has ended", func() bool { return sessions() == all-1 })
	require.NoError(t, applyWait(heir, put("job/b", 2, "l", "3")))
	require.NoError(t, applyWait(idle, put("job/c", 1, "m", "1")), "one that has not written yet stays")
	eventually(t, "its notes are gone", func() bool {
		n := 0
		require.NoError(t, store.(backup.Noting).Notes(func(key, _ []byte) error {
			if bytes.Contains(key, killed.session[:]) {
				n++
			}
			return nil
		}))
		return n == 0
	})
	require.Equal(t, []string{"k=1", "l=3", "m=1"}, contents(t, heir, ""))
}

// A client that was taken for dead, and is not, writes nothing and is told.
func TestKilledClientThatComesBack(t *testing.T) {
	url := startNATS(t, nil)
	s, err := Serve(connect(t, url), backup.NewMemory(), impatient(patience{fenced: 20 * time.Millisecond}))
	require.NoError(t, err)
	defer s.Close()
	stopped, heir := open(t, connect(t, url)), open(t, connect(t, url))
	require.NoError(t, applyWait(stopped, put("job/a", 1, "k", "1")))
	require.NoError(t, heir.Fence("job/a", 2))
	eventually(t, "it is forgotten", func() bool { _, _, n := s.held(); return n == 1 })
	require.ErrorIs(t, applyWait(stopped, put("job/a", 1, "k", "zombie")), ErrReplaced)
	require.ErrorIs(t, applyWait(stopped, put("job/new", 1, "n", "1")), ErrReplaced)
	require.Equal(t, []string{"k=1"}, contents(t, heir, ""))
}

// Parts of a batch whose client died are dropped, and so are its scans.
func TestDeadClient(t *testing.T) {
	t.Parallel() // it waits more than it works
	url, store := startNATS(t, nil), backup.NewMemory()
	for i := range 3 * windowChunks {
		require.NoError(t, applyWait(store, put("o", 1, fmt.Sprint(i), string(make([]byte, chunkBytes)))))
	}
	s, err := Serve(connect(t, url), store, impatient(patience{parts: 300 * time.Millisecond, scan: 300 * time.Millisecond}))
	require.NoError(t, err)
	defer s.Close()
	nc := connect(t, url)
	c := open(t, nc)
	a := apply{session: c.session, boot: c.boot, base: 1, seq: 1, total: 500, piece: make([]byte, 300)}
	require.NoError(t, nc.PublishRequest(c.to, c.inbox, appendApply(nil, &a)))
	require.NoError(t, nc.PublishRequest(c.to, c.inbox, appendCall(nil, kindScan, &call{id: 1 << 40})))
	eventually(t, "it has both", func() bool { n, scans, _ := s.held(); return n == 300 && scans == 1 })
	eventually(t, "it has dropped both", func() bool { n, scans, _ := s.held(); return n == 0 && scans == 0 })
	require.NoError(t, applyWait(c, put("o", 1, "k", "v")), "the client was not dead")
}

// A server whose store is slower than its clients makes them slow.
func TestFullServer(t *testing.T) {
	thorough.Only(t)
	t.Parallel() // it waits more than it works
	url := startNATS(t, nil)
	s, err := Serve(connect(t, url), openBadger(t, t.TempDir()), ServerOptions{Cluster: "test", MaxBytes: 1})
	require.NoError(t, err)
	defer s.Close()
	load(t, open(t, connect(t, url)), 100, func(int) {})
}

// fullStore has no room on its disk.
type fullStore struct{ backup.Noting }

func (s fullStore) ApplyNoted(b *backup.Batch, notes []backup.Entry, done func(error)) {
	if len(notes) == 1 && notes[0].Key[0] == noteSession {
		done(fmt.Errorf("write backup %q: 3 MiB left: %w", "/its/dir", backup.ErrDiskFull))
		return
	}
	s.Noting.ApplyNoted(b, notes, done)
}

// A server that cannot begin a session says why.
func TestNoSessionOnAFullDisk(t *testing.T) {
	url := startNATS(t, nil)
	serve(t, connect(t, url), fullStore{backup.NewMemory().(backup.Noting)})
	_, err := Open(t.Context(), connect(t, url), ClientOptions{Cluster: "test"})
	require.ErrorIs(t, err, backup.ErrDiskFull)
	require.NotErrorIs(t, err, ErrNoAnswer)
	require.ErrorContains(t, err, `"/its/dir": 3 MiB left`)
	require.ErrorContains(t, err, "backup server "+DefaultName)
}

// Invalid messages change nothing.
func TestInvalidMessages(t *testing.T) {
	url := startNATS(t, nil)
	s := serve(t, connect(t, url), backup.NewMemory())
	nc := connect(t, url)
	c := open(t, nc)
	for _, frame := range [][]byte{
		nil, {version}, {99, kindApply, 0, 0, 0, 0}, seal(startFrame(nil, 'x')), seal(append(startFrame(nil, kindApply), 1)),
		bytes.Repeat([]byte{0xff}, 100),
	} {
		require.NoError(t, nc.PublishRequest(c.to, c.inbox, frame))
		require.NoError(t, nc.Publish(c.inbox, frame))
	}
	require.NoError(t, applyWait(c, put("o", 1, "k", "v")))
	s.mu.Lock()
	defer s.mu.Unlock()
	require.LessOrEqual(t, s.invalid, 6)
}

// A state far larger than the window comes whole and in order, whatever its values are like, and its function may take
// its time or stop.
func TestLargeScan(t *testing.T) {
	url, store := startNATS(t, nil), openBadger(t, t.TempDir())
	total := 0
	for i := 0; total < 24<<20; i++ {
		n := []int{0, 10, 3000, chunkBytes, backup.MaxBatchBytes - 200}[i%5]
		total += n
		require.NoError(t, applyWait(store, put("o", 1, fmt.Sprintf("k%06d", i), strings.Repeat(fmt.Sprint(i%10), n))))
	}
	s := serve(t, connect(t, url), store)
	c := open(t, connect(t, url))
	got := 0
	require.NoError(t, c.Scan([]byte("k"), func(key, value []byte) error {
		var i int
		_, err := fmt.Sscanf(string(key), "k%06d", &i)
		require.NoError(t, err)
		require.Equal(t, bytes.Count(value, fmt.Append(nil, i%10)), len(value))
		got += len(value)
		return nil
	}))
	require.Equal(t, total, got)
	n := 0
	require.Equal(t, errGivenUp, c.Scan([]byte("k"), func(key, value []byte) error {
		if n++; n == 7 {
			return errGivenUp
		}
		return nil
	}))
	require.Equal(t, 7, n)
	eventually(t, "nothing is kept", func() bool { _, scans, _ := s.held(); return scans == 0 })
}

// A scan outlives its server only as long as nothing was delivered.
func TestScanAndRestart(t *testing.T) {
	url, store := startNATS(t, nil), backup.NewMemory()
	for i := range 3 * windowChunks {
		require.NoError(t, applyWait(store, put("o", 1, fmt.Sprintf("%03d", i), string(make([]byte, chunkBytes)))))
	}
	s := serve(t, connect(t, url), store)
	c := open(t, connect(t, url))
	n := 0
	err := c.Scan(nil, func(key, value []byte) error {
		if n++; n == 1 {
			require.NoError(t, s.Close())
			s = serve(t, connect(t, url), store)
		}
		return nil
	})
	require.ErrorIs(t, err, backup.ErrInterrupted)
	require.Less(t, n, 3*windowChunks)
	require.Len(t, contents(t, c, ""), 3*windowChunks)
}
