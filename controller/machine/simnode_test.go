package machine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/afstream/afstream/cluster"
)

// simNode is a process that hosts workers.
type simNode struct {
	s           *sim
	name        string
	slots       int
	session     string // empty while it is down, or has lost its lease
	renewed     time.Time
	life        int // counts crashes
	number      uint64
	cutMessages time.Time // until then
	cutRecords  time.Time
	stopped     time.Time
	ending      bool // it says so, and then goes
	view        map[string]*cluster.Job
	seen        map[statusKey]bool // incarnations that were begun in this session
	workers     []*incarnation
	suspects    []cluster.Suspect
}

// incarnation is one that a node has begun.
type incarnation struct {
	statusKey
	phase cluster.Phase
	ready time.Time
	level uint64
	items uint64
	why   string
	// What becomes of it if it is asked to retire.
	asked bool
	begun time.Time
	takes time.Duration
	stays bool // it cannot
	// What becomes of it if the job is scaled.
	layout uint64
	count  int // workers that send to the sink
	want   cluster.Scaling
	since  time.Time // of what is wanted
	slow   time.Duration
	cannot bool
	says   cluster.Rest
}

func (n *simNode) stop(d time.Duration) {
	n.s.log("node %s is stopped for %v", n.name, d)
	n.stopped = n.s.now.Add(d)
}

// quit ends the process in order: it says that it is about to end, waits for a while, and says that it leaves.
func (n *simNode) quit() {
	n.s.log("node %s is about to end", n.name)
	n.ending = true
	life := n.life
	var leave func()
	leave = func() {
		switch {
		case n.life != life:
		case n.s.now.Before(n.stopped):
			n.s.after(n.stopped.Sub(n.s.now), leave)
		case n.session == "": // it has nothing to say
			n.crash()
		default:
			n.beat(true)
			n.crash()
		}
	}
	n.s.after(n.s.upTo(5*time.Second), leave)
}

func (n *simNode) crash() {
	n.s.log("node %s crashes", n.name)
	n.life++
	n.session, n.workers, n.stopped, n.ending = "", nil, n.s.now, false
	life := n.life
	n.s.after(n.s.upTo(4*time.Second), func() {
		if n.life == life {
			n.begin()
		}
	})
}

// begin begins a session, once the records can be reached.
func (n *simNode) begin() {
	if n.s.now.Before(n.cutRecords) {
		life := n.life
		n.s.after(n.cutRecords.Sub(n.s.now), func() {
			if n.life == life && n.session == "" {
				n.begin()
			}
		})
		return
	}
	n.s.sent++
	n.session, n.number, n.renewed = fmt.Sprintf("%s-%d", n.name, n.s.sent), 0, n.s.now
	n.s.log("node %s begins session %s", n.name, n.session)
	n.view, n.seen, n.workers = map[string]*cluster.Job{}, map[statusKey]bool{}, nil
	n.s.put(cluster.NodeKey(n.name), (&cluster.Node{Name: n.name, Session: n.session}).Encode())
	for key := range n.s.store {
		n.see(key)
	}
}

func (n *simNode) see(key string) {
	id, ok := strings.CutPrefix(key, cluster.JobPrefix)
	switch {
	case !ok || n.session == "":
	case n.s.now.Before(n.cutRecords):
		n.s.after(n.cutRecords.Sub(n.s.now), func() { n.see(key) })
	case n.s.now.Before(n.stopped):
		n.s.after(n.stopped.Sub(n.s.now), func() { n.see(key) })
	default:
		j, err := cluster.DecodeJob(n.s.store[key].Value)
		if err != nil {
			n.s.t.Error(err)
			return
		}
		n.view[id] = j
	}
}

// run is what it does every step.
func (n *simNode) run() {
	defer n.s.after(simStep, n.run)
	if n.session == "" || n.s.now.Before(n.stopped) {
		return
	}
	for _, w := range n.workers {
		n.work(w) // before it looks at its lease: that is what a process does that was stopped
	}
	switch late := n.s.now.Sub(n.renewed) > simLease; {
	case late:
		n.s.log("node %s has lost its lease", n.name)
		n.session, n.workers = "", nil
		n.begin()
		return
	case !n.s.now.Before(n.cutRecords):
		n.renewed = n.s.now
	}
	n.reconcile()
}

