package copies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/backup/remote"
	"github.com/afstream/afstream/backup/storetest"
	"github.com/afstream/afstream/internal/broker"
	"github.com/afstream/afstream/internal/thorough"
)

// servers are backup servers in this process, and the NATS server between them and their clients.
type servers struct {
	t       testing.TB
	address remote.Address
	stores  map[string]backup.Store
	running map[string]func()
}

func startServers(t testing.TB, names ...string) *servers {
	nats, err := broker.Listen("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(nats.Close)
	c := &servers{
		t: t, address: remote.Address{URL: nats.URL(), Cluster: "test"},
		stores: map[string]backup.Store{}, running: map[string]func(){},
	}
	for _, name := range names {
		c.start(name)
	}
	t.Cleanup(func() {
		for name := range c.running {
			c.stop(name)
		}
	})
	return c
}

func (c *servers) start(name string) {
	if c.stores[name] == nil {
		c.stores[name] = backup.NewMemory()
	}
	nc, err := c.address.Connect(name)
	require.NoError(c.t, err)
	s, err := remote.Serve(nc, c.stores[name], remote.ServerOptions{Cluster: "test", Name: name})
	require.NoError(c.t, err)
	c.running[name] = func() {
		require.NoError(c.t, s.Close())
		nc.Close()
	}
}

func (c *servers) stop(name string) {
	c.running[name]()
	delete(c.running, name)
}

func (c *servers) dial(o Options, names ...string) *Store {
	s, err := Dial(c.t.Context(), c.address, names, o)
	require.NoError(c.t, err)
	return s
}

func TestServersAreAStore(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	storetest.Run(t, func(t testing.TB) backup.Store {
		return startServers(t, "one", "two").dial(Options{}, "one", "two")
	})
}

// A server that is away when the Store is opened is suspected, and takes part as soon as it is there.
func TestDialGoesOnWithoutAServer(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	c := startServers(t, "one")
	suspected := make(chan string, 10)
	s := c.dial(Options{Suspect: func(name string, err error) {
		require.ErrorIs(t, err, remote.ErrNoAnswer)
		suspected <- name
	}}, "one", "two")
	require.Equal(t, "two", <-suspected)
	x := make(chan error, 1)
	fenced := make(chan error, 1)
	go func() {
		fenced <- s.Fence(owner, 1)
		x <- applyWait(s, put(1, "x"))
	}()
	require.Empty(t, fenced)
	require.Len(t, s.Suspicions(), 1)
	c.start("two")
	require.NoError(t, <-fenced)
	require.NoError(t, <-x)
	require.Empty(t, s.Suspicions())
	require.Equal(t, []string{"x"}, keysOf(t, c.stores["two"]))
	require.NoError(t, s.Close())
}

// Without any server there is nothing to open, and names have to differ.
func TestDialRefuses(t *testing.T) {
	t.Parallel()
	c := startServers(t, "one")
	_, err := Dial(t.Context(), c.address, []string{"three", "four"}, Options{})
	require.ErrorIs(t, err, remote.ErrNoAnswer)
	require.ErrorContains(t, err, "three")
	require.ErrorContains(t, err, "four")
	_, err = Dial(t.Context(), c.address, []string{"one", "one"}, Options{})
	require.ErrorContains(t, err, "twice")
	_, err = Dial(t.Context(), c.address, nil, Options{})
	require.Error(t, err)
}

// A server that stays away is dropped, and a Store closes without waiting for it.
func TestDropOfAServerThatIsAway(t *testing.T) {
	t.Parallel()
	c := startServers(t, "one", "two")
	suspected := make(chan string, 10)
	s := c.dial(Options{Patience: 100 * time.Millisecond, Suspect: func(name string, _ error) { suspected <- name }}, "one", "two")
	require.NoError(t, s.Fence(owner, 1))
	require.NoError(t, applyWait(s, put(1, "x")))
	c.stop("two")
	y := later(s, put(1, "y"))
	require.Equal(t, "two", <-suspected)
	require.Empty(t, y)
	require.NoError(t, s.Drop("two"))
	require.NoError(t, <-y)
	require.NoError(t, applyWait(s, put(1, "z")))
	require.Equal(t, []string{"x", "y", "z"}, keysOf(t, s))
	require.NoError(t, s.Close())

	// It is there again, and somebody still counts it: he must not take its word.
	c.start("two")
	late := c.dial(Options{Patience: 100 * time.Millisecond}, "two", "one")
	require.NoError(t, late.Fence(owner, 2))
	require.Equal(t, []string{"x", "y", "z"}, keysOf(t, late))
	require.Equal(t, []string{"x", "y", "z"}, keysOf(t, c.stores["two"]))
	c.stop("one")
	c.stop("two")
	w := later(late, put(2, "w"))
	at := time.Now()
	require.NoError(t, late.Close())
	require.Less(t, time.Since(at), 30*time.Second)
	require.ErrorIs(t, <-w, backup.ErrClosed)
}

// A server that comes back with another store is refused by those that know it. Others bring it up to date.
func TestServerThatHasLostItsDisk(t *testing.T) {
	t.Parallel()
	c := startServers(t, "one", "two")
	var mu sync.Mutex
	var why error
	suspected := make(chan string, 10)
	s := c.dial(Options{Suspect: func(name string, err error) {
		mu.Lock()
		why = errors.Join(why, err)
		mu.Unlock()
		suspected <- name
	}}, "one", "two")
	require.NoError(t, s.Fence(owner, 1))
	require.NoError(t, applyWait(s, put(1, "x")))
	c.stop("one")
	c.stores["one"] = backup.NewMemory()
	c.start("one")
	y := later(s, put(1, "y"))
	require.Equal(t, "one", <-suspected)
	mu.Lock()
	require.ErrorIs(t, why, remote.ErrReplaced)
	mu.Unlock()
	require.Empty(t, y)
	list := s.Suspicions()
	require.Len(t, list, 1)
	require.Equal(t, "one", list[0].Name)
	require.ErrorIs(t, list[0].Err, remote.ErrReplaced)

	next := c.dial(Options{}, "one", "two")
	require.NoError(t, next.Fence(owner, 2))
	got := keysOf(t, c.stores["one"])
	require.Equal(t, []string{"x", "y"}, got)
	require.True(t, slices.Equal(got, keysOf(t, c.stores["two"])))
	require.NoError(t, next.Close())
	require.NoError(t, s.Drop("one"))
	require.NoError(t, <-y, "it was on the other one, and so it is there now")
	require.ErrorIs(t, applyWait(s, put(1, "z")), backup.ErrFenced)
	require.NoError(t, s.Close())
}

// Open closes what it has opened, also what comes when nobody waits for it any more.
func TestOpenClosesWhatItHasOpened(t *testing.T) {
	for range 20 {
		var mu sync.Mutex
		opened, closed, attempts := 0, 0, 0
		s, err := Open(t.Context(), []string{"a", "b"}, func(ctx context.Context, name string) (backup.Store, error) {
			mu.Lock()
			defer mu.Unlock()
			if attempts++; name == "b" && attempts < 3 {
				return nil, fmt.Errorf("open %s: %w", name, errDisk)
			}
			opened++
			return closing{backup.NewMemory(), func() { mu.Lock(); closed++; mu.Unlock() }}, nil
		}, Options{})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.Equal(t, opened, closed)
	}
}

type closing struct {
	backup.Store
	closed func()
}

func (c closing) Close() error {
	c.closed()
	return c.Store.Close()
}
