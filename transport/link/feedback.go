package link

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/afstream/afstream/transport"
)

// feedback holds the newest value of every channel that was not sent yet, and at the other end how new the last one was.
type feedback struct {
	mu     sync.Mutex
	values map[transport.Channel][]byte
	order  []transport.Channel // of values
	some   atomic.Bool

	stamp  uint64                       // of the last message of values that was sent; the end's goroutine
	newest map[transport.Channel]uint64 // stamp of the last value that was received; the end's goroutine
}

// put replaces the value of a channel and says whether one was waiting.
func (f *feedback) put(c transport.Channel, value []byte) (replaced bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old, replaced := f.values[c]
	if !replaced {
		f.order = append(f.order, c)
	}
	if f.values == nil {
		f.values = map[transport.Channel][]byte{}
	}
	f.values[c] = append(old[:0], value...)
	f.some.Store(true)
	return replaced
}

// len returns how many values wait.
func (f *feedback) len() int {
	if !f.some.Load() {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.order)
}

// fill appends values to a message while they fit into limit bytes, and says how many.
func (f *feedback) fill(msg []byte, limit int) (_ []byte, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.order {
		if n > 0 && len(msg)+transport.FeedbackBytes+len(f.values[c]) > limit {
			break
		}
		msg = transport.AppendFeedback(msg, c, f.values[c])
		delete(f.values, c)
		n++
	}
	f.order = append(f.order[:0], f.order[n:]...)
	f.some.Store(len(f.order) > 0)
	return msg, n
}

// sendFeedback sends what waits, at most once in Linger: there is no hurry, and a newer value may come.
func (e *end) sendFeedback(now time.Time) {
	if now.Sub(e.lastBack) < e.cfg.Linger {
		return
	}
	e.lastBack = time.Time{}
	for waiting := e.feedback.len(); waiting > 0 && !e.closing.Load(); {
		msg, n := e.feedback.fill(begin(nil, kindFeedback), int(e.payload.Load()))
		waiting -= n
		e.feedback.stamp++
		refused := e.refused.Load()
		e.transmit(msg, e.feedback.stamp)
		if e.refused.Load() != refused {
			e.conflated.Add(uint64(n))
		}
		e.lastBack = now
	}
}

// receiveFeedback hands on values that are newer than what came before.
func (e *end) receiveFeedback(stamp uint64, content []byte) {
	if e.cfg.Feedback == nil {
		return
	}
	if e.feedback.newest == nil {
		e.feedback.newest = map[transport.Channel]uint64{}
	}
	for len(content) > 0 {
		c, value, rest, err := transport.TakeFeedback(content)
		if err != nil {
			e.malformed.Add(1)
			return
		}
		content = rest
		if stamp > e.feedback.newest[c] {
			e.feedback.newest[c] = stamp
			e.cfg.Feedback(c, value)
		}
	}
}

// send takes a value from any goroutine.
func (e *end) send(c transport.Channel, value []byte) error {
	if e.closing.Load() {
		return e.err()
	}
	if room := int(e.payload.Load()) - contentAt - transport.FeedbackBytes; len(value) > room {
		return fmt.Errorf("link %s: %w: feedback of channel %d->%d takes %d bytes and a message holds %d",
			e.name, transport.ErrTooLarge, c.From, c.To, len(value), room)
	}
	if e.feedback.put(c, value) {
		e.conflated.Add(1)
	}
	e.park.Wake()
	return nil
}
