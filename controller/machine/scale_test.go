package machine

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
)

// inner is a job of a source, an operator with two workers, and a sink.
func (b *bench) inner(id string) {
	spec := cluster.Spec{Name: program.Name, Version: program.Version, Backups: []string{"x"}, Operators: []cluster.Operator{
		{Name: "read", Workers: 2, Compute: 1, Source: true}, {Name: "count", Workers: 2, Compute: 1}, {Name: "write", Workers: 1, Compute: 1, Sink: true},
	}}
	b.put(cluster.JobKey(id), cluster.NewJob(id, spec, b.now).Encode())
	b.running(id)
	b.pass(200 * time.Millisecond)
}

// wish asks for a number of workers.
func (b *bench) wish(job, id string, n int) {
	b.put(cluster.ScaleKey(job), (&cluster.ScaleWish{ID: id, Operator: "count", Workers: n}).Encode())
}

// layouts does what is to be done to partitions, and returns what.
func (b *bench) layouts() (done []string) {
	for _, task := range b.m.Layouts() {
		what := "freeze"
		if task.Drop {
			what = "drop before"
		}
		done = append(done, what)
		b.m.LayoutDone(task)
	}
	return done
}

func (b *bench) phase(job string) cluster.ScalePhase { return b.job(job).Scaling.Phase }

func (b *bench) untilPhase(job string, p cluster.ScalePhase) time.Duration {
	b.t.Helper()
	return b.until(string(p), func() bool { return b.job(job).Scaling != nil && b.phase(job) == p })
}

// scaled lets a change of which the nodes do everything come to its end.
func (b *bench) scaled(job, id string) {
	b.t.Helper()
	b.until("scaled", func() bool {
		b.layouts()
		s := b.job(job).Scaling
		return s != nil && s.ID == id && s.Phase.Over()
	})
}

// A change goes through all of its phases, and takes no longer than the beats do.
func TestScale(t *testing.T) {
	b := newBench(t)
	b.node("a", 4)
	b.node("b", 4)
	b.inner("j")
	before := b.job("j")
	b.wish("j", "w1", 4)
	b.untilPhase("j", cluster.ScaleAsked)
	b.pass(20 * time.Millisecond)
	require.NotContains(t, b.store, cluster.ScaleKey("j"), "what is in the record need not be wished any more")
	b.untilPhase("j", cluster.ScaleHold)
	b.untilPhase("j", cluster.ScalePause)
	require.EqualValues(t, 5, b.job("j").Scaling.Window, "the highest of all sources")
	b.untilPhase("j", cluster.ScaleFreeze)
	require.Equal(t, before.Workers, b.job("j").Workers)
	b.pass(time.Second)
	require.Equal(t, cluster.ScaleFreeze, b.phase("j"), "nobody has frozen anything")
	require.Equal(t, []string{"freeze"}, b.layouts())
	require.Empty(t, b.layouts())
	b.untilPhase("j", cluster.ScaleLayout)
	j := b.job("j")
	require.EqualValues(t, 2, j.Layout)
	require.Len(t, j.Workers, 7)
	for i := range j.Workers {
		w := &j.Workers[i]
		if old := before.Worker(w.Operator, w.Index); old != nil {
			require.Equal(t, old.Node, w.Node, "%s stays where it was", w.Name())
		}
		require.EqualValues(t, 2, w.Epoch)
		require.NotEmpty(t, w.Node)
	}
	b.untilPhase("j", cluster.ScaleDrop)
	require.Equal(t, []string{"drop before"}, b.layouts())
	b.untilPhase("j", cluster.ScaleDone)
	b.requireNoFailures("j")

	b.wish("j", "w2", 1)
	b.scaled("j", "w2")
	j = b.job("j")
	require.Equal(t, cluster.ScaleDone, j.Scaling.Phase, j.Scaling.Why)
	require.Len(t, j.Workers, 4)
	require.EqualValues(t, 3, j.Layout)
	require.Equal(t, map[string]int{"a": 3, "b": 1}, b.on("j"))
	b.requireNoFailures("j")
	require.Empty(t, b.layouts())
}

