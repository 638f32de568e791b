package copies

import (
	"errors"
	"fmt"
	"time"

	"github.com/afstream/afstream/backup"
)

// Times of asking a member again that has failed.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// member is one Store of the view. Store.mu guards what is not said to be fixed.
type member struct {
	name  string        // fixed
	ready chan struct{} // closed when store is set
	gone  chan struct{} // closed when nobody waits for it any more: it was dropped, or given up when the Store was closed
	store backup.Store  // fixed once ready

	dropped   bool
	trouble   error         // why the last question failed; nil once it has answered
	suspected error         // what Options.Suspect was told; nil as long as there is nothing to tell, and once it has answered
	asked     int           // questions to which it owes an answer
	silent    time.Duration // for how long it has, with something to answer
	again     []*part       // what to send again
	wait      time.Duration // before that is done
	waited    time.Duration
}

func newMember(name string, store backup.Store) *member {
	m := &member{name: name, ready: make(chan struct{}), gone: make(chan struct{}), store: store}
	if store != nil {
		close(m.ready)
	}
	return m
}

func (m *member) isReady() bool {
	select {
	case <-m.ready:
		return true
	default:
		return false
	}
}

func (m *member) isGone() bool {
	select {
	case <-m.gone:
		return true
	default:
		return false
	}
}

// heard takes note of an answer. Store.mu is held.
func (m *member) heard() {
	m.trouble, m.suspected, m.silent, m.wait, m.waited = nil, nil, 0, 0, 0
}

// failed takes note of a failure. Store.mu is held.
func (s *Store) failed(m *member, err error) {
	m.silent = 0
	m.trouble = err
	m.wait = min(max(2*m.wait, firstRetry), lastRetry)
	m.waited = 0
	s.suspect(m, err)
}

// suspect has the watch tell Options.Suspect, once. Store.mu is held.
func (s *Store) suspect(m *member, err error) {
	if m.suspected != nil || m.dropped {
		return
	}
	m.suspected = fmt.Errorf("backup copy %q: %w", m.name, err)
	s.suspicions = append(s.suspicions, Suspicion{m.name, m.suspected})
	s.signal()
}

// Suspicion is a member in trouble.
type Suspicion struct {
	Name string
	Err  error
}

// Suspicions returns the members of the view that Options.Suspect was told of, and that have not answered since, with what
// is wrong with them now: one that was silent may come back without its store.
func (s *Store) Suspicions() (list []Suspicion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.view {
		switch {
		case m.suspected == nil:
		case m.trouble != nil:
			list = append(list, Suspicion{m.name, fmt.Errorf("backup copy %q: %w", m.name, m.trouble)})
		default:
			list = append(list, Suspicion{m.name, m.suspected})
		}
	}
	return list
}

// isRefusal says that an error is an answer, which every member would give.
func isRefusal(err error) bool {
	return errors.Is(err, backup.ErrFenced) || errors.Is(err, backup.ErrTooLarge) || errors.Is(err, backup.ErrKey) || errors.Is(err, backup.ErrName)
}

func isFenced(err error) bool { return errors.Is(err, backup.ErrFenced) }
