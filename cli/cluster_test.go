package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/backup/copies"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/cluster/clustertest"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/job"
	"github.com/afstream/afstream/worker"
)

// bench is a cluster in memory, for commands.
type bench struct {
	t     *testing.T
	m     *members
	store backup.Store            // of server "main"
	more  map[string]backup.Store // of others, by name
}

// unclosed keeps a store open for the next command.
type unclosed struct{ backup.Store }

func (unclosed) Close() error { return nil }

func newBench(t *testing.T) *bench {
	p := clustertest.New(t, 1, clustertest.Faults{}).Process("command")
	b := &bench{t: t, store: backup.NewMemory(), more: map[string]backup.Store{}}
	b.m = &members{
		name: "test", records: p, messages: p, logs: p, close: func() {},
		openStore: func(_ context.Context, server string) (backup.Store, error) {
			if server == "main" {
				return unclosed{b.store}, nil
			}
			if s := b.more[server]; s != nil {
				return unclosed{s}, nil
			}
			return nil, fmt.Errorf("server %s does not answer", server)
		},
	}
	return b
}

// run runs a command.
func (b *bench) run(args ...string) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	s := &shell{stdout: &out, stderr: &errs, jobs: Jobs(), dial: func(*cli.Context, *slog.Logger) (*members, error) { return b.m, nil }}
	app := &cli.App{
		Name: "afstream", Commands: []*cli.Command{s.jobCommand(), s.nodeCommand()}, Writer: &out, ErrWriter: &errs, Suggest: true,
		DisableSliceFlagSeparator: true, OnUsageError: usageError, ExitErrHandler: func(*cli.Context, error) {},
	}
	err = app.RunContext(b.t.Context(), append([]string{"afstream"}, args...))
	return out.String(), errs.String(), err
}

// must is run of what works.
func (b *bench) must(args ...string) string {
	b.t.Helper()
	stdout, stderr, err := b.run(args...)
	require.NoError(b.t, err, stderr)
	return stdout
}

// refused is run of what does not; it returns why.
func (b *bench) refused(args ...string) string {
	b.t.Helper()
	stdout, _, err := b.run(args...)
	require.Error(b.t, err)
	require.Empty(b.t, stdout)
	require.NotContains(b.t, message(err), "\n")
	return message(err)
}

// record returns the record of a job.
func (b *bench) record(id string) (*cluster.Job, uint64) {
	b.t.Helper()
	r, err := b.m.records.Get(b.t.Context(), cluster.JobKey(id))
	require.NoError(b.t, err)
	j, err := cluster.DecodeJob(r.Value)
	require.NoError(b.t, err)
	return j, r.Revision
}

// change changes it, as a controller would.
func (b *bench) change(id string, f func(j *cluster.Job)) {
	b.t.Helper()
	j, revision := b.record(id)
	f(j)
	_, err := b.m.records.Update(b.t.Context(), cluster.JobKey(id), j.Encode(), revision)
	require.NoError(b.t, err)
}

