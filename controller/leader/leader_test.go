package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
)

// world is a store with controllers and nodes around it, in fake time.
type world struct {
	t       *testing.T
	ctx     context.Context // ends before the test does
	store   *store
	hub     *hub
	running sync.WaitGroup
	drop    func(context.Context, *cluster.Job) error
}

func newWorld(t *testing.T, seed uint64) *world {
	return &world{t: t, store: newStore(seed), hub: newHub()}
}

// process is one controller.
type process struct {
	name   string
	client *client
	kill   context.CancelFunc
	ended  chan struct{}
}

func (w *world) controller(id int) *process {
	ctx, cancel := context.WithCancel(w.ctx)
	p := &process{name: fmt.Sprintf("c%d", id), client: w.store.client(id), kill: cancel, ended: make(chan struct{})}
	log := slog.New(slog.NewTextHandler(w.t.Output(), nil)).With("who", p.name)
	w.running.Go(func() {
		defer close(p.ended)
		err := Run(ctx, Options{Name: p.name, Cluster: "test", Records: p.client, Messages: ears{w.hub, p.client}, Drop: w.drop, Log: log})
		if err != nil {
			w.t.Error(err)
		}
	})
	return p
}

// node runs what is assigned to it for some time. It ends with ctx.
func (w *world) node(ctx context.Context, name string, work time.Duration) {
	session := cluster.NewID()
	w.store.put(cluster.NodeKey(name), (&cluster.Node{Name: name, Session: session}).Encode())
	began := map[string]time.Time{}
	w.running.Go(func() {
		for number := uint64(1); ctx.Err() == nil; number++ {
			b := &cluster.Beat{Node: name, Session: session, Number: number, Slots: 8, Programs: []cluster.Program{{Name: "p", Version: "1"}}}
			for _, j := range w.jobs() {
				for i := range j.Workers {
					if k := &j.Workers[i]; k.Node == name && k.Session == session {
						id := fmt.Sprintf("%s %s %d", j.ID, k.Name(), k.Epoch)
						if began[id].IsZero() {
							began[id] = time.Now()
						}
						st := cluster.Status{Job: j.ID, Operator: k.Operator, Index: k.Index, Epoch: k.Epoch, Phase: cluster.Working}
						if time.Since(began[id]) > work {
							st.Phase = cluster.Done
						}
						b.Workers = append(b.Workers, st)
					}
				}
			}
			_ = w.hub.Publish(cluster.Subjects{Cluster: "test"}.Beat(name), b.Encode())
			time.Sleep(100 * time.Millisecond)
		}
	})
}

func (w *world) jobs() []*cluster.Job {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	var jobs []*cluster.Job
	for key, r := range w.store.records {
		if strings.HasPrefix(key, cluster.JobPrefix) {
			j, err := cluster.DecodeJob(r.Value)
			if err != nil {
				panic(err)
			}
			jobs = append(jobs, j)
		}
	}
	return jobs
}

func (w *world) submit(id string) {
	spec := cluster.Spec{Name: "p", Version: "1", Operators: []cluster.Operator{{Name: "read", Workers: 1, Compute: 1}, {Name: "count", Workers: 2, Compute: 1, Sink: true}}}
	w.store.put(cluster.JobKey(id), cluster.NewJob(id, spec, time.Now()).Encode())
}

func (w *world) job(id string) *cluster.Job {
	r, ok := w.store.get(cluster.JobKey(id))
	require.True(w.t, ok)
	j, err := cluster.DecodeJob(r.Value)
	require.NoError(w.t, err)
	return j
}

func (w *world) leader() cluster.Leader {
	r, ok := w.store.get(cluster.LeaderKey)
	if !ok {
		return cluster.Leader{}
	}
	l, err := cluster.DecodeLeader(r.Value)
	require.NoError(w.t, err)
	return *l
}

