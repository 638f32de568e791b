package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/worker"
)

// move has a worker retire, and gives it to another node without a failure.
func (l *lab) move(id string, at place, to, session string) {
	l.t.Helper()
	var w cluster.Worker
	l.update(id, func(j *cluster.Job) {
		r := j.Worker(at.operator, at.index)
		r.Retire = true
		w = *r
	})
	retired := l.await(w.Node, func(b *cluster.Beat) bool {
		s := status(b, at.operator, at.index)
		return b.Session == w.Session && s != nil && s.Epoch == w.Epoch && s.Phase == cluster.Retired
	})
	require.Empty(l.t, status(retired, at.operator, at.index).Error)
	l.update(id, func(j *cluster.Job) {
		r := j.Worker(at.operator, at.index)
		r.Retire, r.Node, r.Session = false, to, session
		r.Epoch++
	})
	l.await(to, func(b *cluster.Beat) bool {
		s := status(b, at.operator, at.index)
		if s != nil {
			require.Empty(l.t, s.Error)
		}
		return s != nil && s.Epoch == w.Epoch+1 && s.Phase != cluster.Loading
	})
}

// empty moves all workers of a job off a node.
func (l *lab) empty(id, node, to, session string) (moved int) {
	l.t.Helper()
	j := l.update(id, func(*cluster.Job) {})
	for i := range j.Workers {
		if w := &j.Workers[i]; w.Node == node {
			l.move(id, place{w.Operator, w.Index}, to, session)
			moved++
		}
	}
	return moved
}

// moving is a job of all kinds of workers, half of which are on another node.
func moving(n uint64, window int) *counting {
	return &counting{
		n: n, stop: n / 2, gate: make(chan struct{}), relays: true, window: window,
		guarantee: worker.Approximate, params: errorbound.Params{Theta: 500, L: 400, Gamma: 300},
	}
}

// requireFree checks that nothing has cost anything.
func requireFree(t *testing.T, j *cluster.Job) {
	t.Helper()
	require.Equal(t, cluster.Finished, j.State, j.Why)
	require.Empty(t, j.History)
	for i := range j.Workers {
		require.Zero(t, j.Workers[i].Failures, j.Workers[i].Name())
	}
}

// TestMovesCostNothing: all workers of a node move to another one and back while the job runs, linked by NATS, and each item is
// counted once.
func TestMovesCostNothing(t *testing.T) {
	for name, window := range map[string]int{"one window": 0, "windows": 4_000} {
		t.Run(name, func(t *testing.T) {
			p := moving(320_000, window)
			l := newLab(t, p.program()).withNATS()
			sessions := l.startAll("a", "b")
			l.submit("j1", p.spec())
			l.drive("j1", sessions, l.running(sessions))
			require.Equal(t, 4, l.empty("j1", "a", "b", sessions["b"])) // sources that have come to the gate among them
			close(p.gate)
			require.Equal(t, 8, l.empty("j1", "b", "a", sessions["a"]))
			j := l.drive("j1", sessions, never)
			requireFree(t, j)
			p.requireExact(t)
		})
	}
}

// TestProcessEndsInOrder: it says that it is about to end, and goes as soon as its workers have moved, which costs nothing.
func TestProcessEndsInOrder(t *testing.T) {
	p := moving(64_000, 0)
	l := newLab(t, p.program()).withNATS()
	sessions := map[string]string{}
	for _, n := range []string{"a", "b"} {
		l.start(n, func(o *Options) { o.Grace = 20 * time.Second })
		sessions[n] = l.session(n, "")
	}
	l.submit("j1", p.spec())
	l.drive("j1", sessions, l.running(sessions))
	l.nodes["a"].kill(nil)
	l.await("a", func(b *cluster.Beat) bool { return b.Ending && !b.Leaving && len(b.Workers) == 4 })
	close(p.gate)
	l.empty("j1", "a", "b", sessions["b"])
	<-l.nodes["a"].ended
	require.NoError(t, l.nodes["a"].err)
	l.latest("a")
	require.True(t, l.last[sessions["a"]].Leaving)
	require.Empty(t, l.last[sessions["a"]].Workers)
	delete(sessions, "a")
	requireFree(t, l.drive("j1", sessions, never))
	p.requireExact(t)
}

// TestProcessEndsWithoutOthers: it waits for its grace and no longer, and not at all if it has nothing to lose.
func TestProcessEndsWithoutOthers(t *testing.T) {
	for name, c := range map[string]struct {
		grace, takes time.Duration
		idle         bool
	}{
		"nobody moves its workers": {grace: 0, takes: 10 * time.Second},
		"another grace":            {grace: 3 * time.Second, takes: 3 * time.Second},
		"no grace":                 {grace: -1},
		"no workers":               {grace: time.Hour, idle: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := moving(6_400, 0)
				l := newLab(t, p.program())
				l.start("a", func(o *Options) { o.Grace, o.Slots = c.grace, 9 })
				sessions := map[string]string{"a": l.session("a", "")}
				l.submit("j1", p.spec())
				if !c.idle {
					l.drive("j1", sessions, l.running(sessions))
				}
				began := time.Now()
				l.nodes["a"].kill(nil)
				<-l.nodes["a"].ended
				require.NoError(t, l.nodes["a"].err)
				require.Equal(t, c.takes, time.Since(began).Round(10*time.Millisecond))
			})
		})
	}
}

