package clustersim

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/cluster/clustertest"
)

// records sees each record that is stored, as soon as it is, and says what must not have been.
type records struct {
	r        *run
	told     atomic.Uint64     // revision; any goroutine may read it
	there    map[string]uint64 // revisions of all records
	jobs     map[string]*cluster.Job
	sessions map[string]string // by job, worker and epoch
	leader   cluster.Leader

	mu      sync.Mutex
	heard   map[string]*cluster.Beat // the last one of each node
	process *clustertest.Process
	unhear  func()
}

func newRecords(r *run) *records {
	o := &records{r: r, there: map[string]uint64{}, jobs: map[string]*cluster.Job{}, sessions: map[string]string{}, heard: map[string]*cluster.Beat{}, process: r.net.Process("observer")}
	stop, err := o.process.Subscribe(cluster.Subjects{Cluster: "sim"}.Beat("*"), o.hear)
	if err != nil {
		r.t.Fatal(err)
	}
	o.unhear = stop
	return o
}

func (o *records) stop() { o.unhear() }

func (o *records) hear(_ string, message []byte) {
	if !o.r.say {
		return
	}
	if b, err := cluster.DecodeBeat(message); err == nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.heard[b.Node] = b
	}
}

// beats is what the nodes said last.
func (o *records) beats() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := ""
	for _, b := range o.heard {
		text += fmt.Sprintf("\n  %+v", *b)
	}
	return text
}

// look takes in what is new.
func (o *records) look() {
	for _, w := range o.r.net.Written(o.told.Load()) {
		if o.there[w.Key] = w.Revision; w.Value == nil {
			delete(o.there, w.Key)
		}
		name, isNode := strings.CutPrefix(w.Key, cluster.NodePrefix)
		id, isJob := strings.CutPrefix(w.Key, cluster.JobPrefix)
		switch {
		case w.Value == nil:
		case isNode:
			for _, s := range o.r.nodes {
				if s.name == name {
					s.renewed.Store(w.At.UnixNano())
				}
			}
		case isJob:
			o.job(id, w.Value)
		case w.Key == cluster.LeaderKey:
			o.lead(w.Value)
		}
		o.told.Store(w.Revision)
	}
}

// lease is when that of a node is over. Any goroutine may call.
func (o *records) lease(s *site) time.Time {
	until := time.Unix(0, s.renewed.Load()).Add(nodeLease)
	if time.Now().Before(until) {
		return until
	}
	for _, w := range o.r.net.Written(o.told.Load()) {
		if w.Key == cluster.NodeKey(s.name) {
			until = w.At.Add(nodeLease)
		}
	}
	return until
}

func (o *records) lead(value []byte) {
	l, err := cluster.DecodeLeader(value)
	switch was := o.leader; {
	case err != nil:
		o.r.fault("%v", err)
		return
	case l.Term < was.Term, l.Term == was.Term && l.Controller != was.Controller && l.Controller != "":
		o.r.fault("after leader %+v there is leader %+v", was, *l)
	}
	o.leader = *l
}

func (o *records) ended() bool {
	for _, p := range o.r.plans {
		if j := o.jobs[p.id]; j == nil || !j.State.Ended() {
			return false
		}
	}
	return true
}

// job checks that a record of a job may follow the one before it.
func (o *records) job(id string, value []byte) {
	now, err := cluster.DecodeJob(value)
	if err != nil {
		o.r.fault("%v", err)
		return
	}
	old := o.jobs[id]
	o.jobs[id] = now
	if old == nil {
		return
	}
	bad := func(format string, args ...any) {
		o.r.fault("%s\nfrom %s\nto   %s", fmt.Sprintf(format, args...), old.Encode(), value)
	}
	switch {
	case now.State == cluster.Failed:
		bad("the job has failed")
	case now.State == cluster.Cancelled:
		bad("nobody has wished it")
	case old.State.Ended() && (now.State != old.State || !reflect.DeepEqual(now.Workers, old.Workers)):
		bad("a job has changed that had ended")
	case now.Term < old.Term:
		bad("an earlier leader has written")
	case now.Incidents < old.Incidents:
		bad("incidents are forgotten")
	}
	l := o.r.ledgers[id]
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.State.Ended() && l.over.IsZero() {
		l.over = time.Now().Add(quiet) // until then some may not know it
		o.r.log("job %s is %s", id, now.State)
	}
	for _, in := range now.History[len(now.History)-min(now.Incidents-old.Incidents, len(now.History)):] {
		if !slices.ContainsFunc(expected, func(what string) bool { return strings.Contains(in.What, what) }) {
			bad("an incident that none of the faults explains: %s of epoch %d: %s", now.Worker(in.Operator, in.Worker).Name(), in.Epoch, in.What)
		}
	}
	for _, in := range now.History {
		if !in.Failure && strings.Contains(in.What, moved) {
			l.moved[incarnation{in.Operator, in.Worker, in.Epoch}] = true
		}
	}
	for i := range now.Workers {
		o.worker(l, now.ID, &old.Workers[i], &now.Workers[i], bad)
	}
	if cost := slices.DeleteFunc(slices.Clone(now.History), func(i cluster.Incident) bool { return !i.Failure }); now.Incidents == len(now.History) {
		sum := uint64(0)
		for i := range now.Workers {
			sum += now.Workers[i].Failures
		}
		if sum != uint64(len(cost)) {
			bad("%d failures, %d in the history", sum, len(cost))
		}
	}
}

// moved is what an incident says of a worker that costs nothing.
const moved = "without loss"

// expected is what incidents may say.
var expected = []string{
	"was not heard of", "was started again", "has ended", "has given up its name", // of nodes
	"moved off node", "gave up its place", "wait for free slots", "no node that is up", // of slots
	hated, clustertest.ErrUnreached.Error(),
}

// worker checks that what is said of a worker may follow what was said before. Its ledger is locked.
func (o *records) worker(l *ledger, job string, old, now *cluster.Worker, bad func(string, ...any)) {
	name := now.Name()
	switch {
	case now.Epoch < old.Epoch:
		bad("the epoch of %s goes back", name)
	case now.Failures < old.Failures:
		bad("the failures of %s go back", name)
	case old.Done && !now.Done:
		bad("%s had finished", name)
	case now.Node == "":
		return
	}
	for i, at := range old.FailedAt {
		if at != cluster.Never && at != now.FailedAt[i] {
			bad("the level of failure %d of %s has changed", i, name)
		}
	}
	key := fmt.Sprint(job, " ", name, " ", now.Epoch)
	session := now.Node + " " + now.Session
	if was, ok := o.sessions[key]; ok {
		if was != session {
			bad("epoch %d of %s was of session %s, and is now of %s", now.Epoch, name, was, session)
		}
		return
	}
	o.sessions[key] = session
	// Whatever an earlier incarnation has done cost a part of the budget before this one was made, unless it has ended in order.
	for w := range l.worked {
		if w.operator == now.Operator && w.index == now.Index && w.epoch < now.Epoch && !l.moved[w] && !slices.Contains(now.FailedIn, w.epoch) {
			bad("epoch %d of %s has worked, and is no failure", w.epoch, name)
		}
	}
}
