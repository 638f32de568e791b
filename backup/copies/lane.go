package copies

import (
	"fmt"
	"slices"
	"sync"

	"github.com/afstream/afstream/backup"
)

// lane is what is under way for one owner: one batch or one fence at a time, in the order of the calls. Store.mu guards it.
type lane struct {
	owner   string
	turns   []turn
	running bool // somebody is in Store.run
	taken   bool // a turn is under way
	current *write

	// counted says that all members were made equal at epoch by this Store, so that batches can be numbered from at on, where
	// all of them are.
	counted bool
	epoch   uint64
	at      progress
	// broken is why a batch of this epoch has failed; nothing follows it before the next fence.
	broken error
	// refused is one more than the highest epoch that a member has refused: it is over.
	refused uint64

	marking sync.Mutex // one mark at a time; taken before Store.mu
	marks   bool       // all members can keep marks of this owner
	mark    point      // of the last mark
	buf     []byte     // of whoever has marking
}

// turn is a batch, or a fence, whose goroutine is told to begin.
type turn struct {
	batch *backup.Batch
	done  func(error)
	begin chan struct{}
}

// queue appends a turn, which was counted by begin.
func (s *Store) queue(owner string, t turn) {
	s.mu.Lock()
	l := s.lanes[owner]
	if l == nil {
		l = &lane{owner: owner}
		s.lanes[owner] = l
	}
	l.turns = append(l.turns, t)
	s.mu.Unlock()
	s.run(l)
}

// run carries out turns as long as none is under way. A callback that ends a turn while somebody else is in here leaves
// the next one to them: that bounds the depth of the stack for stores that call back at once.
func (s *Store) run(l *lane) {
	s.mu.Lock()
	if l.running {
		s.mu.Unlock()
		return
	}
	l.running = true
	for !l.taken && len(l.turns) > 0 {
		t := l.turns[0]
		l.turns[0] = turn{}
		l.turns = l.turns[1:]
		l.taken = true
		s.mu.Unlock()
		if t.begin != nil {
			close(t.begin)
		} else {
			s.startWrite(l, t)
		}
		s.mu.Lock()
	}
	l.running = false
	if !l.taken && !l.counted && l.refused == 0 && s.lanes[l.owner] == l {
		delete(s.lanes, l.owner) // there is nothing to remember
	}
	s.mu.Unlock()
}

// release ends a turn.
func (s *Store) release(l *lane) {
	s.mu.Lock()
	l.taken, l.current = false, nil
	s.ended()
	s.mu.Unlock()
	s.run(l)
}

// write is a batch under way. Store.mu guards it, but for what the batch consists of.
//
// The members refer to a copy: one that was dropped may still be about to send it when the caller has the batch back.
type write struct {
	s        *Store
	lane     *lane
	done     func(error)
	steps    []backup.Batch // applied one after the other at each member
	parts    []part
	left     int // parts that are not settled
	refs     int // calls that have not come back
	err      error
	finished bool
	counts   progress // where it takes the owner; not known if it is not counted

	puts    []backup.Entry
	deletes [][]byte
	buf     []byte
	touched step
	three   [3]backup.Batch
}

// part is a write at one member.
type part struct {
	w       *write
	m       *member
	step    int
	settled bool
	answer  func(error)
}

// startWrite begins a batch whose turn it is.
func (s *Store) startWrite(l *lane, t turn) {
	b := t.batch
	s.mu.Lock()
	if b.Epoch < l.refused || l.counted && b.Epoch < l.epoch {
		s.mu.Unlock()
		t.done(fmt.Errorf("epoch %d of %q: %w", b.Epoch, b.Owner, backup.ErrFenced))
		s.release(l)
		return
	}
	if l.counted && l.broken != nil {
		err := l.broken
		s.mu.Unlock()
		t.done(fmt.Errorf("batch of %q after one that failed: %w", b.Owner, err))
		s.release(l)
		return
	}
	w := s.newWrite(l, t.done)
	if b.Epoch != l.epoch { // nobody has made the members equal for it
		l.counted = false
	}
	w.counts = progress{}
	if l.counted {
		w.counts = l.following()
	}
	before := l.at
	useStep := l.counted && l.at.known
	s.mu.Unlock()

	w.copy(b)
	w.build(b, before.point, useStep)

	s.mu.Lock()
	l.current = w
	for _, m := range s.view {
		w.parts = append(w.parts, part{w: w, m: m})
	}
	w.left = len(w.parts)
	var sending []*part
	for i := range w.parts {
		p := &w.parts[i]
		p.answer = p.answered
		switch {
		case p.m.isGone(): // the Store is being closed
			w.fail(s.whyGone(p.m))
		case s.toSend(p):
			sending = append(sending, p)
		}
	}
	finished := w.complete()
	s.mu.Unlock()
	for _, p := range sending {
		p.send()
	}
	if finished {
		s.finish(w)
	}
}

