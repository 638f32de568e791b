package remote

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// aliveEvery is how often a client that has nothing to say tells the server that it is alive.
	aliveEvery = time.Minute

	// maxRetry bounds the time between two questions about the same thing, which doubles from ClientOptions.retry on.
	maxRetry = 2 * time.Second
)

// retryTimer says when to ask again.
type retryTimer struct{ quiet, wait time.Duration }

// due lets d pass.
func (t *retryTimer) due(d, first time.Duration) bool {
	t.wait = max(t.wait, first)
	if t.quiet += d; t.quiet < t.wait {
		return false
	}
	t.quiet, t.wait = 0, min(2*t.wait, max(maxRetry, first))
	return true
}

// pump sends batches while there is room on the way, and looks after what is not answered.
func (c *Client) pump() {
	every := c.o.retry / 2
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := time.Now()
	for {
		for c.sendNext() {
		}
		select {
		case <-c.stop:
			return
		case <-c.wake:
		case now := <-tick.C:
			// A process that was stopped must not take the time for silence of the server.
			c.pass(min(now.Sub(last), 2*every))
			last = now
		}
	}
}

// sendNext sends the next batch, if there is one and room for it. It is encoded with c.mu held: as soon as its fate is
// known it belongs to the caller again. If it gets lost on the way, the server will say so.
func (c *Client) sendNext() bool {
	c.mu.Lock()
	seq, ok := uint64(0), false
	if c.held == 0 {
		seq, ok = c.queue.next()
	}
	if !ok {
		c.mu.Unlock()
		return false
	}
	q := &c.queue
	a := apply{session: c.session, boot: c.boot, round: q.round, base: q.base, sure: q.sure, seq: seq}
	c.buf = c.buf[:0]
	if b := q.at(seq).batch; b != nil {
		c.buf = appendBatch(c.buf, b)
	}
	c.mu.Unlock()
	a.total = len(c.buf)
	most := c.link.payload() - applyHead
	for {
		a.piece = c.buf[a.offset:min(a.offset+most, a.total)]
		c.frame = appendApply(c.frame, &a)
		c.publish(c.frame)
		if a.offset += len(a.piece); a.offset == a.total {
			return true
		}
	}
}

// pass lets time pass: it asks again for what was not answered, and gives up when the server is silent for too long.
func (c *Client) pass(d time.Duration) {
	c.mu.Lock()
	var frames [][]byte
	var failing []func()
	c.held = max(0, c.held-d)
	c.idled += d
	if c.waiting() {
		c.silent += d
	} else {
		c.silent = 0
	}
	switch {
	case c.link.closed():
		failing = c.fail(fmt.Errorf("backup server %s: %w", c.where(), nats.ErrConnectionClosed))
	case c.silent > c.o.Deadline:
		failing = c.fail(c.noAnswer(c.o.Deadline))
	default:
		frames = c.askAgain(d)
	}
	c.mu.Unlock()
	for _, frame := range frames {
		c.publish(frame)
	}
	for _, f := range failing {
		f()
	}
}

// waiting says whether the server owes an answer. c.mu is held.
func (c *Client) waiting() bool {
	if !c.queue.empty() || len(c.calls) > 0 {
		return true
	}
	for _, sc := range c.scans {
		if sc.starved() {
			return true
		}
	}
	return false
}

// askAgain returns the questions whose time has come. c.mu is held.
func (c *Client) askAgain(d time.Duration) (frames [][]byte) {
	isAlive := c.idled >= aliveEvery && c.session != (ident{})
	if isAlive || !c.queue.empty() && c.asked.due(d, c.o.retry) {
		c.idled = 0
		frames = append(frames, c.probe())
	}
	for _, p := range c.calls {
		if p.timer.due(d, c.o.retry) {
			frames = append(frames, p.frame)
		}
	}
	for _, sc := range c.scans {
		if !sc.last && sc.timer.due(d, c.o.retry) {
			frames = append(frames, sc.question())
		}
	}
	return frames
}

// probe asks what has become of the batches. c.mu is held.
func (c *Client) probe() []byte {
	q := &c.queue
	return appendProbe(nil, &probe{session: c.session, boot: c.boot, round: q.round, base: q.base, sure: q.sure, sent: q.sent})
}

// fail ends everything that waits with err, and returns what to do for that without c.mu, which is held.
func (c *Client) fail(err error) (todo []func()) {
	for _, done := range c.queue.clear() {
		todo = append(todo, func() { done(err) })
	}
	for id, p := range c.calls {
		p.answer <- callAnswer{err: err}
		delete(c.calls, id)
	}
	for _, sc := range c.scans {
		sc.end(err)
	}
	c.silent = 0
	c.settled()
	return todo
}

// noAnswer says who was silent for so long and what to do about it.
func (c *Client) noAnswer(silent time.Duration) error {
	why := "is it running? Start it with: afstream backup --cluster " + c.o.Cluster
	if c.o.Server != DefaultName {
		why += " --name " + c.o.Server
	}
	why += "; if it is, see its log"
	if err := c.nc.LastError(); err != nil && !c.nc.IsConnected() && !errors.Is(err, nats.ErrNoServers) {
		why = fmt.Sprintf("NATS is not connected (%v): %s", err, why)
	}
	return fmt.Errorf("%w %s for %v: %s", ErrNoAnswer, c.where(), silent, why)
}

// where names the server for messages.
func (c *Client) where() string {
	at := c.nc.ConnectedUrlRedacted()
	if at == "" {
		at = "NATS"
	}
	return fmt.Sprintf("%q of cluster %q at %s", c.o.Server, c.o.Cluster, at)
}
