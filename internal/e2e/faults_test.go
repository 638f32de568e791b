//go:build e2e && unix

package e2e

import (
	"testing"
	"time"

	"github.com/afstream/afstream/cluster"
)

// TestNodeIsKilled: its workers go on elsewhere, and it comes back.
func TestNodeIsKilled(t *testing.T) {
	s := start(t, setup{})
	jobs := s.submit()
	m, lost := s.victim()
	at := time.Now()
	s.kill(m)
	s.recovers(at, lost)
	m.Start()
	s.finish(jobs)
}

// TestAllNodesAreKilled: all goes on when they have been started again.
func TestAllNodesAreKilled(t *testing.T) {
	s := start(t, setup{})
	jobs := s.submit()
	at := time.Now()
	var lost []incarnation
	for _, m := range s.nodes {
		lost = append(lost, get(s.seen, func() []incarnation { return s.seen.on(m.name) })...)
		s.kill(m)
	}
	for _, m := range s.nodes {
		m.Start()
	}
	s.recovers(at, lost)
	s.finish(jobs)
}

// TestNodeStandsStill is a zombie's: for 10 s it does nothing, and when it goes on it still believes that it has its workers.
func TestNodeStandsStill(t *testing.T) {
	s := start(t, setup{})
	jobs := s.submit()
	m, lost := s.victim()
	at := time.Now()
	m.Stop()
	s.recovers(at, lost)
	time.Sleep(time.Until(at.Add(10 * time.Second))) // as long as the fault lasts
	heard := get(s.seen, func() uint64 { return s.seen.beats[m.name].Number })
	m.Continue()
	s.seen.until("it beats again", func() bool {
		b := s.seen.beats[m.name]
		return b.Number > heard || b.Session != s.seen.nodes[m.name].Session
	})
	s.finish(jobs)
}

// TestLeaderIsKilled: the other controller takes over, workers do not notice.
func TestLeaderIsKilled(t *testing.T) {
	s := start(t, setup{})
	jobs := s.submit()
	m, term := s.leads()
	at := time.Now()
	s.kill(m)
	s.takesOver(at, term)
	m.Start()
	s.finish(jobs)
}

// TestLeaderAndNodeAreKilled: who takes over finds out what has been lost.
func TestLeaderAndNodeAreKilled(t *testing.T) {
	s := start(t, setup{})
	jobs := s.submit()
	m, term := s.leads()
	n, lost := s.victim()
	at := time.Now()
	s.kill(n)
	s.kill(m)
	s.takesOver(at, term)
	s.recovers(at, lost)
	s.finish(jobs)
}

// TestBackupServerIsKilled: workers wait for it, those that have to be recovered meanwhile included.
func TestBackupServerIsKilled(t *testing.T) {
	s := start(t, setup{})
	jobs := s.submit()
	s.kill(s.backup)
	at := time.Now()
	n, lost := s.victim() // whose recovery has to wait
	s.kill(n)
	s.seen.until("a failure is noticed", func() bool { return !s.seen.noticed(lost).IsZero() })
	s.backup.Start()
	s.backup.Await("serves")
	t.Logf("it serves again after %v", since(at))
	s.recovers(at, lost)
	s.finish(jobs)
}

// TestServerIsKilled is of a server of three, one after the other at random, restarted: whatever leads there moves.
func TestServerIsKilled(t *testing.T) {
	s := start(t, setup{servers: 3})
	jobs := s.submit()
	before := get(s.seen, func() cluster.Leader { return s.seen.leader })
	server := s.servers[s.draw.IntN(len(s.servers))]
	at := time.Now()
	server.Kill()
	s.seen.until("a lease is renewed without that server", func() bool {
		l := s.seen.leader
		return l.Term > before.Term || l.Renewal > before.Renewal+10
	})
	t.Logf("leases are renewed after %v", since(at))
	server.Start()
	server.Await("Server is ready")
	s.finish(jobs)
}

// TestServerStandsStill: it says nothing, and does not close any connection either. Whoever was connected to it goes to another one, and
// all jobs end without it.
func TestServerStandsStill(t *testing.T) {
	s := start(t, setup{servers: 3})
	jobs := s.submit()
	server := s.servers[1+s.draw.IntN(len(s.servers)-1)] // to the first leads the way of the backup server
	at := time.Now()
	server.Stop()
	s.seen.until("all nodes beat, and a lease is renewed", func() bool {
		for _, m := range s.nodes {
			if s.seen.at[m.name].Sub(at) < 6*time.Second {
				return false
			}
		}
		return s.seen.led[s.seen.leader.Term].After(at) || s.seen.renewed.Sub(at) > 6*time.Second
	})
	t.Logf("all are elsewhere after %v", since(at))
	s.finish(jobs)
}