// runsHere runs a job that was submitted, as nodes would, and puts down what came of it.
func (b *bench) runsHere(id string, failures int) {
	b.t.Helper()
	j, _ := b.record(id)
	for _, p := range programs(Jobs()) {
		if p.Name != j.Spec.Name {
			continue
		}
		require.Equal(b.t, p.Version, j.Spec.Version)
		blue, err := p.Build(b.t.Context(), j.Spec.Args)
		require.NoError(b.t, err)
		blue.Keep(b.store, worker.Job{Name: j.Spec.Name, Incarnation: j.ID})
		nodes, err := blue.Topology.Build()
		require.NoError(b.t, err)
		result, err := controller.RunLocal(b.t.Context(), blue.Topology, controller.Options{
			Guarantee: blue.Guarantee, Params: blue.Params, Batch: blue.Batch, Store: b.store, Faults: controller.RandomFaults(nodes, failures, 3),
		})
		require.NoError(b.t, err)
		b.change(id, func(j *cluster.Job) {
			j.State, j.Started, j.Ended = cluster.Finished, j.Submitted, j.Submitted.Add(3*time.Second)
			for i := range j.Workers {
				j.Workers[i].Epoch, j.Workers[i].Done = 1, true
			}
			for _, f := range result.Failures {
				w := j.Worker(f.Operator, f.Worker)
				w.Fail()
				w.Epoch++
				j.Note(cluster.Incident{Operator: f.Operator, Worker: f.Worker, Epoch: f.Epoch, Failure: true, What: "killed", Node: "a"})
			}
			for i := range result.Operators {
				j.Worker(result.Operators[i].Name, 0).Past.Items = result.Operators[i].Items
			}
			j.Worker(j.Spec.Operators[0].Name, 0).Past.Read = result.Items - 1 // the last beat was lost
		})
		return
	}
	b.t.Fatalf("no program %q", j.Spec.Name)
}

// TestSubmitRefuses: what cannot work is refused before anything is submitted, in one line.
func TestSubmitRefuses(t *testing.T) {
	for _, c := range []struct{ flags, why string }{
		{"--fail table/0@50%", "--fail cannot be had in a cluster"},
		{"--failures 3", "--failures cannot be had in a cluster"},
		{"--backup-dir x", "--backup-dir cannot be had in a cluster"},
		{"--backup-sync", "--backup-sync cannot be had"},
		{"--backup-server nats://x:1", "--backup-server cannot be had in a cluster"},
		{"--verify", "job result --verify ID"},
		{"--source-replay=false", "--source-replay=false cannot be had in a cluster"},
		{"--allocate by-cost", "--allocate by-cost cannot be had in a cluster yet"},
		{"--input -", "stdin can be read only once"},
		{"--id a.b", `job "a.b": want 1 to 64 of`},
		{"--backup-name *", `backup server "*": want 1 to 64`},
		{"--backup-name a --backup-name a", "--backup-name a is given twice"},
		{"--theta -1", "theta -1: want a number of at least 0"},
		{"--guarantee exact", "there are approximate"},
		{"--input no/such/file", "no such file"},
		{"--thera 1", "did you mean --theta?"},
		{"word", `unexpected argument "word"`},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			require.Contains(t, b.refused(append([]string{"job", "submit", "wordcount"}, strings.Fields(c.flags)...)...), c.why)
			require.Equal(t, "no jobs\n", b.must("job", "list"))
		})
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		require.Contains(t, b.refused("job", "submit", "grep", "--locality", strings.Repeat("x", 1<<20)), "cluster: job is too large")
		require.Contains(t, b.refused("job", "submit", "wordcuont"), `did you mean "wordcount"?`)
		require.Contains(t, b.refused("job", "submit"), "submit which job? There are: aggregate")
		require.Contains(t, b.refused("job", "submit", "heavy-hitter", "--target-error", "0.01"), "give the total of the target")
		require.Contains(t, b.refused("job", "submit", "join", "--table", "-"), "--table: stdin")
	})
}

// TestSubmit: the record says what a job is, whatever the environment and the directory are of who reads it.
func TestSubmit(t *testing.T) {
	t.Setenv("AFSTREAM_THETA", "77")
	t.Setenv("AFSTREAM_BACKUP_DIR", "elsewhere")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		require.Equal(t, "wc\n", b.must("job", "submit", "wordcount", "--id", "wc", "--top", "1e1", "--fold", "--workers", "3", "--locality", "a", "--locality", "b"))
		j, _ := b.record("wc")
		require.Equal(t, cluster.Queued, j.State)
		require.Equal(t, []string{"--fold=true", "--top=10", "--workers=3", "--theta=77"}, j.Spec.Args)
		require.Equal(t, []string{"main"}, j.Spec.Backups)
		require.Equal(t, []string{"a", "b"}, j.Spec.Locality)
		require.Equal(t, programVersion(), j.Spec.Version)
		require.Len(t, j.Workers, 6, "%v", j.Spec.Operators)
		require.Equal(t, cluster.Operator{Name: "count", Workers: 3, Compute: 1}, j.Spec.Operators[1])
		require.Contains(t, b.refused("job", "submit", "wordcount", "--id", "wc"), `job "wc" is there already`)

		var made struct{ ID string }
		require.NoError(t, json.Unmarshal([]byte(b.must("job", "submit", "grep", "--find", "a,b", "--find", "c=d", "-o", "json")), &made))
		j, _ = b.record(made.ID)
		require.Equal(t, []string{"--find=a,b", "--find=c=d", "--theta=77"}, j.Spec.Args)
	})
}

