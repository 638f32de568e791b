package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/ringbuf"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/transport"
	"github.com/afstream/afstream/worker"
)

// A value of feedback to another process is sent as letters: one, or several if it is large. Letters may be lost, be late or
// come twice. A newer value replaces an older one wherever they meet, and since nobody answers, the newest is said again a few
// times: the receiver may not have been there yet.
const (
	letterBytes = 512 << 10 // of a value, in one letter: below what a NATS server takes by default
	maxLetters  = 64        // of one value
	letterKind  = 1
)

// Repeats of a value: the first comes after repeatFirst, each next one after twice as long.
const (
	repeatFirst = 50 * time.Millisecond
	repeatLast  = 1600 * time.Millisecond
)

// letter is a part of a value, or all of it.
//
//	sealed: way | from | epoch | number | part | parts | bytes of the part, to the end
type letter struct {
	way         int    // which way back, among those that end in the receiving operator
	from        int    // sending partition
	epoch       uint64 // incarnation of the sending worker
	number      uint64 // of the value, within the incarnation and the receiving partition
	part, parts int
	bytes       []byte
}

func (l *letter) encode() []byte {
	msg := transport.Begin(make([]byte, 0, transport.SealBytes+6*binary.MaxVarintLen64+len(l.bytes)), letterKind)
	for _, n := range [...]uint64{uint64(l.way), uint64(l.from), l.epoch, l.number, uint64(l.part), uint64(l.parts)} {
		msg = binary.AppendUvarint(msg, n)
	}
	msg = append(msg, l.bytes...)
	transport.Seal(msg)
	return msg
}

var errLetter = errors.New("node: malformed feedback")

// decodeLetter reads a letter, which shares the memory of msg.
func decodeLetter(msg []byte) (*letter, error) {
	kind, body, err := transport.Unseal(msg)
	if err != nil {
		return nil, err
	}
	var n [6]uint64
	for i := range n {
		v, size := binary.Uvarint(body)
		if size <= 0 {
			return nil, fmt.Errorf("%w: %d bytes", errLetter, len(msg))
		}
		n[i], body = v, body[size:]
	}
	l := &letter{epoch: n[2], number: n[3], bytes: body}
	if kind != letterKind || n[0] > math.MaxInt32 || n[1] > math.MaxInt32 || n[5] == 0 || n[5] > maxLetters || n[4] >= n[5] {
		return nil, fmt.Errorf("%w: kind %d, part %d of %d", errLetter, kind, n[4], n[5])
	}
	l.way, l.from, l.part, l.parts = int(n[0]), int(n[1]), int(n[4]), int(n[5])
	return l, nil
}

// letters cuts a value.
func letters(l letter, value []byte) ([][]byte, error) {
	l.parts = max(1, (len(value)+letterBytes-1)/letterBytes)
	if l.parts > maxLetters {
		return nil, fmt.Errorf("feedback of %d bytes, at most %d can be sent to another process", len(value), maxLetters*letterBytes)
	}
	var all [][]byte
	for part := range slices.Chunk(value, letterBytes) {
		l.bytes = part
		all = append(all, l.encode())
		l.part++
	}
	if len(value) == 0 {
		all = append(all, l.encode())
	}
	return all, nil
}

// inbox puts together the letters of one sending partition. It is pure.
type inbox struct {
	epoch, number uint64
	parts         [][]byte
	missing       int // 0: the value is complete, and was handed over
}

// take takes a letter and returns the value that it completes, if it is newer than any that was complete before. What is of an
// incarnation before named is refused.
func (b *inbox) take(l *letter, named uint64) (value []byte, complete bool) {
	older := l.epoch < b.epoch || l.epoch == b.epoch && l.number < b.number
	if l.epoch < named || older {
		return nil, false
	}
	if l.epoch != b.epoch || l.number != b.number || b.parts == nil {
		*b = inbox{epoch: l.epoch, number: l.number, parts: make([][]byte, l.parts), missing: l.parts}
	}
	if len(b.parts) != l.parts || b.parts[l.part] != nil || b.missing == 0 {
		return nil, false
	}
	b.parts[l.part] = append([]byte{}, l.bytes...)
	if b.missing--; b.missing > 0 {
		return nil, false
	}
	value = slices.Concat(b.parts...)
	clear(b.parts)
	return value, true
}

