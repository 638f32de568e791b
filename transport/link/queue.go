package link

import (
	"sync"
	"sync/atomic"

	"github.com/afstream/afstream/ringbuf"
)

// queue is a ring from the owner of an end to the goroutine of the end, or back, with word to the writer when one that
// was full has room.
type queue[T any] struct {
	ring   *ringbuf.SPSC[T]
	writer *ringbuf.Parker
	full   atomic.Bool // the writer has found no room
}

func newQueue[T any](slots int, writer *ringbuf.Parker) queue[T] {
	return queue[T]{ring: ringbuf.NewSPSC[T](slots), writer: writer}
}

// put adds v, or reports false if there is no room.
func (q *queue[T]) put(v T) bool {
	if q.ring.TryPush(v) {
		return true
	}
	q.full.Store(true)
	return q.ring.TryPush(v) // room may have been made before the mark could be seen
}

// take removes the oldest.
func (q *queue[T]) take() (T, bool) {
	v, ok := q.ring.TryPop()
	if ok && q.full.Load() && q.full.Swap(false) {
		q.writer.Wake()
	}
	return v, ok
}

// busy says whether the queue is half full, so that it is not worth waiting for more to share a message.
func (q *queue[T]) busy() bool { return q.ring.Len() >= (q.ring.Cap()+1)/2 }

// mailbox takes messages from NATS. It is bounded, although a peer that keeps to its window never fills it.
type mailbox struct {
	mu     sync.Mutex
	msgs   [][]byte
	limit  int
	filled atomic.Bool // something is there: a look that costs no lock
}

// put reports false if the box is full or closed; the message is then dropped.
func (m *mailbox) put(msg []byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.msgs) >= m.limit {
		return false
	}
	m.msgs = append(m.msgs, msg)
	m.filled.Store(true)
	return true
}

// take returns all that is there and keeps empty for what comes next.
func (m *mailbox) take(empty [][]byte) [][]byte {
	if !m.filled.Load() {
		return empty[:0]
	}
	clear(empty)
	m.mu.Lock()
	defer m.mu.Unlock()
	msgs := m.msgs
	m.msgs = empty[:0]
	m.filled.Store(false)
	return msgs
}

// close drops what is there and what comes.
func (m *mailbox) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.msgs, m.limit = nil, 0
}
