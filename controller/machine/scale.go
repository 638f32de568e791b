package machine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/afstream/afstream/cluster"
)

// This file holds how the number of workers of an operator changes. All of it is in the record, step by step (cluster.ScalePhase),
// and nodes tell how far they are. A round of coming to rest counts only as long as no worker is replaced: what
// one that comes new does again would make others that are at rest work again. Until all are at rest the job
// can go on as it is at any time; from then on nothing can be lost any more, whoever dies, and there is no way back.

// scaleWish is what a user wants of a job.
type scaleWish struct {
	revision uint64
	wish     *cluster.ScaleWish // nil if it cannot be read
}

// waiting is since when a change has not come further. A new leader gives it the full time.
type waiting struct {
	id    string
	holds bool // the job is held
	began time.Time
	since time.Time // when something moved last: what is in flight has to be processed, which may take a while
	items uint64    // processed by then
}

// mostRest is how many times Config.Rest a job may take that moves.
const mostRest = 10

func (m *Machine) scaleRecord(id string, r cluster.Record) error {
	if delete(m.scale, id); r.Value == nil {
		return nil
	}
	wish, err := cluster.DecodeScaleWish(r.Value)
	if err != nil {
		wish, err = nil, fmt.Errorf("record %q: %w", r.Key, err)
	}
	m.scale[id] = scaleWish{r.Revision, wish}
	return err
}

// scaleWishesDone deletes the wishes that are in the records of their jobs, and those that nothing can come of.
func (m *Machine) scaleWishesDone() []Write {
	var writes []Write
	for id, w := range m.scale {
		j, key := m.jobs[id], cluster.ScaleKey(id)
		over := w.wish == nil || j != nil && (j.stored.State.Ended() || j.stored.Scaling != nil && j.stored.Scaling.ID == w.wish.ID)
		if over && !m.deleting[key] {
			m.deleting[key] = true
			writes = append(writes, Write{Key: key, Revision: w.revision})
		}
	}
	return writes
}

// scaling returns the change under way, nil if there is none.
func (d *decision) scaling() *cluster.Scaling {
	if s := d.job().Scaling; s != nil && !s.Phase.Over() {
		return s
	}
	return nil
}

// holds says whether the workers of the job are not to be moved because of a change under way.
func (d *decision) holds() bool {
	s := d.scaling()
	return s != nil && (s.Phase.Holds() || s.Phase == cluster.ScaleLayout)
}

// hear takes over what a user wants, one change after the other.
func (d *decision) hear() {
	w := d.m.scale[d.job().ID].wish
	last := d.job().Scaling
	if w == nil || d.scaling() != nil || last != nil && last.ID == w.ID {
		return
	}
	s := &cluster.Scaling{ScaleWish: *w, Phase: cluster.ScaleAsked, Round: 1, Since: d.now}
	if last != nil {
		s.Round = last.Round + 1
	}
	why := d.m.c.Unscalable
	if err := d.job().CannotScale(w.Operator, w.Workers); err != nil {
		why = err.Error()
	}
	j := d.edit()
	for _, o := range j.Spec.Operators {
		if o.Name == w.Operator {
			s.Former = o.Workers
		}
	}
	if j.Scaling = s; why != "" {
		d.refuse(why)
	}
}

// refuse has the job go on as it is.
func (d *decision) refuse(why string) {
	s := d.edit().Scaling
	s.Phase, s.Why, s.Ended = cluster.ScaleRefused, cut(strings.ReplaceAll(why, "\n", ": "), maxWhat), d.now
	d.note(-1, cluster.Incident{What: fmt.Sprintf("operator %q is not given %d workers: %s", s.Operator, s.Workers, s.Why)})
}

// rescale takes the next step of the change under way.
func (d *decision) rescale() {
	s := d.scaling()
	if s == nil {
		d.j.waiting = waiting{}
		return
	}
	switch s.Phase {
	case cluster.ScaleAsked:
		d.askAll(s)
	case cluster.ScaleHold, cluster.ScalePause:
		d.comeToRest(s)
	case cluster.ScaleLayout:
		if all, _ := d.answers(func(_ int, r *cluster.Rest) bool { return r.Settled }); all {
			d.edit().Scaling.Phase = cluster.ScaleDrop
		}
	case cluster.ScaleDrop:
		if d.j.dropped == d.job().Layout {
			s := d.edit().Scaling
			s.Phase, s.Ended = cluster.ScaleDone, d.now
		}
	}
}

