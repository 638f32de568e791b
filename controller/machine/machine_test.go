package machine

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/internal/thorough"
)

func TestJobRunsWhereItsProgramIs(t *testing.T) {
	b := newBench(t)
	b.node("a", 2)
	other := b.node("b", 8)
	other.programs = []cluster.Program{{Name: program.Name, Version: "v2"}}
	b.small("job")
	b.pass(3 * time.Second)
	require.Equal(t, cluster.Queued, b.job("job").State, "all of its workers get a place, or none")
	for _, w := range b.job("job").Workers {
		require.Empty(t, w.Node)
		require.Zero(t, w.Epoch)
	}
	require.Equal(t, 1, b.job("job").Incidents)
	require.Contains(t, b.job("job").History[0].What, "free slots")
	b.node("c", 1)
	b.running("job")
	for _, w := range b.job("job").Workers {
		require.NotEqual(t, "b", w.Node)
		require.EqualValues(t, 1, w.Epoch)
		require.Equal(t, b.nodes[w.Node].session, w.Session)
	}
	require.False(t, b.job("job").Started.IsZero())
	require.EqualValues(t, 1, b.job("job").Term)
}

func TestNoProgramIsSaidOnce(t *testing.T) {
	b := newBench(t)
	b.node("a", 4).programs = nil
	b.small("job")
	b.pass(10 * time.Second)
	require.Equal(t, 1, b.job("job").Incidents)
	require.Contains(t, b.job("job").History[0].What, "no node that is up carries program count v1")
	b.lead(2)
	b.pass(10 * time.Second)
	require.Equal(t, 1, b.job("job").Incidents, "the next leader need not say it again")
}

func TestPlacement(t *testing.T) {
	b := newBench(t)
	b.node("a", 4)
	b.node("b", 4)
	b.node("c", 4)
	b.pass(time.Second)
	b.submit("one", cluster.Operator{Name: "count", Workers: 3, Compute: 1, Sink: true})
	b.running("one")
	on := map[string]int{}
	for _, w := range b.job("one").Workers {
		on[w.Node]++
	}
	require.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1}, on, "workers of an operator on different nodes")
	b.submit("two", cluster.Operator{Name: "read", Workers: 1, Compute: 1}, cluster.Operator{Name: "count", Workers: 1, Compute: 1, Sink: true})
	b.running("two")
	require.Equal(t, "a", b.worker("two", 0).Node)
	require.Equal(t, "b", b.worker("two", 1).Node, "by load")
	spec := b.job("two").Spec
	spec.Locality = []string{"b"}
	b.put(cluster.JobKey("three"), cluster.NewJob("three", spec, b.now).Encode())
	b.running("three")
	require.Equal(t, "b", b.worker("three", 0).Node, "where the user wants it")
	require.Equal(t, "b", b.worker("three", 1).Node)
	spec.Operators[0].Workers = 3
	b.put(cluster.JobKey("four"), cluster.NewJob("four", spec, b.now).Encode())
	b.running("four")
	used := map[string]int{}
	for _, id := range []string{"one", "two", "three", "four"} {
		for _, w := range b.job(id).Workers {
			used[w.Node]++
		}
	}
	require.Equal(t, 11, used["a"]+used["b"]+used["c"])
	for _, n := range used {
		require.LessOrEqual(t, n, 4)
	}
}

func TestDeadNode(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	b.small("job")
	b.running("job")
	b.pass(time.Second)
	b.node("b", 4)
	b.pass(time.Second)
	a.silent = true
	took := b.until("workers are on b", func() bool { return b.worker("job", 0).Node == "b" })
	require.Less(t, took, time.Second)
	for _, w := range b.job("job").Workers {
		require.Equal(t, "b", w.Node)
		require.EqualValues(t, 2, w.Epoch)
		require.EqualValues(t, 1, w.Failures)
		require.EqualValues(t, 100, w.Past.Items)
	}
	b.pass(time.Second)
	j := b.job("job")
	require.Equal(t, 3, j.Incidents)
	for i, in := range j.History {
		require.True(t, in.Failure)
		require.Equal(t, "a", in.Node)
		require.EqualValues(t, 1, in.Epoch)
		require.EqualValues(t, 100, in.AtItem)
		require.Contains(t, in.What, "node a was not heard of for")
		require.Positive(t, in.Recovery)
		require.Equal(t, []uint64{1}, j.Workers[i].FailedAt, "its successor came back at level 0")
	}
}