// Nothing is held before it is known that it can be done.
func TestScaleRefused(t *testing.T) {
	for what, c := range map[string]struct {
		n     int
		slots int
		set   func(b *bench, n *fake)
		why   string
	}{
		"record":      {n: 0, slots: 9, why: "at least one worker"},
		"worker":      {n: 3, slots: 9, set: func(_ *bench, n *fake) { n.rest = cannot("its partitions hand each other values") }, why: "hand each other values"},
		"slots":       {n: 4, slots: 6, why: "it takes 2 more free slots on nodes that carry the program, and there are 1"},
		"not running": {n: 3, slots: 9, set: func(_ *bench, n *fake) { n.rest = func(_ *cluster.Worker, r *cluster.Rest) { r.Round = 0 } }, why: "were not all running"},
		"controller":  {n: 3, slots: 9, set: func(b *bench, _ *fake) { b.m.c.Unscalable = "no backup servers are known here" }, why: "no backup servers"},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			n := b.node("a", c.slots)
			b.inner("j")
			if c.set != nil {
				c.set(b, n)
			}
			before := b.job("j")
			b.wish("j", "w1", c.n)
			b.until("refused", func() bool {
				s := b.job("j").Scaling
				require.True(t, s == nil || !s.Phase.Holds(), "nothing is held")
				return s != nil && s.Phase.Over()
			})
			j := b.job("j")
			require.Equal(t, cluster.ScaleRefused, j.Scaling.Phase)
			require.Contains(t, j.Scaling.Why, c.why)
			require.Equal(t, before.Workers, j.Workers)
			require.Contains(t, j.History[len(j.History)-1].What, c.why)
			b.pass(time.Second)
			require.NotContains(t, b.store, cluster.ScaleKey("j"))
			require.Equal(t, 1, j.Incidents)
		})
	}
}

func cannot(why string) func(*cluster.Worker, *cluster.Rest) {
	return func(w *cluster.Worker, r *cluster.Rest) {
		if w.Operator == "count" {
			r.Cannot = why
		}
	}
}

// A job that does not come to rest goes on as it is, after some time and not before.
func TestScaleComesNotToRest(t *testing.T) {
	for _, phase := range []cluster.ScalePhase{cluster.ScaleHold, cluster.ScalePause} {
		b := newBench(t)
		n := b.node("a", 9)
		b.inner("j")
		n.rest = func(w *cluster.Worker, r *cluster.Rest) {
			if b.phase("j") == phase && w.Index == 1 {
				r.Held, r.Paused = 0, 0
			}
		}
		b.wish("j", "w1", 3)
		b.untilPhase("j", phase)
		took := b.untilPhase("j", cluster.ScaleRefused)
		require.InDelta(t, 30, took.Seconds(), 1)
		require.Contains(t, b.job("j").Scaling.Why, "had not come to rest after 30s")
		b.requireNoFailures("j")

		n.rest = nil
		round := b.job("j").Scaling.Round
		b.wish("j", "w2", 3)
		b.scaled("j", "w2")
		require.Equal(t, cluster.ScaleDone, b.phase("j"))
		require.Greater(t, b.job("j").Scaling.Round, round, "rounds never come again")
	}
}

// As long as what is in flight is being processed a job is waited for, but not for ever.
func TestScaleTakesLongToRest(t *testing.T) {
	b := newBench(t)
	n := b.node("a", 9)
	b.inner("j")
	n.rest = func(_ *cluster.Worker, r *cluster.Rest) { r.Paused = 0 }
	b.wish("j", "w1", 3)
	b.untilPhase("j", cluster.ScalePause)
	began := b.now
	for items := uint64(100); b.phase("j") == cluster.ScalePause; items++ {
		n.says["count/1"] = cluster.Status{Phase: cluster.Working, Counters: cluster.Counters{Items: items}}
		b.pass(10 * time.Second)
	}
	require.Equal(t, cluster.ScaleRefused, b.phase("j"))
	require.InDelta(t, 300, b.now.Sub(began).Seconds(), 11)
}

