package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/worker"
)

// TestNameInUse: a process that begins finds out that another has its name, and lets it go on.
func TestNameInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		first := l.start("a")
		session := l.session("a", "")
		second := l.start("a")
		<-second.ended
		require.ErrorIs(t, second.err, ErrTaken)
		require.ErrorContains(t, second.err, `node "a" is session `+session)
		require.Equal(t, session, l.await("a", func(*cluster.Beat) bool { return true }).Session)
		first.kill(nil)
		<-first.ended
		require.NoError(t, first.err)
	})
}

// TestNameOfTheDead is free as soon as it is clear that nobody beats under it, and at once after a farewell.
func TestNameOfTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		p := l.start("a")
		first := l.session("a", "")
		p.crash()
		began := time.Now()
		p = l.start("a")
		second := l.session("a", first)
		require.InDelta(t, 1, time.Since(began).Seconds(), 0.2)
		p.kill(nil)
		<-p.ended
		l.await("a", func(b *cluster.Beat) bool { return b.Session == second && b.Leaving })
		_, err := l.records.Get(t.Context(), cluster.NodeKey("a"))
		require.ErrorIs(t, err, cluster.ErrNoRecord)
		began = time.Now()
		l.start("a")
		l.session("a", second)
		require.Less(t, time.Since(began), 200*time.Millisecond)
	})
}

// TestNameTaken: a zombie whose record names another process ends with an error, and its workers with it.
func TestNameTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &counting{n: 6_400, stop: 3_200, gate: make(chan struct{})}
		l := newLab(t, p.program())
		a := l.start("a")
		sessions := map[string]string{"a": l.session("a", "")}
		l.submit("j1", p.spec())
		l.drive("j1", sessions, l.running(sessions))
		r, err := l.records.Get(t.Context(), cluster.NodeKey("a"))
		require.NoError(t, err)
		_, err = l.records.Update(t.Context(), r.Key, (&cluster.Node{Name: "a", Session: "other"}).Encode(), r.Revision)
		require.NoError(t, err)
		<-a.ended
		require.ErrorIs(t, a.err, ErrTaken)
		n, err := l.records.Get(t.Context(), cluster.NodeKey("a"))
		require.NoError(t, err, "the other's record stays")
		require.NotEmpty(t, n.Value)
	})
}

// TestLeaseLost: a node that cannot write its record stops its workers when its lease is over, and comes back as another
// session, which is given workers anew.
func TestLeaseLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &counting{n: 6_400, stop: 3_200, gate: make(chan struct{}), guarantee: worker.ErrorFree}
		l := newLab(t, p.program())
		a := l.start("a")
		sessions := map[string]string{"a": l.session("a", "")}
		l.submit("j1", p.spec())
		l.drive("j1", sessions, l.running(sessions))
		time.Sleep(time.Second)
		a.cutOff()
		time.Sleep(6 * time.Second) // less than the lease from the last renewal on
		synctest.Wait()
		require.EqualValues(t, 1, l.opened.Load(), "still at work")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Zero(t, l.opened.Load(), "nothing runs any more")
		a.cut.Store(false)
		old := sessions["a"]
		sessions["a"] = l.session("a", old)
		require.Empty(t, l.last[sessions["a"]].Workers)
		close(p.gate)
		j := l.drive("j1", sessions, never)
		require.Equal(t, cluster.Finished, j.State)
		p.requireExact(t)
		for i := range j.Workers {
			require.EqualValues(t, 2, j.Workers[i].Epoch)
		}
	})
}

// TestProcessWasStopped for longer than its lease: it does not believe that it still has it, whatever was written meanwhile,
// and says nothing more under the old session.
func TestProcessWasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &counting{n: 6_400, stop: 3_200, gate: make(chan struct{})}
		l := newLab(t, p.program())
		stop := make(chan time.Duration, 1)
		l.start("a", func(o *Options) {
			o.OnLog = func(string, cluster.Line) { // on the host's goroutine
				select {
				case d := <-stop:
					time.Sleep(d)
				default:
				}
			}
		})
		sessions := map[string]string{"a": l.session("a", "")}
		l.submit("j1", p.spec())
		stop <- 11 * time.Second
		began := time.Now()
		l.update("j1", func(j *cluster.Job) { assign(&j.Workers[0], "a", sessions["a"]) })
		next := l.session("a", sessions["a"])
		require.GreaterOrEqual(t, time.Since(began), 11*time.Second)
		require.Less(t, time.Since(began), 12*time.Second)
		require.Empty(t, l.last[next].Workers)
		for len(l.beats) > 0 {
			require.Equal(t, next, (<-l.beats).Session)
		}
	})
}

// TestRecordRemoved, as a user may do with that of a node that seems gone: to all others the session is dead, so the node begins
// another.
func TestRecordRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &counting{n: 6_400, stop: 3_200, gate: make(chan struct{})}
		l := newLab(t, p.program())
		l.start("a")
		sessions := map[string]string{"a": l.session("a", "")}
		l.submit("j1", p.spec())
		l.drive("j1", sessions, l.running(sessions))
		r, err := l.records.Get(t.Context(), cluster.NodeKey("a"))
		require.NoError(t, err)
		require.NoError(t, l.records.Delete(t.Context(), r.Key, r.Revision))
		began := time.Now()
		next := l.session("a", sessions["a"])
		require.Less(t, time.Since(began), 4*time.Second)
		require.Empty(t, l.last[next].Workers)
		r, err = l.records.Get(t.Context(), cluster.NodeKey("a"))
		require.NoError(t, err)
		n, err := cluster.DecodeNode(r.Value)
		require.NoError(t, err)
		require.Equal(t, next, n.Session)
	})
}

// TestZombie: a node that is cut off from all but its neighbours and the store runs on beside those that have taken its workers
// over, and does no harm; when it is back it ends them.
func TestZombie(t *testing.T) {
	p := &counting{n: 12_800, stop: 6_400, gate: make(chan struct{}), guarantee: worker.ErrorFree}
	l := newLab(t, p.program()).withNATS()
	sessions := l.startAll("a", "b", "c")
	l.submit("j1", p.spec())
	l.drive("j1", sessions, l.running(sessions))
	delete(sessions, "a")
	l.nodes["a"].cutOff()
	close(p.gate) // the zombie's sources have something to read, too
	j := l.drive("j1", sessions, never)
	require.Equal(t, cluster.Finished, j.State, j.Why)
	p.requireExact(t)
	l.nodes["a"].cut.Store(false)
	l.await("a", func(b *cluster.Beat) bool { return len(b.Workers) == 0 })
}

// TestUnknownLevel: records and workers agree on what a failure at an unknown level is.
func TestUnknownLevel(t *testing.T) {
	require.Equal(t, uint64(cluster.Never), uint64(worker.UnknownLevel))
}
