package machine

import (
	"reflect"
	"slices"

	"github.com/afstream/afstream/cluster"
)

// truth is what has really happened.
type truth struct {
	backups  map[statusKey]*simBackup // by worker: epoch 0
	unloaded map[statusKey]bool       // incarnations that have processed nothing, and have said so
	retired  map[statusKey]bool       // incarnations that have ended without loss
	moves    simMoves
	restored map[statusKey]uint64   // the level at which each incarnation has begun to work
	assigned map[statusKey]string   // to which session each incarnation was given
	failed   map[statusKey][]uint64 // by worker: the epochs that have failed
	poison   map[string]bool        // jobs of which a worker always breaks
	cancel   map[string]bool
	ended    int                  // jobs
	rest     map[statusKey]uint64 // the round in which each incarnation is at rest
	settled  map[simLayout]bool   // partitions that have saved what they have taken over; of the first layout, all
	frozen   map[simLayout]bool   // by job
	dropped  map[simLayout]bool   // by job
}

// simLayout names a worker, or without one a job, in a layout.
type simLayout struct {
	statusKey
	layout uint64
}

func jobLayout(id string, layout uint64) simLayout {
	return simLayout{statusKey{job: id}, max(layout, 1)}
}

func workerLayout(k statusKey, layout uint64) simLayout {
	k.epoch = 0
	return simLayout{k, max(layout, 1)}
}

// simMoves counts what has become of workers that were asked to retire.
//
// And of changes of the number of workers, with rounds that were begun again.
type simMoves struct{ Asked, Made, Lost, CalledOff, Spread, Scaled, Refused, Again int }

func (m *simMoves) add(o simMoves) {
	m.Asked += o.Asked
	m.Made += o.Made
	m.Lost += o.Lost
	m.CalledOff += o.CalledOff
	m.Spread += o.Spread
	m.Scaled += o.Scaled
	m.Refused += o.Refused
	m.Again += o.Again
}

// simBackup is what a backup server has of a worker.
type simBackup struct {
	fence    uint64
	progress uint64
}

// level is the number of windows closed.
func (b *simBackup) level() uint64 { return b.progress / 10 }

func newTruth() truth {
	return truth{
		backups: map[statusKey]*simBackup{}, unloaded: map[statusKey]bool{}, retired: map[statusKey]bool{}, restored: map[statusKey]uint64{}, assigned: map[statusKey]string{},
		rest: map[statusKey]uint64{}, settled: map[simLayout]bool{}, frozen: map[simLayout]bool{}, dropped: map[simLayout]bool{},
		failed: map[statusKey][]uint64{}, poison: map[string]bool{}, cancel: map[string]bool{},
	}
}

func (t *truth) backup(k statusKey) *simBackup {
	k.epoch = 0
	if t.backups[k] == nil {
		t.backups[k] = &simBackup{}
	}
	return t.backups[k]
}

// senders returns the workers that send to k, of which count has so many.
func senders(k statusKey, count int) (from []statusKey) {
	switch k.operator {
	case "count":
		from = append(from, statusKey{job: k.job, operator: "read"})
	case "write":
		for i := range count {
			from = append(from, statusKey{job: k.job, operator: "count", index: i})
		}
	}
	return from
}

// comes says whether what a worker sends to k has got beyond where k is.
func (t *truth) comes(k statusKey, progress uint64, count int) bool {
	return !slices.ContainsFunc(senders(k, count), func(f statusKey) bool { return t.backup(f).progress <= progress && progress < simGoal })
}

// layout freezes or drops partitions.
func (t *truth) layout(s *sim, task LayoutTask) {
	j, err := cluster.DecodeJob(s.store[cluster.JobKey(task.Job.ID)].Value)
	if err != nil {
		s.t.Error(err)
		return
	}
	layout := max(task.Job.Layout, 1)
	if task.Drop {
		for i := range task.Job.Workers {
			w := &task.Job.Workers[i]
			if !t.settled[workerLayout(statusKey{j.ID, w.Operator, w.Index, 0}, layout)] {
				s.t.Errorf("at %v: layout %d of %s is dropped, and %s has not saved what it is due of it", s.now.Sub(start), layout-1, j.ID, w.Name())
			}
		}
		t.dropped[jobLayout(j.ID, layout-1)] = true
		return
	}
	if j.Layout == task.Job.Layout && j.Scaling.Phase != cluster.ScaleFreeze && !j.State.Ended() {
		s.t.Errorf("at %v: layout %d of %s is frozen in phase %s", s.now.Sub(start), layout, j.ID, j.Scaling.Phase)
	}
	t.frozen[jobLayout(j.ID, layout)] = true
}