func (n *simNode) reconcile() {
	assigned := map[statusKey]bool{}
	for _, id := range []string{"job0", "job1", "job2"} {
		j := n.view[id]
		if j == nil || j.State.Ended() {
			continue
		}
		for i := range j.Workers {
			w := &j.Workers[i]
			if w.Node != n.name || w.Session != n.session {
				continue
			}
			k := statusKey{j.ID, w.Operator, w.Index, w.Epoch}
			assigned[k] = true
			if !n.seen[k] {
				n.seen[k] = true
				n.workers = append(n.workers, &incarnation{
					statusKey: k, phase: cluster.Loading, ready: n.s.now.Add(n.s.upTo(300 * time.Millisecond)),
					takes: n.s.takes(), stays: n.s.fault(0.1),
					layout: max(j.Layout, 1), slow: n.s.takes(), cannot: n.s.fault(0.02),
				})
			}
			n.hold(k, j)
			n.ask(k, w.Retire)
		}
	}
	n.workers = slices.DeleteFunc(n.workers, func(w *incarnation) bool { return !assigned[w.statusKey] })
}

// hold tells a worker what the record wants of it.
func (n *simNode) hold(k statusKey, j *cluster.Job) {
	for _, w := range n.workers {
		if w.statusKey != k {
			continue
		}
		w.count = j.Spec.Operators[1].Workers
		want := cluster.Scaling{}
		if s := j.Scaling; s != nil && !s.Phase.Over() {
			want = *s
		}
		if want.Phase != w.want.Phase || want.Round != w.want.Round {
			w.want, w.since = want, n.s.now
			w.says.Round, w.says.Cannot = want.Round, "" // what it has said of earlier rounds it goes on to say
			if want.Phase != cluster.ScalePause && want.Phase != cluster.ScaleFreeze {
				delete(n.s.truth.rest, k)
			}
		}
	}
}

// comesToRest is one step of a worker that is to. It says whether it still works.
func (n *simNode) comesToRest(w *incarnation, b *simBackup) bool {
	t, s := &n.s.truth, n.s
	slow := s.now.Sub(w.since) < w.slow
	if w.cannot && (w.want.Phase == cluster.ScaleAsked && w.index == 0 || w.want.Phase == cluster.ScalePause) {
		w.says.Cannot = "no"
	}
	switch {
	case w.want.Phase == cluster.ScaleHold && w.operator == "read":
		if !slow {
			w.says.Held = w.want.Round
		}
		return false
	case w.want.Phase != cluster.ScalePause && w.want.Phase != cluster.ScaleFreeze:
		return true
	case w.operator == "read":
		w.rests(t)
		return false
	}
	if slow {
		return true
	}
	for _, from := range senders(w.statusKey, w.count) {
		named := n.view[w.job].Worker(from.operator, from.index)
		if named == nil {
			return true
		}
		from.epoch = named.Epoch
		if t.rest[from] != w.want.Round || t.backup(from).progress != b.progress {
			return true
		}
	}
	w.rests(t)
	return false
}

// rests has a worker be at rest.
func (w *incarnation) rests(t *truth) {
	w.says.Paused = w.want.Round
	t.rest[w.statusKey] = w.want.Round
}

// settles has a worker save what it has taken over from the layout before, and says whether it has.
func (n *simNode) settles(w *incarnation) bool {
	t, k := &n.s.truth, workerLayout(w.statusKey, w.layout)
	switch {
	case w.layout == 1 || t.settled[k]:
		w.says.Settled = true
		return true
	case t.dropped[jobLayout(w.job, w.layout-1)] || !t.frozen[jobLayout(w.job, w.layout-1)]:
		n.s.t.Errorf("%s/%d of %s takes over from layout %d, which is dropped or not frozen", w.operator, w.index, w.job, w.layout-1)
	case n.s.chance(0.3):
		t.settled[k] = true
	}
	return false
}

