package threshold_test

import (
	"fmt"
	"math"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/threshold"
)

// partition is one compute goroutine with its state, and the store that outlives it. Everything but store and the
// writes under way dies with the worker.
type partition struct {
	sim    *sim
	op     *operator
	index  int
	worker *worker
	ins    []*channel
	outs   []*channel
	store  store

	// writes under way, one of each; they may still land after a crash, until the store is fenced
	writingCommit *commit // state backups, marks and closing commits share the slot
	writingLog    *logWrite

	recv  *threshold.Receiver
	send  *threshold.Sender
	back  *threshold.Backup
	marks *threshold.Marks

	elems    []element
	owed     []bool    // elements of a failed backup of a plain state: the next one must save them
	since    []float64 // per element: change since the snapshot (plain) or since the durable backup (self-accounting)
	arrivals []logged  // at-risk arrival order of this incarnation
	notices  []notice
	total    uint64 // processed entries of all channels, the count of Marks

	busy         bool // an item is being processed: its outputs are not all emitted, or it does not count yet
	current      logged
	waiting      bool    // the current item must not count before a backup is durable
	pending      []entry // outputs of the current item or close, not emitted yet
	pendingOn    []int   // their channels
	commitWanted bool    // positions are to be committed
	closed       int     // last window closed, durably
	closing      int     // window that is complete and whose commit is to be made, 0: none
	ackedTotal   uint64

	// sources
	script []entry
	prefix [][]uint64 // output numbers given before each place of the script
	cursor int
}

func (p *partition) String() string { return fmt.Sprintf("operator %d partition %d", p.op.id, p.index) }

func (p *partition) running() bool { return p.worker.step == running }

// aligned returns the newest punctuation processed on every input channel.
func (p *partition) aligned() int {
	w := math.MaxInt
	for _, c := range p.ins {
		w = min(w, c.level)
	}
	return w
}

// admit takes an entry that is new to this incarnation.
func (p *partition) admit(c *channel, e entry) {
	if c.kind != atRisk {
		c.inbox = append(c.inbox, e)
		return
	}
	p.arrivals = append(p.arrivals, logged{c.toIdx, e})
	if e.id == punctuation {
		p.recv.ReceivePunctuation()
	} else {
		p.recv.Receive(1)
	}
	p.sendAcks()
}

// sendAcks moves the ack as far as the machine allows and tells the senders.
func (p *partition) sendAcks() {
	from := p.recv.Acked()
	to := p.recv.Ack()
	if p.sim.mutation == ackTooMany && to < p.recv.Received() {
		to = min(p.recv.Received(), to+2)
	}
	for _, a := range p.arrivals[min(from, to):to] {
		c := p.ins[a.in]
		c.ackedPos = p.sim.latest(c.ackedPos, a.at)
		if a.id != punctuation {
			p.sim.owned[a.id] = true
		}
		if c.linked {
			c.back = append(c.back, feedback{acked: c.ackedPos})
		}
	}
}

// next picks an input entry that may be processed now.
func (p *partition) next() (logged, bool) {
	first := p.sim.rng.IntN(len(p.ins) + 1)
	for i := range len(p.ins) + 1 {
		j := (first + i) % (len(p.ins) + 1)
		if j == len(p.ins) {
			if done := p.recv.Done(); done < p.recv.Received() && p.recv.Gate() > done {
				if a := p.arrivals[done]; p.open(a) {
					return a, true
				}
			}
		} else if c := p.ins[j]; len(c.inbox) > 0 && p.open(logged{j, c.inbox[0]}) {
			return logged{j, c.inbox[0]}, true
		}
	}
	return logged{}, false
}

// open reports whether alignment and marks let the entry be processed.
func (p *partition) open(a logged) bool {
	if a.level > p.closed {
		return false
	}
	return !p.op.emits() || p.sim.mutation == noMarks || p.marks.Gate() > p.total
}

// compute begins the next item: changes the state and lines up its outputs.
func (p *partition) compute() bool {
	if p.op.source || !p.running() || p.busy || p.closing != 0 || len(p.pending) > 0 {
		return false
	}
	a, ok := p.next()
	if !ok {
		return false
	}
	if a.id != punctuation {
		if p.back.Run(p.reading(), 1) == 0 {
			return p.startBackup()
		}
		p.apply(a)
		for _, out := range p.sim.items[a.id].outs {
			p.lineUp(entry{id: out}, p.sim.items[out].part)
		}
	}
	p.busy, p.current = true, a
	if len(p.pending) == 0 {
		p.finish()
	}
	return true
}