func TestSilenceThatEndsCostsNothing(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	b.node("b", 4)
	b.small("job")
	b.running("job")
	b.pass(time.Second)
	before := b.job("job")
	for range 20 {
		a.silent = true
		b.pass(500 * time.Millisecond)
		a.silent = false
		b.pass(300 * time.Millisecond)
	}
	require.Equal(t, before, b.job("job"))
}

func TestBeatsThatAreLate(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	b.small("job")
	b.running("job")
	before := b.job("job")
	for i := range 100 { // a network that holds things up, more and more
		a.silent = true
		b.pass(time.Duration(200+10*min(i, 60)) * time.Millisecond)
		b.m.Beat(b.now, b.beat(a))
	}
	require.Equal(t, before, b.job("job"), "who is used to silences of 800 ms does not call one a death")
	b.node("b", 4)
	took := b.until("workers are on b", func() bool { return b.worker("job", 0).Node == "b" })
	require.Less(t, took, 5500*time.Millisecond)
}

func TestSuspectsAreGivenNothing(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	b.pass(time.Second)
	a.silent = true
	b.pass(400 * time.Millisecond)
	b.small("job")
	b.pass(5 * time.Second)
	require.Equal(t, cluster.Queued, b.job("job").State)
	a.silent = false
	b.running("job")
}

func TestOldBeatsAreOldNews(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	b.small("job")
	b.running("job")
	b.pass(time.Second)
	b.node("b", 4)
	b.pass(time.Second)
	old := b.beat(a)
	b.pass(200 * time.Millisecond)
	a.silent = true
	for range 20 {
		b.m.Beat(b.now, old)
		b.pass(100 * time.Millisecond)
	}
	require.Equal(t, "b", b.worker("job", 0).Node, "a beat that was heard already is no sign of life")
}

func TestEndsThatAreSaid(t *testing.T) {
	for name, end := range map[string]func(*bench, *fake){
		"leaving": func(b *bench, a *fake) {
			a.leaving = true
			b.m.Beat(b.now, b.beat(a))
			a.silent = true
		},
		"new session":   func(b *bench, a *fake) { b.restart(a); a.hides = true; a.slots = 0 },
		"name given up": func(b *bench, a *fake) { b.put(cluster.NodeKey("a"), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			a := b.node("a", 4)
			b.small("job")
			b.running("job")
			b.pass(time.Second)
			b.node("b", 4)
			b.pass(time.Second)
			end(b, a)
			b.step()
			for _, w := range b.job("job").Workers {
				require.Equal(t, "b", w.Node, "at once")
				require.EqualValues(t, 1, w.Failures)
			}
		})
	}
}

func TestZombieSession(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	b.small("job")
	b.running("job")
	b.pass(time.Second)
	old := *a
	b.restart(a)
	b.pass(time.Second)
	after := b.job("job")
	require.Equal(t, a.session, after.Workers[0].Session)
	require.EqualValues(t, 2, after.Workers[0].Epoch)
	for range 20 { // it does not know yet that it is none
		zombie := b.beat(&old)
		zombie.Workers = []cluster.Status{{Job: "job", Operator: "read", Epoch: 2, Phase: cluster.Broken}, {Job: "job", Operator: "count", Epoch: 1, Phase: cluster.Done}}
		b.m.Beat(b.now, zombie)
		b.pass(100 * time.Millisecond)
	}
	b.pass(time.Second)
	got := b.job("job")
	require.Equal(t, after.Workers[0].Epoch, got.Workers[0].Epoch)
	require.EqualValues(t, 1, got.Workers[0].Failures)
	require.False(t, got.Workers[1].Done)
}

