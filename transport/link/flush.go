package link

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// flushing holds those who wait until the peer has everything.
type flushing struct {
	sync.Mutex
	waiters []chan struct{}
	some    atomic.Bool
}

// idle says whether the peer has everything.
func (e *end) idle() bool {
	some, _ := e.what.waiting()
	return !some && e.out.got+1 == e.out.next
}

// settle lets go of those who wait for that.
func (e *end) settle() {
	if e.flushing.some.Load() && e.idle() {
		e.release()
	}
}

func (e *end) release() {
	e.flushing.Lock()
	defer e.flushing.Unlock()
	for _, w := range e.flushing.waiters {
		close(w)
	}
	e.flushing.waiters = nil
	e.flushing.some.Store(false)
}

// flush waits until the peer has all that was handed over.
func (e *end) flush(ctx context.Context) error {
	arrived := make(chan struct{})
	e.flushing.Lock()
	e.flushing.waiters = append(e.flushing.waiters, arrived)
	e.flushing.some.Store(true)
	e.flushing.Unlock()
	e.park.Wake()
	select {
	case <-arrived:
	case <-e.done:
	case <-ctx.Done():
		return fmt.Errorf("link %s: flush: %w", e.name, ctx.Err())
	}
	if e.closing.Load() {
		return e.err()
	}
	return nil
}
