package threshold_test

import (
	"math"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/threshold"
)

// normOf measures a vector of changes per element.
func normOf(n errorbound.Norm, v []float64) float64 {
	var sum, most, squares, count float64
	for _, x := range v {
		x = math.Abs(x)
		sum += x
		most = max(most, x)
		squares += x * x
		if x > 0 {
			count++
		}
	}
	switch n {
	case errorbound.L1:
		return sum
	case errorbound.L2:
		return math.Sqrt(squares)
	case errorbound.Count:
		return count
	}
	return most
}

// reading is the partition's StateDivergence. While a backup is in flight, either it or the one before may turn out to
// be the last durable one; a self-accounting state that measures a distance reports the larger of the two.
func (p *partition) reading() float64 {
	d := normOf(p.op.norm, p.since)
	if c := p.writingCommit; p.op.self && p.op.net && p.back.InFlight() && c != nil {
		ahead := make([]float64, len(p.since))
		for k := range ahead {
			ahead[k] = p.since[k] - c.covers[k]
		}
		d = max(d, normOf(p.op.norm, ahead))
	}
	return d
}

// mayOverwrite reports whether the last commit may be replaced: not while the outputs of a close that would be run
// again from it are not committed by all receivers.
func (p *partition) mayOverwrite() bool {
	if !p.store.reclose || p.sim.mutation == overwriteClosing {
		return true
	}
	if len(p.pending) > 0 {
		return false
	}
	for _, c := range p.outs {
		if c.committed < c.sent {
			return false
		}
	}
	return true
}

func (p *partition) newCommit() *commit {
	c := &commit{epoch: p.worker.epoch, closed: p.closed, processed: p.total, done: p.recv.Done(), changed: map[int]element{}}
	if c.waits = punctuation; p.waiting {
		c.waits = p.current.id
	}
	for _, in := range p.ins {
		c.at = append(c.at, in.done)
	}
	for _, out := range p.outs {
		c.outSeq = append(c.outSeq, out.sent)
	}
	return c
}

// startBackup begins a backup of the state: of the elements that changed most under Max, of all under other norms.
func (p *partition) startBackup() bool {
	if p.writingCommit != nil || !p.mayOverwrite() {
		return false
	}
	least := 0.0
	if p.op.norm == errorbound.Max {
		least = p.back.Theta() / 4
	}
	p.snapshot(p.newCommit(), least)
	return true
}

// everything is the least change for which a snapshot takes the whole state: a set, say, also keeps what its norm does
// not see.
const everything = -1

// snapshot puts every element that changed by more than least into the commit and begins to write it.
func (p *partition) snapshot(c *commit, least float64) {
	before := p.reading()
	c.covers = make([]float64, len(p.since))
	for k, d := range p.since {
		if math.Abs(d) <= least && !p.owed[k] {
			continue
		}
		c.changed[k] = p.elems[k].clone()
		c.covers[k] = d
		if !p.op.self {
			p.since[k] = 0
		}
	}
	p.writingCommit = c
	p.back.Started(before, p.reading())
	if p.sim.mutation == ignoreInFlight {
		p.landed(c)
	}
}

// commitPositions writes the positions alone after a punctuation, now and then with the state: what the runtime does
// at the end of the stream and to bound the replay.
func (p *partition) commitPositions() bool {
	if !p.running() || !p.commitWanted || p.busy || p.closing != 0 || p.writingCommit != nil || !p.mayOverwrite() {
		return false
	}
	p.commitWanted = false
	if p.sim.rng.IntN(3) == 0 {
		return p.startBackup()
	}
	return p.startPositions()
}

func (p *partition) startPositions() bool {
	p.writingCommit = p.newCommit()
	p.writingCommit.positionOnly = true
	return true
}

// startMark commits when the marks say so, between two items: the positions alone, unless the state is one that takes
// what changed most along with every commit, or would be backed up soon anyway.
func (p *partition) startMark() bool {
	if !p.running() || !p.op.emits() || p.busy || p.writingCommit != nil || !p.marks.Due() || p.sim.mutation == noMarks {
		return false
	}
	if p.op.self || p.back.Decide(p.reading()) != threshold.Continue {
		return p.startBackup()
	}
	p.startPositions()
	if p.sim.mutation == markReceived {
		for i, in := range p.ins {
			p.writingCommit.at[i] = p.sim.latest(in.done, in.received)
		}
	}
	return true
}

