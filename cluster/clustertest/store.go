package clustertest

import (
	"context"
	"fmt"
	"sync"

	"github.com/afstream/afstream/backup"
)

// Store returns what a process has of a store in another one, at a place of that name: like the client of a backup server
// it tries for a minute to get through, in the order of the calls, and then fails for good. Closing it leaves the store open. The store must
// not wait for anything outside of the bubble: backup.NewMemory.
func (p *Process) Store(place string, inner backup.Store) backup.Store {
	s := &store{p: p, place: place, inner: inner, wake: make(chan struct{}, 1), closing: make(chan struct{})}
	s.running.Add(1)
	p.n.running.Go(s.run) // ends with Close, Kill or the net
	return s
}

type store struct {
	p       *Process
	place   string
	inner   backup.Store
	wake    chan struct{}
	closing chan struct{}  // closed by Close
	running sync.WaitGroup // run and calls

	mu     sync.Mutex
	queue  []queued
	err    error // why there is nothing more to come
	closed bool
}

type queued struct {
	batch *backup.Batch
	done  func(error)
}

func (s *store) Apply(b *backup.Batch, done func(error)) {
	s.mu.Lock()
	err := s.err
	if err == nil {
		s.queue = append(s.queue, queued{b, done})
	}
	s.mu.Unlock()
	if err != nil {
		done(err)
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run applies batches, all that wait in one journey.
func (s *store) run() {
	defer s.running.Done()
	for {
		select {
		case <-s.wake:
		case <-s.closing:
			_ = s.journey(s.take()) // who waits for it knows
			return
		case <-s.p.dead:
			s.fail(ErrKilled)
			return
		case <-s.p.n.closed:
			s.fail(ErrUnreached)
			return
		}
		if err := s.journey(s.take()); err != nil {
			s.fail(err)
			return
		}
	}
}

// take returns what waits.
func (s *store) take() []queued {
	s.mu.Lock()
	defer s.mu.Unlock()
	batches := s.queue
	s.queue = nil
	return batches
}

// journey applies batches and tells the outcomes, or the error that keeps it from that.
func (s *store) journey(batches []queued) error {
	if len(batches) == 0 {
		return nil
	}
	outcomes := make([]error, len(batches))
	applied := false
	err := s.round(func() error {
		if applied { // the answer was lost
			return nil
		}
		applied = true
		for i, q := range batches {
			outcome := make(chan error, 1)
			s.inner.Apply(q.batch, func(err error) { outcome <- err })
			outcomes[i] = <-outcome
		}
		return nil
	})
	for i, q := range batches {
		if err != nil {
			outcomes[i] = err
		}
		q.done(outcomes[i])
	}
	return err
}

// fail ends the store for this process.
func (s *store) fail(err error) {
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	for _, q := range s.take() {
		q.done(err)
	}
}

// round has something done at the store and comes back, and tries again if that does not work.
func (s *store) round(do func() error) error {
	ctx, stop := context.WithTimeout(context.Background(), storePatience)
	defer stop()
	for {
		sure, err := s.once(ctx, do)
		if sure {
			return err
		}
		if err := s.p.pass(ctx, storeRetry); err != nil {
			return fmt.Errorf("store at %s: %w: %w", s.place, ErrUnreached, err)
		}
	}
}

// once tries, and says whether the error is the outcome: else it may have been done or not.
func (s *store) once(ctx context.Context, do func() error) (sure bool, err error) {
	if !s.crosses(ctx, s.p.name, s.place) {
		return false, nil
	}
	err = do()
	return s.crosses(ctx, s.place, s.p.name), err
}

// crosses says whether something gets from one place to the other.
func (s *store) crosses(ctx context.Context, from, to string) bool {
	if s.p.pass(ctx, s.p.slow()) != nil {
		return false
	}
	s.p.n.mu.Lock()
	defer s.p.n.mu.Unlock()
	return s.p.n.reaches(from, to) && !s.p.chance(s.p.n.faults.Fail/2)
}

// begin says why a call cannot be made; else running counts it.
func (s *store) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.running.Add(1)
	}
	return s.err
}

func (s *store) Fence(owner string, epoch uint64) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.running.Done()
	return s.round(func() error { return s.inner.Fence(owner, epoch) })
}

// Scan reads the whole of it before it calls fn.
func (s *store) Scan(prefix []byte, fn func(key, value []byte) error) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.running.Done()
	var found []backup.Entry
	err := s.round(func() error {
		found = nil
		return s.inner.Scan(prefix, func(key, value []byte) error {
			found = append(found, backup.Entry{Key: full(key), Value: full(value)})
			return nil
		})
	})
	if err != nil {
		return err
	}
	for _, e := range found {
		if err := fn(e.Key, e.Value); err != nil {
			return err
		}
	}
	return nil
}

// Close waits for what is under way, as long as that can get through.
func (s *store) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
		if s.err == nil {
			s.err = backup.ErrClosed
		}
	}
	s.mu.Unlock()
	s.running.Wait()
	return nil
}