// TestWorkersThatHaveFinishedAreNotWaitedFor when a process ends. Sources never have: they may have to send again.
func TestWorkersThatHaveFinishedAreNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := moving(6_400, 0)
		l := newLab(t, p.program())
		l.start("a", func(o *Options) { o.Grace = time.Hour })
		sessions := map[string]string{"a": l.session("a", "")}
		l.submit("j1", p.spec())
		l.drive("j1", sessions, l.running(sessions))
		l.nodes["a"].kill(nil)
		time.Sleep(time.Second)
		close(p.gate)
		l.await("a", func(b *cluster.Beat) bool { return status(b, "out", 0).Phase == cluster.Done })
		began := time.Now()
		l.update("j1", func(j *cluster.Job) {
			for i := range 2 {
				j.Workers[i].Node, j.Workers[i].Session = "", ""
			}
		})
		<-l.nodes["a"].ended
		require.Less(t, time.Since(began), time.Second)
		require.NoError(t, l.nodes["a"].err)
		p.requireExact(t)
	})
}

// TestRetirementThatIsCalledOff: a relay whose receivers are not there cannot get rid of what it has emitted; told to go on it does,
// as if nothing had been.
func TestRetirementThatIsCalledOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := moving(64_000, 0)
		close(p.gate)
		l := newLab(t, p.program())
		l.start("a")
		sessions := map[string]string{"a": l.session("a", "")}
		l.submit("j1", p.spec())
		l.update("j1", func(j *cluster.Job) {
			for i := range 4 { // the sources and the relays
				assign(&j.Workers[i], "a", sessions["a"])
			}
		})
		time.Sleep(time.Second)
		for _, retire := range []bool{true, false} {
			l.update("j1", func(j *cluster.Job) { j.Worker("relay", 0).Retire = retire })
			time.Sleep(time.Second)
			s := status(l.latest("a"), "relay", 0)
			require.Equal(t, cluster.Working, s.Phase)
			require.Empty(t, s.Error)
		}
		l.update("j1", func(j *cluster.Job) { j.Worker("relay", 0).Retire = true })
		time.Sleep(time.Second)
		require.Contains(t, status(l.latest("a"), "relay", 0).Error, "it was called off before")
		l.update("j1", func(j *cluster.Job) { j.Worker("relay", 0).Retire = false })
		j := l.drive("j1", sessions, never)
		requireFree(t, j)
		require.EqualValues(t, 1, j.Worker("relay", 0).Epoch)
		p.requireExact(t)
	})
}

// TestWorkerThatCannotRetire says why, for as long as it is asked to, and goes on.
func TestWorkerThatCannotRetire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &counting{n: 6_400, stop: 3_200, gate: make(chan struct{}), guarantee: worker.None}
		l := newLab(t, p.program())
		l.start("a")
		sessions := map[string]string{"a": l.session("a", "")}
		spec := p.spec()
		spec.Backups = nil
		l.submit("j1", spec)
		l.drive("j1", sessions, l.running(sessions))
		l.update("j1", func(j *cluster.Job) { j.Worker("tally", 1).Retire = true })
		b := l.await("a", func(b *cluster.Beat) bool { return status(b, "tally", 1).Error != "" })
		s := status(b, "tally", 1)
		require.Equal(t, cluster.Working, s.Phase)
		require.Equal(t, "worker cannot end without loss: the job makes no backups", s.Error)
		require.False(t, s.Hopeless)
		require.Positive(t, b.Goroutines)
		l.update("j1", func(j *cluster.Job) { j.Worker("tally", 1).Retire = false })
		l.await("a", func(b *cluster.Beat) bool { return status(b, "tally", 1).Error == "" })
		close(p.gate)
		requireFree(t, l.drive("j1", sessions, never))
		p.requireExact(t)
	})
}

// TestWorkerThatIsToRetireBeforeItRuns does so as soon as it does.
func TestWorkerThatIsToRetireBeforeItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := moving(64_000, 0)
		close(p.gate)
		l := newLab(t, p.program())
		l.start("a")
		sessions := map[string]string{"a": l.session("a", "")}
		l.submit("j1", p.spec())
		l.update("j1", func(j *cluster.Job) {
			w := j.Worker("relay", 1)
			assign(w, "a", sessions["a"])
			w.Retire = true
		})
		b := l.await("a", func(b *cluster.Beat) bool { return len(b.Workers) == 1 && b.Workers[0].Phase == cluster.Retired })
		require.EqualValues(t, 1, b.Workers[0].Epoch)
		l.update("j1", func(j *cluster.Job) { // and goes on here
			w := j.Worker("relay", 1)
			w.Retire = false
			w.Epoch++
		})
		requireFree(t, l.drive("j1", sessions, never))
		p.requireExact(t)
	})
}
