package clustersim

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/afstream/afstream/cluster/clustertest"
	"github.com/afstream/afstream/node"
)

// site is a place at which a process runs, one after the other.
type site struct {
	name string
	run  func(ctx context.Context, p *clustertest.Process) error

	mu      sync.Mutex
	process *clustertest.Process // the newest

	kill    context.CancelCauseFunc // nil if it was told to end
	ended   chan struct{}           // closed when it has; nil before the first
	down    time.Time               // until then it is not started again
	renewed atomic.Int64            // when the record of the node was written last, as UnixNano; any goroutine
}

// begin starts a process, if there is to be one and is none.
func (s *site) begin(r *run) {
	if s.kill != nil || time.Now().Before(s.down) {
		return
	}
	if s.ended != nil {
		select {
		case <-s.ended:
		default:
			return
		}
	}
	r.log("%s is started", s.name)
	ctx, kill := context.WithCancelCause(context.Background())
	s.kill, s.ended = kill, make(chan struct{})
	s.process = r.net.Process(s.name)
	go s.live(ctx, r, s.process, s.ended) // ends with ctx
}

// live starts a process anew if another one has its name, as whatever supervises processes would.
func (s *site) live(ctx context.Context, r *run, p *clustertest.Process, ended chan struct{}) {
	defer close(ended)
	for {
		err := s.run(ctx, p)
		p.Kill()
		if err != nil {
			r.log("%s has ended: %v", s.name, err)
		}
		held := err != nil && strings.Contains(err.Error(), "holds them up") && !r.calm.Load() // it waits for the store, in vain
		if err != nil && !errors.Is(err, node.ErrTaken) && !held || err == nil && ctx.Err() == nil {
			r.fault("%s has ended: %v", s.name, err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
		p = r.net.Process(s.name)
		s.mu.Lock()
		s.process = p
		s.mu.Unlock()
	}
}

// now returns the process.
func (s *site) now() *clustertest.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// end ends the process for a while.
func (s *site) end(r *run, cause error) {
	if s.kill != nil {
		s.kill(cause)
		s.kill, s.down = nil, time.Now().Add(r.upTo(7*time.Second))
	}
}

// crash ends it without a word.
func (s *site) crash(r *run) {
	s.now().Kill()
	s.end(r, node.ErrKilled)
}

// leave ends it in order.
func (s *site) leave(r *run) { s.end(r, nil) }

func (s *site) pause(d time.Duration) { s.now().Pause(d) }