func TestStoppedControllerCallsNobodyDead(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	b.small("job")
	b.running("job")
	b.pass(time.Second)
	b.node("b", 4)
	b.pass(time.Second)
	b.now = b.now.Add(20 * time.Second)
	b.step()
	require.Equal(t, "a", b.worker("job", 0).Node)
	a.silent = true
	b.pass(500 * time.Millisecond)
	require.Equal(t, "a", b.worker("job", 0).Node, "the full time anew")
	b.pass(500 * time.Millisecond)
	require.Equal(t, "b", b.worker("job", 0).Node)
}

func TestTakeover(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	b.small("job")
	b.running("job")
	b.pass(time.Second)
	b.node("b", 4)
	b.pass(time.Second)
	before, heard := b.job("job"), b.m
	a.silent = true
	b.pass(500 * time.Millisecond)
	b.m = New(Config{})
	b.lead(2)
	b.step()
	got := b.job("job")
	require.EqualValues(t, 2, got.Term, "written at once")
	got.Term = 1
	require.Equal(t, before, got, "and nothing else changed")
	b.pass(4500 * time.Millisecond)
	require.Equal(t, "a", b.worker("job", 0).Node, "it was never heard of: that is no sign of death for long")
	took := b.until("workers are on b", func() bool { return b.worker("job", 0).Node == "b" })
	require.Less(t, took, time.Second)
	// The one before does not know yet.
	require.False(t, heard.Deposed())
	require.NoError(t, heard.Record(b.now, b.store[cluster.JobKey("job")]))
	require.True(t, heard.Deposed())
	require.Empty(t, heard.Step(b.now))
	require.EqualValues(t, 2, heard.Highest())
}

func TestStandbyKnowsNodes(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	b.small("job")
	b.running("job")
	b.node("b", 8)
	b.pass(time.Second)
	standby := New(Config{})
	for range 10 {
		b.now = b.now.Add(100 * time.Millisecond)
		for _, n := range b.nodes {
			standby.Beat(b.now, b.beat(n))
			require.Empty(t, standby.Step(b.now))
		}
	}
	b.m, a.silent = standby, true
	b.lead(2)
	b.step()
	b.small("more")
	b.pass(40 * time.Millisecond)
	require.Equal(t, cluster.Running, b.job("more").State, "it knows who has slots")
	took := b.until("workers are on b", func() bool { return b.worker("job", 0).Node == "b" })
	require.Less(t, took, time.Second)
}

func TestBrokenWorker(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	b.small("job")
	b.running("job")
	b.pass(time.Second)
	a.says["read/0"] = cluster.Status{Epoch: 1, Phase: cluster.Broken, Error: "index out of range", Stack: "main.go:1", Counters: cluster.Counters{Items: 7, Read: 7}}
	took := b.until("the next incarnation", func() bool { return b.worker("job", 0).Epoch == 2 })
	require.LessOrEqual(t, took, 100*time.Millisecond)
	j := b.job("job")
	w := j.Workers[0]
	require.Equal(t, "a", w.Node)
	require.EqualValues(t, 1, w.Failures)
	require.Equal(t, []uint64{cluster.Never}, w.FailedAt)
	require.Equal(t, cluster.Counters{Items: 7, Read: 7}, w.Past)
	require.EqualValues(t, 1, j.Workers[1].Epoch, "others are not touched")
	in := j.History[0]
	require.Equal(t, cluster.Incident{At: in.At, Operator: "read", Epoch: 1, Node: "a", What: "index out of range", Stack: "main.go:1", Failure: true, AtItem: 7}, in)
	a.says["read/0"] = cluster.Status{Epoch: 2, Phase: cluster.Loading}
	b.pass(time.Second)
	require.Equal(t, []uint64{cluster.Never}, b.worker("job", 0).FailedAt)
	a.says["read/0"] = cluster.Status{Epoch: 2, Phase: cluster.Working, Level: 5}
	b.pass(time.Second)
	require.Equal(t, []uint64{6}, b.worker("job", 0).FailedAt)
	require.InDelta(t, 1, b.job("job").History[0].Recovery, 0.2)
	writes := b.writes
	b.pass(time.Minute)
	require.Equal(t, writes, b.writes, "nothing is written as long as nothing changes")
}

