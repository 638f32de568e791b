package copies

import (
	"fmt"
	"time"

	"github.com/afstream/afstream/backup"
)

// watch tells of members in trouble, and has them asked again, until the Store is closed.
func (s *Store) watch() {
	every := min(max(s.o.Patience/8, time.Millisecond), firstRetry)
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-s.stop:
			return
		case <-s.wake:
		case now := <-tick.C:
			// A process that was stopped must not take the time for silence of the members.
			s.pass(min(now.Sub(last), 2*every))
			last = now
		}
		s.tell()
	}
}

func (s *Store) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// pass lets time pass.
func (s *Store) pass(d time.Duration) {
	var sending []*part
	var failing []*write
	s.mu.Lock()
	for _, m := range s.view {
		if m.asked == 0 {
			m.silent = 0
		} else if m.silent += d; m.silent > s.o.Patience {
			s.suspect(m, fmt.Errorf("no answer for %v", s.o.Patience))
		}
		if s.closed && (m.suspected != nil || !m.isReady()) {
			failing = append(failing, s.giveUp(m)...)
		}
		if m.waited += d; len(m.again) > 0 && m.waited >= m.wait && m.isReady() {
			sending = s.resend(m, sending)
		}
	}
	s.mu.Unlock()
	for _, p := range sending {
		p.send()
	}
	for _, w := range failing {
		s.finish(w)
	}
}

// resend takes up again what has waited for m. s.mu is held.
func (s *Store) resend(m *member, list []*part) []*part {
	for _, p := range m.again {
		if !p.settled {
			m.asked++
			p.w.refs++
			list = append(list, p)
		}
	}
	m.again = nil
	m.waited = 0
	return list
}

// tell calls Options.Suspect.
func (s *Store) tell() {
	s.mu.Lock()
	list := s.suspicions
	s.suspicions = nil
	s.mu.Unlock()
	for _, x := range list {
		s.o.Log.Warn("backup copy in trouble", "copy", x.Name, "err", x.Err)
		s.o.Suspect(x.Name, x.Err)
	}
}

// giveUp ends all waiting for a member of a Store that is being closed, and returns the writes to finish. s.mu is held.
func (s *Store) giveUp(m *member) []*write {
	if m.isGone() {
		return nil
	}
	close(m.gone)
	m.again = nil
	return s.settleAll(m, s.whyGone(m))
}

// whyGone says why nobody waits for m. s.mu is held.
func (s *Store) whyGone(m *member) error {
	switch {
	case m.dropped:
		return errDropped
	case m.trouble != nil:
		return fmt.Errorf("backup copy %q: %w: %w", m.name, backup.ErrClosed, m.trouble)
	}
	return fmt.Errorf("backup copy %q does not answer: %w", m.name, backup.ErrClosed)
}