// takeMail has the feedback from other processes put into the worker's mailboxes until stop is called.
func (c *incarnation) takeMail(w *worker.Worker) (stop func(), err error) {
	node := c.prepared.node(c.place.operator)
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	if len(node.BackIn) == 0 {
		return stop, nil
	}
	for i := range node.Compute {
		part := c.place.index*node.Compute + i
		boxes := map[[2]int]*inbox{} // by way and sending partition; of deliver, which is not called concurrently
		s, err := c.h.o.Messages.Subscribe(c.h.o.subjects().Back(c.job, node.Name, part), func(_ string, msg []byte) {
			if err := c.deliver(w, node, part, boxes, msg); err != nil {
				c.log.Warn("feedback cannot be read", "partition", part, "err", err)
			}
		})
		if err != nil {
			stop()
			return nil, fmt.Errorf("subscribe to feedback of %s: %w", c.name(), err)
		}
		stops = append(stops, s)
	}
	return stop, nil
}

// deliver takes one letter for one partition.
func (c *incarnation) deliver(w *worker.Worker, node *stream.Node, part int, boxes map[[2]int]*inbox, msg []byte) error {
	l, err := decodeLetter(msg)
	if err != nil {
		return err
	}
	if l.way >= len(node.BackIn) || l.from >= node.BackIn[l.way].From.Partitions() {
		return fmt.Errorf("%w: of partition %d on way %d", errLetter, l.from, l.way)
	}
	e := node.BackIn[l.way]
	named := uint64(0)
	if epochs := c.named.Load(); epochs != nil {
		named = (*epochs)[place{e.From.Name, l.from / e.From.Compute}]
	}
	at := [2]int{l.way, l.from}
	if boxes[at] == nil {
		boxes[at] = &inbox{}
	}
	value, complete := boxes[at].take(l, named)
	if !complete {
		return nil
	}
	return w.PutBack(e, l.from, part, value)
}

// connectBack leads the feedback that an incarnation sends to the incarnations that the record names: directly to those in this
// process, by letters to the others. And it says whose feedback counts.
func (h *host) connectBack(j *job, c *incarnation, node *stream.Node) {
	if len(node.BackIn) > 0 {
		named := map[place]uint64{}
		for _, e := range node.BackIn {
			for i := range e.From.Workers {
				named[place{e.From.Name, i}] = j.record.Worker(e.From.Name, i).Epoch
			}
		}
		c.named.Store(&named)
	}
	for _, e := range node.BackOut {
		for _, peer := range j.placed(e.To) {
			to := place{peer.Operator, peer.Index}
			switch other := j.workers[to]; {
			case !h.mine(peer):
				c.post.direct(e, peer)
			case other != nil && other.w != nil && c.post.local(e, peer):
				worker.ConnectBack(e, c.w, other.w)
			}
		}
	}
}

// postman sends the feedback of one incarnation to partitions in other processes.
type postman struct {
	c    *incarnation
	w    *worker.Worker
	park *ringbuf.Parker

	mu     sync.Mutex
	routes []*route
	known  map[backTo]uint64 // epoch of the receiving worker that the feedback is led to
}

// backTo is one receiving worker of one way back.
type backTo struct {
	edge  *stream.BackEdge
	index int
}

// route is the way to one receiving partition. It belongs to the postman's goroutine, but for again, which is under its lock.
type route struct {
	backTo
	subject string
	way     int
	box     stream.Outbox
	last    map[int]*posted // by sending partition
	again   bool            // there is a new receiver
}

// posted is the newest value of one sending partition.
type posted struct {
	letter
	value []byte
	next  time.Time // when to say it again; zero: never
	pause time.Duration
}