func (p *partition) lineUp(e entry, out int) {
	p.pending = append(p.pending, e)
	p.pendingOn = append(p.pendingOn, out)
}

// apply changes the state by one item.
func (p *partition) apply(a logged) {
	s := p.sim
	if a.level != p.closed {
		s.fail("%v applies item %d of window %d to window %d", p, a.id, a.level+1, p.closed+1)
	}
	it := &s.items[a.id]
	e := &p.elems[it.key]
	for _, u := range e.uids {
		if u == a.uid {
			s.fail("I6: %v applies emission %d of item %d twice", p, a.uid, a.id)
		}
	}
	switch {
	case p.op.norm == errorbound.Count:
		if len(e.uids) == 0 {
			p.since[it.key] = 1
		}
	default:
		p.since[it.key] += p.op.change(it)
	}
	e.value += it.value
	e.uids = append(e.uids, a.uid)
}

// emitOne emits the next output that is lined up, if there is credit.
func (p *partition) emitOne() bool {
	if !p.running() || len(p.pending) == 0 {
		return false
	}
	if p.op.sends == atRisk && p.send.Credit() == 0 {
		return false
	}
	e, c := p.pending[0], p.outs[p.pendingOn[0]]
	p.pending, p.pendingOn = p.pending[1:], p.pendingOn[1:]
	p.emitOn(c, e)
	if len(p.pending) == 0 && p.busy {
		p.finish()
	}
	return true
}

func (p *partition) emit(id int32) { p.emitOn(p.outs[p.sim.items[id].part], entry{id: id}) }

func (p *partition) emitOn(c *channel, e entry) {
	if c.kind == atRisk {
		p.send.Emitted(1)
		if e.id != punctuation {
			e.uid = p.sim.newUID(e.id)
		}
		p.sim.check(p.send.Valid())
	} else {
		e.uid = e.id
	}
	c.send(e)
}

// punctuate lines up a punctuation for every output channel.
func (p *partition) punctuate(w int) {
	for i := range p.outs {
		p.lineUp(entry{id: punctuation, window: w}, i)
	}
}

// finish is reached when all outputs of the current item are emitted: the item counts as soon as its divergence does.
func (p *partition) finish() {
	c := p.ins[p.current.in]
	c.done = p.sim.latest(c.done, p.current.at)
	if p.current.id == punctuation {
		c.level = max(c.level, p.current.window)
		if p.align(); len(p.pending) > 0 {
			return // come back when the punctuation is forwarded
		}
	}
	p.total++
	p.marks.Processed(p.total)
	p.waiting = true
	p.settle()
}

// align begins the close of the window that is complete now, if there is one. An operator that emits as it processes
// forwards the punctuation and commits, one that emits at closes commits and then runs the close.
func (p *partition) align() {
	w := p.aligned()
	if w <= p.closed || p.closing != 0 {
		return
	}
	p.closing = w
	switch {
	case p.op.emits():
		p.punctuate(w)
	case p.op.consumer != nil: // retain
		p.closing = p.closed + 1
	}
	p.commitWanted = p.commitWanted || p.sim.rng.IntN(2) == 0
}

// notice is punctuation that an at-risk channel tells again. It has no number; its place in the order of arrival is
// behind so many entries.
type notice struct {
	c      *channel
	window int
	behind uint64
}

// takeNotice processes the oldest notice.
func (p *partition) takeNotice() bool {
	if !p.running() || len(p.notices) == 0 || p.busy || p.closing != 0 || len(p.pending) > 0 {
		return false
	}
	n := p.notices[0]
	if p.recv.Done() < n.behind {
		return false
	}
	p.notices = p.notices[1:]
	n.c.ended = max(n.c.ended, n.window)
	n.c.level = max(n.c.level, n.window)
	p.align()
	return true
}

// settle asks whether the current item counts now, and counts it.
func (p *partition) settle() {
	s := p.sim
	switch p.back.Decide(p.reading()) {
	case threshold.Wait:
		p.startBackup()
		return
	case threshold.Start:
		s.check(p.back.Valid(p.reading()))
		p.startBackup()
	case threshold.Continue:
		s.check(p.back.Valid(p.reading()))
	}
	a := p.current
	p.busy, p.waiting = false, false
	if a.id != punctuation {
		s.owned[a.id] = true
	}
	if c := p.ins[a.in]; c.kind != atRisk {
		c.inbox = c.inbox[1:]
	} else {
		p.recv.Processed(p.recv.Done() + 1)
		p.sendAcks()
		if s.mutation != ackTooMany {
			s.check(p.recv.Valid())
		}
	}
	if p.op.emits() && s.mutation != noMarks {
		s.check(p.marks.Valid())
	}
}