// The sink says only in the end that it cannot: then the job goes on too.
func TestScaleCannotWhilePausing(t *testing.T) {
	b := newBench(t)
	n := b.node("a", 9)
	b.inner("j")
	n.rest = func(w *cluster.Worker, r *cluster.Rest) {
		if w.Operator == "write" && b.phase("j") == cluster.ScalePause {
			r.Cannot, r.Paused = "a sink without Flush", 0
		}
	}
	b.wish("j", "w1", 3)
	b.untilPhase("j", cluster.ScaleRefused)
	require.Contains(t, b.job("j").Scaling.Why, "a sink without Flush")
}

// What was said in a round is worth nothing once a worker was replaced, by whomever.
func TestScaleRoundEndsWithAWorker(t *testing.T) {
	for _, phase := range []cluster.ScalePhase{cluster.ScaleHold, cluster.ScalePause} {
		b := newBench(t)
		n := b.node("a", 9)
		b.inner("j")
		stuck := true
		n.rest = func(w *cluster.Worker, r *cluster.Rest) {
			if stuck && b.phase("j") == phase && w.Index == 1 {
				r.Held, r.Paused = 0, 0
			}
		}
		b.wish("j", "w1", 3)
		b.untilPhase("j", phase)
		round := b.job("j").Scaling.Round
		n.says["write/0"] = cluster.Status{Epoch: 1, Phase: cluster.Broken, Error: "panic"}
		b.until("another round", func() bool { return b.job("j").Scaling.Round > round })
		j := b.job("j")
		require.Equal(t, cluster.ScaleHold, j.Scaling.Phase)
		require.EqualValues(t, 1, j.Worker("write", 0).Failures)
		stuck = false
		b.scaled("j", "w1")
		j = b.job("j")
		require.Equal(t, cluster.ScaleDone, j.Scaling.Phase, j.Scaling.Why)
		require.EqualValues(t, 1, j.Worker("write", 0).Failures)
		require.EqualValues(t, []uint64{0}, j.Worker("write", 0).FailedIn)
		require.EqualValues(t, 3, j.Worker("read", 0).Epoch, "beyond all that there were")
	}
}

// A worker that says it is at rest in a round that is over, or as an incarnation that is, has said nothing.
func TestScaleCountsNoOldRound(t *testing.T) {
	b := newBench(t)
	n := b.node("a", 9)
	b.inner("j")
	n.rest = func(_ *cluster.Worker, r *cluster.Rest) {
		if r.Paused > 0 {
			r.Paused--
		}
	}
	b.wish("j", "w1", 3)
	b.untilPhase("j", cluster.ScalePause)
	b.pass(time.Second)
	require.Equal(t, cluster.ScalePause, b.phase("j"))
	n.rest = func(_ *cluster.Worker, r *cluster.Rest) { r.Round-- }
	b.pass(time.Second)
	require.Equal(t, cluster.ScalePause, b.phase("j"))
}

