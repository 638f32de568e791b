package node

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/worker"
)

// rests waits until all workers of a job have answered the record so that ok, and returns the highest window.
func (l *lab) rests(j *cluster.Job, ok func(w *cluster.Worker, r *cluster.Rest) bool) (window uint64) {
	l.t.Helper()
	late := time.After(30 * time.Second)
	for {
		all := true
		window = 0
		for i := range j.Workers {
			w := &j.Workers[i]
			b := l.last[w.Session]
			var s *cluster.Status
			if b != nil {
				s = status(b, w.Operator, w.Index)
			}
			if s == nil || s.Epoch != w.Epoch || s.Rest == nil || s.Rest.Round != j.Scaling.Round || s.Phase == cluster.Loading || !ok(w, s.Rest) {
				all = false
				continue
			}
			window = max(window, s.Rest.Window)
		}
		if all {
			return window
		}
		select {
		case b := <-l.beats:
			l.note(b)
		case <-late:
			require.FailNow(l.t, "the job does not come to rest", "phase %s %s", j.Scaling.Phase, l.describe())
		}
	}
}

// phase takes a job that is being scaled to a phase, and to another round.
func (l *lab) phase(id string, p cluster.ScalePhase, window uint64) *cluster.Job {
	return l.update(id, func(j *cluster.Job) {
		j.Scaling.Phase, j.Scaling.Window = p, window
		if p == cluster.ScaleHold {
			j.Scaling.Round++
		}
	})
}

// ask asks for another number of workers.
func (l *lab) ask(id, operator string, n int) *cluster.Job {
	return l.update(id, func(j *cluster.Job) {
		round := uint64(1)
		if j.Scaling != nil {
			round = j.Scaling.Round + 1
		}
		s := &cluster.Scaling{ScaleWish: cluster.ScaleWish{ID: "w", Operator: operator, Workers: n}, Phase: cluster.ScaleAsked, Round: round}
		s.Former = j.Spec.Operators[slices.IndexFunc(j.Spec.Operators, func(o cluster.Operator) bool { return o.Name == operator })].Workers
		j.Scaling = s
	})
}

// rest brings a job that is asked to be scaled to rest.
func (l *lab) rest(id string) *cluster.Job {
	l.t.Helper()
	j := l.phase(id, cluster.ScaleHold, 0)
	window := l.rests(j, func(w *cluster.Worker, r *cluster.Rest) bool {
		require.Empty(l.t, r.Cannot)
		return w.Operator != "numbers" || r.Held == j.Scaling.Round
	})
	j = l.phase(id, cluster.ScalePause, window)
	l.rests(j, func(_ *cluster.Worker, r *cluster.Rest) bool { return r.Paused == j.Scaling.Round })
	return j
}

// partitions does something to all partitions of a layout.
func (l *lab) partitions(j *cluster.Job, layout uint64, workers func(o *cluster.Operator) int, do func(backup.Store, backup.PartitionKey, uint64) error) {
	for i := range j.Spec.Operators {
		o := &j.Spec.Operators[i]
		for part := range workers(o) * o.Compute {
			require.NoError(l.t, do(l.store, backup.PartitionKey{Job: j.Spec.Name, Incarnation: j.ID, Operator: o.Name, Partition: part, Layout: layout}, backup.Frozen))
		}
	}
}

// divide gives a job at rest its next layout, with its workers spread over the sessions.
func (l *lab) divide(id string, sessions map[string]string) *cluster.Job {
	l.t.Helper()
	j := l.phase(id, cluster.ScaleFreeze, 0)
	l.partitions(j, max(j.Layout, 1), func(o *cluster.Operator) int { return o.Workers }, backup.Freeze)
	names := make([]string, 0, len(sessions))
	for n := range sessions {
		names = append(names, n)
	}
	slices.Sort(names)
	return l.update(id, func(j *cluster.Job) {
		j.Scaling.Phase = cluster.ScaleLayout
		j.Divide()
		for i := range j.Workers {
			w := &j.Workers[i]
			w.Epoch++
			w.Node = names[i%len(names)]
			w.Session = sessions[w.Node]
		}
	})
}

// scale changes the number of workers of an operator.
func (l *lab) scale(id, operator string, n int, sessions map[string]string) {
	l.t.Helper()
	l.rests(l.ask(id, operator, n), func(_ *cluster.Worker, r *cluster.Rest) bool {
		require.Empty(l.t, r.Cannot)
		return true
	})
	l.rest(id)
	l.settle(l.divide(id, sessions))
}

// has says whether the workers of the present layout have processed so many items.
func (l *lab) has(sessions map[string]string, items uint64) func(j *cluster.Job) bool {
	return func(j *cluster.Job) bool {
		n := uint64(0)
		for i := range j.Workers {
			w := &j.Workers[i]
			if b := l.last[sessions[w.Node]]; b != nil {
				if s := status(b, w.Operator, w.Index); s != nil && s.Epoch == w.Epoch && w.Operator == "tally" {
					n += s.Counters.Items
				}
			}
		}
		return n >= items
	}
}

// settle waits until all have saved what they have taken over, and drops the layout before.
func (l *lab) settle(j *cluster.Job) {
	l.t.Helper()
	l.rests(j, func(_ *cluster.Worker, r *cluster.Rest) bool { return r.Settled })
	j = l.phase(j.ID, cluster.ScaleDrop, 0)
	l.partitions(j, j.Layout-1, j.FormerWorkers, backup.Drop)
	l.phase(j.ID, cluster.ScaleDone, 0)
}

