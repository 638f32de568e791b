package node

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// exact is what counting must find.
func (p *counting) requireExact(t *testing.T) {
	t.Helper()
	counts, total := p.counts()
	require.Equal(t, p.n, total)
	for k, n := range counts {
		require.Equal(t, p.n/keys, n, "key %d", k)
	}
}

func open() chan struct{} {
	gate := make(chan struct{})
	close(gate)
	return gate
}

// TestJobOnOneNode runs from its first record to its last.
func TestJobOnOneNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &counting{n: 6_400, gate: open()}
		l := newLab(t, p.program())
		l.start("a")
		sessions := map[string]string{"a": l.session("a", "")}
		l.submit("j1", p.spec())
		j := l.drive("j1", sessions, never)
		require.Equal(t, cluster.Finished, j.State)
		p.requireExact(t)
		require.EqualValues(t, 1, p.built.Load())
		require.EqualValues(t, 1, p.kept.Load())
		read := uint64(0)
		for _, s := range l.last[sessions["a"]].Workers {
			if s.Operator == "numbers" {
				read += s.Counters.Read
			}
		}
		require.Equal(t, p.n, read)
		l.await("a", func(b *cluster.Beat) bool { return len(b.Workers) == 0 })
		synctest.Wait()
		require.Zero(t, l.opened.Load(), "the store is closed when no job needs it")
	})
}

// TestNodeDiesWithoutFarewell and others go on in its place: exactly, at least once, or within the bound, as promised.
func TestNodeDiesWithoutFarewell(t *testing.T) {
	const theta, most, gamma = 500, 400, 300
	for name, c := range map[string]struct {
		n            uint64
		guarantee    worker.Guarantee
		relays       bool
		less, beyond float64 // items that the result may differ by
	}{
		"error-free":      {n: 12_800, guarantee: worker.ErrorFree},
		"upstream-backup": {n: 320_000, guarantee: worker.UpstreamBackup, relays: true, beyond: math.Inf(1)},
		// Lost: what the tallies' states lack and had acknowledged, and what was on its way from the relays. Repeated: what a relay
		// had processed since its last mark. And an item each per partition and failure, see errorbound.Params.Overdraft.
		"approximate": {n: 320_000, guarantee: worker.Approximate, relays: true, less: theta + most + gamma + 16, beyond: most + 16},
	} {
		t.Run(name, func(t *testing.T) {
			p := &counting{
				n: c.n, stop: c.n / 2, gate: make(chan struct{}), guarantee: c.guarantee, relays: c.relays,
				params: errorbound.Params{Theta: theta, L: most, Gamma: gamma},
			}
			l := newLab(t, p.program()).withNATS()
			sessions := l.startAll("a", "b", "c")
			l.submit("j1", p.spec())
			l.drive("j1", sessions, l.running(sessions))
			l.nodes["b"].crash() // with all at work
			delete(sessions, "b")
			l.drive("j1", sessions, l.running(sessions))
			l.nodes["a"].crash() // in the midst of that
			delete(sessions, "a")
			close(p.gate)
			j := l.drive("j1", sessions, never)
			require.Equal(t, cluster.Finished, j.State, j.Why)
			_, total := p.counts()
			require.GreaterOrEqual(t, float64(total), float64(p.n)-c.less)
			require.LessOrEqual(t, float64(total), float64(p.n)+c.beyond)
			if c.guarantee == worker.ErrorFree {
				p.requireExact(t)
			}
		})
	}
}

// TestOperatorPanics: the worker is reported with the panic's first line and the stack, once, and its next incarnation goes on.
func TestOperatorPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &counting{n: 6_400, gate: open(), guarantee: worker.ErrorFree, panicAt: 3_100}
		p.panics.Store(2)
		l := newLab(t, p.program())
		l.start("a")
		l.submit("j1", p.spec())
		j := l.drive("j1", map[string]string{"a": l.session("a", "")}, never)
		require.Equal(t, cluster.Finished, j.State)
		p.requireExact(t)
		require.Len(t, j.History, 2)
		for i, h := range j.History {
			require.Equal(t, "tally", h.Operator)
			require.EqualValues(t, i+1, h.Epoch)
			require.Contains(t, h.What, "operator panicked: I do not like this number")
			require.NotContains(t, h.What, "\n")
			require.Contains(t, h.Stack, "(*tally).Process")
		}
	})
}

