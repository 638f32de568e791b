package machine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
)

// emptyings are the ways in which a node comes to be emptied.
var emptyings = map[string]struct{ begin, end func(b *bench, n *fake) }{
	"drained": {
		func(b *bench, n *fake) { b.put(cluster.DrainKey(n.name), []byte("x")) },
		func(b *bench, n *fake) { b.put(cluster.DrainKey(n.name), nil) },
	},
	"ending": {
		func(_ *bench, n *fake) { n.ending = true },
		func(b *bench, n *fake) { n.ending = false; b.restart(n) },
	},
}

func TestEmptiedNode(t *testing.T) {
	for name, way := range emptyings {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			a := b.node("a", 4)
			b.small("job")
			b.running("job")
			a.says["count/0"] = cluster.Status{Phase: cluster.Done}
			b.pass(time.Second)
			way.begin(b, a)
			b.pass(time.Second)
			require.Equal(t, "a", b.worker("job", 0).Node, "as long as there is no other place")
			require.Zero(t, b.asked("job"))
			b.node("b", 1)
			b.pass(time.Second)
			require.Equal(t, "b", b.worker("job", 0).Node)
			require.Equal(t, "a", b.worker("job", 2).Node)
			b.node("c", 4)
			b.pass(time.Second)
			require.Equal(t, "c", b.worker("job", 2).Node)
			require.Equal(t, "a", b.worker("job", 1).Node, "it has finished")
			b.requireNoFailures("job")
			require.EqualValues(t, 2, b.worker("job", 2).Epoch)
			require.EqualValues(t, 100, b.worker("job", 2).Past.Items)
			j := b.job("job")
			require.Equal(t, 2, j.Incidents)
			for _, in := range j.History {
				require.False(t, in.Failure)
				require.Contains(t, in.What, "moved off node a, which is ")
				require.Positive(t, in.Recovery)
			}
			b.small("more")
			b.running("more")
			require.Equal(t, map[string]int{"c": 3}, b.on("more"))
			b.put(cluster.CancelKey("job"), []byte("x"))
			b.pass(time.Second)
			way.end(b, a)
			b.pass(time.Second)
			b.small("last")
			b.running("last")
			require.Equal(t, "a", b.worker("last", 0).Node)
		})
	}
}

func TestOneOfAJobMovesAtATime(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 20)
	b.submit("job", cluster.Operator{Name: "count", Workers: 10, Compute: 1, Sink: true})
	b.running("job")
	b.node("b", 20)
	b.pass(time.Second)
	a.slow = true
	b.put(cluster.DrainKey("a"), []byte("x"))
	for moved := range 10 {
		b.until("one is asked", func() bool { return b.asked("job") > 0 })
		for range 20 {
			b.pass(50 * time.Millisecond)
			require.Equal(t, 1, b.asked("job"))
		}
		a.slow = false
		b.until("it has moved", func() bool { return b.on("job")["b"] > moved })
		a.slow = true
		require.LessOrEqual(t, b.asked("job"), 1)
	}
	require.Equal(t, map[string]int{"b": 10}, b.on("job"))
	b.requireNoFailures("job")
}

// TestWorkerOfEmptiedNodeThatDoesNotRetire is moved at the cost of a failure: when that is clear, or after the time that it has.
func TestWorkerOfEmptiedNodeThatDoesNotRetire(t *testing.T) {
	for name, way := range emptyings {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			a := b.node("a", 4)
			b.small("job")
			b.running("job")
			b.pass(time.Second)
			b.node("b", 4)
			b.pass(time.Second)
			a.slow = true
			a.says["count/1"] = cluster.Status{Phase: cluster.Working, Error: "its partitions hand each other values"}
			way.begin(b, a)
			took := b.until("it is moved", func() bool { return b.worker("job", 0).Node == "b" })
			require.InDelta(t, 10, took.Seconds(), 0.5)
			require.EqualValues(t, 1, b.worker("job", 0).Failures)
			require.Equal(t, []uint64{1}, b.worker("job", 0).FailedIn)
			require.False(t, b.worker("job", 0).Retire)
			in := b.job("job").History[0]
			require.True(t, in.Failure)
			require.Contains(t, in.What, "moved off node a, which is ")
			require.Contains(t, in.What, "it had not ended without loss after 10s")
			a.slow = false
			took = b.until("all are moved", func() bool { return b.on("job")["b"] == 3 })
			require.Less(t, took, 2*time.Second)
			require.Zero(t, b.worker("job", 1).Failures)
			require.EqualValues(t, 1, b.worker("job", 2).Failures)
			h := b.job("job").History
			require.Contains(t, h[len(h)-1].What, "its partitions hand each other values")
		})
	}
}