// TestScaling: operators are given more workers and fewer while the job runs over two nodes, and each item is counted once.
func TestScaling(t *testing.T) {
	for name, window := range map[string]int{"one window": 0, "windows": 4_000} {
		if window == 0 && !thorough.Tests {
			continue
		}
		t.Run(name, func(t *testing.T) {
			p := moving(48_000, window)
			p.stop, p.drip = p.n, 2*time.Millisecond
			close(p.gate)
			l := newLab(t, p.program()).withNATS()
			sessions := l.startAll("a", "b")
			l.submit("j1", p.spec())
			l.drive("j1", sessions, l.running(sessions))
			for _, c := range []struct {
				operator string
				n        int
			}{{"tally", 5}, {"relay", 3}, {"tally", 1}} {
				l.drive("j1", sessions, l.has(sessions, 2_000))
				l.scale("j1", c.operator, c.n, sessions)
			}
			j := l.drive("j1", sessions, never)
			requireFree(t, j)
			p.requireExact(t)
			require.EqualValues(t, 4, j.Layout)
			require.EqualValues(t, 8, p.built.Load(), "each node makes the topology of each layout once")
			layouts := map[string]bool{}
			require.NoError(t, l.store.Scan([]byte("s/counting/j1/"), func(key, _ []byte) error {
				layouts[string(key[:len("s/counting/j1/tally.4")])] = true
				return nil
			}))
			require.Contains(t, layouts, "s/counting/j1/tally.4")
			require.NotContains(t, layouts, "s/counting/j1/tally.3")
		})
	}
}

// TestScalingIsGivenUp: a job that was at rest, or about to be, goes on as it was; and comes to rest again later.
func TestScalingIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := moving(64_000, 0)
		p.stop, p.drip = p.n, 2*time.Millisecond
		close(p.gate)
		l := newLab(t, p.program())
		l.start("a", func(o *Options) { o.Slots = 20 })
		sessions := map[string]string{"a": l.session("a", "")}
		l.submit("j1", p.spec())
		l.drive("j1", sessions, l.running(sessions))
		items := func() (n uint64) {
			l.latest("a")
			b := l.await("a", func(*cluster.Beat) bool { return true })
			for i := range b.Workers {
				n += b.Workers[i].Counters.Items
			}
			return n
		}
		for range 2 {
			l.ask("j1", "tally", 4)
			l.rest("j1")
			before := items()
			time.Sleep(time.Second)
			require.Equal(t, before, items(), "nothing moves")
			l.phase("j1", cluster.ScaleRefused, 0)
			time.Sleep(100 * time.Millisecond)
			require.Greater(t, items(), before, "it goes on")
		}
		l.scale("j1", "tally", 4, sessions)
		j := l.drive("j1", sessions, never)
		requireFree(t, j)
		p.requireExact(t)
	})
}

// TestScalingAndDeath: a node dies while the workers of the next layout take over; others do, from the same layout.
func TestScalingAndDeath(t *testing.T) {
	thorough.Only(t)
	p := moving(320_000, 0)
	p.guarantee, p.relays, p.params = worker.ErrorFree, false, errorbound.Params{}
	p.n = 12_800
	p.stop, p.drip = p.n, 4*time.Millisecond
	close(p.gate)
	l := newLab(t, p.program()).withNATS()
	sessions := l.startAll("a", "b")
	l.submit("j1", p.spec())
	l.drive("j1", sessions, l.running(sessions))
	l.rests(l.ask("j1", "tally", 4), func(*cluster.Worker, *cluster.Rest) bool { return true })
	l.rest("j1")
	l.divide("j1", sessions)
	l.nodes["b"].crash()
	delete(sessions, "b")
	l.update("j1", func(j *cluster.Job) {
		for i := range j.Workers {
			if w := &j.Workers[i]; w.Node == "b" {
				assign(w, "a", sessions["a"])
			}
		}
	})
	l.settle(l.update("j1", func(*cluster.Job) {}))
	j := l.drive("j1", sessions, never)
	require.Equal(t, cluster.Finished, j.State, j.Why)
	p.requireExact(t)
	require.Positive(t, j.Worker("tally", 1).Failures)
}

// TestScalingThatCannotBe is said before anything is held.
func TestScalingThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(p *counting)
		operator string
		why      string
	}{
		"no backups": {func(p *counting) { p.guarantee = worker.None }, "tally", "the job makes no backups"},
		"a sink":     {func(*counting) {}, "out", "a sink has as many partitions as its result"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := moving(6_400, 0)
				c.change(p)
				l := newLab(t, p.program())
				l.start("a", func(o *Options) { o.Slots = 20 })
				sessions := map[string]string{"a": l.session("a", "")}
				l.submit("j1", p.spec())
				l.drive("j1", sessions, l.running(sessions))
				said := ""
				l.rests(l.ask("j1", c.operator, 4), func(_ *cluster.Worker, r *cluster.Rest) bool {
					said += r.Cannot
					return true
				})
				require.Contains(t, said, c.why)
				l.phase("j1", cluster.ScaleRefused, 0)
				close(p.gate)
				require.Equal(t, cluster.Finished, l.drive("j1", sessions, never).State)
			})
		})
	}
}
