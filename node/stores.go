package node

import (
	"context"
	"fmt"
	"sync"

	"github.com/afstream/afstream/backup"
)

// stores are the open stores of backup servers, one for each as long as anybody uses it. Any goroutine may call.
type stores struct {
	open func(ctx context.Context, server string) (backup.Store, error)
	mu   sync.Mutex
	of   map[string]*shared
}

// shared is the store of one backup server.
type shared struct {
	users int           // under stores.mu
	turn  chan struct{} // holds a token while somebody opens or closes the store
	store backup.Store  // nil unless it is open; for who has the turn
}

func newStores(open func(ctx context.Context, server string) (backup.Store, error)) *stores {
	return &stores{open: open, of: map[string]*shared{}}
}

// acquire returns the store of a server, and how to give it back.
func (s *stores) acquire(ctx context.Context, server string) (backup.Store, func(), error) {
	if s.open == nil {
		return nil, nil, errNoServers(server)
	}
	s.mu.Lock()
	e := s.of[server]
	if e == nil {
		e = &shared{turn: make(chan struct{}, 1)}
		s.of[server] = e
	}
	e.users++
	s.mu.Unlock()
	release := sync.OnceFunc(func() { s.release(e) })
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		release()
		return nil, nil, context.Cause(ctx)
	}
	var err error
	if e.store == nil {
		var opened backup.Store
		if opened, err = s.open(ctx, server); err == nil { // else it may be a nil of some type, which is not nil here
			e.store = opened
		}
	}
	store := e.store
	<-e.turn
	if err != nil {
		release()
		return nil, nil, fmt.Errorf("open backup server %q: %w", server, err)
	}
	return store, release, nil
}

// release gives a store back, and closes it if nobody else has it.
func (s *stores) release(e *shared) {
	s.mu.Lock()
	e.users--
	s.mu.Unlock()
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	s.mu.Lock()
	unused := e.users == 0
	s.mu.Unlock()
	if unused && e.store != nil {
		_ = e.store.Close() // all that was to be durable has been waited for
		e.store = nil
	}
}

// close closes what is open. Nobody uses it any more.
func (s *stores) close() {
	for _, e := range s.of {
		if e.store != nil {
			_ = e.store.Close()
			e.store = nil
		}
	}
}
