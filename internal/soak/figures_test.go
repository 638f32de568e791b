//go:build e2e && linux

package soak

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/internal/chaos"
)

var (
	figures     = flag.Bool("figures", false, "take the figures of a cluster")
	repetitions = flag.Int("figures.n", 10, "how often each is taken")
)

// TestFigures measures what a user waits for when processes die. It asserts nothing but that it works.
func TestFigures(t *testing.T) {
	if !*figures {
		t.Skip("only with -figures: see make bench-cluster")
	}
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tp50\tmax\tn\t")
	row := func(name string, all []time.Duration) {
		fmt.Fprintf(w, "%s\t%v\t%v\t%d\t\n", name, round(middle(all)), round(slices.Max(all)), len(all))
	}

	idle := startCluster(t, 2, 3)
	b := idle.listen()
	time.Sleep(5 * time.Second) // for what a start takes to settle
	sizes := map[string]int{"idle node": take(idle.nodes[0].PID()).memory, "idle controller": take(idle.controllers[0].PID()).memory}
	sizes["idle backup server"] = take(idle.backup.PID()).memory
	sizes["idle afstream up"] = idleUp(t)

	row("killed controller: another one leads", idle.takeovers())
	for _, state := range []struct {
		name string
		args []string
	}{
		{"small state (65 kB a worker)", []string{"heavy-hitter", "--items", "2000000000", "--keys", "50000", "--rows", "1"}},
		{"100 MB a worker", []string{
			"heavy-hitter", "--items", "2000000000", "--zipf", "0.2", "--keys", "10000000",
			"--rows", "4", "--width", "3200000", "--guarantee", "mini-batch", "--batch", "1000000",
		}},
	} {
		f := idle.recoveries(b, state.args)
		row(state.name+": killed node is an incident in the record", f.noticed)
		row(state.name+": all workers run again", f.back)
		row(state.name+": of that, as the record has it", f.recorded)
		sizes["backups, "+state.name] = int(f.disk)
	}
	require.NoError(t, w.Flush())
	fmt.Fprintf(&table, "\n%d cores (%s), %s, Go %s; NATS server, 2 controllers, backup server and 3 nodes on this machine\n",
		runtime.NumCPU(), processor(), runtime.GOOS+"/"+runtime.GOARCH, runtime.Version())
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		fmt.Fprintf(&table, "%-48s %6.1f MiB\n", name, float64(sizes[name])/(1<<20))
	}
	t.Logf("from the signal until it is seen\n%s", table.String())
}

// idleUp is the memory of a cluster in one process that does nothing.
func idleUp(t *testing.T) int {
	up := chaos.Start(t, chaos.Command{Name: "up", Path: tools.Afstream(t), Args: []string{"up", "--dir", t.TempDir(), "--listen", "127.0.0.1:0"}})
	up.Await("is up")
	time.Sleep(5 * time.Second) // for what a start takes to settle
	size := take(up.PID()).memory
	require.Equal(t, 0, up.Interrupt())
	return size
}

// leader returns who leads, and in which term.
func (c *testCluster) leader() *cluster.Leader {
	c.t.Helper()
	r, err := c.fabric.Get(c.t.Context(), cluster.LeaderKey)
	require.NoError(c.t, err)
	l, err := cluster.DecodeLeader(r.Value)
	require.NoError(c.t, err)
	return l
}

// takeovers kills whoever leads, and takes the time until another one does.
func (c *testCluster) takeovers() (all []time.Duration) {
	eventually(c.t, "somebody leads", time.Minute, func() bool { return c.leader().Term > 0 })
	for range *repetitions {
		before := c.leader()
		i := slices.IndexFunc(c.controllers, func(p *process) bool { return p.name == before.Controller })
		require.GreaterOrEqual(c.t, i, 0, before.Controller)
		c.controllers[i].Kill()
		all = append(all, eventually(c.t, "another one leads", time.Minute, func() bool { return c.leader().Term > before.Term }))
		c.controllers[i].start()
		time.Sleep(2 * time.Second) // for it to know the lease that there is
	}
	return all
}

// found is what was measured of jobs whose nodes were killed.
type found struct {
	noticed, back, recorded []time.Duration
	disk                    int64
}

// recoveries kills the node of a worker with state, in a job of its own each time.
func (c *testCluster) recoveries(b *beats, args []string) (f found) {
	for i := range *repetitions {
		id := fmt.Sprintf("figure%d-%d", time.Now().UnixNano(), i)
		c.must(append(append([]string{"job", "submit"}, args...), "--id", id)...)
		runs := func() bool {
			j := c.job(id)
			return b.running(j) == len(j.Workers)
		}
		eventually(c.t, "the job runs", time.Minute, runs)
		// Until its state is backed up: so it is at a recovery in the middle of a job.
		eventually(c.t, "its state is backed up", 4*time.Minute, func() bool { return b.commits(id, "sketch") >= 2 })
		f.disk = max(f.disk, onDisk(c.store))
		w := c.job(id).Worker("sketch", 0)
		n := slices.IndexFunc(c.nodes, func(p *process) bool { return p.name == w.Node })
		began := time.Now()
		c.nodes[n].Kill()
		eventually(c.t, "the failure is in the record", time.Minute, func() bool { return c.job(id).Worker("sketch", 0).Failures > w.Failures })
		f.noticed = append(f.noticed, time.Since(began))
		eventually(c.t, "all workers run again", 2*time.Minute, runs)
		f.back = append(f.back, time.Since(began))
		f.recorded = append(f.recorded, c.recorded(id))
		c.nodes[n].start()
		c.must("job", "cancel", id)
		eventually(c.t, "the job has ended", time.Minute, func() bool { return c.job(id).State.Ended() })
		c.must("job", "delete", id)
	}
	return f
}

// must runs a command that does not fail.
func (c *testCluster) must(args ...string) {
	c.t.Helper()
	ctx, stop := context.WithTimeout(c.t.Context(), time.Minute)
	defer stop()
	_, err := c.run(ctx, args...)
	require.NoError(c.t, err)
}

// recorded is the longest recovery that the record of a job tells of.
func (c *testCluster) recorded(id string) (longest time.Duration) {
	eventually(c.t, "the record has the time", time.Minute, func() bool {
		longest = 0
		for _, i := range c.job(id).History {
			if i.Failure && i.Recovery == 0 {
				return false
			}
			longest = max(longest, time.Duration(i.Recovery*float64(time.Second)))
		}
		return true
	})
	return longest
}

// commits is how often the worker of an operator that has done so least has backed up its state.
func (b *beats) commits(job, operator string) (least uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := true
	for _, beat := range b.last {
		for _, s := range beat.Workers {
			if s.Job == job && s.Operator == operator && (first || s.Counters.StateCommits < least) {
				least, first = s.Counters.StateCommits, false
			}
		}
	}
	return least
}

func middle(all []time.Duration) time.Duration { return slices.Sorted(slices.Values(all))[len(all)/2] }

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// processor is what the system calls it.
func processor() string {
	info, _ := os.ReadFile(filepath.Join("/proc", "cpuinfo"))
	for line := range strings.Lines(string(info)) {
		if name, found := strings.CutPrefix(line, "model name"); found {
			return strings.Trim(name, "\t :\n")
		}
	}
	return "unknown"
}
