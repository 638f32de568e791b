package threshold_test

import (
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/threshold"
)

// Steps of a worker's life. A crash takes it to down from any of them.
const (
	running = iota
	down
	counted // epoch and failure count are durable
	fenced  // no write of an older incarnation can land any more
)

// worker is the unit of failure: some partitions of one operator.
type worker struct {
	op       *operator
	parts    []*partition
	step     int
	epoch    uint64
	failures uint64
}

// crash takes the memory of a worker. Writes under way stay under way.
func (w *worker) crash(s *sim) {
	for _, p := range w.parts {
		if w.step == running {
			s.checkCrash(p)
		}
		for _, c := range p.outs {
			c.resetSender()
		}
		for _, c := range p.ins {
			c.resetReceiver()
		}
		p.elems, p.since, p.arrivals, p.notices, p.pending, p.pendingOn = nil, nil, nil, nil, nil, nil
		p.busy, p.waiting, p.commitWanted = false, false, false
		p.closing, p.closed, p.ackedTotal, p.total = 0, 0, 0, 0
	}
	w.step = down
}

// recover takes the next step of recovery.
func (w *worker) recover(s *sim) bool {
	switch w.step {
	case running:
		return false
	case down:
		w.epoch++
		if s.mutation != forgetFailure {
			w.failures++
		}
		w.op.maxFailures = max(w.op.maxFailures, w.epoch-1)
		w.step = counted
	case counted:
		for _, p := range w.parts {
			if s.mutation != noFence {
				p.writingCommit, p.writingLog = nil, nil
			}
		}
		w.step = fenced
	case fenced:
		for _, p := range w.parts {
			p.start()
		}
		w.step = running
	}
	return true
}

// start builds a partition's memory from its store: also at the very first start, from an empty one.
func (p *partition) start() {
	b := threshold.Split(p.op.config(p.worker.failures))
	p.recv = threshold.NewReceiver(b.L)
	p.send = threshold.NewSender(b.Gamma)
	p.marks = threshold.NewMarks(b.L)
	p.back = threshold.NewBackup(threshold.BackupConfig{Theta: b.Theta, Alpha: p.op.told, SelfAccounting: p.op.self})
	p.since, p.owed = make([]float64, p.op.keys), make([]bool, p.op.keys)
	p.elems = make([]element, p.op.keys)
	for k, e := range p.store.elems {
		p.elems[k] = e.clone()
	}
	if p.op.source {
		p.startSource()
		return
	}
	p.loadPositions()
	p.replayLog()
	p.closed = p.store.closed
	switch w := p.closed; {
	case p.op.emits():
		// What the last incarnation forwarded may have died with it, and nothing below the commit is emitted again.
		if w > 0 && p.sim.mutation != forgetPunctuation {
			p.punctuate(w)
		}
	case p.op.consumer != nil: // retain
		if p.store.reclose {
			p.closed--
		}
		for i, c := range p.outs {
			c.sent, c.window = p.store.outSeq[i], p.closed
			if p.sim.mutation == forgetLevel {
				c.window = 0
			}
		}
		if p.store.reclose {
			p.runClose(w)
		}
	}
}

func (p *partition) startSource() {
	if p.op.sends == rewind {
		p.cursor = p.store.cursor
		return
	}
	p.cursor = p.store.pipe
	w := 0
	for _, e := range p.script[:p.cursor] {
		w = max(w, e.window)
	}
	if w > 0 && p.sim.mutation != forgetPunctuation {
		p.punctuate(w)
	}
}

func (p *partition) loadPositions() {
	for i, c := range p.ins {
		c.done, c.level, c.ended, c.restarted = p.store.at[i], p.store.closed, p.store.closed, true
	}
}

// replayLog makes the item log above the commit the first arrivals: received and logged.
func (p *partition) replayLog() {
	for _, l := range p.store.log {
		c := p.ins[l.in]
		if p.sim.mutation != replayCommitted && !l.at.after(p.store.at[l.in], p.sim.mutation) {
			continue
		}
		p.arrivals = append(p.arrivals, l)
		if l.id == punctuation {
			p.recv.ReceivePunctuation()
			c.ended = max(c.ended, l.window)
		} else {
			p.recv.Receive(1)
		}
	}
	p.recv.Logged(uint64(len(p.arrivals)))
	p.sendAcks()
}

// checkCrash measures, without the machines' help, what the crash takes: I1, I2 and I3 at the worst moment.
func (s *sim) checkCrash(p *partition) {
	b := threshold.Split(p.op.config(p.worker.failures))
	if p.op.consumer != nil && p.op.sends == atRisk {
		lost := uint64(0)
		for _, c := range p.outs {
			lost += c.sent - c.acked
		}
		if lost > max(b.Gamma, 1) {
			s.fail("I3: %v dies with %d unacked, gamma is %d", p, lost, b.Gamma)
		}
	}
	if p.op.source {
		return
	}
	change := make([]float64, p.op.keys)
	for k, e := range p.elems {
		durable := len(p.store.elems[k].uids)
		if len(e.uids) < durable {
			s.fail("%v: element %d has less than its backup", p, k)
			return
		}
		for _, u := range e.uids[durable:] {
			if !p.busy || p.current.uid != u || p.current.id == punctuation {
				change[k] += p.op.change(&s.items[s.uidItem[u]])
			}
		}
		if p.op.norm == errorbound.Count && durable > 0 {
			change[k] = 0
		}
	}
	if d := normOf(p.op.norm, change); d > b.Theta*(1+1e-9) {
		s.fail("I1: %v dies %v from its backup, theta is %v%s", p, d, b.Theta, s.dump())
	}
	s.checkPending(p, b.L)
}

// checkPending counts the acked items that are neither processed nor in the log.
func (s *sim) checkPending(p *partition, l uint64) {
	lost := uint64(0)
	for i := p.recv.Safe(); i < p.recv.Received(); i++ {
		a := p.arrivals[i]
		if !a.at.after(p.ins[a.in].ackedPos, s.mutation) {
			lost++
		}
	}
	if lost > l {
		s.fail("I2: %v dies with %d acked items at risk, l is %d", p, lost, l)
	}
}
