package remote

import (
	"github.com/afstream/afstream/backup"
)

// queue is the batches of a client whose fate is not known, in order. It is pure; the client's mutex guards it.
//
// Invariants: base is the number of the first batch, base <= sent <= base+windowBatches; the batches before sent have been
// sent in this round, and bytes is how much they are. sure may be beyond sent after going back, since batches are not
// settled in order.
type queue struct {
	list  []pendingBatch
	base  uint64
	sent  uint64 // the next batch to send
	round uint64 // how often it went back
	sure  uint64 // last batch that is durable
	bytes int
	most  int // of bytes
}

type pendingBatch struct {
	batch   *backup.Batch
	done    func(error)
	size    int
	settled bool // done was called, or is about to be
}

func newQueue(most int) queue { return queue{base: 1, sent: 1, most: most} }

func (q *queue) empty() bool { return len(q.list) == 0 }

func (q *queue) push(b *backup.Batch, done func(error)) {
	q.list = append(q.list, pendingBatch{batch: b, done: done, size: b.Size()})
}

func (q *queue) at(seq uint64) *pendingBatch { return &q.list[seq-q.base] }

// next returns the number of the next batch to send and passes on to the one after it; ok is false if there is none, or
// no room on the way. What is settled already takes no room, but its number must not be left out: it is sent without
// content, and the server has it anyway.
func (q *queue) next() (seq uint64, ok bool) {
	seq = q.sent
	if seq-q.base >= min(uint64(len(q.list)), windowBatches) {
		return 0, false
	}
	size := q.at(seq).size
	if q.bytes > 0 && q.bytes+size > q.most {
		return 0, false
	}
	q.bytes += size
	q.sent++
	return seq, true
}

// settle takes note of what has become of a batch and returns its callback, nil if that is known already.
func (q *queue) settle(seq uint64, durable bool) func(error) {
	if seq < q.base || seq >= q.sent {
		return nil
	}
	p := q.at(seq)
	if p.settled {
		return nil
	}
	done := p.done
	if durable {
		q.sure = max(q.sure, seq)
	}
	p.settled, p.done, p.batch = true, nil, nil
	q.shift()
	return done
}

// shift drops the settled batches in front.
func (q *queue) shift() {
	n := 0
	for n < len(q.list) && q.list[n].settled {
		if q.base+uint64(n) < q.sent {
			q.bytes -= q.list[n].size
		}
		n++
	}
	q.base += uint64(n)
	q.sent = max(q.sent, q.base)
	clear(q.list[:n]) // what append has no use for must not keep batches alive
	q.list = q.list[n:]
}

// goBack makes seq the next batch to send, if it has been sent in that round.
func (q *queue) goBack(seq, round uint64) bool {
	seq = max(seq, q.base)
	if round != q.round || seq >= q.sent {
		return false
	}
	for s := seq; s < q.sent; s++ {
		q.bytes -= q.at(s).size
	}
	q.sent = seq
	q.round++
	return true
}

// clear empties the queue and returns the callbacks of what was not settled. Numbers go on: what was sent is not sent
// again, and what was not sent leaves no gap that the server could miss, since base tells it.
func (q *queue) clear() []func(error) {
	var list []func(error)
	for i := range q.list {
		if p := &q.list[i]; !p.settled {
			list = append(list, p.done)
		}
	}
	q.base += uint64(len(q.list))
	q.sent, q.bytes, q.list = q.base, 0, nil
	return list
}
