package remote

import (
	"fmt"

	"github.com/nats-io/nats.go"
)

// receive takes an answer of the server. NATS calls it from one goroutine, which also calls the callbacks of batches.
func (c *Client) receive(m *nats.Msg) {
	if len(m.Data) == 0 {
		return // NATS says that nobody listens; time will tell
	}
	kind, r, err := openFrame(m.Data)
	if err != nil {
		return // lost like one that never came
	}
	switch kind {
	case kindStatus:
		if s, err := decodeStatus(r); err == nil {
			c.onStatus(&s)
		}
	case kindWelcome:
		if w, err := decodeWelcome(r); err == nil {
			c.onAnswer(w.id, callAnswer{welcome: w})
		}
	case kindFenced:
		if a, err := decodeAnswer(r); err == nil {
			c.onAnswer(a.id, callAnswer{err: a.result.err(c.o.Server)})
		}
	case kindChunk:
		if k, err := decodeChunk(r); err == nil {
			c.onChunk(&k)
		}
	case kindNoScan:
		if a, err := decodeAnswer(r); err == nil {
			c.onNoScan(a.id)
		}
	case kindBusy:
		c.mu.Lock()
		c.silent = 0
		c.mu.Unlock()
	}
}

func (c *Client) onAnswer(id uint64, a callAnswer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = 0
	if p := c.calls[id]; p != nil {
		p.answer <- a
		c.forget(id)
	}
}

// onStatus settles batches, and goes back if the server says so.
func (c *Client) onStatus(s *status) {
	var todo []func()
	c.mu.Lock()
	switch {
	case s.session != c.session:
	case s.store != c.store, s.flags&(flagUnknown|flagLost) != 0:
		todo = c.replaced(s)
	case s.boot < c.boot: // it has come late, and what it says may not hold any more
	default:
		c.silent = 0
		if s.boot > c.boot {
			c.boot = s.boot
			c.queue.goBack(c.queue.base, c.queue.round)
		}
		todo = c.settle(s.outcomes)
		if s.flags&flagBusy != 0 {
			c.held = c.o.retry
		}
		if s.flags&flagGoBack != 0 && c.queue.goBack(s.next, s.round) {
			c.asked = retryTimer{}
		}
	}
	c.mu.Unlock()
	for _, f := range todo {
		f()
	}
	c.signal()
}

// settle returns the callbacks of the batches that have a fate now. c.mu is held.
func (c *Client) settle(outcomes []outcome) (todo []func()) {
	for i := range outcomes {
		o := &outcomes[i]
		if done := c.queue.settle(o.seq, o.code == codeOK); done != nil {
			err := o.result.err(c.o.Server)
			todo = append(todo, func() { done(err) })
		}
	}
	if len(todo) > 0 {
		c.asked = retryTimer{}
		c.settled()
	}
	return todo
}

// replaced ends the client: what it relies on is not there. c.mu is held.
func (c *Client) replaced(s *status) []func() {
	why := fmt.Sprintf("it was started on another directory, in memory, or twice; its store was %v and is %v", c.store, s.store)
	switch {
	case s.flags&flagLost != 0:
		why = "writes that were durable are not there: was there a power cut without --backup-sync?"
	case s.store == c.store:
		why = "it does not know this client any more, which was silent for a day, or for minutes after others had taken over all that it wrote"
	}
	c.failed = fmt.Errorf("%w: %s: %s", ErrReplaced, c.where(), why)
	return c.fail(c.failed)
}