// late says whether the change has waited too long.
func (d *decision) late(s *cluster.Scaling) bool {
	w := &d.j.waiting
	if w.id != s.ID || w.holds != s.Phase.Holds() {
		*w = waiting{id: s.ID, holds: s.Phase.Holds(), began: d.now, since: d.now}
	}
	if items := d.processed(); w.holds && items > w.items {
		w.since, w.items = d.now, items
	}
	return d.now.Sub(w.since) >= d.m.c.Rest || d.now.Sub(w.began) >= mostRest*d.m.c.Rest
}

// processed is how much the workers of the job have processed, as far as is known.
func (d *decision) processed() (n uint64) {
	for i := range d.job().Workers {
		w := &d.job().Workers[i]
		if n += w.Past.Items; w.Node != "" {
			if _, st := d.known(w); st != nil {
				n += st.Counters.Items
			}
		}
	}
	return n
}

// answers says whether all workers work, have heard of the record's round, and are as far as ok wants; and why one never will be.
func (d *decision) answers(ok func(i int, r *cluster.Rest) bool) (all bool, cannot string) {
	all = true
	round := d.job().Scaling.Round
	for i := range d.job().Workers {
		_, st := d.known(&d.job().Workers[i])
		if phase := phaseOf(st); phase != cluster.Working && phase != cluster.Done || st.Rest == nil || st.Rest.Round != round {
			all = false
			continue
		}
		if st.Rest.Cannot != "" && cannot == "" {
			cannot = st.Rest.Cannot
		}
		all = ok(i, st.Rest) && all
	}
	return all, cannot
}

// unsteady says whether a worker moves, or is about to: it is on a node that is to be emptied, and there is a place elsewhere.
func (d *decision) unsteady() bool {
	seating := newSeating(d.seats, d.job())
	return slices.ContainsFunc(d.job().Workers, func(w cluster.Worker) bool {
		return w.Retire || w.Node != "" && !w.Done && d.m.emptied(d.m.session(w.Node, w.Session, d.now)) != "" && seating.best(w.Operator) != nil
	})
}

// askAll begins to hold the job once all workers have said that it can be done, and none is about to move.
func (d *decision) askAll(s *cluster.Scaling) {
	all, cannot := d.answers(func(int, *cluster.Rest) bool { return true })
	switch full := d.full(s); {
	case cannot != "":
		d.refuse(cannot)
	case all && full != "":
		d.refuse(full)
	case all && !d.unsteady():
		d.nextRound()
	case d.late(s):
		d.refuse(fmt.Sprintf("its workers were not all running, and staying where they are, for %v", d.m.c.Rest))
	}
}

// full says that there is no place for the new workers; empty if there is.
func (d *decision) full(s *cluster.Scaling) string {
	more := s.Workers - s.Former
	if has := free(carriers(d.seats, &d.job().Spec)); more > has {
		return fmt.Sprintf("it takes %d more free slots on nodes that carry the program, and there are %d", more, has)
	}
	return ""
}

// nextRound has all workers come to rest, again if they were about to.
func (d *decision) nextRound() {
	s := d.edit().Scaling
	s.Phase, s.Window = cluster.ScaleHold, 0
	s.Round++
}

// comeToRest takes the next step of a round.
func (d *decision) comeToRest(s *cluster.Scaling) {
	if d.late(s) {
		d.refuse(fmt.Sprintf("the job had not come to rest after %v", d.now.Sub(d.j.waiting.began).Round(time.Second)))
		return
	}
	if d.unsteady() { // that comes first
		d.edit().Scaling.Phase = cluster.ScaleAsked
		d.next.Scaling.Round++
		return
	}
	var all bool
	var cannot string
	window := uint64(0)
	if s.Phase == cluster.ScaleHold {
		sources := d.sources()
		all, cannot = d.answers(func(i int, r *cluster.Rest) bool {
			if !sources[d.job().Workers[i].Operator] {
				return true
			}
			window = max(window, r.Window)
			return r.Held == s.Round
		})
	} else {
		all, cannot = d.answers(func(_ int, r *cluster.Rest) bool { return r.Paused == s.Round })
	}
	switch full := d.full(s); {
	case cannot != "":
		d.refuse(cannot)
	case !all:
	case s.Phase == cluster.ScaleHold:
		s := d.edit().Scaling
		s.Phase, s.Window = cluster.ScalePause, window
	case full != "":
		d.refuse(full)
	default:
		d.edit().Scaling.Phase = cluster.ScaleFreeze
	}
}

