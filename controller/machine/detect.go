package machine

import (
	"fmt"
	"time"

	"github.com/afstream/afstream/cluster"
)

// sessionKey names one life of a node.
type sessionKey struct{ node, id string }

// statusKey names one incarnation of a worker.
type statusKey struct {
	job, operator string
	index         int
	epoch         uint64
}

// session is what is known of one life of a node: what it said last, and how regularly it says something.
type session struct {
	sessionKey
	born     time.Time                     // when it was first heard of
	beat     *cluster.Beat                 // the newest; nil if none was heard
	statuses map[statusKey]*cluster.Status // of beat, made when first asked for
	heard    time.Time                     // when the newest beat came
	since    time.Time                     // since when one is waited for: then, or later if it is not the node that was silent
	sampled  time.Time                     // where the interval began that is measured next
	mean     time.Duration                 // smoothed interval between beats; 0 if there was none yet
	dev      time.Duration                 // smoothed deviation from it
}

// hear takes a beat in, unless it is old news.
func (s *session) hear(c *Config, now time.Time, b *cluster.Beat) {
	if s.beat != nil && b.Number <= s.beat.Number {
		return
	}
	first := s.beat == nil
	s.beat, s.statuses, s.heard, s.since = b, nil, now, now
	switch interval := now.Sub(s.sampled); {
	case first:
		s.sampled = now
	case interval >= c.Beat/2: // what is said at once, between the regular beats, says nothing of delays
		s.sample(c, interval)
		s.sampled = now
	}
}

// sample smooths as TCP does for its timeouts. One long silence must not make the next go unnoticed, so it is cut short.
func (s *session) sample(c *Config, interval time.Duration) {
	interval = min(interval, c.DeadCeiling/5)
	if s.mean == 0 {
		s.mean, s.dev = interval, interval/2
		return
	}
	off := interval - s.mean
	s.mean += off / 8
	s.dev += (max(off, -off) - s.dev) / 4
}

// forgive begins to wait anew: it was not the node that was silent.
func (s *session) forgive(now time.Time) { s.since, s.sampled = now, now }

// usual is the longest silence to expect of it.
func (s *session) usual(c *Config) time.Duration {
	if s.mean == 0 {
		return 5 * c.Beat
	}
	return s.mean + 4*s.dev
}

// suspect says whether it has been silent for longer than is usual: it is given nothing more, and loses nothing.
func (s *session) suspect(c *Config, now time.Time) bool {
	return s.beat == nil || now.Sub(s.heard) > min(max(s.usual(c), c.SuspectFloor), c.DeadCeiling/2)
}

// patience is after how much silence it is dead. One that was never heard of gets most: nobody knows how it is connected.
func (s *session) patience(c *Config) time.Duration {
	if s.beat == nil {
		return c.DeadCeiling
	}
	return min(max(3*s.usual(c), c.DeadFloor), c.DeadCeiling)
}

// status returns what the session said last of an incarnation, nil if nothing.
func (s *session) status(k statusKey) *cluster.Status {
	if s == nil || s.beat == nil {
		return nil
	}
	if s.statuses == nil {
		s.statuses = make(map[statusKey]*cluster.Status, len(s.beat.Workers))
		for i := range s.beat.Workers {
			st := &s.beat.Workers[i]
			s.statuses[statusKey{st.Job, st.Operator, st.Index, st.Epoch}] = st
		}
	}
	return s.statuses[k]
}

// carries says whether the node runs a program.
func (s *session) carries(name, version string) bool {
	for _, p := range s.beat.Programs {
		if p.Name == name && p.Version == version {
			return true
		}
	}
	return false
}

// dead says why a session is dead; empty if it is not.
func (m *Machine) dead(s *session, now time.Time) string {
	switch n := m.nodes[s.node]; {
	case s.beat != nil && s.beat.Leaving:
		return fmt.Sprintf("node %s has ended", s.node)
	case n == nil:
		return fmt.Sprintf("node %s has given up its name", s.node)
	case n.session != s.id:
		return fmt.Sprintf("node %s was started again", s.node)
	}
	if silence := now.Sub(s.since); silence > s.patience(&m.c) {
		return fmt.Sprintf("node %s was not heard of for %v", s.node, silence.Round(time.Millisecond))
	}
	return ""
}

// session returns what is known of a session. One that is first mentioned now is waited for from now on.
func (m *Machine) session(node, id string, now time.Time) *session {
	k := sessionKey{node, id}
	s := m.sessions[k]
	if s == nil {
		s = &session{sessionKey: k, born: now, since: now, sampled: now}
		m.sessions[k] = s
	}
	return s
}

// forgetSessions drops those that are of no interest any more: silent for long and assigned nothing.
func (m *Machine) forgetSessions(now time.Time) {
	used := make(map[sessionKey]bool)
	for _, j := range m.jobs {
		for i := range j.stored.Workers {
			w := &j.stored.Workers[i]
			used[sessionKey{w.Node, w.Session}] = true
		}
	}
	for k, s := range m.sessions {
		if !used[k] && now.Sub(s.since) > forgetAfter {
			delete(m.sessions, k)
		}
	}
}