// until waits until something is so, and returns how long that took.
func (w *world) until(what string, so func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	for !so() {
		if time.Since(began) > time.Minute {
			require.Fail(w.t, "it did not come about in a minute: "+what)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began)
}

// in runs a test in fake time, with what it starts ended at its end.
func in(t *testing.T, seed uint64, test func(t *testing.T, w *world, ctx context.Context)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed)
		ctx, cancel := context.WithCancel(t.Context())
		w.ctx = ctx
		defer w.running.Wait()
		defer cancel()
		test(t, w, ctx)
	})
}

func TestJobFromBeginningToEnd(t *testing.T) {
	in(t, 1, func(t *testing.T, w *world, ctx context.Context) {
		var drops atomic.Int32
		w.drop = func(_ context.Context, j *cluster.Job) error {
			if drops.Add(1) < 3 {
				return errors.New("not reached")
			}
			return nil
		}
		w.node(ctx, "a", 2*time.Second)
		c := w.controller(1)
		w.submit("job")
		took := w.until("it runs", func() bool { return w.job("job").State == cluster.Running })
		require.Less(t, took, time.Second)
		w.until("it ends", func() bool { return w.job("job").State == cluster.Finished })
		w.until("nothing is left", func() bool { return w.job("job").Cleared })
		require.EqualValues(t, 3, drops.Load())
		w.submit("more")
		w.until("it runs", func() bool { return w.job("more").State == cluster.Running })
		w.store.put(cluster.CancelKey("more"), []byte("x"))
		took = w.until("it ends", func() bool { return w.job("more").State == cluster.Cancelled })
		require.Less(t, took, time.Second)
		w.until("the wish is gone", func() bool { _, there := w.store.get(cluster.CancelKey("more")); return !there })
		c.kill()
		<-c.ended
		require.Equal(t, cluster.Leader{Term: 1, Renewal: w.leader().Renewal}, w.leader())
	})
}

func TestTakeover(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*process)
		most time.Duration
	}{
		{"killed", func(p *process) { p.client.setCut(true); p.kill() }, 3 * time.Second},
		{"cut off", func(p *process) { p.client.setCut(true) }, 3 * time.Second},
		{"in order", func(p *process) { p.kill() }, 300 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, 2, func(t *testing.T, w *world, ctx context.Context) {
				w.node(ctx, "a", time.Hour)
				one := w.controller(1)
				w.submit("job")
				w.until("it runs", func() bool { return w.job("job").State == cluster.Running })
				two := w.controller(2)
				time.Sleep(10 * time.Second)
				before := w.job("job")
				require.EqualValues(t, 1, before.Term, "nobody disturbs a leader")
				c.end(one)
				took := w.until("the next one acts", func() bool { return w.job("job").Term == 2 })
				t.Log("takeover", took)
				require.Less(t, took, c.most)
				after := w.job("job")
				after.Term = 1
				require.Equal(t, before, after)
				one.client.setCut(false)
				time.Sleep(10 * time.Second)
				require.Equal(t, "c2", w.leader().Controller)
				require.EqualValues(t, 2, w.job("job").Term)
				require.Zero(t, w.job("job").Incidents)
				two.kill()
				one.kill()
				<-one.ended
				<-two.ended
			})
		})
	}
}

func TestFailedNodeIsReplaced(t *testing.T) {
	in(t, 3, func(t *testing.T, w *world, ctx context.Context) {
		dies, die := context.WithCancel(ctx)
		w.node(dies, "a", time.Hour)
		c := w.controller(1)
		w.submit("job")
		w.until("it runs", func() bool { return w.job("job").State == cluster.Running })
		w.node(ctx, "b", 5*time.Second)
		time.Sleep(2 * time.Second)
		die()
		took := w.until("it is noticed", func() bool { return w.job("job").Workers[0].Node == "b" })
		require.Less(t, took, time.Second)
		w.until("it ends", func() bool { return w.job("job").State == cluster.Finished })
		c.kill()
		<-c.ended
	})
}

