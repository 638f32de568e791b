package node

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/backup/remote"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/worker"
)

// backups are a server in memory that may fall silent, or come back without what it had.
type backups struct {
	opened *atomic.Int64
	mu     sync.Mutex
	store  backup.Store
	silent chan struct{} // closed when it is not any more; nil if it is not
	lost   bool
}

func newBackups(opened *atomic.Int64) *backups {
	return &backups{opened: opened, store: backup.NewMemory()}
}

func (s *backups) fallSilent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = make(chan struct{})
}

func (s *backups) answer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.silent)
	s.silent = nil
}

func (s *backups) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = true
}

func (s *backups) open() backup.Store {
	s.opened.Add(1)
	return &backupsClient{backups: s, closed: make(chan struct{})}
}

// backupsClient is what a node has of it.
type backupsClient struct {
	*backups
	closed  chan struct{}
	once    sync.Once
	pending sync.WaitGroup
}

// reach waits until the server answers.
func (c *backupsClient) reach() error {
	for {
		c.mu.Lock()
		silent, lost := c.silent, c.lost
		c.mu.Unlock()
		switch {
		case lost:
			return remote.ErrReplaced
		case silent == nil:
			return nil
		}
		select {
		case <-silent:
		case <-c.closed:
			return backup.ErrClosed
		}
	}
}

func (c *backupsClient) Apply(b *backup.Batch, done func(error)) {
	c.pending.Go(func() {
		if err := c.reach(); err != nil {
			done(err)
			return
		}
		c.store.Apply(b, done)
	})
}

func (c *backupsClient) Fence(owner string, epoch uint64) error {
	if err := c.reach(); err != nil {
		return err
	}
	return c.store.Fence(owner, epoch)
}

func (c *backupsClient) Scan(prefix []byte, f func(key, value []byte) error) error {
	if err := c.reach(); err != nil {
		return err
	}
	return c.store.Scan(prefix, f)
}

func (c *backupsClient) Close() error {
	c.pending.Wait()
	return c.Abandon()
}

func (c *backupsClient) Abandon() error {
	c.once.Do(func() {
		close(c.closed)
		c.opened.Add(-1)
	})
	return nil
}

// twoServers has a node know two backup servers.
func (l *lab) twoServers() (one, two *backups, option func(*Options)) {
	one, two = newBackups(&l.opened), newBackups(&l.opened)
	return one, two, func(o *Options) {
		o.OpenStore = func(_ context.Context, server string) (backup.Store, error) {
			switch server {
			case "one":
				return one.open(), nil
			case "two":
				return two.open(), nil
			}
			return nil, errUnreachable
		}
	}
}

// TestServerDies for good, in the middle: the job waits until the server is out of its view, and goes on without it, exactly; what
// fails then is restored from the other one.
func TestServerDies(t *testing.T) {
	for name, c := range map[string]struct {
		lost, first bool
	}{
		"silent": {}, "silent, the first": {first: true}, "empty": {lost: true}, "empty, the first": {lost: true, first: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &counting{n: 6_400, stop: 3_200, gate: make(chan struct{}), guarantee: worker.ErrorFree, panicAt: 5_000}
				p.panics.Store(2)
				l := newLab(t, p.program())
				one, two, servers := l.twoServers()
				l.start("a", servers)
				sessions := map[string]string{"a": l.session("a", "")}
				spec := p.spec()
				spec.Backups = []string{"one", "two"}
				l.submit("j1", spec)
				l.drive("j1", sessions, l.running(sessions))
				time.Sleep(time.Second) // it has processed what there is
				dies, left := two, "one"
				if c.first {
					dies, left = one, "two"
				}
				if c.lost {
					dies.lose()
				} else {
					dies.fallSilent()
				}
				close(p.gate)
				began := time.Now()
				b := l.await("a", func(b *cluster.Beat) bool { return len(b.Suspects) > 0 })
				require.Equal(t, c.lost, b.Suspects[0].Lost)
				require.Equal(t, "j1", b.Suspects[0].Job)
				require.Less(t, time.Since(began), 6*time.Second)
				j := l.drive("j1", sessions, never)
				require.Equal(t, cluster.Finished, j.State, j.Why)
				require.Equal(t, []string{left}, j.View)
				require.Len(t, j.History, 2)
				p.requireExact(t)
			})
		})
	}
}

