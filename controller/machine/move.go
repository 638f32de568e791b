package machine

import (
	"fmt"
	"time"

	"github.com/afstream/afstream/cluster"
)

// This file holds how workers move while they live: off nodes that are to be emptied, and to nodes that have less to do. A
// worker that moves is asked to retire, and only when it has is it given another node, as its next incarnation and without a
// failure. One of a job at a time: of two that wait for each other's acknowledgements neither would end.

// move is the one that is under way in a job. It is forgotten with the leader: the next one finds the worker's Retire in the
// record, gives it the full time, and chooses a place when it has retired.
type move struct {
	worker int
	epoch  uint64
	since  time.Time
	to     sessionKey // where a place is kept; empty if none is
}

// moving forgets the move if the worker is not asked to retire: it was never stored, or has ended otherwise.
func (d *decision) moving() {
	if m := d.j.move; m != nil && !d.asked(m.worker, m.epoch) {
		d.j.move = nil
	}
	for i := range d.job().Workers {
		if w := &d.job().Workers[i]; w.Retire && d.j.move == nil {
			d.j.move = &move{worker: i, epoch: w.Epoch, since: d.now}
		}
	}
}

func (d *decision) asked(i int, epoch uint64) bool {
	w := &d.job().Workers[i]
	return w.Retire && w.Epoch == epoch
}

// moves goes on with the move under way, or begins one.
func (d *decision) moves() {
	if m := d.j.move; m != nil && d.asked(m.worker, m.epoch) {
		d.press(m)
		return
	}
	if !d.holds() && !d.drains() && d.scaling() == nil {
		d.spread()
	}
}

// press moves a worker at the cost of a failure if it cannot retire, or not in time, and must not stay where it is. If it may, it
// is told to go on.
func (d *decision) press(m *move) {
	w := &d.job().Workers[m.worker]
	s, st := d.known(w)
	why := ""
	switch {
	case phaseOf(st) == cluster.Working && st.Error != "":
		why = st.Error
	case d.now.Sub(m.since) >= d.m.c.Retire:
		why = fmt.Sprintf("it had not ended without loss after %v", d.m.c.Retire)
	default:
		return
	}
	reason := d.m.emptied(s)
	if reason == "" {
		d.j.trouble[m.worker].rooted = w.Epoch
		d.edit().Workers[m.worker].Retire = false
		return
	}
	seating := newSeating(d.seats, d.job())
	t := d.kept(seating, m.worker)
	if t == nil {
		t = seating.best(w.Operator)
	}
	if t != nil {
		d.fail(m.worker, fmt.Sprintf("moved off node %s%s: %s", w.Node, reason, why), "")
		seating.take(&d.edit().Workers[m.worker], t)
	}
}

// drains has a worker of a node that is to be emptied retire, if there is a place for it elsewhere, and says whether there is such
// a worker. One that has finished has nothing to lose by staying.
func (d *decision) drains() bool {
	var seating *seating
	found := false
	for i := range d.job().Workers {
		w := &d.job().Workers[i]
		if w.Node == "" || w.Done || d.m.emptied(d.m.session(w.Node, w.Session, d.now)) == "" {
			continue
		}
		if found = true; seating == nil {
			seating = newSeating(d.seats, d.job())
		}
		if t := seating.best(w.Operator); t != nil {
			d.ask(i, t)
			break
		}
	}
	return found
}

// spread has one worker retire to where there is less to do, if the job has been calm for long enough and that clearly pays.
func (d *decision) spread() {
	if d.j.calm.IsZero() || d.now.Sub(d.j.calm) < d.m.c.Calm {
		return
	}
	seating := newSeating(d.seats, d.job())
	who, from, to := -1, (*seat)(nil), (*seat)(nil)
	for i := range d.job().Workers {
		w := &d.job().Workers[i]
		a := seating.of(w)
		if a == nil || w.Done || d.j.trouble[i].rooted == w.Epoch || from != nil && !a.busier(from) {
			continue
		}
		if b := seating.best(w.Operator); b != nil && d.now.Sub(b.born) >= d.m.c.Calm && seating.pays(w.Operator, a, b) {
			who, from, to = i, a, b
		}
	}
	if who >= 0 {
		d.ask(who, to)
	}
}

// ask has a worker retire, and keeps a place for it.
func (d *decision) ask(i int, to *seat) {
	w := &d.edit().Workers[i]
	w.Retire = true
	d.j.move = &move{worker: i, epoch: w.Epoch, since: d.now, to: to.sessionKey}
	for _, t := range d.seats {
		t.expect(d.j.move, w)
	}
}

// kept returns the place that is kept for a worker that has moved, nil if none is.
func (d *decision) kept(s *seating, i int) *seat {
	m := d.j.move
	if m == nil || m.worker != i || m.epoch != d.job().Workers[i].Epoch {
		return nil
	}
	for _, t := range s.seats {
		if t.sessionKey == m.to && t.used <= t.slots {
			t.used-- // it was counted, and will be again
			t.busy--
			d.j.move = nil
			return t
		}
	}
	return nil
}