// commitClosing writes the whole state at the end of a window, or before the close of one is run.
func (p *partition) commitClosing() bool {
	if !p.running() || p.closing == 0 || p.busy || len(p.pending) > 0 || p.writingCommit != nil || !p.mayOverwrite() {
		return false
	}
	c := p.newCommit()
	c.closed, c.reclose = p.closing, p.op.consumer != nil && p.op.sends == retain
	p.snapshot(c, everything)
	return true
}

// landCommit makes the commit under way durable, whether or not the incarnation that wrote it still lives.
func (p *partition) landCommit() bool {
	c := p.writingCommit
	if c == nil {
		return false
	}
	p.writingCommit = nil
	p.store.applyCommit(c, p.sim.mutation)
	if c.waits != punctuation {
		p.sim.owned[c.waits] = true
	}
	if !p.running() || c.epoch != p.worker.epoch {
		return true
	}
	if p.sim.mutation != ignoreInFlight {
		p.landed(c)
	}
	p.marks.Committed(c.processed)
	p.recv.Logged(c.done)
	p.sendAcks()
	for _, in := range p.ins {
		if in.linked && in.kind != atRisk {
			in.back = append(in.back, feedback{committed: p.store.at[in.toIdx]})
		}
	}
	switch {
	case c.reclose:
		p.runClose(c.closed)
	case c.closed > p.closed:
		p.passed(c.closed)
	}
	return true
}

// failCommit makes the commit under way fail now and then. A plain state has already restarted its reading, so the
// next backup owes the elements of this one.
func (p *partition) failCommit() bool {
	c := p.writingCommit
	if c == nil || !p.running() || c.epoch != p.worker.epoch || p.sim.mutation == ignoreInFlight ||
		p.sim.rng.IntN(20) > 0 {
		return false
	}
	p.writingCommit = nil
	p.commitWanted = true
	if c.positionOnly {
		return true
	}
	if !p.op.self {
		for k := range c.changed {
			p.owed[k] = true
		}
	}
	p.back.Failed()
	return true
}

// landed tells the state and Backup that a commit is durable.
func (p *partition) landed(c *commit) {
	if c.positionOnly {
		return
	}
	for k := range c.changed {
		p.owed[k] = false
		if p.op.self {
			p.since[k] -= c.covers[k]
		}
	}
	p.back.Durable(p.reading())
}

// runClose emits what the close of window w emits, from the state that is in the closing commit.
func (p *partition) runClose(w int) {
	p.sim.checkClose(p, w)
	for _, id := range p.op.closing[p.index][w] {
		p.lineUp(entry{id: id}, p.sim.items[id].part)
	}
	p.punctuate(w)
	p.passed(w)
}

// passed lets the next window in.
func (p *partition) passed(w int) {
	p.closed, p.closing = w, 0
	for _, c := range p.ins {
		c.level, c.ended = max(c.level, w), max(c.ended, w)
	}
	p.align()
}

// retry asks again whether an item that waits for a backup counts.
func (p *partition) retry() bool {
	if !p.running() || !p.waiting || p.writingCommit != nil || p.back.InFlight() {
		return false
	}
	if !p.mayOverwrite() && p.back.Valid(p.reading()) != nil {
		return false
	}
	p.settle()
	return true
}

// startLog writes the pending items to the item log if a sender is blocked or the machine says it must be.
func (p *partition) startLog() bool {
	if !p.running() || p.op.source || p.writingLog != nil {
		return false
	}
	must := p.recv.MustLog() && p.sim.mutation != ignoreMustLog
	if !must && !p.senderBlocked() {
		return false
	}
	from, to := p.recv.Pending()
	if from == to {
		return false
	}
	p.writingLog = &logWrite{entries: append([]logged(nil), p.arrivals[from:to]...), to: to, epoch: p.worker.epoch}
	return true
}

func (p *partition) senderBlocked() bool {
	for _, c := range p.ins {
		if c.kind == atRisk && c.linked && c.from.running() && c.from.send.Credit() == 0 {
			return true
		}
	}
	return false
}

func (p *partition) landLog() bool {
	w := p.writingLog
	if w == nil {
		return false
	}
	p.writingLog = nil
	p.store.applyLog(w)
	if p.running() && w.epoch == p.worker.epoch {
		p.recv.Logged(w.to)
		p.sendAcks()
	}
	return true
}