// following is where the next batch takes the owner.
func (l *lane) following() progress {
	p := progress{known: true, point: point{epoch: l.epoch, number: 2}}
	if l.at.known && l.at.epoch == l.epoch {
		p.number = l.at.number + 2
	}
	return p
}

// maxFree bounds how many writes with their buffers are kept for the next batches.
const maxFree = 32

// newWrite takes one from the free list. s.mu is held.
func (s *Store) newWrite(l *lane, done func(error)) *write {
	w := &write{}
	if n := len(s.free); n > 0 {
		w, s.free = s.free[n-1], s.free[:n-1]
	}
	w.s, w.lane, w.done = s, l, done
	w.err, w.finished = nil, false
	w.parts = w.parts[:0]
	return w
}

// keepBuffer is the largest buffer that is kept.
const keepBuffer = 64 << 10

// recycle keeps a write for the next batch, if nobody refers to it. s.mu is held.
func (s *Store) recycle(w *write) {
	if w.refs > 0 || w.err != nil || len(s.free) == maxFree || cap(w.buf) > keepBuffer {
		return
	}
	for i := range w.parts {
		if w.parts[i].m.dropped {
			return
		}
	}
	clear(w.parts)
	w.done, w.lane = nil, nil
	s.free = append(s.free, w)
}

// copy copies what b consists of.
func (w *write) copy(b *backup.Batch) {
	n := 0
	for i := range b.Puts {
		n += len(b.Puts[i].Key) + len(b.Puts[i].Value)
	}
	for _, k := range b.Deletes {
		n += len(k)
	}
	w.buf = slices.Grow(w.buf[:0], n)
	w.puts, w.deletes = w.puts[:0], w.deletes[:0]
	for i := range b.Puts {
		w.puts = append(w.puts, backup.Entry{Key: w.keep(b.Puts[i].Key), Value: w.keep(b.Puts[i].Value)})
	}
	for _, k := range b.Deletes {
		w.deletes = append(w.deletes, w.keep(k))
	}
}

func (w *write) keep(b []byte) []byte {
	at := len(w.buf)
	w.buf = append(w.buf, b...)
	return w.buf[at:len(w.buf):len(w.buf)]
}

// build makes the steps of a batch that was copied: one, in which it takes its number along, or takes away the record of an
// owner that is not counted; and more for a batch that has no room for that.
func (w *write) build(b *backup.Batch, before point, useStep bool) {
	head := backup.Batch{Owner: b.Owner, Epoch: b.Epoch}
	key := recordKey(b.Owner)
	whole := head
	whole.Puts, whole.Deletes = w.puts, w.deletes
	one := whole
	if w.counts.known {
		p := w.counts
		if useStep && w.touch(b) {
			w.touched.before = before
			p.step = &w.touched
		}
		w.puts = append(w.puts, backup.Entry{Key: key, Value: appendProgress(nil, &p)})
		one.Puts = w.puts
	} else {
		w.deletes = append(w.deletes, key)
		one.Deletes = w.deletes
	}
	if one.Size() <= backup.MaxBatchBytes {
		w.steps = append(w.three[:0], one)
		return
	}
	first := head
	if !w.counts.known {
		first.Deletes = [][]byte{key}
		w.steps = append(w.three[:0], first, whole)
		return
	}
	half := w.counts
	half.number--
	first.Puts = []backup.Entry{{Key: key, Value: appendProgress(nil, &half)}}
	last := head
	last.Puts = []backup.Entry{{Key: key, Value: appendProgress(nil, &w.counts)}}
	w.steps = append(w.three[:0], first, whole, last)
}

