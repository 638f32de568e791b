package machine

import (
	"container/heap"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/internal/thorough"
)

var (
	simRuns = flag.Int("sim.runs", thorough.Number(10, 50), "seeds of TestSimulation")
	simSeed = flag.Uint64("sim.seed", 0, "run only this seed, and say what happens")
)

// TestSimulation runs clusters: two controllers of which one goes on as if it led for a while after it does not, nodes
// that crash, stop and are cut off, messages that are lost, late, doubled and out of order, writes of which nobody knows whether they
// were made, or that are made late. Nodes are drained, and end in order; workers that are to move take their time, cannot, or
// are lost on the way. Operators are given other numbers of workers. Every change of a record is checked (simcheck_test.go), and that all jobs end once
// the faults do.
func TestSimulation(t *testing.T) {
	if *simSeed != 0 {
		simulate(t, *simSeed, true)
		return
	}
	moves := simMoves{}
	for seed := range uint64(*simRuns) {
		if moves.add(simulate(t, seed+1, false)); t.Failed() {
			t.Fatalf("seed %d: again with -sim.seed=%d", seed+1, seed+1)
		}
	}
	t.Logf("%+v", moves)
	if *simRuns >= 50 && (moves.Made == 0 || moves.CalledOff == 0 || moves.Spread == 0) {
		t.Errorf("there were too few moves: %+v", moves)
	}
	if *simRuns >= 20 && (moves.Scaled == 0 || moves.Refused == 0 || moves.Again == 0) {
		t.Errorf("too few operators were scaled: %+v", moves)
	}
}

const (
	simFaults = 25 * time.Second // how long there are faults
	simMost   = 4 * time.Minute  // by when all jobs must have ended
	simLease  = 10 * time.Second // of nodes
	simGoal   = 60               // steps of work of each worker
	simStep   = 50 * time.Millisecond
)

type sim struct {
	t       *testing.T
	rand    *rand.Rand
	say     bool
	now     time.Time
	queue   events
	seq     int
	faulty  bool
	rev     uint64
	store   map[string]cluster.Record
	nodes   []*simNode
	control []*simController
	term    uint64
	sent    int // sessions so far
	wished  int
	truth   truth
}

