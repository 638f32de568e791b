package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
)

// backed is a bench with a job of three backup servers that runs on two nodes.
func backed(t *testing.T) *bench {
	b := newBench(t)
	b.node("a", 2)
	b.node("b", 2)
	b.pass(time.Second)
	spec := cluster.Spec{Name: program.Name, Version: program.Version, Backups: []string{"x", "y", "z"}, Operators: []cluster.Operator{
		{Name: "read", Workers: 1, Compute: 1, Source: true}, {Name: "count", Workers: 2, Compute: 1, Sink: true},
	}}
	b.put(cluster.JobKey("j"), cluster.NewJob("j", spec, b.now).Encode())
	b.running("j")
	return b
}

func silent(server string) cluster.Suspect {
	return cluster.Suspect{Job: "j", Server: server, Why: server + " is silent"}
}

func lost(server string) cluster.Suspect {
	return cluster.Suspect{Job: "j", Server: server, Why: server + " is empty", Lost: true}
}

// TestServerThatIsSilentIsDropped by one write, and nothing else happens to the job.
func TestServerThatIsSilentIsDropped(t *testing.T) {
	b := backed(t)
	before := b.job("j")
	b.nodes["b"].suspects = []cluster.Suspect{silent("y")}
	took := b.until("it is dropped", func() bool { return len(b.job("j").View) < 3 })
	require.InDelta(t, 3, took.Seconds(), 0.3)
	j := b.job("j")
	require.Equal(t, []string{"x", "z"}, j.View)
	require.Equal(t, before.Workers, j.Workers)
	require.Len(t, j.History, 1)
	require.Equal(t, `backup server y is given up, ["x" "z"] go on: y is silent`, j.History[0].What)
	require.False(t, j.History[0].Failure)
	writes := b.writes
	b.pass(10 * time.Second)
	require.Equal(t, writes, b.writes, "the node has not noticed yet")
}

// TestServerThatAnswersAgainStays: the time counts from its last silence.
func TestServerThatAnswersAgainStays(t *testing.T) {
	b := backed(t)
	for range 3 {
		b.nodes["a"].suspects = []cluster.Suspect{silent("x")}
		b.pass(2 * time.Second)
		b.nodes["a"].suspects = nil
		b.pass(time.Second)
	}
	require.Len(t, b.job("j").View, 3)
}

// TestServerThatLostItsStoreIsDroppedAtOnce.
func TestServerThatLostItsStoreIsDroppedAtOnce(t *testing.T) {
	b := backed(t)
	b.nodes["a"].suspects = []cluster.Suspect{silent("x")}
	b.nodes["b"].suspects = []cluster.Suspect{lost("x")}
	took := b.until("it is dropped", func() bool { return len(b.job("j").View) < 3 })
	require.Less(t, took, 300*time.Millisecond)
	require.Contains(t, b.job("j").History[0].What, "x is empty")
}

// TestAllServersSilent: none is dropped before one of them works, and then the others are.
func TestAllServersSilent(t *testing.T) {
	b := backed(t)
	b.nodes["a"].suspects = []cluster.Suspect{silent("x"), silent("y")}
	b.nodes["b"].suspects = []cluster.Suspect{silent("z")}
	b.pass(time.Minute)
	require.Len(t, b.job("j").View, 3)
	b.nodes["b"].suspects = nil
	b.pass(time.Second)
	require.Equal(t, []string{"z"}, b.job("j").View)
	require.Len(t, b.job("j").History, 2)
	b.nodes["b"].suspects = []cluster.Suspect{silent("z")}
	b.pass(time.Minute)
	require.Equal(t, []string{"z"}, b.job("j").View, "the last one stays")
}

// TestAllServersLost: the last one stays, whichever it is.
func TestAllServersLost(t *testing.T) {
	b := backed(t)
	b.nodes["a"].suspects = []cluster.Suspect{lost("x"), lost("y"), lost("z")}
	b.pass(time.Second)
	require.Equal(t, []string{"z"}, b.job("j").View)
}

// TestWhoseWordCounts: that of nodes that are up, about servers and jobs that there are.
func TestWhoseWordCounts(t *testing.T) {
	for name, spoil := range map[string]func(b *bench){
		"another job":    func(b *bench) { b.nodes["a"].suspects[0].Job = "other" },
		"another server": func(b *bench) { b.nodes["a"].suspects[0].Server = "w" },
		"a node that is silent": func(b *bench) {
			b.beats()
			b.nodes["a"].silent = true
		},
		"an earlier session": func(b *bench) {
			b.beats()
			b.nodes["a"].suspects = nil
			b.restart(b.nodes["a"])
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := backed(t)
			b.nodes["a"].suspects = []cluster.Suspect{lost("x")}
			b.nodes["a"].suspects[0].Lost = name == "another job" || name == "another server"
			spoil(b)
			b.pass(10 * time.Second)
			require.Len(t, b.job("j").View, 3)
		})
	}
}

// TestNextLeaderWaitsAnew, since it does not know for how long a server has been silent.
func TestNextLeaderWaitsAnew(t *testing.T) {
	b := backed(t)
	b.nodes["b"].suspects = []cluster.Suspect{silent("y")}
	b.pass(2 * time.Second)
	b.m.Rest()
	b.lead(2)
	b.pass(2 * time.Second)
	require.Len(t, b.job("j").View, 3)
	b.pass(2 * time.Second)
	require.Len(t, b.job("j").View, 2)
}