// TestFilesAreNamedWholly: nodes may be in other directories.
func TestFilesAreNamedWholly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.must("job", "submit", "wordcount", "--id", "wc", "--input", "capture.go")
		j, _ := b.record("wc")
		whole, err := filepath.Abs("capture.go")
		require.NoError(t, err)
		require.Equal(t, []string{"--input=" + whole}, j.Spec.Args)
		b.must("job", "submit", "wordcount", "--id", "own", "--input", "builtin:opticks")
		j, _ = b.record("own")
		require.Equal(t, []string{"--input=builtin:opticks"}, j.Spec.Args)
	})
}

// TestNodesIgnoreTheirEnvironment: a job is what its flags say.
func TestNodesIgnoreTheirEnvironment(t *testing.T) {
	j := WordCount()
	t.Setenv("AFSTREAM_WORKERS", "7")
	t.Setenv("AFSTREAM_TOP", "rubbish")
	for _, workers := range []int{3, 2} { // nor what was made before
		b, err := j.capture(t.Context(), []string{fmt.Sprintf("--workers=%d", workers), "--batch=5k", "--guarantee=mini-batch"})
		require.NoError(t, err)
		require.Equal(t, uint64(5000), b.Batch)
		operators, err := b.Operators()
		require.NoError(t, err)
		require.Equal(t, workers, operators[1].Workers)
	}
	b, err := j.capture(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, uint64(job.DefaultBatch), b.Batch)
	for _, args := range [][]string{{"--help"}, {"--no-such-flag"}, {"--theta=-1"}, {"word"}} {
		_, err := j.capture(t.Context(), args)
		require.Error(t, err, "%v", args)
	}
	idle := Job{Name: "idle", Run: func(context.Context, *Env) error { return nil }}
	_, err = idle.capture(t.Context(), nil)
	require.ErrorIs(t, err, ErrUsage)
}

