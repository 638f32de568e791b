package machine

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/cluster"
)

// epoch is when fake time begins.
var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// bench is a machine with a store that takes every write at once, and nodes that say what the test wants.
type bench struct {
	t      *testing.T
	m      *Machine
	now    time.Time
	rev    uint64
	store  map[string]cluster.Record
	nodes  map[string]*fake
	writes int
}

// fake is a node. By default its workers are running, and retire when they are asked to.
type fake struct {
	name, session string
	slots         int
	programs      []cluster.Program
	number        uint64
	silent        bool
	ending        bool
	leaving       bool
	slow          bool                      // its workers do not retire while it is set
	says          map[string]cluster.Status // by worker's name, while it has the status's epoch; 0 stands for any
	suspects      []cluster.Suspect
	hides         bool                                     // it does not list its workers
	rest          func(w *cluster.Worker, r *cluster.Rest) // changes what it says of scaling; nil: nothing
}

var program = cluster.Program{Name: "count", Version: "v1"}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, m: New(Config{}), now: start, store: map[string]cluster.Record{}, nodes: map[string]*fake{}}
	b.lead(1)
	return b
}

// lead has a machine lead that is told all that is stored.
func (b *bench) lead(term uint64) {
	b.m.Lead(b.now, term)
	for _, k := range slices.Sorted(maps.Keys(b.store)) {
		require.NoError(b.t, b.m.Record(b.now, b.store[k]))
	}
	b.m.Synced(b.now)
}

func (b *bench) put(key string, value []byte) {
	b.rev++
	r := cluster.Record{Key: key, Value: value, Revision: b.rev}
	b.store[key] = r
	if value == nil {
		delete(b.store, key)
	}
	require.NoError(b.t, b.m.Record(b.now, r))
}

func (b *bench) node(name string, slots int) *fake {
	n := &fake{name: name, slots: slots, programs: []cluster.Program{program}, says: map[string]cluster.Status{}}
	b.nodes[name] = n
	b.restart(n)
	return n
}

// restart gives the node a new session.
func (b *bench) restart(n *fake) {
	n.session = fmt.Sprintf("%s-%d", n.name, b.rev)
	n.number, n.says = 0, map[string]cluster.Status{}
	b.put(cluster.NodeKey(n.name), (&cluster.Node{Name: n.name, Session: n.session}).Encode())
}

func (b *bench) submit(id string, operators ...cluster.Operator) {
	spec := cluster.Spec{Name: program.Name, Version: program.Version, Operators: operators}
	b.put(cluster.JobKey(id), cluster.NewJob(id, spec, b.now).Encode())
}

// small is a job of a source with one worker and a sink with two.
func (b *bench) small(id string) {
	b.submit(id, cluster.Operator{Name: "read", Workers: 1, Compute: 1, Source: true}, cluster.Operator{Name: "count", Workers: 2, Compute: 1, Sink: true})
}

func (b *bench) job(id string) *cluster.Job {
	j, err := cluster.DecodeJob(b.store[cluster.JobKey(id)].Value)
	require.NoError(b.t, err)
	return j
}

func (b *bench) worker(id string, i int) cluster.Worker { return b.job(id).Workers[i] }

// on counts the workers of a job on each node.
func (b *bench) on(id string) map[string]int {
	on := map[string]int{}
	for _, w := range b.job(id).Workers {
		on[w.Node]++
	}
	return on
}

// asked counts the workers of a job that are asked to retire.
func (b *bench) asked(id string) int {
	n := 0
	for _, w := range b.job(id).Workers {
		if w.Retire {
			n++
		}
	}
	return n
}

// requireNoFailures checks that whatever has happened to a job has cost it nothing.
func (b *bench) requireNoFailures(id string) {
	b.t.Helper()
	for _, w := range b.job(id).Workers {
		require.Zero(b.t, w.Failures, w.Name())
	}
}

func (b *bench) beat(n *fake) *cluster.Beat {
	n.number++
	beat := &cluster.Beat{Node: n.name, Session: n.session, Number: n.number, Slots: n.slots, Programs: n.programs, Ending: n.ending, Leaving: n.leaving, Suspects: n.suspects}
	if n.hides {
		return beat
	}
	for _, k := range slices.Sorted(maps.Keys(b.store)) {
		j, err := cluster.DecodeJob(b.store[k].Value)
		if err != nil || j.State.Ended() || j.Workers == nil {
			continue
		}
		for i := range j.Workers {
			w := &j.Workers[i]
			if w.Node != n.name || w.Session != n.session {
				continue
			}
			st, ok := n.says[w.Name()]
			if !ok || st.Epoch != 0 && st.Epoch != w.Epoch {
				st = cluster.Status{Phase: cluster.Working, Counters: cluster.Counters{Items: 100}}
			}
			if w.Retire && !n.slow && st.Phase == cluster.Working && st.Error == "" {
				st.Phase = cluster.Retired
			}
			if st.Rest = restOf(j, w); st.Rest != nil && n.rest != nil {
				n.rest(w, st.Rest)
			}
			st.Job, st.Operator, st.Index, st.Epoch = j.ID, w.Operator, w.Index, w.Epoch
			beat.Workers = append(beat.Workers, st)
		}
	}
	return beat
}

// restOf is what a worker says that does what the record wants.
func restOf(j *cluster.Job, w *cluster.Worker) *cluster.Rest {
	s := j.Scaling
	if s == nil || s.Phase.Over() {
		return nil
	}
	r := &cluster.Rest{Round: s.Round}
	switch s.Phase {
	case cluster.ScaleHold:
		if w.Operator == "read" {
			r.Held, r.Window = s.Round, uint64(w.Index)+4
		}
	case cluster.ScalePause, cluster.ScaleFreeze:
		r.Paused = s.Round
	case cluster.ScaleLayout, cluster.ScaleDrop:
		r.Settled = true
	}
	return r
}

func (b *bench) beats() {
	for _, name := range slices.Sorted(maps.Keys(b.nodes)) {
		if n := b.nodes[name]; !n.silent {
			b.m.Beat(b.now, b.beat(n))
		}
	}
}

// step has the machine decide, and stores what it wants.
func (b *bench) step() {
	for _, w := range b.m.Step(b.now) {
		b.writes++
		b.apply(w)
	}
}

func (b *bench) apply(w Write) {
	if b.store[w.Key].Revision == w.Revision {
		b.put(w.Key, w.Value)
	} else {
		require.NoError(b.t, b.m.Record(b.now, b.store[w.Key]))
	}
	b.m.Settled(w.Key)
}

// pass lets time pass. Nodes beat every 100 ms.
func (b *bench) pass(d time.Duration) {
	for range d / (20 * time.Millisecond) {
		b.now = b.now.Add(20 * time.Millisecond)
		if b.now.Sub(start)%(100*time.Millisecond) == 0 {
			b.beats()
		}
		b.step()
	}
}

// until lets time pass until something is so, and returns how long it took.
func (b *bench) until(what string, so func() bool) time.Duration {
	began := b.now
	for !so() {
		if b.now.Sub(began) > time.Minute {
			require.Fail(b.t, "it did not come about in a minute: "+what)
		}
		b.pass(20 * time.Millisecond)
	}
	return b.now.Sub(began)
}

func (b *bench) running(id string) {
	b.until(id+" runs", func() bool { return b.job(id).State == cluster.Running })
}