// scaling checks how a change of the number of workers goes on.
func (t *truth) scaling(old, now *cluster.Job) string {
	was, is := old.Scaling, now.Scaling
	if is == nil || was != nil && was.ID == is.ID && was.Phase == is.Phase && was.Round == is.Round {
		return ""
	}
	if was == nil || was.ID != is.ID {
		switch {
		case was != nil && !was.Phase.Over():
			return "a change is forgotten"
		case was != nil && is.Round <= was.Round:
			return "a round comes again"
		}
		return ""
	}
	if is.Round != was.Round {
		t.moves.Again++
	}
	type step struct{ from, to cluster.ScalePhase }
	ended := now.State.Ended()
	switch (step{was.Phase, is.Phase}) {
	case step{cluster.ScaleAsked, cluster.ScaleHold}, step{cluster.ScaleHold, cluster.ScaleHold}, step{cluster.ScalePause, cluster.ScaleHold},
		step{cluster.ScaleHold, cluster.ScaleAsked}, step{cluster.ScalePause, cluster.ScaleAsked}:
		if is.Round <= was.Round {
			return "a round comes again"
		}
	case step{cluster.ScaleHold, cluster.ScalePause}:
	case step{cluster.ScalePause, cluster.ScaleFreeze}:
		for i := range old.Workers {
			w := &old.Workers[i]
			if t.rest[statusKey{old.ID, w.Operator, w.Index, w.Epoch}] != was.Round {
				return w.Name() + " is not at rest in this round"
			}
		}
	case step{cluster.ScaleFreeze, cluster.ScaleLayout}:
	case step{cluster.ScaleLayout, cluster.ScaleDrop}:
		for i := range old.Workers {
			w := &old.Workers[i]
			if !t.settled[workerLayout(statusKey{old.ID, w.Operator, w.Index, 0}, old.Layout)] {
				return w.Name() + " has not saved what it has taken over"
			}
		}
	case step{cluster.ScaleDrop, cluster.ScaleDone}:
		if !ended && !t.dropped[jobLayout(old.ID, old.Layout-1)] {
			return "the layout before was not dropped"
		}
		t.moves.Scaled++
	case step{cluster.ScaleLayout, cluster.ScaleDone}, step{cluster.ScaleFreeze, cluster.ScaleRefused}:
		if !ended {
			return "a change ends half-way"
		}
	case step{cluster.ScaleAsked, cluster.ScaleRefused}, step{cluster.ScaleHold, cluster.ScaleRefused}, step{cluster.ScalePause, cluster.ScaleRefused}:
		t.moves.Refused++
	default:
		return "a change goes from " + string(was.Phase) + " to " + string(is.Phase)
	}
	return ""
}

// divided checks the record of a new layout, and divides what is backed up.
func (t *truth) divided(old, now *cluster.Job) string {
	if old.Scaling.Phase != cluster.ScaleFreeze || now.Layout != max(old.Layout, 1)+1 || !t.frozen[jobLayout(old.ID, old.Layout)] {
		return "the layout before is not frozen"
	}
	highest, worst := uint64(0), uint64(0)
	read := t.backup(statusKey{job: old.ID, operator: "read"}).progress
	for i := range old.Workers {
		w := &old.Workers[i]
		highest = max(highest, w.Epoch)
		if w.Operator == "count" {
			worst = max(worst, w.Failures)
		}
		if t.backup(statusKey{job: old.ID, operator: w.Operator, index: w.Index}).progress != read {
			return "something was in flight"
		}
	}
	for i := range now.Workers {
		w := &now.Workers[i]
		k := statusKey{now.ID, w.Operator, w.Index, w.Epoch}
		before := old.Worker(w.Operator, w.Index)
		switch {
		case w.Node != "" && w.Epoch <= highest, w.Epoch < highest:
			return w.Name() + " has an epoch that may have been"
		case w.Operator == "count" && w.Failures != worst, w.Operator != "count" && w.Failures != before.Failures:
			return "the failures of " + w.Name() + " are not what they were"
		case w.Retire || w.Done:
			return w.Name() + " has done nothing yet"
		}
		if w.Node != "" {
			t.assigned[k] = w.Session
		}
		b := t.backup(k)
		b.progress = read
		k.epoch = 0
		t.failed[k] = slices.Clone(w.FailedIn)
	}
	return ""
}

