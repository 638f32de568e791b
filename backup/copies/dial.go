package copies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/backup/remote"
)

// openRetry is how long a member is left alone that could not be opened.
const openRetry = time.Second

// Dial connects to NATS and opens the servers of those names; address.Server has no meaning. It needs one of them: the
// others are suspected, and tried again until they answer, are dropped, or the Store is closed. Closing the Store closes
// the connection.
func Dial(ctx context.Context, address remote.Address, names []string, o Options) (*Store, error) {
	nc, err := address.Connect("afstream backup client")
	if err != nil {
		return nil, fmt.Errorf("open backup copies: %w", err)
	}
	s, err := Open(ctx, names, func(ctx context.Context, name string) (backup.Store, error) {
		c, err := remote.Open(ctx, nc, remote.ClientOptions{Cluster: address.Cluster, Server: name})
		if err != nil {
			return nil, err
		}
		return c, nil
	}, o)
	if err != nil {
		nc.Close()
		return nil, err
	}
	s.hangUp = nc.Close
	return s, nil
}

// abandoner is a store that can be closed without waiting for what is under way, as a remote.Client can.
type abandoner interface{ Abandon() error }

// Open is Dial for any kind of store, and any connection: open is called for all names at the same time, and again for those
// that could not be opened. The Store closes what was opened, at once if it has an Abandon method and nobody waits for it
// any more.
func Open(ctx context.Context, names []string, open func(ctx context.Context, name string) (backup.Store, error), o Options) (*Store, error) {
	if len(names) == 0 {
		return nil, errors.New("open backup copies: no servers")
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("open backup copies: server %q is named twice", name)
		}
	}
	stores, errs := make([]backup.Store, len(names)), make([]error, len(names))
	var opening sync.WaitGroup
	for i, name := range names {
		opening.Go(func() { stores[i], errs[i] = open(ctx, name) })
	}
	opening.Wait()
	view := make([]*member, len(names))
	opened := 0
	for i, name := range names {
		view[i] = newMember(name, stores[i])
		if stores[i] != nil {
			opened++
		}
	}
	if opened == 0 {
		return nil, oneLine(errs)
	}
	s := start(view, o)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range view {
		if stores[i] != nil {
			s.own(m)
			continue
		}
		s.failed(m, errs[i])
		s.going.Go(func() { s.openLater(m, open) })
	}
	return s, nil
}

// own has a member's store closed with the Store, or when it is dropped. s.mu is held.
func (s *Store) own(m *member) {
	s.owned = append(s.owned, owned{m, func(abandon bool) error { return closeStore(m.store, abandon) }})
}

func closeStore(store backup.Store, abandon bool) error {
	if a, ok := store.(abandoner); ok && abandon {
		return a.Abandon()
	}
	return store.Close()
}

// openLater tries again to open a member, until nobody waits for it any more.
func (s *Store) openLater(m *member, open func(context.Context, string) (backup.Store, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.going.Go(func() {
		select {
		case <-m.gone:
		case <-s.stop:
		case <-ctx.Done():
		}
		cancel()
	})
	for s.pause(ctx, m, openRetry) {
		store, err := open(ctx, m.name)
		if err != nil {
			continue
		}
		s.mu.Lock()
		if s.closed || m.isGone() {
			s.mu.Unlock()
			_ = closeStore(store, true) // nothing is under way
			return
		}
		m.store = store
		close(m.ready)
		m.heard()
		s.own(m)
		sending := s.resend(m, nil)
		s.mu.Unlock()
		for _, p := range sending {
			p.send()
		}
		s.o.Log.Info("backup copy answers", "copy", m.name)
		return
	}
}

// oneLine joins errors for people.
func oneLine(errs []error) error {
	all := errs[0]
	for _, err := range errs[1:] {
		all = fmt.Errorf("%w; %w", all, err)
	}
	return all
}