// TestLifeOfAJob takes one from its submission to its deletion.
func TestLifeOfAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.must("job", "submit", "wordcount", "--id", "wc", "--guarantee", "error-free", "--top", "1")
		require.Contains(t, b.must("job", "list"), "wc  wordcount  queued  0 of 5")
		require.Contains(t, b.refused("job", "inspect", "wd"), `did you mean "wc"?`)
		require.Contains(t, b.refused("job", "inspect"), "inspect which one? Give ID")
		require.Contains(t, b.refused("job", "inspect", "wc", "-o", "json"), "flags before it")
		require.Contains(t, b.refused("job", "result", "wc"), "it has no result yet")
		require.Contains(t, b.refused("job", "delete", "wc"), "cancel it first")

		b.change("wc", func(j *cluster.Job) {
			j.State, j.Started = cluster.Running, j.Submitted
			for i := range j.Workers {
				w := &j.Workers[i]
				w.Node, w.Session, w.Epoch = "a", "s1", 1
			}
		})
		beat := &cluster.Beat{Node: "a", Session: "s1", Slots: 8, Memory: 50 << 20, PID: 7, Host: "h", Programs: []cluster.Program{{Name: "wordcount", Version: "v1"}}}
		beat.Workers = []cluster.Status{
			{Job: "wc", Operator: "text", Epoch: 1, Phase: cluster.Working, Counters: cluster.Counters{Read: 41, Items: 42}, WaitsFor: []string{"credit"}},
			{Job: "wc", Operator: "count", Epoch: 1, Phase: cluster.Loading},
		}
		n := &cluster.Node{Name: "a", Session: "s1", Since: time.Now()}
		_, err := b.m.records.Create(t.Context(), cluster.NodeKey("a"), n.Encode())
		require.NoError(t, err)
		n = &cluster.Node{Name: "gone", Session: "s0", Since: time.Now()}
		_, err = b.m.records.Create(t.Context(), cluster.NodeKey("gone"), n.Encode())
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var beating sync.WaitGroup
		defer beating.Wait()
		defer stop()
		beating.Go(func() {
			for ctx.Err() == nil {
				beat.Number++
				_ = b.m.messages.Publish(b.m.subjects().Beat("a"), beat.Encode())
				time.Sleep(100 * time.Millisecond)
			}
		})
		require.Contains(t, b.must("job", "list"), "wc  wordcount  running  1 of 5          0     41")
		details := b.must("job", "inspect", "wc")
		require.Contains(t, details, "text/0   a     running      1         0     42")
		require.Contains(t, details, "credit")
		nodes := b.must("node", "list")
		require.Contains(t, nodes, "a     up      2 of 8   h       7  50 MiB")
		require.Contains(t, nodes, "gone  silent  0 of 0")
		b.must("node", "drain", "a")
		b.must("node", "drain", "a")
		require.Contains(t, b.must("node", "list"), "up, draining")
		b.must("node", "undrain", "a")
		require.Contains(t, b.refused("node", "undrain", "a"), "it is not being drained")
		require.Contains(t, b.refused("node", "drain", "gome"), `did you mean "gone"?`)

		require.NoError(t, b.m.logs.Append("wc", cluster.Line{At: time.Now(), Level: "WARN", Node: "a", Worker: "text/0", Text: "panic: x\nstack"}))
		require.Contains(t, b.must("job", "logs", "wc"), "WARN  a text/0 panic: x\n    stack\n")
		require.Contains(t, b.must("job", "logs", "-o", "json", "wc"), `"text":"panic: x\nstack"`)

		b.must("job", "cancel", "wc")
		b.must("job", "cancel", "wc")
		_, err = b.m.records.Get(t.Context(), cluster.CancelKey("wc"))
		require.NoError(t, err)
		b.change("wc", func(j *cluster.Job) { j.State = cluster.Cancelled })
		require.Contains(t, b.refused("job", "cancel", "wc"), "it is cancelled")
		require.Contains(t, b.refused("job", "result", "wc"), "it has no result")
		b.must("job", "delete", "wc")
		_, err = b.m.records.Get(t.Context(), cluster.CancelKey("wc"))
		require.ErrorIs(t, err, cluster.ErrNoRecord)
		require.Equal(t, "no jobs\n", b.must("job", "list"))
	})
}

// TestResults: the result of a job that was run elsewhere, through failures, is as that of a run here, and is verified.
func TestResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for _, j := range Jobs() {
			if j.Name == job.JoinName { // takes its time, see package job
				continue
			}
			b.must("job", "submit", j.Name, "--id", j.Name, "--workers", "1")
			b.runsHere(j.Name, 2)
			text := b.must("job", "result", "--verify", j.Name)
			require.Contains(t, text, "all bounds kept")
			var report struct {
				Seconds  float64
				Failures []any
				Verify   struct{ Kept bool }
			}
			require.NoError(t, json.Unmarshal([]byte(b.must("job", "result", "--verify", "-o", "json", j.Name)), &report))
			require.Equal(t, 3.0, report.Seconds)
			require.NotEmpty(t, report.Failures)
			require.True(t, report.Verify.Kept)
			b.must("job", "delete", j.Name)
			require.NoError(t, b.store.Scan([]byte("r/"), func(key, _ []byte) error { return fmt.Errorf("%q is left", key) }))
		}
	})
}