func TestWorkerThatFailsWhileItRetires(t *testing.T) {
	for name, fail := range map[string]func(b *bench, a *fake){
		"breaks": func(_ *bench, a *fake) {
			a.says["read/0"] = cluster.Status{Epoch: 1, Phase: cluster.Broken, Error: "boom"}
		},
		"node dies": func(_ *bench, a *fake) { a.silent = true },
		"node ends": func(b *bench, a *fake) { a.leaving = true; b.m.Beat(b.now, b.beat(a)); a.silent = true },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			a := b.node("a", 4)
			b.small("job")
			b.running("job")
			b.pass(time.Second)
			b.node("b", 4)
			b.pass(time.Second)
			a.slow = true
			b.put(cluster.DrainKey("a"), []byte("x"))
			b.pass(time.Second)
			require.True(t, b.worker("job", 0).Retire)
			fail(b, a)
			b.until("it is on b", func() bool { return b.worker("job", 0).Node == "b" })
			require.EqualValues(t, 1, b.worker("job", 0).Failures)
			require.False(t, b.worker("job", 0).Retire)
		})
	}
}

// TestRetiredWorkerOfDeadNode: once it is known that it had retired nothing can happen to it.
func TestRetiredWorkerOfDeadNode(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	c := b.node("c", 1)
	b.pass(time.Second)
	b.submit("job", cluster.Operator{Name: "read", Workers: 1, Compute: 1, Source: true}, cluster.Operator{Name: "count", Workers: 1, Compute: 1, Sink: true})
	b.running("job")
	require.Equal(t, "c", b.worker("job", 1).Node)
	b.pass(time.Second)
	c.slow = true
	b.put(cluster.DrainKey("c"), []byte("x"))
	b.pass(time.Second)
	require.True(t, b.worker("job", 1).Retire)
	a.slots = 0
	b.pass(time.Second)
	c.slow, c.leaving = false, true
	b.m.Beat(b.now, b.beat(c)) // its last word
	c.silent = true
	b.pass(time.Second)
	require.Empty(t, b.worker("job", 1).Node)
	b.requireNoFailures("job")
	a.slots = 4
	b.until("it has a place", func() bool { return b.worker("job", 1).Node == "a" })
	require.EqualValues(t, 2, b.worker("job", 1).Epoch)
	b.requireNoFailures("job")
}

// TestPlaceIsKept for a worker while it retires.
func TestPlaceIsKept(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 3)
	b.small("job")
	b.running("job")
	c := b.node("c", 1)
	b.pass(time.Second)
	a.slow = true
	b.put(cluster.DrainKey("a"), []byte("x"))
	b.pass(time.Second)
	require.Equal(t, 1, b.asked("job"))
	b.submit("other", cluster.Operator{Name: "count", Workers: 1, Compute: 1, Sink: true})
	b.pass(3 * time.Second)
	require.Equal(t, cluster.Queued, b.job("other").State)
	a.slow = false
	b.until("it has moved", func() bool { return b.worker("job", 0).Node == "c" })
	b.pass(time.Second)
	require.Equal(t, cluster.Queued, b.job("other").State)
	b.put(cluster.DrainKey("a"), nil)
	c.slots = 2
	b.running("other")
}

func TestWishThatIsTakenBack(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	b.small("job")
	b.running("job")
	b.pass(time.Second)
	b.node("b", 4)
	b.pass(time.Second)
	a.slow = true
	b.put(cluster.DrainKey("a"), []byte("x"))
	b.pass(time.Second)
	b.put(cluster.DrainKey("a"), nil)
	b.pass(9500 * time.Millisecond)
	require.Zero(t, b.asked("job"), "it is told to go on")
	require.Equal(t, map[string]int{"a": 3}, b.on("job"))
	require.EqualValues(t, 1, b.worker("job", 0).Epoch)
	require.Zero(t, b.job("job").Incidents)
	// It may have retired before it was told.
	a.says["read/0"] = cluster.Status{Epoch: 1, Phase: cluster.Retired}
	b.until("it goes on", func() bool { return b.worker("job", 0).Epoch == 2 })
	b.requireNoFailures("job")
}

func TestMoveThroughAChangeOfLeaders(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	b.small("job")
	b.running("job")
	b.pass(time.Second)
	b.node("b", 4)
	b.pass(time.Second)
	a.slow = true
	b.put(cluster.DrainKey("a"), []byte("x"))
	b.pass(8 * time.Second)
	b.m = New(Config{})
	b.lead(2)
	b.pass(8 * time.Second)
	require.Equal(t, 1, b.asked("job"), "it has the full time again")
	a.slow = false
	b.pass(3 * time.Second)
	require.Equal(t, map[string]int{"b": 3}, b.on("job"))
	b.requireNoFailures("job")
}