// TestDeafLeader: one that hears nothing, but can write, does not take all nodes for dead.
func TestDeafLeader(t *testing.T) {
	in(t, 1, func(t *testing.T, w *world, ctx context.Context) {
		one := w.controller(0)
		w.until("it leads", func() bool { return w.leader().Controller == one.name })
		w.controller(1)
		w.node(ctx, "a", time.Minute)
		w.node(ctx, "b", time.Minute)
		w.submit("j")
		w.until("it runs", func() bool { j := w.job("j"); return j.State == cluster.Running })
		time.Sleep(time.Second)
		one.client.setDeaf(true)
		w.until("the other one leads", func() bool { return w.leader().Controller == "c1" })
		time.Sleep(5 * time.Second)
		require.Zero(t, w.job("j").Incidents, "%+v", w.job("j").History)
		one.client.setDeaf(false)
		w.until("it ends", func() bool { return w.job("j").State.Ended() })
	})
}

func TestLeaseThatIsDeleted(t *testing.T) {
	in(t, 4, func(t *testing.T, w *world, ctx context.Context) {
		w.node(ctx, "a", time.Hour)
		c := w.controller(1)
		w.submit("job")
		for want := range uint64(3) {
			w.until("it leads", func() bool { return w.job("job").Term == want+1 })
			w.store.put(cluster.LeaderKey, nil)
		}
		c.kill()
		<-c.ended
		w.store.put(cluster.LeaderKey, nil)
		c = w.controller(2) // does not know of any term
		w.until("it leads", func() bool { return w.job("job").Term > 3 })
		time.Sleep(5 * time.Second)
		require.Equal(t, w.leader().Term, w.job("job").Term)
		c.kill()
		<-c.ended
	})
}

func TestStoreThatFails(t *testing.T) {
	in(t, 5, func(t *testing.T, w *world, ctx context.Context) {
		w.node(ctx, "a", 2*time.Second)
		c := w.controller(1)
		c.client.set(2*time.Millisecond, 0.3, 0)
		for i := range 10 {
			w.submit(fmt.Sprint("job", i))
		}
		for i := range 10 {
			w.until("it ends", func() bool { return w.job(fmt.Sprint("job", i)).State == cluster.Finished })
		}
		c.client.setCut(true)
		time.Sleep(5 * time.Second)
		w.submit("last")
		c.client.setCut(false)
		w.until("it ends", func() bool { return w.job("last").State == cluster.Finished })
		c.kill()
		<-c.ended
	})
}

func TestWishThatIsDeletedWhileNobodyWatches(t *testing.T) {
	in(t, 6, func(t *testing.T, w *world, ctx context.Context) {
		w.node(ctx, "a", time.Hour)
		w.store.put(cluster.DrainKey("a"), []byte("x"))
		c := w.controller(1)
		w.submit("job")
		time.Sleep(5 * time.Second)
		require.Equal(t, cluster.Queued, w.job("job").State)
		c.client.setCut(true)
		w.store.put(cluster.DrainKey("a"), nil)
		time.Sleep(300 * time.Millisecond) // not so long that it leads no more
		c.client.setCut(false)
		w.until("it runs", func() bool { return w.job("job").State == cluster.Running })
		require.EqualValues(t, 1, w.leader().Term)
		c.kill()
		<-c.ended
	})
}

func TestOptions(t *testing.T) {
	good := Options{Name: "c", Cluster: "test", Records: newStore(1).client(1), Messages: newHub()}
	_, err := good.withDefaults()
	require.NoError(t, err)
	for want, change := range map[string]func(*Options){
		`controller "a b"`: func(o *Options) { o.Name = "a b" },
		`cluster ""`:       func(o *Options) { o.Cluster = "" },
		"lease of 1s":      func(o *Options) { o.Lease, o.Renew = time.Second, time.Second },
		"no connection":    func(o *Options) { o.Records = nil },
	} {
		o := good
		change(&o)
		require.ErrorContains(t, Run(t.Context(), o), want)
	}
}