type event struct {
	at  time.Time
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (s *sim) after(d time.Duration, do func()) {
	s.seq++
	heap.Push(&s.queue, event{s.now.Add(d), s.seq, do})
}

func (s *sim) upTo(d time.Duration) time.Duration {
	return time.Duration(s.rand.Float64() * float64(d))
}

func (s *sim) chance(p float64) bool { return s.rand.Float64() < p }

// fault is chance while there are faults.
func (s *sim) fault(p float64) bool { return s.faulty && s.chance(p) }

// delay is how long a message takes.
func (s *sim) delay() time.Duration {
	if s.fault(0.02) {
		return s.upTo(2 * time.Second)
	}
	return s.upTo(10 * time.Millisecond)
}

func (s *sim) log(format string, args ...any) {
	if s.say {
		s.t.Logf("%8.3f %s", s.now.Sub(start).Seconds(), fmt.Sprintf(format, args...))
	}
}

func simulate(t *testing.T, seed uint64, say bool) simMoves {
	s := &sim{t: t, rand: rand.New(rand.NewPCG(seed, 7)), say: say, now: start, store: map[string]cluster.Record{}, faulty: true, truth: newTruth()}
	for i := range 3 {
		n := &simNode{s: s, name: string(rune('a' + i)), slots: 3 + s.rand.IntN(3)} // a job needs 3 to 6
		s.nodes = append(s.nodes, n)
		n.begin()
		n.run()
		n.beats()
	}
	for i := range 2 {
		c := &simController{s: s, name: fmt.Sprint("c", i), m: newSimMachine(), open: map[string]int{}}
		s.control = append(s.control, c)
		c.run()
	}
	s.elect()
	for i := range 3 {
		s.after(s.upTo(10*time.Second), func() { s.submit(fmt.Sprint("job", i)) })
	}
	s.trouble()
	s.after(s.upTo(5*time.Second), s.wish)
	s.after(simFaults, s.heal)
	for len(s.queue) > 0 && !t.Failed() {
		e := heap.Pop(&s.queue).(event)
		s.now = e.at
		e.do()
		if !s.faulty && s.truth.ended == 3 {
			s.truth.last(s)
			break
		}
		if s.now.Sub(start) > simMost {
			for key, r := range s.store {
				t.Logf("%s: %s", key, r.Value)
			}
			t.Errorf("not all jobs have ended after %v", simMost)
		}
	}
	return s.truth.moves
}

// newSimMachine has less patience than usual, so that more happens.
func newSimMachine() *Machine {
	return New(Config{Retire: 2 * time.Second, Calm: 500 * time.Millisecond, Rest: 3 * time.Second})
}

func (s *sim) submit(id string) {
	spec := cluster.Spec{Name: program.Name, Version: program.Version, Backups: []string{"x", "y", "z"}, Operators: []cluster.Operator{
		{Name: "read", Workers: 1, Compute: 1, Source: true}, {Name: "count", Workers: 2, Compute: 1}, {Name: "write", Workers: 1, Compute: 1, Sink: true},
	}}
	switch {
	case s.chance(0.05):
		spec.Args = []string{"poison"}
		s.truth.poison[id] = true
	case s.chance(0.1):
		s.after(s.upTo(10*time.Second), func() {
			s.truth.cancel[id] = true
			s.put(cluster.CancelKey(id), []byte("x"))
		})
	}
	s.put(cluster.JobKey(id), cluster.NewJob(id, spec, s.now).Encode())
}

// wish asks for another number of workers of some job, now and then.
func (s *sim) wish() {
	s.after(s.upTo(4*time.Second), s.wish)
	id := fmt.Sprint("job", s.rand.IntN(3))
	key := cluster.ScaleKey(id)
	if s.now.Sub(start) > simFaults+5*time.Second || s.store[cluster.JobKey(id)].Value == nil || s.store[key].Value != nil {
		return
	}
	s.wished++
	s.put(key, (&cluster.ScaleWish{ID: fmt.Sprint("w", s.wished), Operator: "count", Workers: s.rand.IntN(5)}).Encode())
}

// put changes a record, whatever it was, and lets all who watch know.
func (s *sim) put(key string, value []byte) { s.update(key, value, s.store[key].Revision) }

func (s *sim) update(key string, value []byte, revision uint64) bool {
	old := s.store[key]
	if old.Revision != revision {
		return false
	}
	s.rev++
	s.store[key] = cluster.Record{Key: key, Value: value, Revision: s.rev}
	if strings.HasPrefix(key, cluster.JobPrefix) {
		s.truth.changed(s, old.Value, value)
	}
	for _, c := range s.control {
		s.after(s.delay(), func() { c.see(key) })
	}
	for _, n := range s.nodes {
		s.after(s.delay(), func() { n.see(key) })
	}
	return true
}

// elect has one of the controllers lead. Who led before learns it from the records, or in a while.
func (s *sim) elect() {
	s.term++
	c, term := s.control[s.rand.IntN(len(s.control))], s.term
	for _, other := range s.control {
		if other != c {
			lives := other.life
			s.after(s.upTo(4*time.Second), func() {
				if other.life == lives && other.term < term {
					other.rest()
				}
			})
		}
	}
	c.lead(term)
}

// trouble makes faults.
func (s *sim) trouble() {
	if !s.faulty {
		return
	}
	n, c := s.nodes[s.rand.IntN(len(s.nodes))], s.control[s.rand.IntN(len(s.control))]
	switch s.rand.IntN(14) {
	case 0:
		n.crash()
	case 1:
		n.stop(s.upTo(13 * time.Second))
	case 2:
		n.stop(s.upTo(time.Second))
	case 3:
		n.cutMessages = s.now.Add(s.upTo(6 * time.Second))
	case 4:
		n.cutRecords = s.now.Add(s.upTo(15 * time.Second))
		if s.chance(0.5) {
			n.cutMessages = n.cutRecords
		}
	case 5:
		s.elect()
	case 6:
		c.crash()
		s.elect()
	case 7:
		c.stopped = s.now.Add(s.upTo(6 * time.Second))
		if s.chance(0.5) {
			s.elect()
		}
	case 8:
		if s.chance(0.2) { // all at once
			for _, n := range s.nodes {
				n.crash()
			}
			for _, c := range s.control {
				c.crash()
			}
			s.elect()
		}
	case 9:
		key := cluster.DrainKey(n.name)
		if s.store[key].Value == nil {
			s.put(key, []byte("x"))
		} else {
			s.put(key, nil)
		}
	case 10:
		c.cut = s.now.Add(s.upTo(3 * time.Second))
	case 11:
		n.quit()
	}
	s.after(s.upTo(time.Second), s.trouble)
}

// emptied says whether a node is drained, or about to end.
func (s *sim) emptied(node string) bool {
	return s.store[cluster.DrainKey(node)].Value != nil || slices.ContainsFunc(s.nodes, func(n *simNode) bool { return n.name == node && n.ending })
}

// heal ends all faults, but that a node may stay away: the others have slots for one job.
func (s *sim) heal() {
	s.log("faults end")
	s.faulty = false
	for _, n := range s.nodes {
		n.cutMessages, n.cutRecords, n.stopped = s.now, s.now, s.now
		if s.store[cluster.DrainKey(n.name)].Value != nil {
			s.put(cluster.DrainKey(n.name), nil)
		}
	}
	for _, c := range s.control {
		c.cut, c.stopped = s.now, s.now
	}
	if s.chance(0.4) {
		n := s.nodes[s.rand.IntN(len(s.nodes))]
		n.crash()
		n.life++ // and does not come back
	}
	s.elect()
}

// simController is a process with a machine.
type simController struct {
	s       *sim
	name    string
	m       *Machine
	life    int // counts crashes
	reign   int // counts times of leading
	term    uint64
	stopped time.Time      // until then
	cut     time.Time      // from the records, until then
	held    []func()       // what comes while it is stopped
	open    map[string]int // keys of writes under way, and in which reign
}

// in does something in the process, later if it is stopped.
func (c *simController) in(do func()) {
	if c.s.now.Before(c.stopped) {
		c.held = append(c.held, do)
		return
	}
	for _, h := range c.held {
		h()
	}
	c.held = nil
	do()
}

func (c *simController) run() {
	c.in(func() {
		for _, w := range c.m.Step(c.s.now) {
			c.write(w)
		}
		for _, task := range c.m.Layouts() {
			c.layout(task)
		}
		if c.m.Deposed() {
			c.rest()
		}
	})
	c.s.after(simStep, c.run)
}

// layout does what is to be done to partitions, which may take a while, or fail.
func (c *simController) layout(task LayoutTask) {
	s, reign := c.s, c.reign
	if s.fault(0.3) {
		return
	}
	s.after(s.delay(), func() {
		s.truth.layout(s, task)
		s.after(s.delay(), func() {
			c.in(func() {
				if c.reign == reign {
					c.m.LayoutDone(task)
				}
			})
		})
	})
}

func (c *simController) lead(term uint64) {
	c.in(func() {
		c.s.log("%s leads in term %d", c.name, term)
		c.reign++
		reign := c.reign
		c.term = term
		c.m.Lead(c.s.now, term)
		c.s.after(c.s.delay(), func() { c.sync(reign) })
	})
}

func (c *simController) sync(reign int) {
	if c.reign != reign {
		return
	}
	if c.s.now.Before(c.cut) {
		c.s.after(simStep, func() { c.sync(reign) })
		return
	}
	c.in(func() {
		for _, key := range slices.Sorted(maps.Keys(c.s.store)) {
			c.record(key)
		}
		c.m.Synced(c.s.now)
	})
}

func (c *simController) record(key string) {
	if err := c.m.Record(c.s.now, c.s.store[key]); err != nil {
		c.s.t.Error(err)
	}
}

func (c *simController) rest() {
	c.s.log("%s leads no more", c.name)
	c.reign++
	c.term = 0
	c.m.Rest()
}

func (c *simController) crash() {
	c.s.log("%s crashes", c.name)
	c.life++
	c.reign++
	c.m, c.held, c.term = newSimMachine(), nil, 0
}

// see is called some time after a record was changed.
func (c *simController) see(key string) {
	if c.s.now.Before(c.cut) {
		c.s.after(c.cut.Sub(c.s.now), func() { c.see(key) })
		return
	}
	c.in(func() {
		if c.term > 0 {
			c.record(key)
		}
	})
}

func (c *simController) write(w Write) {
	s, reign := c.s, c.reign
	if c.open[w.Key] == reign {
		s.t.Errorf("two writes of %s under way", w.Key)
	}
	c.open[w.Key] = reign
	settle := func() {
		c.in(func() {
			if c.reign == reign {
				delete(c.open, w.Key)
				c.record(w.Key)
				c.m.Settled(w.Key)
			}
		})
	}
	apply := func() { s.update(w.Key, w.Value, w.Revision) }
	lost := s.now.Before(c.cut) || s.fault(0.05)
	switch {
	case !lost:
		s.after(s.delay(), func() { apply(); s.after(s.delay(), settle) })
	case s.chance(0.5):
		s.after(s.upTo(4*time.Second), apply)
		fallthrough
	default:
		s.after(time.Second, settle)
	}
}
