package node

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/transport/link"
)

// lab is a cluster in this process, with a controller that tests write themselves.
type lab struct {
	t        *testing.T
	records  *records
	messages *messages
	store    backup.Store
	opened   atomic.Int64
	nats     *server.Server // nil without links
	url      string
	programs []Program

	mu    sync.Mutex
	nodes map[string]*process
	beats chan *cluster.Beat
	last  map[string]*cluster.Beat // by session
}

// process is one node of a lab.
type process struct {
	name string
	*reach
	kill  context.CancelCauseFunc
	ended chan struct{}
	err   error // after ended
}

func newLab(t *testing.T, programs ...Program) *lab {
	l := &lab{
		t: t, records: newRecords(), messages: newMessages(), store: backup.NewMemory(), programs: programs,
		nodes: map[string]*process{}, beats: make(chan *cluster.Beat, 1<<16), last: map[string]*cluster.Beat{},
	}
	stop, err := l.messages.Subscribe(cluster.Subjects{Cluster: "lab"}.Beat("*"), func(_ string, m []byte) {
		b, err := cluster.DecodeBeat(m)
		if err != nil {
			t.Error(err)
			return
		}
		l.beats <- b
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		stop()
		for _, p := range l.nodes {
			p.kill(nil)
		}
		for _, p := range l.nodes {
			<-p.ended
		}
		if l.nats != nil {
			l.nats.Shutdown()
			l.nats.WaitForShutdown()
		}
		require.Zero(t, l.opened.Load(), "open stores")
		require.NoError(t, l.store.Close())
	})
	return l
}

// withNATS has the lab's nodes linked.
func (l *lab) withNATS() *lab {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	require.NoError(l.t, err)
	s.Start()
	require.True(l.t, s.ReadyForConnections(10*time.Second))
	l.nats, l.url = s, s.ClientURL()
	return l
}

// start starts a node.
func (l *lab) start(name string, change ...func(*Options)) *process {
	p := &process{name: name, reach: &reach{records: l.records, messages: l.messages}, ended: make(chan struct{})}
	o := Options{
		Name: name, Slots: 8, Cluster: "lab", Programs: l.programs, Records: p, Messages: p, Limits: "none", Grace: -1, Lease: 10 * time.Second,
		OpenStore: func(context.Context, string) (backup.Store, error) {
			l.opened.Add(1)
			return unclosed{l.store, &l.opened}, nil
		},
		Log: slog.New(slog.NewTextHandler(l.t.Output(), nil)).With("node", name),
	}
	var closeBus func()
	if l.url != "" {
		nc, err := nats.Connect(l.url)
		require.NoError(l.t, err)
		o.Bus, err = link.NewBus(nc, "afstream.lab")
		require.NoError(l.t, err)
		closeBus = func() {
			if open := o.Bus.Stats().Open; open != 0 {
				l.t.Errorf("node %s has left %d ends of links open", name, open)
			}
			o.Bus.Close()
			nc.Close()
		}
	}
	for _, f := range change {
		f(&o)
	}
	ctx, kill := context.WithCancelCause(context.Background())
	p.kill = kill
	go func() {
		defer close(p.ended)
		p.err = Run(ctx, o)
		if closeBus != nil {
			closeBus()
		}
	}()
	l.mu.Lock()
	l.nodes[name] = p
	l.mu.Unlock()
	return p
}

// crash ends a node without a farewell.
func (p *process) crash() {
	p.cutOff()
	p.kill(ErrKilled)
	<-p.ended
}

// startAll starts nodes, and returns the session of each.
func (l *lab) startAll(names ...string) map[string]string {
	l.t.Helper()
	sessions := map[string]string{}
	for _, n := range names {
		l.start(n)
		sessions[n] = l.session(n, "")
	}
	return sessions
}

// session waits for a beat of a node that is not of session other, and returns it.
func (l *lab) session(name, other string) string {
	return l.await(name, func(b *cluster.Beat) bool { return b.Session != other }).Session
}

// await returns the next beat of a node that ok holds for.
func (l *lab) await(name string, ok func(b *cluster.Beat) bool) *cluster.Beat {
	l.t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case b := <-l.beats:
			l.note(b)
			if b.Node == name && ok(b) {
				return b
			}
		case <-late:
			require.FailNow(l.t, "no such beat", "of node %s; the last was %+v", name, l.last)
		}
	}
}

// latest returns the last beat of a node that has come by now.
func (l *lab) latest(name string) *cluster.Beat {
	var last *cluster.Beat
	for len(l.beats) > 0 {
		b := <-l.beats
		l.note(b)
		if b.Node == name {
			last = b
		}
	}
	return last
}

func (l *lab) note(b *cluster.Beat) {
	if old := l.last[b.Session]; old != nil && !b.Leaving {
		require.Greater(l.t, b.Number, old.Number)
	}
	l.last[b.Session] = b
}