// TestServerComesBack: nobody suspects it any more.
func TestServerComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &counting{n: 6_400, stop: 3_200, gate: make(chan struct{}), guarantee: worker.ErrorFree}
		l := newLab(t, p.program())
		_, two, servers := l.twoServers()
		l.start("a", servers)
		sessions := map[string]string{"a": l.session("a", "")}
		spec := p.spec()
		spec.Backups = []string{"one", "two"}
		l.submit("j1", spec)
		l.drive("j1", sessions, l.running(sessions))
		two.fallSilent()
		close(p.gate)
		l.await("a", func(b *cluster.Beat) bool { return len(b.Suspects) > 0 })
		two.answer()
		l.await("a", func(b *cluster.Beat) bool { return len(b.Suspects) == 0 })
		j := l.drive("j1", sessions, never)
		require.Equal(t, []string{"one", "two"}, j.View)
		p.requireExact(t)
	})
}

// TestJobEndsWhileAServerIsSilent: nobody drops it any more, and nobody waits for it.
func TestJobEndsWhileAServerIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &counting{n: 6_400, stop: 3_200, gate: make(chan struct{}), guarantee: worker.ErrorFree}
		l := newLab(t, p.program())
		_, two, servers := l.twoServers()
		l.start("a", servers)
		sessions := map[string]string{"a": l.session("a", "")}
		spec := p.spec()
		spec.Backups = []string{"one", "two"}
		l.submit("j1", spec)
		l.drive("j1", sessions, l.running(sessions))
		two.fallSilent()
		close(p.gate)
		l.await("a", func(b *cluster.Beat) bool { return len(b.Suspects) > 0 })
		l.update("j1", func(j *cluster.Job) { assign(j.Worker("tally", 0), "a", sessions["a"]) }) // it waits for its fence
		time.Sleep(time.Second)
		l.update("j1", func(j *cluster.Job) { j.State = cluster.Cancelled })
		l.await("a", func(b *cluster.Beat) bool { return len(b.Workers) == 0 && len(b.Suspects) == 0 })
		time.Sleep(6 * time.Second)
		synctest.Wait()
		require.Zero(t, l.opened.Load())
	})
}

// TestNoServerOfAView: the worker cannot be loaded, and the error is one line.
func TestNoServerOfAView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &counting{n: 1, gate: open()}
		l := newLab(t, p.program())
		l.start("a", func(o *Options) {
			o.OpenStore = func(_ context.Context, server string) (backup.Store, error) {
				return nil, errors.New(server + " is away")
			}
		})
		session := l.session("a", "")
		spec := p.spec()
		spec.Backups = []string{"one", "two"}
		l.submit("j1", spec)
		l.update("j1", func(j *cluster.Job) { assign(&j.Workers[0], "a", session) })
		b := l.await("a", func(b *cluster.Beat) bool { return len(b.Workers) == 1 && b.Workers[0].Phase == cluster.Unloaded })
		require.Contains(t, b.Workers[0].Error, "one is away; two is away")
		require.False(t, b.Workers[0].Hopeless)
	})
}

// TestSourceWithoutPosition: under guarantee none a source that has failed must not begin again as if nothing had been.
func TestSourceWithoutPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &counting{n: 6_400, stop: 3_200, gate: make(chan struct{}), guarantee: worker.None}
		l := newLab(t, p.program())
		l.start("a")
		sessions := map[string]string{"a": l.session("a", "")}
		l.submit("j1", p.spec())
		l.drive("j1", sessions, l.running(sessions))
		l.update("j1", func(j *cluster.Job) { assign(j.Worker("numbers", 1), "a", sessions["a"]) })
		j := l.drive("j1", sessions, never)
		require.Equal(t, cluster.Failed, j.State)
		require.Contains(t, j.Why, "source numbers/1 was running")
		require.Contains(t, j.Why, "guarantee none saves no position")
	})
}