// takes is how long a worker takes to retire.
func (s *sim) takes() time.Duration {
	if s.fault(0.2) {
		return s.upTo(5 * time.Second)
	}
	return s.upTo(200 * time.Millisecond)
}

// ask has a worker retire, or go on.
func (n *simNode) ask(k statusKey, retire bool) {
	for _, w := range n.workers {
		if w.statusKey != k || w.phase == cluster.Retired || w.phase == cluster.Broken || w.phase == cluster.Unloaded {
			continue
		}
		if retire && !w.asked {
			w.begun = n.s.now
		}
		w.asked = retire
	}
}

// work is one step of one worker.
func (n *simNode) work(w *incarnation) {
	s := n.s
	b := s.truth.backup(w.statusKey)
	switch {
	case w.phase == cluster.Loading && s.now.After(w.ready):
		if s.fault(0.05) {
			w.phase, w.why = cluster.Unloaded, "backup server not reached"
			s.truth.unloaded[w.statusKey] = true
			return
		}
		if b.fence > w.epoch {
			return // fenced: it never comes to work
		}
		b.fence = w.epoch
		w.phase, w.level = cluster.Working, b.level()
		s.truth.restored[w.statusKey] = w.level
	case w.asked && w.stays && w.phase == cluster.Working:
		w.why = "it cannot retire"
	case w.asked && (w.phase == cluster.Working || w.phase == cluster.Done):
		if b.fence <= w.epoch && s.now.Sub(w.begun) > w.takes {
			w.phase = cluster.Retired
			s.truth.retired[w.statusKey] = true
		}
	case w.phase == cluster.Done:
		if b.fence <= w.epoch {
			n.comesToRest(w, b)
		}
	case w.phase == cluster.Working:
		w.items++
		if b.fence > w.epoch || s.truth.frozen[jobLayout(w.job, w.layout)] {
			return // it can save nothing more
		}
		if !n.settles(w) {
			return
		}
		switch w.why = ""; {
		case s.truth.poison[w.job] && w.operator == "count" || s.fault(0.001):
			w.phase, w.why = cluster.Broken, "panic"
		case !n.comesToRest(w, b):
		case b.progress >= simGoal:
			w.phase = cluster.Done
		case s.truth.comes(w.statusKey, b.progress, w.count):
			b.progress++
		}
	}
}

// suspicious has a backup server fail a job, or answer again, now and then.
func (n *simNode) suspicious() []cluster.Suspect {
	switch {
	case n.s.fault(0.01):
		n.suspects = slices.Concat(n.suspects, []cluster.Suspect{{
			Job: fmt.Sprint("job", n.s.rand.IntN(3)), Server: string(rune('x' + n.s.rand.IntN(3))), Lost: n.s.chance(0.2),
		}})
	case n.s.chance(0.01):
		n.suspects = nil
	}
	return n.suspects
}

// beats sends a beat now and goes on.
func (n *simNode) beats() {
	defer n.s.after(100*time.Millisecond, n.beats)
	if n.session != "" && !n.s.now.Before(n.stopped) {
		n.beat(false)
	}
}

// beat says what it does.
func (n *simNode) beat(leaving bool) {
	n.number++
	b := &cluster.Beat{
		Node: n.name, Session: n.session, Number: n.number, Slots: n.slots, Programs: []cluster.Program{program},
		Ending: n.ending, Leaving: leaving, Suspects: n.suspicious(),
	}
	for _, w := range n.workers {
		var rest *cluster.Rest
		if w.want.ID != "" {
			says := w.says
			rest = &says
		}
		b.Workers = append(b.Workers, cluster.Status{
			Rest: rest, Job: w.job, Operator: w.operator, Index: w.index, Epoch: w.epoch, Phase: w.phase, Level: w.level, Error: w.why,
			Counters: cluster.Counters{Items: w.items},
		})
	}
	for _, c := range n.s.control {
		for range 2 {
			if n.s.now.Before(n.cutMessages) || n.s.fault(0.1) {
				continue // lost
			}
			n.s.after(n.s.delay(), func() { c.in(func() { c.m.Beat(n.s.now, b) }) })
			if !n.s.fault(0.05) {
				break
			}
		}
	}
}