func TestUnloadedWorkerCostsNothing(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	b.small("job")
	a.says["count/1"] = cluster.Status{Phase: cluster.Unloaded, Error: "backup server b: not reached"}
	b.running("job")
	b.pass(time.Minute)
	w := b.worker("job", 2)
	require.Zero(t, w.Failures)
	require.Empty(t, w.FailedAt)
	require.Greater(t, w.Epoch, uint64(8))
	require.Less(t, w.Epoch, uint64(20), "it waits longer each time")
	require.Equal(t, 1, b.job("job").Incidents, "the same is said once")
	require.Equal(t, cluster.Running, b.job("job").State)
	delete(a.says, "count/1")
	b.until("it runs", func() bool { return b.job("job").History[0].Recovery > 0 })
	require.Equal(t, "a", b.worker("job", 2).Node)
}

func TestHopeless(t *testing.T) {
	for _, phase := range []cluster.Phase{cluster.Unloaded, cluster.Broken} {
		b := newBench(t)
		a := b.node("a", 4)
		b.small("job")
		a.says["count/1"] = cluster.Status{Phase: phase, Error: "no such file", Hopeless: true}
		b.running("job")
		b.until("it has failed", func() bool { return b.job("job").State == cluster.Failed })
		require.Equal(t, "count/1: no such file", b.job("job").Why)
		require.False(t, b.job("job").Ended.IsZero())
		for _, w := range b.job("job").Workers {
			require.Empty(t, w.Node, "a job that has ended runs nowhere")
		}
	}
}

func TestCrashLoop(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	b.small("job")
	b.running("job")
	b.pass(time.Second)
	a.says["read/0"] = cluster.Status{Phase: cluster.Broken, Error: "boom"}
	took := b.until("it has failed", func() bool { return b.job("job").State == cluster.Failed })
	require.Greater(t, took, 5*time.Second)
	require.Contains(t, b.job("job").Why, "read/0 broke 8 times in a row")
	require.Contains(t, b.job("job").Why, "boom")
	require.EqualValues(t, 8, b.worker("job", 0).Failures)
}

func TestBreaksWithWorkBetweenAreNoLoop(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	b.small("job")
	b.running("job")
	times := thorough.Number(10, 20)
	for i := range times {
		b.pass(11 * time.Second)
		a.says["read/0"] = cluster.Status{Epoch: uint64(i + 1), Phase: cluster.Broken, Error: "boom"}
		took := b.until("the next incarnation", func() bool { return b.worker("job", 0).Epoch == uint64(i+2) })
		require.Less(t, took, 200*time.Millisecond, "and need no wait")
	}
	require.Equal(t, cluster.Running, b.job("job").State)
	require.EqualValues(t, times, b.worker("job", 0).Failures)
}

func TestDeadNodesAreNoLoop(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	b.small("job")
	b.running("job")
	times := thorough.Number(10, 20)
	for range times {
		b.restart(a)
		b.pass(time.Second)
	}
	require.Equal(t, cluster.Running, b.job("job").State)
	require.EqualValues(t, times, b.worker("job", 0).Failures)
}

func TestWorkerWithoutPlace(t *testing.T) {
	b := newBench(t)
	b.node("a", 2)
	c := b.node("c", 1)
	b.small("job")
	b.running("job")
	b.pass(time.Second)
	var lost int
	for i, w := range b.job("job").Workers {
		if w.Node == "c" {
			lost = i
		}
	}
	c.silent = true
	b.pass(5 * time.Second)
	w := b.worker("job", lost)
	require.Empty(t, w.Node)
	require.EqualValues(t, 1, w.Failures, "counted once")
	require.EqualValues(t, 1, w.Epoch)
	require.Equal(t, 2, b.job("job").Incidents)
	require.Contains(t, b.job("job").History[1].What, "free slots")
	b.node("d", 1)
	b.until("it has a place", func() bool { return b.worker("job", lost).Node == "d" })
	w = b.worker("job", lost)
	require.EqualValues(t, 1, w.Failures)
	require.EqualValues(t, 2, w.Epoch)
	require.Equal(t, cluster.Running, b.job("job").State)
}