// From the moment when all is at rest, deaths cost nothing; after that, what they usually do.
func TestScaleThroughDeaths(t *testing.T) {
	b := newBench(t)
	b.node("a", 9)
	c := b.node("b", 9)
	b.inner("j")
	b.wish("j", "w1", 3)
	b.untilPhase("j", cluster.ScaleFreeze)
	c.silent = true
	delete(b.store, cluster.NodeKey("b"))
	b.put(cluster.NodeKey("b"), nil)
	b.pass(2 * time.Second)
	require.Equal(t, cluster.ScaleFreeze, b.phase("j"))
	b.requireNoFailures("j")
	b.m.Rest()
	b.lead(2) // and another leader goes on where this one was
	b.layouts()
	b.untilPhase("j", cluster.ScaleLayout)
	require.Equal(t, map[string]int{"a": 6}, b.on("j"))
	b.requireNoFailures("j")
	b.scaled("j", "w1")
	require.Equal(t, cluster.ScaleDone, b.phase("j"))

	b.node("b", 9)
	b.wish("j", "w2", 4)
	b.untilPhase("j", cluster.ScaleFreeze)
	a := b.nodes["a"]
	a.rest = func(_ *cluster.Worker, r *cluster.Rest) { r.Settled = false }
	b.layouts()
	b.untilPhase("j", cluster.ScaleLayout)
	b.pass(time.Second)
	require.Equal(t, cluster.ScaleLayout, b.phase("j"), "not all have saved what they took over")
	a.silent = true
	b.put(cluster.NodeKey("a"), nil)
	b.until("moved", func() bool { return b.on("j")["b"] == 7 })
	b.scaled("j", "w2")
	failed := uint64(0)
	for _, w := range b.job("j").Workers {
		failed += w.Failures
	}
	require.Positive(t, failed, "that has cost what it costs")
	require.Equal(t, cluster.ScaleDone, b.phase("j"))
}

// New workers have the failures of the one that had most; others keep theirs.
func TestScaleKeepsWhatIsSpent(t *testing.T) {
	b := newBench(t)
	n := b.node("a", 9)
	b.inner("j")
	for epoch := range uint64(2) {
		n.says["count/1"] = cluster.Status{Epoch: epoch + 1, Phase: cluster.Broken, Error: "panic"}
		b.until("failed", func() bool { return b.job("j").Worker("count", 1).Epoch == epoch+2 })
	}
	b.wish("j", "w1", 3)
	b.scaled("j", "w1")
	j := b.job("j")
	for i := range j.Workers {
		w := &j.Workers[i]
		want := uint64(0)
		if w.Operator == "count" {
			want = 2
		}
		require.Equal(t, want, w.Failures, w.Name())
		require.EqualValues(t, 4, w.Epoch)
	}
}

// A node that is to be emptied is, first. While a job comes to rest nothing else is moved.
func TestScaleAndMoves(t *testing.T) {
	b := newBench(t)
	b.node("a", 9)
	c := b.node("b", 9)
	b.inner("j")
	c.slow = true // workers do not retire at once
	b.put(cluster.DrainKey("b"), []byte("x"))
	b.until("asked", func() bool { return b.asked("j") == 1 })
	b.wish("j", "w1", 3)
	b.pass(time.Second)
	require.Equal(t, cluster.ScaleAsked, b.phase("j"))
	c.slow = false
	b.untilPhase("j", cluster.ScaleHold)
	require.Equal(t, map[string]int{"a": 5}, b.on("j"))
	b.put(cluster.DrainKey("b"), nil)
	b.put(cluster.DrainKey("a"), []byte("x"))
	b.untilPhase("j", cluster.ScaleAsked)
	b.until("moved", func() bool { return b.on("j")["a"] == 0 })
	b.scaled("j", "w1")
	require.Equal(t, cluster.ScaleDone, b.phase("j"), b.job("j").Scaling.Why)
	b.requireNoFailures("j")
	require.Equal(t, map[string]int{"b": 6}, b.on("j"))
}

// The slots may be gone when all is at rest: then the job goes on as it is.
func TestScaleLosesItsSlots(t *testing.T) {
	b := newBench(t)
	n := b.node("a", 9)
	b.inner("j")
	b.wish("j", "w1", 4)
	b.untilPhase("j", cluster.ScaleHold)
	n.slots = 6
	b.untilPhase("j", cluster.ScaleRefused)
	require.Contains(t, b.job("j").Scaling.Why, "2 more free slots")
}