// newPostman returns the postman of an incarnation, nil if that sends no feedback.
func (c *incarnation) newPostman(w *worker.Worker) *postman {
	if len(c.prepared.node(c.place.operator).BackOut) == 0 {
		return nil
	}
	return &postman{c: c, w: w, park: ringbuf.NewParker(), known: map[backTo]uint64{}}
}

// direct leads feedback to a worker in another process.
func (p *postman) direct(e *stream.BackEdge, peer *cluster.Worker) {
	to := backTo{e, peer.Index}
	p.mu.Lock()
	epoch := p.known[to]
	p.known[to] = peer.Epoch
	there := false
	for _, r := range p.routes {
		if r.backTo == to {
			there, r.again = true, r.again || epoch != peer.Epoch
		}
	}
	var added []*route
	for i := range e.To.Compute {
		if part := peer.Index*e.To.Compute + i; !there {
			added = append(added, &route{
				backTo: to, subject: p.c.h.o.subjects().Back(p.c.job, e.To.Name, part), way: slices.Index(e.To.BackIn, e),
				box: e.NewOutbox(p.park.Wake), last: map[int]*posted{},
			})
		}
	}
	p.routes = append(p.routes, added...)
	p.mu.Unlock()
	for i, r := range added {
		p.w.ConnectOutbox(e, peer.Index*e.To.Compute+i, r.box)
	}
	p.park.Wake()
}

// local takes note that a worker is in this process, and says whether the feedback is not led there already.
func (p *postman) local(e *stream.BackEdge, peer *cluster.Worker) bool {
	to := backTo{e, peer.Index}
	p.mu.Lock()
	defer p.mu.Unlock()
	fresh := p.known[to] != peer.Epoch
	p.known[to] = peer.Epoch
	p.routes = slices.DeleteFunc(p.routes, func(r *route) bool { return r.backTo == to })
	return fresh
}

// run sends until ctx ends.
func (p *postman) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, p.park.Wake)
	defer stop()
	for ctx.Err() == nil {
		next, err := p.round(time.Now())
		if err != nil {
			p.w.Fail(fmt.Errorf("feedback of %s: %w", p.c.name(), err))
			return
		}
		p.park.Prepare()
		switch {
		case ctx.Err() != nil || p.pending():
			p.park.Cancel()
		case next.IsZero():
			p.park.Park()
		default:
			p.park.ParkTimeout(time.Until(next))
		}
	}
}

func (p *postman) pending() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.routes, func(r *route) bool { return r.again || r.box.Pending() })
}

// round sends what there is and what is due again, and says when the next is; never is the zero time.
func (p *postman) round(now time.Time) (next time.Time, err error) {
	p.mu.Lock()
	routes := slices.Clone(p.routes)
	again := make([]bool, len(routes))
	for i, r := range routes {
		again[i], r.again = r.again, false
	}
	p.mu.Unlock()
	for i, r := range routes {
		err := r.box.Take(func(from int, value []byte) error {
			number := uint64(1)
			if old := r.last[from]; old != nil {
				number = old.number + 1
			}
			r.last[from] = &posted{letter: letter{way: r.way, from: from, epoch: p.c.epoch, number: number}, value: value}
			return p.post(r, r.last[from], now)
		})
		if err != nil {
			return next, err
		}
		for _, v := range r.last {
			if again[i] {
				v.pause = 0
			}
			if again[i] || !v.next.IsZero() && !now.Before(v.next) {
				if err := p.post(r, v, now); err != nil {
					return next, err
				}
			}
			if !v.next.IsZero() && (next.IsZero() || v.next.Before(next)) {
				next = v.next
			}
		}
	}
	return next, nil
}

// post sends a value, and plans when to do so again. What the network does not take is as lost as any.
func (p *postman) post(r *route, v *posted, now time.Time) error {
	all, err := letters(v.letter, v.value)
	if err != nil {
		return err
	}
	for _, msg := range all {
		_ = p.c.h.o.Messages.Publish(r.subject, msg)
	}
	v.pause = max(repeatFirst, 2*v.pause)
	v.next = now.Add(v.pause)
	if v.pause > repeatLast {
		v.next = time.Time{}
	}
	return nil
}