// touch lists the keys of a batch for its record, if they are few.
func (w *write) touch(b *backup.Batch) bool {
	if len(b.Puts) > maxStepPuts {
		return false
	}
	t := &w.touched
	t.puts, t.deletes = t.puts[:0], t.deletes[:0]
	n := 0
	for i := range w.puts {
		t.puts = append(t.puts, w.puts[i].Key)
		n += len(w.puts[i].Key)
	}
	for _, k := range w.deletes {
		t.deletes = append(t.deletes, k)
		n += len(k)
	}
	return n <= maxStepBytes
}

// toSend counts a call of a member, or leaves it for later if that is not there yet. s.mu is held.
func (s *Store) toSend(p *part) bool {
	if !p.m.isReady() {
		p.m.again = append(p.m.again, p)
		return false
	}
	p.m.asked++
	p.w.refs++
	return true
}

// send applies the step that the part is at. It was counted by toSend.
func (p *part) send() { p.m.store.Apply(&p.w.steps[p.step], p.answer) }

// answered takes what a member says.
func (p *part) answered(err error) {
	w, m, s := p.w, p.m, p.w.s
	s.mu.Lock()
	w.refs--
	m.asked--
	more := false
	switch {
	case err == nil && p.settled:
		m.heard()
	case p.settled: // it was dropped, or the batch has failed
	case err == nil:
		m.heard()
		p.step++
		if p.step == len(w.steps) {
			p.settle()
		} else {
			more = s.toSend(p)
		}
	case isRefusal(err):
		m.heard()
		w.fail(err)
	case len(s.view) == 1 || s.closed:
		s.failed(m, err)
		w.fail(err)
	default: // no later batch of this owner is under way, so that this one can be applied again
		s.failed(m, err)
		m.again = append(m.again, p)
	}
	finished := w.complete()
	s.mu.Unlock()
	if more {
		p.send()
	}
	if finished {
		s.finish(w)
	}
}

func (p *part) settle() {
	if !p.settled {
		p.settled = true
		p.w.left--
	}
}

// fail ends a write without waiting for the other members. Store.mu is held.
func (w *write) fail(err error) {
	for i := range w.parts {
		w.parts[i].settle()
	}
	if w.err == nil {
		w.err = err
	}
}

// complete says, once, that a write is to be finished. Store.mu is held.
func (w *write) complete() bool {
	if w.left > 0 || w.finished {
		return false
	}
	w.finished = true
	return true
}

// settleAll ends all parts at a member that nobody waits for any more, with err the writes as well, and returns the writes to
// finish. s.mu is held.
func (s *Store) settleAll(m *member, err error) (finished []*write) {
	for _, l := range s.lanes {
		w := l.current
		if w == nil {
			continue
		}
		for i := range w.parts {
			p := &w.parts[i]
			if p.m != m || p.settled {
				continue
			}
			p.settle()
			if err != nil {
				w.fail(err)
			}
		}
		if w.complete() {
			finished = append(finished, w)
		}
	}
	return finished
}

// finish tells the outcome of a write that is complete, and lets the next turn begin.
func (s *Store) finish(w *write) {
	l := w.lane
	s.mu.Lock()
	if w.counts.known {
		l.at = progress{known: true, point: w.counts.point}
		l.broken = w.err
	}
	done, err, epoch := w.done, w.err, w.steps[0].Epoch
	s.mu.Unlock()
	if err != nil {
		s.refuse(l, epoch, err)
	}
	done(err)
	s.mu.Lock()
	l.current = nil
	s.recycle(w)
	s.mu.Unlock()
	s.release(l)
}

// refuse remembers that an epoch is over: what a member has refused must not get to another behind a gap.
func (s *Store) refuse(l *lane, epoch uint64, err error) {
	if !isFenced(err) {
		return
	}
	s.mu.Lock()
	if epoch < ^uint64(0) {
		l.refused = max(l.refused, epoch+1)
	}
	s.mu.Unlock()
}