// changed checks that a record of a job may be followed by another one.
func (t *truth) changed(s *sim, before, after []byte) {
	now, err := cluster.DecodeJob(after)
	if err != nil {
		s.t.Error(err)
		return
	}
	if before == nil {
		return
	}
	old, err := cluster.DecodeJob(before)
	if err != nil {
		s.t.Error(err)
		return
	}
	bad := func(what string) {
		s.t.Errorf("at %v: %s\nfrom %s\nto   %s", s.now.Sub(start), what, before, after)
	}
	switch {
	case len(now.View) == 0 || slices.ContainsFunc(now.View, func(server string) bool { return !slices.Contains(old.View, server) }):
		bad("the view grows, or nothing is left")
	case now.Term < old.Term:
		bad("an earlier leader has written")
	case old.State.Ended() && (now.State != old.State || now.Why != old.Why || !reflect.DeepEqual(now.Workers, old.Workers)):
		bad("a job has changed that had ended")
	case old.State == cluster.Running && now.State == cluster.Queued:
		bad("a job is queued again")
	case now.Term > old.Term && old.Term > 0 && (now.State != old.State || !reflect.DeepEqual(now.Workers, old.Workers)):
		bad("a leader has changed a record before it was its own")
	case now.State == cluster.Cancelled && !t.cancel[now.ID]:
		bad("nobody has wished it")
	case now.State == cluster.Failed && !t.poison[now.ID]:
		bad("the job has failed")
	}
	if now.State.Ended() && !old.State.Ended() {
		t.ended++
	}
	if what := t.scaling(old, now); what != "" {
		bad(what)
	}
	if now.Layout != old.Layout {
		if what := t.divided(old, now); what != "" {
			bad(what)
		}
		return
	}
	asked := 0
	for i := range now.Workers {
		w := &now.Workers[i]
		if w.Retire {
			asked++
		}
		if w.Retire && !old.Workers[i].Retire && !s.emptied(w.Node) {
			t.moves.Spread++
		}
		if now.State == cluster.Running && w.Node == "" && old.State == cluster.Queued {
			bad("a job has begun without all of its workers")
		}
		if now.State == cluster.Finished && w.Operator == "write" && !w.Done {
			bad("a job has finished without its sink")
		}
		if what := t.worker(old, &old.Workers[i], w, now.State.Ended()); what != "" {
			bad(w.Name() + ": " + what)
		}
	}
	if asked > 1 {
		bad("two that may wait for each other are asked to retire")
	}
}

// worker checks one worker, and says what is wrong.
func (t *truth) worker(j *cluster.Job, old, now *cluster.Worker, ended bool) string {
	k := statusKey{j.ID, now.Operator, now.Index, now.Epoch}
	whole, last := k, k
	whole.epoch, last.epoch = 0, old.Epoch
	replaced := old.Node != "" && (now.Epoch != old.Epoch || now.Node == "")
	if now.Failures > old.Failures && !slices.Contains(t.failed[whole], old.Epoch) {
		t.failed[whole] = append(t.failed[whole], old.Epoch)
	}
	switch {
	case now.Epoch < old.Epoch || now.Epoch > old.Epoch+1:
		return "the epoch goes back, or leaves some out"
	case now.Epoch > old.Epoch && (now.Node == "" || t.assigned[k] != ""):
		return "an epoch is given to nobody, or to two"
	case now.Epoch == old.Epoch && now.Session != old.Session && now.Session != "":
		return "an epoch is given to another session"
	case now.Failures < old.Failures || now.Failures > old.Failures+1:
		return "the failures jump"
	case !replaced && now.Failures != old.Failures:
		return "a failure is counted of a worker that had not been running"
	case replaced && !ended && now.Failures == old.Failures && !t.unloaded[last] && !t.retired[last]:
		return "a failure was not counted"
	case now.Failures > old.Failures && now.FailedIn[old.Failures] != old.Epoch:
		return "a failure is counted of another incarnation"
	case now.Retire && now.Node == "", now.Retire && now.Epoch > old.Epoch:
		return "one is asked to retire that does not run"
	case now.Past.Items < old.Past.Items:
		return "it forgets what was done"
	case old.Done && !now.Done:
		return "it forgets that it was done"
	case now.Done && t.backup(k).progress < simGoal:
		return "it has not finished"
	}
	if now.Epoch > old.Epoch {
		t.assigned[k] = now.Session
	}
	switch {
	case now.Retire && !old.Retire:
		t.moves.Asked++
	case old.Retire && !now.Retire && !replaced:
		t.moves.CalledOff++
	case old.Retire && replaced && !ended && now.Failures == old.Failures:
		t.moves.Made++
	case old.Retire && replaced && !ended:
		t.moves.Lost++
	}
	for i, at := range now.FailedAt {
		switch was := uint64(cluster.Never); {
		case i < len(old.FailedAt) && old.FailedAt[i] != was && at != old.FailedAt[i]:
			return "a failure is moved"
		case i < len(now.FailedIn) && now.FailedIn[i] == 0: // in an earlier layout
		case at != was && !t.levels(whole, t.failed[whole][i], at):
			return "a failure is at a level at which no later incarnation has begun"
		}
	}
	return ""
}

// levels says whether an incarnation after a failed one has begun one level below at, and none earlier than that: so the
// failure cannot have been later.
func (t *truth) levels(whole statusKey, failed, at uint64) bool {
	first := true
	for k := whole; k.epoch < failed+100; k.epoch++ {
		level, restored := t.restored[k]
		if k.epoch <= failed || !restored {
			continue
		}
		if first && at < level+1 {
			return false
		}
		if first = false; at == level+1 {
			return true
		}
	}
	return false
}

// last checks how jobs have ended.
func (t *truth) last(s *sim) {
	for id := range t.poison {
		if j, err := cluster.DecodeJob(s.store[cluster.JobKey(id)].Value); err != nil || j.State != cluster.Failed {
			s.t.Errorf("job %s breaks again and again, and has ended as %v", id, j.State)
		}
	}
}
