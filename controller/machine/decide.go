package machine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/afstream/afstream/cluster"
)

// decision is the next record of one job, as it comes about.
type decision struct {
	m     *Machine
	now   time.Time
	j     *job
	next  *cluster.Job // nil as long as it is as stored
	seats []*seat
}

// decide returns what the record of a job should be, nil if it should stay as it is.
func (m *Machine) decide(now time.Time, j *job, seats []*seat, yields bool) *cluster.Job {
	d := &decision{m: m, now: now, j: j, seats: seats}
	switch stored := j.stored; {
	case stored.State.Ended():
		if j.cleared && !stored.Cleared {
			d.edit().Cleared = true
		}
	case stored.Term < m.term && stored.Term > 0:
		d.edit() // rule 1
	default:
		d.live(yields)
	}
	return d.next
}

// job is the record as it stands, to read.
func (d *decision) job() *cluster.Job {
	if d.next != nil {
		return d.next
	}
	return d.j.stored
}

// edit is the record, to change.
func (d *decision) edit() *cluster.Job {
	if d.next == nil {
		d.next = d.j.stored.Clone()
		d.next.Term = d.m.term
	}
	return d.next
}

func (d *decision) live(yields bool) {
	if _, wished := d.m.cancel[d.job().ID]; wished {
		d.end(cluster.Cancelled, "")
		return
	}
	d.moving()
	d.progress()
	if d.finished() {
		d.end(cluster.Finished, "")
		return
	}
	d.narrow()
	d.hear()
	if s := d.scaling(); s != nil && s.Phase == cluster.ScaleFreeze {
		d.divide() // and nothing that becomes of its workers costs anything
		return
	}
	for i := range d.job().Workers {
		if d.failures(i); d.job().State.Ended() {
			return
		}
	}
	if yields {
		d.yield()
	} else {
		d.place()
		d.rescale()
		d.moves()
	}
	d.renew()
}

// known returns the session that a worker is assigned to, and what that said last of it. Nil, nil if there is none.
func (d *decision) known(w *cluster.Worker) (*session, *cluster.Status) {
	if w.Node == "" {
		return nil, nil
	}
	s := d.m.session(w.Node, w.Session, d.now)
	return s, s.status(statusKey{d.job().ID, w.Operator, w.Index, w.Epoch})
}

// progress takes over what goes well.
func (d *decision) progress() {
	calm := true
	for i := range d.job().Workers {
		w := &d.job().Workers[i]
		_, st := d.known(w)
		calm = calm && st != nil && !w.Retire && (st.Phase == cluster.Working || st.Phase == cluster.Done)
		switch {
		case st == nil:
		case st.Phase == cluster.Working:
			d.j.trouble[i].progress(d.now, w.Epoch, &st.Counters)
			if slices.Contains(w.FailedAt, cluster.Never) {
				settle(d.edit().Workers[i].FailedAt, min(st.Level, cluster.Never-1)+1)
			}
		case st.Phase == cluster.Done && !w.Done:
			d.edit().Workers[i].Done = true
		}
	}
	switch {
	case !calm:
		d.j.calm = time.Time{}
	case d.j.calm.IsZero():
		d.j.calm = d.now
	}
	d.recoveries()
}

// settle sets the level of the failures of which it was not known. A worker that came back at a level has not failed after it, nor
// has it before: levels do not go back.
func settle(failedAt []uint64, level uint64) {
	for i, at := range failedAt {
		if at == cluster.Never {
			failedAt[i] = level
		}
	}
}

// recoveries notes how long it took until workers that had ended ran again.
func (d *decision) recoveries() {
	for h := range d.job().History {
		in := &d.job().History[h]
		if in.Epoch == 0 || in.Recovery != 0 {
			continue
		}
		w := d.job().Worker(in.Operator, in.Worker)
		if w == nil || w.Epoch <= in.Epoch {
			continue
		}
		if _, st := d.known(w); st != nil && (st.Phase == cluster.Working || st.Phase == cluster.Done) {
			d.edit().History[h].Recovery = max(d.now.Sub(in.At), time.Millisecond).Seconds() // another controller's clock may be ahead
		}
	}
}

// finished says whether all sinks have finished the stream.
func (d *decision) finished() bool {
	next, sinks := 0, 0 // workers are in the order of the operators
	for _, o := range d.job().Spec.Operators {
		for range o.Workers {
			if o.Sink && !d.job().Workers[next].Done {
				return false
			}
			next++
		}
		if o.Sink {
			sinks++
		}
	}
	return sinks > 0
}

// failures ends the assignment of a worker that has ended or whose node is dead.
func (d *decision) failures(i int) {
	w := &d.job().Workers[i]
	s, st := d.known(w)
	if s == nil {
		return
	}
	t, epoch := &d.j.trouble[i], w.Epoch
	switch phase := phaseOf(st); {
	case phase == cluster.Broken && st.Hopeless, phase == cluster.Unloaded && st.Hopeless:
		d.note(i, cluster.Incident{What: st.Error, Stack: st.Stack})
		d.end(cluster.Failed, fmt.Sprintf("%s: %s", w.Name(), st.Error))
	case phase == cluster.Broken:
		t.broke(&d.m.c, d.now, epoch)
		d.fail(i, st.Error, st.Stack)
		if t.breaks >= d.m.c.Breaks {
			d.end(cluster.Failed, fmt.Sprintf("%s broke %d times in a row, and never worked for %v: %s", w.Name(), t.breaks, d.m.c.Steady, st.Error))
		}
	case phase == cluster.Retired:
		d.note(i, cluster.Incident{What: fmt.Sprintf("moved off node %s%s, without loss", w.Node, d.m.emptied(s))})
		d.release(i)
	case phase == cluster.Unloaded:
		t.unloaded(&d.m.c, d.now, epoch)
		d.noteOnce(i, cluster.Incident{What: st.Error, Stack: st.Stack})
		d.release(i)
	default:
		if why := d.m.dead(s, d.now); why != "" {
			d.fail(i, why, "")
		}
	}
}