// TestLevel: a worker says which window it was restored at the end of, so that its failure can be forgotten some day.
func TestLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &counting{n: 6_400, stop: 6_400, gate: make(chan struct{}), guarantee: worker.ErrorFree, window: 640, panicAt: 5_000}
		p.panics.Store(1)
		l := newLab(t, p.program())
		l.start("a")
		sessions := map[string]string{"a": l.session("a", "")}
		l.submit("j1", p.spec())
		j := l.drive("j1", sessions, func(j *cluster.Job) bool { return len(j.History) == 1 && l.running(sessions)(j) })
		s := status(l.last[sessions["a"]], "tally", j.History[0].Worker)
		require.EqualValues(t, 2, s.Epoch)
		require.GreaterOrEqual(t, s.Level, uint64(5_000/2/640-1), "each source has seen half of the items")
		require.LessOrEqual(t, s.Level, uint64(5_000/2/640+1))
		close(p.gate)
		l.drive("j1", sessions, never)
		p.requireExact(t)
	})
}

// TestOldRecord: what a watch that begins anew tells may be older than what is known, and changes nothing.
func TestOldRecord(t *testing.T) {
	h := &host{o: Options{Name: "a"}, session: "s", jobs: map[string]*job{}}
	old := cluster.NewJob("j1", (&counting{}).spec(), time.Now())
	old.Workers[0].Epoch, old.Workers[0].Node, old.Workers[0].Session = 1, "a", "s"
	over := old.Clone()
	over.State = cluster.Finished
	h.change("j1", over, 2)
	h.change("j1", old, 1)
	require.Empty(t, h.jobs["j1"].workers)
	h.change("j1", nil, 3)
	require.Empty(t, h.jobs)
}

// TestWorkersThatCannotBeLoaded are reported, with whether there is any use in trying again.
func TestWorkersThatCannotBeLoaded(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(p *counting, s *cluster.Spec, o *Options)
		hopeless bool
		says     string
	}{
		"unknown program": {func(_ *counting, s *cluster.Spec, _ *Options) { s.Name = "other" }, true, `carries no program "other"`},
		"other version":   {func(_ *counting, s *cluster.Spec, _ *Options) { s.Version = "2" }, true, `carries version "1" of counting, the job is of version "2"`},
		"bad arguments":   {func(_ *counting, s *cluster.Spec, _ *Options) { s.Args = []string{"x"} }, true, "arguments that cannot work"},
		"other topology":  {func(_ *counting, s *cluster.Spec, _ *Options) { s.Args = []string{"4"} }, true, "run one build of the program everywhere"},
		"no backups":      {func(_ *counting, s *cluster.Spec, _ *Options) { s.Backups = nil }, true, "needs a backup server"},
		"no servers":      {func(_ *counting, _ *cluster.Spec, o *Options) { o.OpenStore = nil }, true, "knows no backup servers"},
		"pipe":            {func(p *counting, _ *cluster.Spec, _ *Options) { p.pipes = true }, true, "use an input that can be read again"},
		"server away": {func(_ *counting, _ *cluster.Spec, o *Options) {
			o.OpenStore = func(context.Context, string) (backup.Store, error) { return nil, errUnreachable }
		}, false, "open backup server \"store\": unreachable"},
		"panic": {func(_ *counting, _ *cluster.Spec, o *Options) {
			o.Programs[0].Build = func(context.Context, []string) (*Blueprint, error) { panic("no") }
		}, false, "panicked: no"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &counting{n: 1, gate: open()}
				spec := p.spec()
				l := newLab(t, p.program())
				l.start("a", func(o *Options) { c.change(p, &spec, o) })
				session := l.session("a", "")
				l.submit("j1", spec)
				l.update("j1", func(j *cluster.Job) { assign(&j.Workers[0], "a", session) })
				b := l.await("a", func(b *cluster.Beat) bool { return len(b.Workers) == 1 && b.Workers[0].Phase != cluster.Loading })
				s := b.Workers[0]
				require.Equal(t, cluster.Unloaded, s.Phase)
				require.Equal(t, c.hopeless, s.Hopeless)
				require.Contains(t, s.Error, c.says)
				require.EqualValues(t, 1, s.Epoch)
				if c.hopeless {
					return
				}
				l.update("j1", func(j *cluster.Job) { assign(&j.Workers[0], "a", session) })
				l.await("a", func(b *cluster.Beat) bool {
					return len(b.Workers) == 1 && b.Workers[0].Epoch == 2 && b.Workers[0].Phase == cluster.Unloaded
				})
			})
		})
	}
}