func (d *decision) sources() map[string]bool {
	sources := map[string]bool{}
	for _, o := range d.job().Spec.Operators {
		sources[o.Name] = o.Source
	}
	return sources
}

// renew begins the round again if a worker was replaced, or lost, in this decision.
func (d *decision) renew() {
	s := d.scaling()
	if d.next == nil || s == nil || s.Phase != cluster.ScaleHold && s.Phase != cluster.ScalePause || s.Round != d.j.stored.Scaling.Round {
		return
	}
	for i := range d.next.Workers {
		if w, old := &d.next.Workers[i], &d.j.stored.Workers[i]; w.Epoch != old.Epoch || w.Node != old.Node {
			d.nextRound()
			return
		}
	}
}

// divide gives the job its next layout once the present one is frozen. Whatever has become of the workers meanwhile: all they had
// was durable. Those that stay keep their nodes, if these are well.
func (d *decision) divide() {
	if d.j.frozen != max(d.job().Layout, 1) {
		return
	}
	j := d.edit()
	at := map[string]sessionKey{}
	for i := range j.Workers {
		w := &j.Workers[i]
		for _, t := range d.seats {
			if (t.sessionKey == sessionKey{w.Node, w.Session}) {
				at[w.Name()] = t.sessionKey
				t.leave(w)
			}
		}
		d.release(i)
	}
	j.Scaling.Phase = cluster.ScaleLayout
	j.Divide()
	seating := newSeating(d.seats, j)
	for i := range j.Workers {
		w := &j.Workers[i]
		for _, t := range seating.seats {
			if t.sessionKey == at[w.Name()] && t.used < t.slots {
				seating.take(w, t)
				break
			}
		}
	}
	for i := range j.Workers {
		w := &j.Workers[i]
		if w.Node != "" {
			continue
		}
		if t := seating.best(w.Operator); t != nil {
			seating.take(w, t)
		}
	}
	s := j.Scaling
	d.note(-1, cluster.Incident{What: fmt.Sprintf("operator %q has %d workers now, after %d, without loss", s.Operator, s.Workers, s.Former)})
}

// endScaling says what has become of a change that was under way when the job ended.
func (d *decision) endScaling() {
	s := d.scaling()
	if s == nil {
		return
	}
	divided := !s.Phase.Holds() && s.Phase != cluster.ScaleAsked
	s = d.edit().Scaling
	s.Phase, s.Ended = cluster.ScaleDone, d.now // what is left of the old layout goes with the job
	if !divided {
		s.Phase, s.Why = cluster.ScaleRefused, "the job has ended"
	}
}

// LayoutTask is what is to be done to the partitions of a job that is being scaled.
type LayoutTask struct {
	Job *cluster.Job // not to be changed
	// Drop says that those of the layout before the job's are to be deleted; else those of its layout are to be frozen.
	Drop bool
}

// Layouts returns what is to be done to partitions, for whoever can reach backup servers. LayoutDone is told when it is.
func (m *Machine) Layouts() []LayoutTask {
	if !m.leading || m.deposed || m.synced.IsZero() {
		return nil
	}
	var tasks []LayoutTask
	for _, j := range m.jobs {
		s := j.stored.Scaling
		switch {
		case s == nil || j.stored.State.Ended():
		case s.Phase == cluster.ScaleFreeze && j.frozen != max(j.stored.Layout, 1):
			tasks = append(tasks, LayoutTask{Job: j.stored})
		case s.Phase == cluster.ScaleDrop && j.dropped != j.stored.Layout:
			tasks = append(tasks, LayoutTask{Job: j.stored, Drop: true})
		}
	}
	slices.SortFunc(tasks, func(a, b LayoutTask) int { return strings.Compare(a.Job.ID, b.Job.ID) })
	return tasks
}

// LayoutDone says that a task is done. The record will say so.
func (m *Machine) LayoutDone(t LayoutTask) {
	j := m.jobs[t.Job.ID]
	switch {
	case j == nil || !j.stored.Submitted.Equal(t.Job.Submitted): // another job
	case t.Drop:
		j.dropped, j.accused = t.Job.Layout, nil
	default:
		j.frozen, j.accused = max(t.Job.Layout, 1), nil
	}
}

// LayoutFailed says that a task could not be done, and which backup servers failed it: workers that are at rest ask these nothing,
// and would not know.
func (m *Machine) LayoutFailed(t LayoutTask, suspects []cluster.Suspect) {
	if j := m.jobs[t.Job.ID]; j != nil {
		j.accused = suspects
	}
}