// status returns what a beat says about a worker, nil if nothing.
func status(b *cluster.Beat, operator string, index int) *cluster.Status {
	for i := range b.Workers {
		if s := &b.Workers[i]; s.Operator == operator && s.Index == index {
			return s
		}
	}
	return nil
}

// submit makes the record of a job.
func (l *lab) submit(id string, spec cluster.Spec) {
	_, err := l.records.Create(l.t.Context(), cluster.JobKey(id), cluster.NewJob(id, spec, time.Now()).Encode())
	require.NoError(l.t, err)
}

// update changes the record of a job.
func (l *lab) update(id string, change func(j *cluster.Job)) *cluster.Job {
	l.t.Helper()
	r, err := l.records.Get(l.t.Context(), cluster.JobKey(id))
	require.NoError(l.t, err)
	j, err := cluster.DecodeJob(r.Value)
	require.NoError(l.t, err)
	change(j)
	_, err = l.records.Update(l.t.Context(), r.Key, j.Encode(), r.Revision)
	require.NoError(l.t, err)
	return j
}

// assign gives a worker its next incarnation, after a failure if it had one.
func assign(w *cluster.Worker, node, session string) {
	if w.Epoch > 0 {
		w.Fail()
	}
	w.Epoch++
	w.Node, w.Session, w.Done = node, session, false
}

// drive is a controller: it gives each worker a node, a failed one the same node again, and those of a dead one another, until
// the job has ended or ok says so, which is asked after each beat. sessions are the nodes that live.
func (l *lab) drive(id string, sessions map[string]string, ok func(j *cluster.Job) bool) *cluster.Job {
	l.t.Helper()
	var names []string
	for n := range sessions {
		names = append(names, n)
	}
	slices.Sort(names)
	j := l.update(id, func(j *cluster.Job) {
		for i := range j.Workers {
			if w := &j.Workers[i]; w.Epoch == 0 || sessions[w.Node] != w.Session {
				name := names[i%len(names)]
				assign(w, name, sessions[name])
			}
		}
		j.State = cluster.Running
	})
	late := time.After(60 * time.Second)
	for !j.State.Ended() && !ok(j) {
		select {
		case b := <-l.beats:
			l.note(b)
			if sessions[b.Node] == b.Session && b.Node != "" {
				j = l.heed(j, b)
			}
		case <-late:
			require.FailNow(l.t, "the job does not end", "%s", l.describe())
		}
	}
	return j
}

// heed does what a beat asks for.
func (l *lab) heed(j *cluster.Job, b *cluster.Beat) *cluster.Job {
	next := j.Clone()
	changed := false
	for _, s := range b.Suspects {
		if at := slices.Index(next.View, s.Server); s.Job == j.ID && at >= 0 && len(next.View) > 1 {
			next.View, changed = slices.Delete(next.View, at, at+1), true
		}
	}
	for i := range b.Workers {
		s := &b.Workers[i]
		w := next.Worker(s.Operator, s.Index)
		if s.Job != j.ID || w.Epoch != s.Epoch {
			continue
		}
		switch {
		case s.Hopeless:
			next.State, next.Why, changed = cluster.Failed, s.Error, true
		case s.Phase == cluster.Broken:
			next.Note(cluster.Incident{Operator: s.Operator, Worker: s.Index, Epoch: s.Epoch, What: s.Error, Stack: s.Stack, Failure: true})
			assign(w, w.Node, w.Session)
			changed = true
		case s.Phase == cluster.Done && !w.Done:
			w.Done, changed = true, true
		}
	}
	if !changed {
		return j
	}
	done := true
	for _, o := range next.Spec.Operators {
		for i := range o.Workers {
			done = done && (!o.Sink || next.Worker(o.Name, i).Done)
		}
	}
	if done {
		next.State = cluster.Finished
	}
	return l.update(j.ID, func(r *cluster.Job) { *r = *next })
}

func (l *lab) describe() string {
	text := ""
	for _, b := range l.last {
		text += fmt.Sprintf("\nnode %s session %s beat %d:", b.Node, b.Session, b.Number)
		for _, s := range b.Workers {
			text += fmt.Sprintf("\n  %s/%d epoch %d %s items %d %v %s", s.Operator, s.Index, s.Epoch, s.Phase, s.Counters.Items, s.WaitsFor, s.Error)
		}
	}
	return text
}

// running says whether all workers of a job that beats speak of have run.
func (l *lab) running(sessions map[string]string) func(j *cluster.Job) bool {
	return func(j *cluster.Job) bool {
		n := 0
		for _, s := range sessions {
			if b := l.last[s]; b != nil {
				for i := range b.Workers {
					if p := b.Workers[i].Phase; p == cluster.Working || p == cluster.Done {
						n++
					}
				}
			}
		}
		return n == len(j.Workers)
	}
}

func never(*cluster.Job) bool { return false }