// TestWorkersEndWithTheirAssignment, and with their job.
func TestWorkersEndWithTheirAssignment(t *testing.T) {
	for name, end := range map[string]func(l *lab, j *cluster.Job){
		"assigned to another": func(_ *lab, j *cluster.Job) {
			for i := range j.Workers {
				assign(&j.Workers[i], "elsewhere", "other")
			}
		},
		"job cancelled": func(_ *lab, j *cluster.Job) { j.State = cluster.Cancelled },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &counting{n: 6_400, stop: 3_200, gate: make(chan struct{})}
				l := newLab(t, p.program())
				l.start("a")
				sessions := map[string]string{"a": l.session("a", "")}
				l.submit("j1", p.spec())
				l.drive("j1", sessions, l.running(sessions))
				l.update("j1", func(j *cluster.Job) { end(l, j) })
				l.await("a", func(b *cluster.Beat) bool { return len(b.Workers) == 0 })
				synctest.Wait()
				require.Zero(t, l.opened.Load())
			})
		})
	}
	t.Run("record deleted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := &counting{n: 6_400, stop: 3_200, gate: make(chan struct{})}
			l := newLab(t, p.program())
			l.start("a")
			sessions := map[string]string{"a": l.session("a", "")}
			l.submit("j1", p.spec())
			l.drive("j1", sessions, l.running(sessions))
			r, err := l.records.Get(t.Context(), cluster.JobKey("j1"))
			require.NoError(t, err)
			require.NoError(t, l.records.Delete(t.Context(), r.Key, r.Revision))
			l.await("a", func(b *cluster.Beat) bool { return len(b.Workers) == 0 })
		})
	})
}

// TestLogOfJob: what happens to a job is told line by line.
func TestLogOfJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var lines []cluster.Line
		p := &counting{n: 640, gate: open(), guarantee: worker.ErrorFree, panicAt: 100}
		p.panics.Store(1)
		l := newLab(t, p.program())
		l.start("a", func(o *Options) {
			o.OnLog = func(job string, line cluster.Line) {
				mu.Lock()
				defer mu.Unlock()
				if job != "j1" || line.At.IsZero() || line.Node != "a" {
					t.Errorf("job %s: %+v", job, line)
				}
				lines = append(lines, line)
			}
		})
		l.submit("j1", p.spec())
		l.drive("j1", map[string]string{"a": l.session("a", "")}, never)
		mu.Lock()
		defer mu.Unlock()
		require.True(t, slices.ContainsFunc(lines, func(l cluster.Line) bool {
			return l.Worker == "out/0" && l.Level == "INFO" && l.Text == "worker runs, epoch 1"
		}), "%+v", lines)
		require.True(t, slices.ContainsFunc(lines, func(l cluster.Line) bool {
			return strings.HasPrefix(l.Worker, "tally/") && l.Level == "WARN" &&
				strings.HasPrefix(l.Text, "worker failed, epoch 1, err tally partition ") && strings.Contains(l.Text, "operator panicked: I do not")
		}), "%+v", lines)
	})
}

// TestRunNamesWhoDoesNotEnd: user code that holds a worker up is named and left behind.
func TestRunNamesWhoDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, in := make(chan struct{}), make(chan struct{})
		stuck := Program{Name: "stuck", Version: "1", Build: func(context.Context, []string) (*Blueprint, error) {
			topology := stream.New("stuck")
			s := stream.From(topology, "in", connector.Slice([]int{1}))
			stream.To(s, "out", func(int, int) (stream.Sink[int], error) {
				close(in)
				<-gate
				return nil, errUnreachable
			})
			return &Blueprint{Topology: topology, Guarantee: worker.None}, nil
		}}
		l := newLab(t, stuck)
		p := l.start("a")
		session := l.session("a", "")
		l.submit("j1", cluster.Spec{Name: "stuck", Version: "1", Operators: []cluster.Operator{
			{Name: "in", Workers: 1, Compute: 1, Source: true}, {Name: "out", Workers: 1, Compute: 1, Sink: true},
		}})
		l.update("j1", func(j *cluster.Job) { assign(j.Worker("out", 0), "a", session) })
		<-in
		p.kill(nil)
		<-p.ended
		require.ErrorContains(t, p.err, "node a: out/0 of job j1 did not end within 5s of being told to")
		close(gate)
		synctest.Wait()
	})
}

func TestOptionsThatCannotWork(t *testing.T) {
	err := Run(t.Context(), Options{
		Name: "a.b", Slots: -1, Beat: time.Second, Lease: time.Second,
		Programs: []Program{{Name: "x", Build: (&counting{}).build}, {Name: "x", Build: (&counting{}).build}, {Name: "y"}},
	})
	for _, says := range []string{`node "a.b"`, `cluster ""`, "-1 slots", "three beats", "Records", `two programs "x"`, `program "y"`} {
		require.ErrorContains(t, err, says)
	}
}
