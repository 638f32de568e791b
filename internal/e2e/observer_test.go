//go:build e2e && unix

package e2e

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/cluster/overnats"
)

// incarnation names one of a worker.
type incarnation struct {
	job, operator string
	index         int
	epoch         uint64
}

// observer notes what a cluster says.
type observer struct {
	t    *testing.T
	stop context.CancelFunc
	all  sync.WaitGroup

	mu      sync.Mutex
	history history
	jobs    map[string]*cluster.Job // as they are now
	nodes   map[string]*cluster.Node
	leader  cluster.Leader
	led     map[uint64]time.Time // when a term was first seen
	wrote   map[uint64]time.Time // when a job was first seen that a term had written
	renewed time.Time            // when the lease was last
	beats   map[string]*cluster.Beat
	at      map[string]time.Time      // of beats
	running map[incarnation]time.Time // when it was first heard to run, or to be done
}

func observe(t *testing.T, urls string) *observer {
	t.Helper()
	nc, err := nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2), // it leaves a server that stands still
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	ctx, stop := context.WithCancel(context.Background())
	f, err := overnats.Open(ctx, nc, "afstream", 0)
	if err != nil {
		stop()
		require.NoError(t, err)
	}
	o := &observer{
		t: t, stop: stop, history: newHistory(), jobs: map[string]*cluster.Job{}, nodes: map[string]*cluster.Node{}, led: map[uint64]time.Time{},
		wrote: map[uint64]time.Time{}, beats: map[string]*cluster.Beat{}, at: map[string]time.Time{}, running: map[incarnation]time.Time{},
	}
	t.Cleanup(o.close)
	_, err = f.Subscribe(cluster.Subjects{Cluster: "afstream"}.Beat("*"), func(_ string, message []byte) { o.hear(message) }) // ends with nc
	require.NoError(t, err)
	o.all.Go(func() { // ends with close
		for ctx.Err() == nil {
			if err := f.Watch(ctx, "", o.see, func() {}); err != nil && ctx.Err() == nil {
				time.Sleep(100 * time.Millisecond) // NATS is away
			}
		}
	})
	return o
}

func (o *observer) close() {
	o.stop()
	o.all.Wait()
}

func (o *observer) see(r cluster.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.history.add(r) || r.Value == nil {
		return
	}
	now := time.Now()
	switch kind(r.Key) {
	case cluster.LeaderKey:
		if l, err := cluster.DecodeLeader(r.Value); err == nil {
			o.leader, o.renewed = *l, now
			if o.led[l.Term].IsZero() {
				o.led[l.Term] = now
			}
		}
	case cluster.NodePrefix:
		if n, err := cluster.DecodeNode(r.Value); err == nil {
			o.nodes[n.Name] = n
		}
	case cluster.JobPrefix:
		if j, err := cluster.DecodeJob(r.Value); err == nil {
			o.jobs[j.ID] = j
			if o.wrote[j.Term].IsZero() {
				o.wrote[j.Term] = now
			}
		}
	}
}

func (o *observer) hear(message []byte) {
	b, err := cluster.DecodeBeat(message)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.history.beatFaults = append(o.history.beatFaults, err.Error())
		return
	}
	o.history.beat(b)
	o.beats[b.Node], o.at[b.Node] = b, time.Now()
	for _, w := range b.Workers {
		i := incarnation{w.Job, w.Operator, w.Index, w.Epoch}
		if (w.Phase == cluster.Working || w.Phase == cluster.Done) && o.running[i].IsZero() {
			o.running[i] = time.Now()
		}
	}
}

// patience is how long anything may take that a test waits for.
const patience = 120 * time.Second

// until waits for something to be so, which is asked with mu held.
func (o *observer) until(what string, is func() bool) {
	o.t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		o.mu.Lock()
		yes := is()
		o.mu.Unlock()
		if yes {
			return
		}
		if time.Since(began) > patience {
			o.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// get reads something that mu guards.
func get[T any](o *observer, read func() T) T {
	o.mu.Lock()
	defer o.mu.Unlock()
	return read()
}

// processed is how much the second operator of a job has done, which is the one that does the work. mu is held.
func (o *observer) processed(id string) uint64 {
	j := o.jobs[id]
	if j == nil {
		return 0
	}
	var n uint64
	for i := range j.Workers {
		w := &j.Workers[i]
		if w.Operator != j.Spec.Operators[1].Name {
			continue
		}
		n += w.Past.Items
		if b := o.beats[w.Node]; b != nil {
			for _, s := range b.Workers {
				if s.Job == id && s.Operator == w.Operator && s.Index == w.Index && s.Epoch == w.Epoch {
					n += s.Counters.Items
				}
			}
		}
	}
	return n
}

// on returns what is to run on a node and has not ended. mu is held.
func (o *observer) on(node string) []incarnation {
	var all []incarnation
	for _, j := range o.jobs {
		for _, w := range j.Workers {
			if !j.State.Ended() && !w.Done && w.Node == node {
				all = append(all, incarnation{j.ID, w.Operator, w.Index, w.Epoch})
			}
		}
	}
	return all
}

// replaced says whether later incarnations of all of these run, and since when. Those of jobs that have ended count. mu is held.
func (o *observer) replaced(lost []incarnation) (at time.Time, all bool) {
	for _, i := range lost {
		var first time.Time
		for later, when := range o.running {
			if later.job == i.job && later.operator == i.operator && later.index == i.index && later.epoch > i.epoch && (first.IsZero() || when.Before(first)) {
				first = when
			}
		}
		if first.IsZero() && !o.jobs[i.job].State.Ended() {
			return at, false
		}
		if first.After(at) {
			at = first
		}
	}
	return at, true
}

// noticed is when the first of these was put down as failed. mu is held.
func (o *observer) noticed(lost []incarnation) time.Time {
	var first time.Time
	for _, i := range lost {
		for _, h := range o.jobs[i.job].History {
			if h.Operator == i.operator && h.Worker == i.index && h.Epoch == i.epoch && (first.IsZero() || h.At.Before(first)) {
				first = h.At
			}
		}
	}
	return first
}
