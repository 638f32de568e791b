package threshold_test

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// mutation is a deliberate fault in the protocol: the simulation must notice each.
type mutation uint8

const (
	faithful              mutation = iota
	ackTooMany                     // two items more than l are acked
	ignoreInFlight                 // a backup counts as durable when it begins
	forgetFailure                  // k is not counted, every incarnation gets the first share
	sourceCommitsReceived          // a source commits past what its receivers have committed
	seqWithoutEpoch                // positions compare by number alone
	noMarks                        // the position processed is committed with the state only
	markReceived                   // a mark commits what was received instead of what was processed
	overwriteClosing               // a closing commit is replaced before its outputs are committed
	noFence                        // writes of an old incarnation land after the restore
	replayCommitted                // the log is replayed from its beginning
	forgetPunctuation              // a recovered sender does not repeat its last punctuation
	ignoreMustLog                  // the item log is written only when a sender is blocked
	needIsNoAck                    // acks that died with a receiver are never made good
	admitUnaligned                 // items behind an unaligned punctuation join the arrival order
	forgetNotice                   // a new connection does not begin with the punctuation that went before
	forgetLevel                    // a recovered sender does not know which window it is in
	takeLate                       // repetitions from a window that has ended count in the next
	mutations
)

func (m mutation) String() string {
	return [...]string{"faithful", "ackTooMany", "ignoreInFlight", "forgetFailure", "sourceCommitsReceived",
		"seqWithoutEpoch", "noMarks", "markReceived", "overwriteClosing", "noFence",
		"replayCommitted", "forgetPunctuation", "ignoreMustLog", "needIsNoAck", "admitUnaligned", "forgetNotice", "forgetLevel", "takeLate"}[m]
}

// sim is one seeded run.
type sim struct {
	rng      *rand.Rand
	mutation mutation
	signed   bool // items may lower elements
	beta     int  // most outputs per item

	windows        int // numbered from 1; the punctuation of the last one ends the stream
	itemsPerWindow int
	failuresLeft   int

	ops      []*operator
	workers  []*worker
	parts    []*partition
	channels []*channel
	slots    []slot

	items   []item
	uidItem []int32 // emission to item
	emitted []int   // emissions per item, at-risk channels only
	owned   []bool  // some receiver acked or counted the item
	closes  map[[3]int]float64
	err     error
	stats   tally
}

// tally is what a run measured, to see that the runs exercise what they are for.
type tally struct {
	steps, crashes int

	missing   worst // change of states that their operators' own failures cost
	lost      worst // items lost by failures of their sender
	repeated  worst // items emitted twice
	unemitted worst // outputs of acknowledged items that were never emitted
}

// worst is a cost over all runs and the largest part of its bound that it ever reached.
type worst struct{ total, ofBound float64 }

func (w *worst) note(cost, bound float64) {
	w.total += cost
	if bound > 0 {
		w.ofBound = max(w.ofBound, cost/bound)
	}
}

func (a *tally) add(b tally) {
	a.steps += b.steps
	a.crashes += b.crashes
	for _, p := range [][2]*worst{{&a.missing, &b.missing}, {&a.lost, &b.lost}, {&a.repeated, &b.repeated},
		{&a.unemitted, &b.unemitted}} {
		p[0].total += p[1].total
		p[0].ofBound = max(p[0].ofBound, p[1].ofBound)
	}
}

// slot is one kind of action of one actor, with the chance that it is passed over when it could run: some actors are
// slow in some runs.
type slot struct {
	act  func() bool
	lazy float64
}

func (s *sim) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

func (s *sim) check(err error) {
	if err != nil && s.err == nil {
		s.err = err
	}
}

func (s *sim) newUID(id int32) int32 {
	s.emitted[id]++
	s.uidItem = append(s.uidItem, id)
	return int32(len(s.uidItem) - 1)
}

// change returns by how much an item lengthens the way of an element from its backup: as a distance if changes may
// cancel, else as a path.
func (o *operator) change(it *item) float64 {
	if o.net {
		return it.value
	}
	return math.Abs(it.value)
}