func TestJobEnds(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	b.small("job")
	b.running("job")
	b.pass(time.Second)
	a.says["count/0"] = cluster.Status{Phase: cluster.Done, Counters: cluster.Counters{Items: 3}}
	a.says["read/0"] = cluster.Status{Phase: cluster.Done, Counters: cluster.Counters{Items: 4, Read: 4}}
	b.pass(time.Second)
	require.True(t, b.worker("job", 1).Done)
	require.Equal(t, cluster.Running, b.job("job").State, "the other sink has not finished")
	b.node("b", 4)
	b.pass(time.Second)
	a.says["count/1"] = cluster.Status{Phase: cluster.Done, Counters: cluster.Counters{Items: 5}}
	b.m.Beat(b.now, b.beat(a)) // its last word
	a.silent = true
	b.pass(5 * time.Second)
	j := b.job("job")
	require.Equal(t, cluster.Finished, j.State)
	require.Empty(t, j.History)
	for i, items := range []uint64{4, 3, 5} {
		require.Empty(t, j.Workers[i].Node)
		require.EqualValues(t, items, j.Workers[i].Past.Items)
	}
	b.lead(2)
	b.pass(time.Second)
	require.Equal(t, j, b.job("job"), "what has ended stays as it is")
}

func TestFinishedWorkerOfDeadNodeIsReplaced(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	b.small("job")
	b.running("job")
	a.says["count/0"] = cluster.Status{Phase: cluster.Done}
	b.pass(time.Second)
	b.node("b", 4)
	b.pass(time.Second)
	a.silent = true
	b.pass(time.Second)
	require.Equal(t, "b", b.worker("job", 1).Node)
	require.True(t, b.worker("job", 1).Done)
	require.EqualValues(t, 1, b.worker("job", 1).Failures)
}

func TestCancel(t *testing.T) {
	b := newBench(t)
	b.node("a", 4)
	b.small("job")
	b.submit("waits", cluster.Operator{Name: "count", Workers: 9, Compute: 1, Sink: true})
	b.running("job")
	b.pass(time.Second)
	b.put(cluster.CancelKey("job"), []byte("x"))
	b.put(cluster.CancelKey("waits"), []byte("x"))
	b.pass(100 * time.Millisecond)
	for _, id := range []string{"job", "waits"} {
		require.Equal(t, cluster.Cancelled, b.job(id).State)
		require.NotContains(t, b.store, cluster.CancelKey(id), "a wish that was carried out is gone")
	}
	require.EqualValues(t, 100, b.worker("job", 0).Past.Items)
	require.Empty(t, b.worker("job", 0).Node)
}

func TestJobsThatHoldWhatTheOthersWaitFor(t *testing.T) {
	b := newBench(t)
	b.node("a", 3)
	lost := b.node("b", 3)
	b.pass(time.Second)
	b.small("old")
	b.running("old")
	b.small("young")
	b.running("young")
	b.pass(time.Second)
	lost.silent = true
	b.until("one has given way", func() bool {
		return b.worker("old", 0).Node == "a" && b.worker("old", 1).Node == "a" && b.worker("old", 2).Node == "a"
	})
	b.pass(10 * time.Second)
	for _, w := range b.job("young").Workers {
		require.Empty(t, w.Node, "all or nothing")
		require.LessOrEqual(t, w.Failures, uint64(1))
	}
	for _, w := range b.job("old").Workers {
		require.LessOrEqual(t, w.Failures, uint64(1))
	}
	require.Equal(t, cluster.Running, b.job("young").State)
	b.put(cluster.CancelKey("old"), []byte("x"))
	b.pass(time.Second)
	require.Equal(t, "a", b.worker("young", 0).Node)
}