// A change that is under way ends with the job, and does not keep the next of that name from anything.
func TestScaleEndsWithTheJob(t *testing.T) {
	for _, phase := range []cluster.ScalePhase{cluster.ScaleHold, cluster.ScaleFreeze, cluster.ScaleLayout} {
		b := newBench(t)
		n := b.node("a", 9)
		b.inner("j")
		n.rest = func(_ *cluster.Worker, r *cluster.Rest) { r.Settled = false }
		b.wish("j", "w1", 3)
		b.untilPhase("j", cluster.ScaleHold)
		if phase == cluster.ScaleLayout {
			b.untilPhase("j", cluster.ScaleFreeze)
			b.layouts()
		}
		b.untilPhase("j", phase)
		b.wish("j", "w2", 7) // comes too late
		b.put(cluster.CancelKey("j"), []byte("x"))
		b.until("cancelled", func() bool { return b.job("j").State == cluster.Cancelled })
		require.True(t, b.phase("j").Over())
		require.Equal(t, phase == cluster.ScaleLayout, b.phase("j") == cluster.ScaleDone)
		b.pass(time.Second)
		require.Empty(t, b.layouts())
		for key := range b.store {
			require.False(t, strings.HasPrefix(key, cluster.WishPrefix), key)
		}
	}
}

// One change at a time; the next wish waits.
func TestScaleOneAfterTheOther(t *testing.T) {
	b := newBench(t)
	b.node("a", 9)
	b.inner("j")
	b.wish("j", "w1", 3)
	b.untilPhase("j", cluster.ScaleFreeze)
	b.wish("j", "w2", 4)
	b.pass(time.Second)
	require.Equal(t, "w1", b.job("j").Scaling.ID)
	b.until("both", func() bool { b.layouts(); s := b.job("j").Scaling; return s.ID == "w2" && s.Phase == cluster.ScaleDone })
	require.Len(t, b.job("j").Workers, 7)
	b.put(cluster.ScaleKey("j"), (&cluster.ScaleWish{ID: "w3", Operator: "cuont", Workers: 4}).Encode())
	b.scaled("j", "w3")
	b.until("refused", func() bool { return b.job("j").Scaling.ID == "w3" })
	require.Contains(t, b.job("j").Scaling.Why, `no operator "cuont"`)
}

// A wish that cannot be read is reported, and not kept.
func TestScaleWishOfNobody(t *testing.T) {
	b := newBench(t)
	b.node("a", 9)
	b.inner("j")
	b.rev++
	r := cluster.Record{Key: cluster.ScaleKey("j"), Value: []byte("{"), Revision: b.rev}
	b.store[r.Key] = r
	require.ErrorIs(t, b.m.Record(b.now, r), cluster.ErrRecord)
	b.pass(time.Second)
	require.NotContains(t, b.store, r.Key)
	require.Nil(t, b.job("j").Scaling)
}

// Workers at rest do not notice that a backup server is gone; who freezes their partitions does.
func TestScaleWithoutABackupServer(t *testing.T) {
	b := newBench(t)
	b.node("a", 9)
	spec := cluster.Spec{Name: program.Name, Version: program.Version, Backups: []string{"x", "y"}, Operators: []cluster.Operator{
		{Name: "read", Workers: 2, Compute: 1, Source: true}, {Name: "count", Workers: 2, Compute: 1}, {Name: "write", Workers: 1, Compute: 1, Sink: true},
	}}
	b.put(cluster.JobKey("j"), cluster.NewJob("j", spec, b.now).Encode())
	b.running("j")
	b.wish("j", "w1", 3)
	b.untilPhase("j", cluster.ScaleFreeze)
	began := b.now
	b.until("narrowed", func() bool {
		for _, task := range b.m.Layouts() {
			b.m.LayoutFailed(task, []cluster.Suspect{{Job: "j", Server: "y", Why: "no answer"}})
		}
		return len(b.job("j").View) == 1
	})
	require.InDelta(t, 3, b.now.Sub(began).Seconds(), 0.2)
	require.Equal(t, []string{"x"}, b.job("j").View)
	b.scaled("j", "w1")
	require.Equal(t, cluster.ScaleDone, b.phase("j"))
}
