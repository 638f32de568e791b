package clustersim

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/afstream/afstream/cluster/clustertest"
	"github.com/afstream/afstream/node"
)

// site is a place at which a process runs, one after the other.
type site struct {
	name string
	run  func(ctx context.Context, p *clustertest.Process) error

	mu      sync.Mutex
	process *clustertest.Process // nil if there is none
	kill    context.CancelCauseFunc
	ended   chan struct{}

	down    time.Time // when it is to be started again, if it does not run
	renewed time.Time // when the record of the node was written last
}

// begin starts a process, unless there is one.
func (s *site) begin(r *run) {
	if s.kill != nil {
		return
	}
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
		if ctx.Err() != nil && err == nil {
			return
		}
		r.log("%s has ended: %v", s.name, err)
		if !errors.Is(err, node.ErrTaken) {
			r.fault("%s has ended: %v", s.name, err)
			return
		}
		p.Kill()
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
	if s.kill == nil {
		return
	}
	s.kill(cause)
	<-s.ended
	s.now().Kill()
	s.kill = nil
	s.down = time.Now().Add(r.upTo(7 * time.Second))
}

// crash ends it without a word.
func (s *site) crash(r *run) {
	if s.kill != nil {
		s.now().Kill()
		s.end(r, node.ErrKilled)
	}
}

// leave ends it in order.
func (s *site) leave(r *run) { s.end(r, nil) }

func (s *site) pause(r *run, d time.Duration) {
	if s.kill != nil {
		s.now().Pause(d)
	}
}