func TestNodeThatIsAdded(t *testing.T) {
	b := newBench(t)
	b.node("a", 10)
	b.submit("job", cluster.Operator{Name: "read", Workers: 2, Compute: 1, Source: true}, cluster.Operator{Name: "count", Workers: 6, Compute: 1, Sink: true})
	b.running("job")
	b.pass(time.Minute)
	b.node("b", 10)
	last := b.now
	var before = map[string]int{"a": 8}
	for b.on("job")["b"] < 4 {
		b.pass(20 * time.Millisecond)
		require.LessOrEqual(t, b.asked("job"), 1)
		if on := b.on("job"); b.asked("job") == 1 && on["b"] == before["b"]+1 || on["b"] > before["b"] {
			require.GreaterOrEqual(t, b.now.Sub(last), 10*time.Second, "one after the other")
			before, last = on, b.now
		}
		require.Less(t, b.now.Sub(start), 5*time.Minute)
	}
	near := map[string]int{}
	for _, w := range b.job("job").Workers {
		near[w.Operator+" on "+w.Node]++
	}
	require.Equal(t, map[string]int{"read on a": 1, "read on b": 1, "count on a": 3, "count on b": 3}, near)
	b.requireNoFailures("job")
	writes := b.writes
	b.pass(time.Minute)
	require.LessOrEqual(t, b.writes, writes+1, "and then there is peace")
}

// TestSpreadOnlyWhereItPays: nothing is moved that would not help, or harm.
func TestSpreadOnlyWhereItPays(t *testing.T) {
	for name, prepare := range map[string]func(b *bench, a *fake){
		"a little": func(b *bench, _ *fake) { b.node("b", 2) }, // 2 of 6 and 1 of 2 are no better than 3 of 6 and none
		"the others have finished": func(b *bench, a *fake) {
			a.says["read/0"] = cluster.Status{Phase: cluster.Done}
			a.says["count/0"] = cluster.Status{Phase: cluster.Done}
			b.node("b", 6)
		},
		"locality": func(b *bench, _ *fake) {
			j := b.job("job")
			j.Spec.Locality = []string{"a"}
			b.put(cluster.JobKey("job"), j.Encode())
			b.node("b", 6)
		},
		"no program": func(b *bench, _ *fake) { b.node("b", 6).programs = nil },
		"rooted": func(b *bench, a *fake) {
			for _, w := range []string{"read/0", "count/0", "count/1"} {
				a.says[w] = cluster.Status{Phase: cluster.Working, Error: "the job makes no backups"}
			}
			b.node("b", 6)
			b.pass(time.Minute)
		},
		"never calm": func(b *bench, a *fake) {
			b.node("b", 6)
			for range 20 {
				b.pass(4 * time.Second)
				a.says["read/0"] = cluster.Status{Phase: cluster.Loading}
				b.pass(4 * time.Second)
				delete(a.says, "read/0")
			}
			a.says["read/0"] = cluster.Status{Phase: cluster.Loading}
		},
		"flutters": func(b *bench, _ *fake) {
			n := b.node("b", 6)
			for range 20 {
				b.pass(8 * time.Second)
				b.restart(n)
			}
			n.silent = true
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			a := b.node("a", 6)
			b.small("job")
			b.running("job")
			b.pass(5 * time.Second)
			prepare(b, a)
			b.pass(time.Minute)
			require.Equal(t, map[string]int{"a": 3}, b.on("job"))
			require.Zero(t, b.asked("job"))
			for _, w := range b.job("job").Workers {
				require.EqualValues(t, 1, w.Epoch)
			}
		})
	}
}

// TestSpreadThatIsCalledOff: a worker that takes too long goes on where it is, and is not asked again.
func TestSpreadThatIsCalledOff(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 6)
	b.submit("job", cluster.Operator{Name: "count", Workers: 3, Compute: 1, Sink: true})
	b.running("job")
	b.node("b", 6)
	a.slow = true
	asked := map[string]bool{}
	for range 20 * 60 {
		b.pass(100 * time.Millisecond)
		for _, w := range b.job("job").Workers {
			if w.Retire {
				asked[w.Name()] = true
			}
		}
	}
	require.Len(t, asked, 3)
	require.Zero(t, b.asked("job"))
	require.Equal(t, map[string]int{"a": 3}, b.on("job"))
	require.Zero(t, b.job("job").Incidents)
	b.requireNoFailures("job")
}

// TestJobsSpreadTogether: several jobs do not all move to the same node because it is empty now.
func TestJobsSpreadTogether(t *testing.T) {
	b := newBench(t)
	b.node("a", 40)
	b.node("b", 40)
	for i := range 10 {
		b.submit(fmt.Sprint("job", i), cluster.Operator{Name: "count", Workers: 4, Compute: 1, Sink: true})
		b.running(fmt.Sprint("job", i))
	}
	b.node("c", 40)
	moves := 0
	b.pass(time.Minute)
	on := map[string]int{}
	for i := range 10 {
		j := b.job(fmt.Sprint("job", i))
		for _, w := range j.Workers {
			on[w.Node]++
			moves += int(w.Epoch) - 1
		}
		b.requireNoFailures(j.ID)
	}
	require.InDelta(t, 13, on["a"], 1)
	require.InDelta(t, 13, on["b"], 1)
	require.InDelta(t, 13, on["c"], 1)
	require.LessOrEqual(t, moves, 14)
}
