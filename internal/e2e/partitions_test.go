//go:build e2e && unix

package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/internal/chaos"
)

// TestNodeIsCutOff for longer than its lease, in each way: it stops its workers by itself, and comes back as another session.
func TestNodeIsCutOff(t *testing.T) {
	for name, cut := range map[string]func(*chaos.Proxy){
		"hangs":           (*chaos.Proxy).Hang,
		"breaks":          (*chaos.Proxy).Cut,
		"cannot be heard": (*chaos.Proxy).HangUp,
		"cannot hear":     (*chaos.Proxy).HangDown,
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, setup{})
			jobs := s.submit()
			m, lost := s.victim()
			session := s.session(m.name)
			at := time.Now()
			cut(m.way)
			s.outlasts(m, session, at, lost, m.way.Heal)
			s.finish(jobs)
		})
	}
}

// TestNodeIsUnplugged: of its cable, so that nothing answers in its place.
func TestNodeIsUnplugged(t *testing.T) {
	space := chaos.NewNamespace(t)
	s := start(t, setup{apart: space})
	jobs := s.submit()
	m := s.nodes[2]
	lost, session := get(s.seen, func() []incarnation { return s.seen.on(m.name) }), s.session(m.name)
	at := time.Now()
	space.Cut()
	s.outlasts(m, session, at, lost, space.Heal)
	s.finish(jobs)
}

// outlasts waits until a node that is cut off has lost its lease, by its own clock, and heals it then.
func (s *system) outlasts(m *member, session string, at time.Time, lost []incarnation, heal func()) {
	s.t.Helper()
	m.Await("node lost its lease")
	s.t.Logf("it has stopped its workers after %v", since(at))
	heal()
	s.recovers(at, lost)
	s.seen.until("it is back as another session", func() bool {
		n, b := s.seen.nodes[m.name], s.seen.beats[m.name]
		return n.Session != session && b.Session == n.Session
	})
	s.t.Logf("it is back after %v", since(at))
}

// TestControllersDoNotHearANode that has all else: its record, its neighbours, its backups. It has to hand over what it runs, and
// keeps its session.
func TestControllersDoNotHearANode(t *testing.T) {
	s := start(t, setup{users: true})
	jobs := s.submit()
	m, lost := s.victim()
	session := s.session(m.name)
	at := time.Now()
	s.servers[0].Configure(users(m.name))
	s.recovers(at, lost)
	renewal := get(s.seen, func() uint64 { return s.seen.nodes[m.name].Renewal })
	s.seen.until("it renews its record", func() bool { return s.seen.nodes[m.name].Renewal > renewal })
	number := get(s.seen, func() uint64 { return s.seen.beats[m.name].Number })
	s.servers[0].Configure(users(""))
	s.seen.until("it is heard again, and has given up what it had", func() bool {
		b := s.seen.beats[m.name]
		for _, w := range b.Workers {
			for _, i := range lost {
				if i == (incarnation{w.Job, w.Operator, w.Index, w.Epoch}) {
					return false
				}
			}
		}
		return b.Number > number
	})
	require.Equal(t, session, s.session(m.name))
	s.finish(jobs)
}

// TestLeaderIsCutOff: the other controller takes over, and this one stops before.
func TestLeaderIsCutOff(t *testing.T) {
	for name, cut := range map[string]func(*chaos.Proxy){
		"hangs":           (*chaos.Proxy).Hang,
		"cannot be heard": (*chaos.Proxy).HangUp,
		"cannot hear":     (*chaos.Proxy).HangDown,
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, setup{})
			jobs := s.submit()
			m, term := s.leads()
			at := time.Now()
			cut(m.way)
			s.takesOver(at, term)
			m.Await("leads no more")
			t.Logf("%d incidents before any node failed", get(s.seen, func() (n int) {
				for _, j := range s.seen.jobs {
					n += j.Incidents
				}
				return n
			}))
			n, lost := s.victim() // so that the new one has something to decide
			at = time.Now()
			s.kill(n)
			s.recovers(at, lost)
			m.way.Heal() // what it has written arrives now, too late
			s.finish(jobs)
			leader := get(s.seen, func() cluster.Leader { return s.seen.leader })
			require.Greater(t, leader.Term, term)
		})
	}
}