func TestWriteThatWasRefused(t *testing.T) {
	b := newBench(t)
	b.node("a", 4)
	b.small("job")
	b.beats()
	writes := b.m.Step(b.now)
	require.Len(t, writes, 1)
	b.pass(time.Second)
	require.Zero(t, b.writes, "one is under way")
	require.Equal(t, cluster.Queued, b.job("job").State)
	b.put(cluster.JobKey("job"), b.store[cluster.JobKey("job")].Value)
	b.apply(writes[0]) // in vain
	require.Equal(t, cluster.Queued, b.job("job").State)
	b.step()
	require.Equal(t, cluster.Running, b.job("job").State)
}

func TestSlotsUnderWayAreTaken(t *testing.T) {
	b := newBench(t)
	b.node("a", 4)
	b.small("one")
	b.small("two")
	b.beats()
	writes := b.m.Step(b.now)
	require.Len(t, writes, 1, "there is room for one of them")
	require.Empty(t, b.m.Step(b.now))
	b.apply(writes[0])
	b.pass(time.Second)
	require.Equal(t, cluster.Queued, b.job("two").State)
}

func TestClear(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	b.small("job")
	b.running("job")
	b.pass(time.Second)
	require.Empty(t, b.m.ToClear(b.now))
	late := b.beat(a)
	b.put(cluster.CancelKey("job"), []byte("x"))
	b.pass(time.Second)
	require.Empty(t, b.m.ToClear(b.now), "nodes may not have seen it yet")
	a.silent = true
	late.Number = a.number + 1
	b.pass(900 * time.Millisecond)
	b.m.Beat(b.now, late)
	b.pass(200 * time.Millisecond)
	require.Empty(t, b.m.ToClear(b.now), "the node still runs it")
	a.silent = false
	a.number++
	b.pass(time.Second)
	require.Len(t, b.m.ToClear(b.now), 1)
	b.m.Cleared("job")
	require.Empty(t, b.m.ToClear(b.now))
	b.pass(time.Second)
	require.True(t, b.job("job").Cleared)
	require.Equal(t, cluster.Cancelled, b.job("job").State)
	b.lead(2)
	b.pass(10 * time.Second)
	require.Empty(t, b.m.ToClear(b.now))
}

func TestRecordsThatCannotBeRead(t *testing.T) {
	m := New(Config{})
	m.Lead(start, 1)
	require.ErrorIs(t, m.Record(start, cluster.Record{Key: "job.x", Value: []byte("{"), Revision: 1}), cluster.ErrRecord)
	require.ErrorIs(t, m.Record(start, cluster.Record{Key: "job.x", Value: cluster.NewJob("y", cluster.Spec{}, start).Encode(), Revision: 2}), cluster.ErrRecord)
	require.ErrorIs(t, m.Record(start, cluster.Record{Key: "node.x", Value: []byte("{"), Revision: 3}), cluster.ErrRecord)
	require.ErrorIs(t, m.Record(start, cluster.Record{Key: "other", Value: []byte("{"), Revision: 3}), ErrKey)
	m.Synced(start)
	require.Empty(t, m.Step(start))
}

func TestRecordStaysSmall(t *testing.T) {
	b := newBench(t)
	b.m = New(Config{Breaks: 1 << 30, BackoffMost: 100 * time.Millisecond})
	b.lead(1)
	a := b.node("a", 4)
	b.small("job")
	b.running("job")
	a.says["read/0"] = cluster.Status{Phase: cluster.Broken, Error: strings.Repeat("é", 10000), Stack: strings.Repeat("x", 1<<16)}
	b.pass(12 * time.Second)
	require.Greater(t, b.job("job").Incidents, 30)
	require.Less(t, len(b.store["job.job"].Value), 120_000, "it has to fit into a message")
}

func TestSessionsAreForgotten(t *testing.T) {
	b := newBench(t)
	a := b.node("a", 4)
	b.small("job")
	for range 30 {
		b.restart(a)
		b.pass(4 * time.Second)
	}
	require.Less(t, len(b.m.sessions), 26)
	require.Equal(t, "a", b.worker("job", 0).Node)
}

