package clustersim

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/afstream/afstream/backup"
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
			o.job(id, w.Value, w.At)
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
func (o *records) job(id string, value []byte, at time.Time) {
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
	case now.Term > old.Term && old.Term > 0 && (now.State != old.State || !reflect.DeepEqual(now.Workers, old.Workers)):
		bad("a leader has changed a record before it was its own")
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
	o.scaling(l, old, now, at, bad)
	for _, in := range now.History[len(now.History)-min(now.Incidents-old.Incidents, len(now.History)):] {
		if !slices.ContainsFunc(expected, func(what string) bool { return strings.Contains(in.What, what) }) {
			bad("an incident that none of the faults explains: %s/%d of epoch %d: %s", in.Operator, in.Worker, in.Epoch, in.What)
		}
	}
	for _, in := range now.History {
		if !in.Failure && strings.Contains(in.What, moved) {
			l.moved[incarnation{in.Operator, in.Worker, in.Epoch}] = true
		}
	}
	for i := range now.Workers {
		w := &now.Workers[i]
		if was := old.Worker(w.Operator, w.Index); was != nil {
			o.worker(l, now, was, w, now.Layout == old.Layout, bad)
		}
		o.given(l, now.ID, w, bad)
	}
	if cost := slices.DeleteFunc(slices.Clone(now.History), func(i cluster.Incident) bool { return !i.Failure }); now.Incidents == len(now.History) && len(l.costs) != len(cost) {
		bad("%d failures, %d in the history", len(l.costs), len(cost))
	}
}

// unseen returns the records of a job that were not looked at yet. Any goroutine may call.
func (o *records) unseen(id string) (list []*cluster.Job) {
	for _, w := range o.r.net.Written(o.told.Load()) {
		if j, err := cluster.DecodeJob(w.Value); w.Key == cluster.JobKey(id) && err == nil {
			list = append(list, j)
		}
	}
	return list
}

// scaling checks how the number of workers changes. The ledger is locked.
func (o *records) scaling(l *ledger, old, now *cluster.Job, at time.Time, bad func(string, ...any)) {
	switch was, is := old.Scaling, now.Scaling; {
	case was == nil:
	case was.ID == is.ID && was.Phase.Over() && is.Phase != was.Phase, was.ID != is.ID && !was.Phase.Over():
		bad("a change of the number of workers goes on after its end, or has none")
	case is.Round < was.Round, is.Round == was.Round && was.ID != is.ID:
		bad("a round comes again")
	}
	if s := now.Scaling; s != nil && s.Phase == cluster.ScaleFreeze && old.Scaling.Phase != s.Phase {
		for i := range now.Workers {
			w := &now.Workers[i]
			life := incarnation{w.Operator, w.Index, w.Epoch}
			if l.resting[life] = at; l.busyAt[life].After(at) {
				bad("%s works %v after all workers were at rest", w.Name(), l.busyAt[life].Sub(at))
			}
		}
	}
	if now.Layout == old.Layout {
		return
	}
	o.r.log("job %s: %d workers of %s", now.ID, now.Scaling.Workers, now.Scaling.Operator)
	l.bounds = append(l.bounds, before(now))
	worst := uint64(0)
	for i := range old.Workers {
		w := &old.Workers[i]
		if w.Epoch > before(now) {
			bad("%s had epoch %d, and the new layout begins at %d", w.Name(), w.Epoch, before(now))
		}
		if l.divided[incarnation{w.Operator, w.Index, w.Epoch}] = true; w.Operator == now.Scaling.Operator {
			worst = max(worst, w.Failures)
		}
	}
	for i := range now.Workers {
		if w := &now.Workers[i]; w.Operator == now.Scaling.Operator && w.Failures != worst {
			bad("%s has %d failures, its forebears had %d", w.Name(), w.Failures, worst)
		}
	}
	for i := range old.Spec.Operators {
		op := &old.Spec.Operators[i]
		for part := range op.Workers * op.Compute {
			key := backup.PartitionKey{Job: old.Spec.Name, Incarnation: old.ID, Operator: op.Name, Partition: part, Layout: old.Layout}
			if err := o.r.store.Fence(key.Owner(), backup.Frozen-1); !errors.Is(err, backup.ErrFenced) {
				bad("whoever is late may still write %s", key.Owner())
			}
		}
	}
}

// moved is what an incident says of a worker that costs nothing.
const moved = "without loss"

// expected is what incidents may say.
var expected = []string{
	"was not heard of", "was started again", "has ended", "has given up its name", // of nodes
	"moved off node", "gave up its place", "wait for free slots", "no node that is up", // of slots
	"is not given", "workers now", // of numbers of workers
	hated, clustertest.ErrUnreached.Error(),
}

// worker checks that what is said of a worker may follow what was said before, in the same layout or not. Its ledger is locked.
func (o *records) worker(l *ledger, j *cluster.Job, old, now *cluster.Worker, same bool, bad func(string, ...any)) {
	name := now.Name()
	switch {
	case now.Epoch < old.Epoch:
		bad("the epoch of %s goes back", name)
	case now.Failures < old.Failures:
		bad("the failures of %s go back", name)
	}
	for _, epoch := range now.FailedIn {
		if epoch > 0 {
			l.failed[incarnation{now.Operator, now.Index, epoch}] = true
		}
	}
	if !same {
		return
	}
	if old.Done && !now.Done {
		bad("%s had finished", name)
	}
	for i, at := range old.FailedAt {
		if at != cluster.Never && at != now.FailedAt[i] {
			bad("the level of failure %d of %s has changed", i, name)
		}
	}
	for k := old.Failures; k < now.Failures; k++ {
		i := slices.IndexFunc(j.Spec.Operators, func(o cluster.Operator) bool { return o.Name == now.Operator })
		l.costs = append(l.costs, failure{now.Operator, k, j.Spec.Operators[i].Workers * j.Spec.Operators[i].Compute})
	}
}

// given checks to whom a worker is given. Its ledger is locked.
func (o *records) given(l *ledger, job string, now *cluster.Worker, bad func(string, ...any)) {
	if now.Node == "" {
		return
	}
	key := fmt.Sprint(job, " ", now.Name(), " ", now.Epoch)
	session := now.Node + " " + now.Session
	if was, ok := o.sessions[key]; ok {
		if was != session {
			bad("epoch %d of %s was of session %s, and is now of %s", now.Epoch, now.Name(), was, session)
		}
		return
	}
	o.sessions[key] = session
	// Whatever an earlier incarnation has done cost a part of the budget before this one was made, unless it has ended in order.
	for w := range l.worked {
		if w.operator == now.Operator && w.index == now.Index && w.epoch < now.Epoch && !l.moved[w] && !l.divided[w] && !l.failed[w] {
			bad("epoch %d of %s has worked, and is no failure", w.epoch, now.Name())
		}
	}
}
