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
				})
			}
			n.ask(k, w.Retire)
		}
	}
	n.workers = slices.DeleteFunc(n.workers, func(w *incarnation) bool { return !assigned[w.statusKey] })
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
	case w.phase == cluster.Working:
		w.items++
		if b.fence > w.epoch {
			return // it can save nothing more
		}
		switch w.why = ""; {
		case s.truth.poison[w.job] && w.operator == "count" || s.fault(0.001):
			w.phase, w.why = cluster.Broken, "panic"
		case b.progress >= simGoal:
			w.phase = cluster.Done
		case s.truth.comes(w.statusKey, b.progress):
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
		b.Workers = append(b.Workers, cluster.Status{
			Job: w.job, Operator: w.operator, Index: w.index, Epoch: w.epoch, Phase: w.phase, Level: w.level, Error: w.why,
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