// TestNoClock: the house test cannot tell the type from the clock.
func TestNoClock(t *testing.T) {
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".go") && !strings.HasSuffix(f.Name(), "_test.go") {
			text, err := os.ReadFile(f.Name())
			require.NoError(t, err)
			for _, call := range []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "NewTimer", "NewTicker", "Tick"} {
				require.NotContains(t, string(text), "time."+call+"(", f.Name())
			}
		}
	}
}

// FuzzBeats: whatever nodes say of themselves, decisions are records that can be read.
func FuzzBeats(f *testing.F) {
	f.Add([]byte(`{"node":"a","session":"s","number":1,"slots":4,"programs":[{"name":"count","version":"v1"}],"workers":[{"job":"job","operator":"read","epoch":1,"phase":"broken"}]}`))
	f.Add([]byte(`{"node":"a","session":"s","number":2,"slots":-1,"workers":[{"job":"job","operator":"count","index":1,"epoch":1,"phase":"running","level":18446744073709551615}]}`))
	f.Add([]byte(`{"node":"a","session":"s","number":2,"slots":4,"ending":true,"workers":[{"job":"job","operator":"read","epoch":1,"phase":"retired"},{"job":"job","operator":"count","epoch":1,"phase":"running","error":"no"}]}`))
	f.Fuzz(func(t *testing.T, message []byte) {
		beat, err := cluster.DecodeBeat(message)
		if err != nil {
			return
		}
		b := newBench(t)
		b.put(cluster.NodeKey("a"), (&cluster.Node{Name: "a", Session: "s"}).Encode())
		b.small("job")
		b.m.Beat(b.now, &cluster.Beat{Node: "a", Session: "s", Number: 0, Slots: 4, Programs: []cluster.Program{program}})
		b.step()
		b.m.Beat(b.now, beat)
		for range 10 {
			b.pass(time.Second)
		}
		b.job("job")
	})
}

// BenchmarkStep is what a leader of 100 jobs with 10 workers each on 20 nodes does 50 times a second.
func BenchmarkStep(b *testing.B) {
	m := New(Config{})
	m.Lead(start, 1)
	beats := make([]*cluster.Beat, 20)
	for i := range beats {
		name := fmt.Sprintf("n%02d", i)
		node := cluster.Node{Name: name, Session: "s"}
		require.NoError(b, m.Record(start, cluster.Record{Key: cluster.NodeKey(name), Value: node.Encode(), Revision: 1}))
		beats[i] = &cluster.Beat{Node: name, Session: "s", Number: 1, Slots: 50, Programs: []cluster.Program{program}}
		m.Beat(start, beats[i])
	}
	spec := cluster.Spec{Name: program.Name, Version: program.Version, Operators: []cluster.Operator{{Name: "count", Workers: 10, Compute: 1, Sink: true}}}
	for i := range 100 {
		id := fmt.Sprint("job", i)
		require.NoError(b, m.Record(start, cluster.Record{Key: cluster.JobKey(id), Value: cluster.NewJob(id, spec, start).Encode(), Revision: 1}))
	}
	m.Synced(start)
	for _, w := range m.Step(start) {
		require.NoError(b, m.Record(start, cluster.Record{Key: w.Key, Value: w.Value, Revision: 2}))
		m.Settled(w.Key)
		j, err := cluster.DecodeJob(w.Value)
		require.NoError(b, err)
		for _, k := range j.Workers {
			for _, beat := range beats {
				if beat.Node == k.Node {
					beat.Workers = append(beat.Workers, cluster.Status{Job: j.ID, Operator: k.Operator, Index: k.Index, Epoch: k.Epoch, Phase: cluster.Working})
				}
			}
		}
	}
	now := start
	for b.Loop() {
		now = now.Add(20 * time.Millisecond)
		for i := range 4 { // 20 nodes, 10 times a second
			beat := *beats[(b.N+i)%20]
			beat.Number = uint64(now.Sub(start))
			m.Beat(now, &beat)
		}
		for _, beat := range beats {
			m.session(beat.Node, "s", now).since = now
		}
		if writes := m.Step(now); len(writes) > 0 {
			b.Fatal(len(writes), string(writes[0].Value))
		}
	}
}