// run simulates one seed to its end and returns the first violation.
func run(seed uint64, m mutation) (tally, error) {
	s := &sim{rng: rngFor(seed), mutation: m, closes: map[[3]int]float64{}}
	s.signed = s.rng.IntN(3) == 0
	s.beta = s.rng.IntN(4)
	s.windows = 1 + s.rng.IntN(3)
	s.itemsPerWindow = (1 + s.rng.IntN([]int{6, 12, 40}[s.rng.IntN(3)])) * 3 / s.windows
	s.failuresLeft = s.rng.IntN([]int{2, 7, 14}[s.rng.IntN(3)])
	s.newModel()
	s.emitted, s.owned = make([]int, len(s.items)), make([]bool, len(s.items))
	for id := range s.items { // items that are re-created have the item as their only emission
		s.uidItem = append(s.uidItem, int32(id))
	}
	for _, w := range s.workers {
		w.step = fenced
		w.epoch = 1
	}
	s.newSlots()
	s.loop()
	if s.err == nil {
		s.checkEnd()
	}
	return s.stats, s.err
}

func (s *sim) newSlots() {
	add := func(acts ...func() bool) {
		for _, a := range acts {
			s.slots = append(s.slots, slot{a, []float64{0, 0, 0.5, 0.95}[s.rng.IntN(4)]})
		}
	}
	for _, w := range s.workers {
		add(func() bool { return w.recover(s) })
	}
	for _, c := range s.channels {
		add(c.deliver, c.deliverBack, func() bool {
			if c.linked || !c.from.running() || !c.to.running() {
				return false
			}
			c.link()
			return true
		})
	}
	for _, p := range s.parts {
		if p.op.source {
			add(p.stepSource, p.emitOne, p.commitSource)
			continue
		}
		add(p.compute, p.takeNotice, p.emitOne, p.retry, p.commitPositions, p.commitClosing, p.landCommit, p.failCommit, p.startLog, p.landLog)
		if p.op.emits() {
			add(p.startMark)
		}
	}
	s.rng.Shuffle(len(s.slots), func(i, j int) { s.slots[i], s.slots[j] = s.slots[j], s.slots[i] })
}

const maxSteps = 200_000 // a run takes a few thousand

func (s *sim) loop() {
	chance := 0.002 + 0.02*s.rng.Float64()
	for s.err == nil {
		if s.stats.steps++; s.stats.steps > maxSteps {
			s.fail("the job does not end: %d steps%s", maxSteps, s.dump())
			return
		}
		over := s.over()
		if s.failuresLeft > 0 && (s.rng.Float64() < chance || over && s.rng.IntN(2) == 0) {
			s.crashSome()
			continue
		}
		if over {
			return
		}
		if !s.step(true) && !s.step(false) {
			s.fail("the job is stuck%s", s.dump())
		}
	}
}

// step runs the next action that is enabled, from a random place on.
func (s *sim) step(mayPass bool) bool {
	first := s.rng.IntN(len(s.slots))
	for i := range s.slots {
		sl := &s.slots[(first+i)%len(s.slots)]
		if mayPass && sl.lazy > 0 && s.rng.Float64() < sl.lazy {
			continue
		}
		if sl.act() {
			return true
		}
	}
	return false
}

// crashSome kills a random set of workers, those in recovery included.
func (s *sim) crashSome() {
	s.failuresLeft--
	p := []float64{0.1, 0.3, 0.9}[s.rng.IntN(3)]
	sure := s.rng.IntN(len(s.workers))
	for i, w := range s.workers {
		if i == sure || s.rng.Float64() < p {
			s.stats.crashes++
			w.crash(s)
		}
	}
}

// over reports whether every partition has seen and forwarded the end of the stream.
func (s *sim) over() bool {
	for _, p := range s.parts {
		switch {
		case !p.running() || len(p.pending) > 0 || p.busy:
			return false
		case p.op.source:
			if p.cursor < len(p.script) {
				return false
			}
		case p.closed < s.windows || p.closing != 0:
			return false
		}
	}
	return true
}