func phaseOf(st *cluster.Status) cluster.Phase {
	if st == nil {
		return ""
	}
	return st.Phase
}

// fail counts a failure of a worker and takes its node from it.
func (d *decision) fail(i int, what, stack string) {
	d.edit().Workers[i].Fail()
	d.note(i, cluster.Incident{What: what, Stack: stack, Failure: true})
	d.release(i)
}

// release takes a worker's node from it, and keeps what it had done.
func (d *decision) release(i int) {
	w := &d.edit().Workers[i]
	if _, st := d.known(w); st != nil {
		w.Past.Add(st.Counters)
	}
	w.Node, w.Session, w.Retire = "", "", false
	d.j.calm = time.Time{} // or its successor might be moved on in the same breath
}

// end ends the job.
func (d *decision) end(state cluster.State, why string) {
	j := d.edit()
	d.endScaling()
	for i := range j.Workers {
		d.release(i)
	}
	j.State, j.Why, j.Ended = state, cut(why, 2*maxWhat), d.now
}

// yield gives up all places of the job, so that an older one need not wait for ever.
func (d *decision) yield() {
	for i := range d.job().Workers {
		if w := &d.job().Workers[i]; w.Node != "" {
			d.fail(i, "gave up its place to a job that was submitted earlier: both wait for free slots", "")
		}
	}
}

// place gives nodes to workers that have none: to all of a job at once if none has one, else to each as there is room.
func (d *decision) place() {
	var waiting []int
	all := len(d.job().Workers)
	held := 0
	for i := range all {
		switch {
		case d.job().Workers[i].Node != "":
			held++
		case !d.now.Before(d.j.trouble[i].until):
			waiting = append(waiting, i)
		}
	}
	if len(waiting) == 0 {
		d.j.waits = time.Time{}
		return
	}
	s := newSeating(d.seats, d.job())
	if held > 0 || free(s.seats) >= all {
		waiting = slices.DeleteFunc(waiting, func(i int) bool { return d.seat(s, i) })
		if d.job().State == cluster.Queued {
			d.next.State, d.next.Started = cluster.Running, d.now
		}
	}
	d.complain(s, len(waiting))
}

// seat gives worker i a node, if there is a place: the one that is kept for it, if one is.
func (d *decision) seat(s *seating, i int) bool {
	t := d.kept(s, i)
	if t == nil {
		t = s.best(d.job().Workers[i].Operator)
	}
	if t != nil {
		s.take(&d.edit().Workers[i], t)
	}
	return t != nil
}

// complain says in the history, once, why workers have had no place for some time.
func (d *decision) complain(s *seating, waiting int) {
	switch {
	case waiting == 0:
		d.j.waits = time.Time{}
	case d.j.waits.IsZero():
		d.j.waits = d.now
	case d.now.Sub(d.j.waits) < settling:
	case len(s.seats) == 0:
		d.noteOnce(-1, cluster.Incident{What: fmt.Sprintf("no node that is up carries program %s %s: start one with just that binary", s.spec.Name, s.spec.Version)})
	default:
		d.noteOnce(-1, cluster.Incident{What: "workers wait for free slots: start more nodes, or let other jobs end"})
	}
}

// Limits of what a record keeps of incidents, since it has to fit into one message.
const (
	maxWhat   = 1 << 9
	maxStack  = 8 << 10
	maxStacks = 8 // the newest ones
)

// note adds an incident; of worker i, while that still has its node, or of the whole job if i is -1.
func (d *decision) note(i int, in cluster.Incident) {
	j := d.edit()
	d.address(i, &in)
	in.At = d.now
	j.Note(in)
	stacks := 0
	for h := len(j.History) - 1; h >= 0; h-- {
		if j.History[h].Stack == "" {
			continue
		}
		if stacks++; stacks > maxStacks {
			j.History[h].Stack = ""
		}
	}
}

// noteOnce adds an incident unless the last one of the same worker, or of the whole job, is the same.
func (d *decision) noteOnce(i int, in cluster.Incident) {
	d.address(i, &in)
	for _, old := range slices.Backward(d.job().History) {
		if old.Operator == in.Operator && old.Worker == in.Worker {
			if old.What == in.What {
				return
			}
			break
		}
	}
	d.note(i, in)
}

// address says in an incident whose it is, and cuts its texts.
func (d *decision) address(i int, in *cluster.Incident) {
	in.What, in.Stack = cut(in.What, maxWhat), cut(in.Stack, maxStack)
	if i < 0 {
		return
	}
	w := &d.job().Workers[i]
	in.Operator, in.Worker, in.Epoch, in.Node = w.Operator, w.Index, w.Epoch, w.Node
	in.AtItem = w.Past.Items
	if _, st := d.known(w); st != nil {
		in.AtItem += st.Counters.Items
	}
}

// cut shortens a text to n bytes, and says so.
func cut(text string, n int) string {
	const more = " ..."
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n-len(more)], "") + more
}