// TestBackupsOnSeveralServers: a result is there as long as one of them is, and what one has lost the others give back.
func TestBackupsOnSeveralServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.more["b1"], b.more["b2"] = backup.NewMemory(), backup.NewMemory()
		b.must("job", "submit", "wordcount", "--id", "wc", "--workers", "1", "--backup-name", "b1", "--backup-name", "b2")
		j, _ := b.record("wc")
		require.Equal(t, []string{"b1", "b2"}, j.Spec.Backups)
		require.Equal(t, []string{"b1", "b2"}, j.View)
		require.Contains(t, b.must("job", "inspect", "wc"), "backups b1, b2\n")

		s := copies.New([]copies.Member{{Name: "b1", Store: b.more["b1"]}, {Name: "b2", Store: b.more["b2"]}}, copies.Options{})
		b.store = s
		b.runsHere("wc", 2)
		require.NoError(t, s.Close())
		want := b.must("job", "result", "wc")

		b.more["b1"] = backup.NewMemory() // started again on an empty disk
		require.Equal(t, want, b.must("job", "result", "wc"))
		kept := b.more["b2"]
		delete(b.more, "b2")
		stdout, stderr, err := b.run("job", "result", "--verify", "wc")
		require.NoError(t, err)
		require.Contains(t, stdout, "all bounds kept")
		require.Contains(t, stderr, "backup servers do not answer")

		j, _ = b.record("wc")
		require.ErrorContains(t, b.m.dropBackups(t.Context(), j), `backup servers ["b2"] do not answer`)
		b.more["b2"] = kept
		require.NoError(t, b.m.dropBackups(t.Context(), j))
		require.Equal(t, want, b.must("job", "result", "wc"))

		delete(b.more, "b1")
		_, stderr, err = b.run("job", "delete", "wc")
		require.NoError(t, err)
		require.Contains(t, stderr, "what it has of the job stays there")
		require.NoError(t, kept.Scan([]byte("r/"), func(key, _ []byte) error { return fmt.Errorf("%q is left", key) }))
		require.Equal(t, "no jobs\n", b.must("job", "list"))
	})
}

// TestServersThatWereGivenUp are not asked, and shown.
func TestServersThatWereGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.more["b2"] = backup.NewMemory()
		b.must("job", "submit", "wordcount", "--id", "wc", "--backup-name", "b1", "--backup-name", "b2")
		b.change("wc", func(j *cluster.Job) { j.State, j.View = cluster.Cancelled, []string{"b2"} })
		require.Contains(t, b.must("job", "inspect", "wc"), "backups b2 (given up: b1)\n")
		j, _ := b.record("wc")
		require.NoError(t, b.m.dropBackups(t.Context(), j))
		_, stderr, err := b.run("job", "delete", "wc")
		require.NoError(t, err)
		require.Empty(t, stderr)
	})
}

// TestWait waits for the end of a job.
func TestWait(t *testing.T) {
	for state, why := range map[cluster.State]string{cluster.Finished: "", cluster.Failed: "it is failed: out of luck", cluster.Cancelled: "it is cancelled"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			go func() {
				time.Sleep(time.Minute)
				b.change("wc", func(j *cluster.Job) {
					j.State, j.Ended = state, time.Now()
					if state == cluster.Failed {
						j.Why = "out of luck"
					}
				})
			}()
			stdout, stderr, err := b.run("job", "submit", "wordcount", "--id", "wc", "--wait")
			require.Equal(t, "wc\n", stdout)
			if why == "" {
				require.NoError(t, err)
				require.Contains(t, stderr, "job wc has finished")
			} else {
				require.ErrorContains(t, err, why)
			}
		})
	}
}
