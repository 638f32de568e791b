package leader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/afstream/afstream/cluster"
)

// store keeps records in memory. A write has its revision from when it was called, so that a write nobody has heard of
// again has one too: of writes that succeed each other on a key the later call has the higher one.
type store struct {
	mu      sync.Mutex
	rand    *rand.Rand
	next    uint64
	records map[string]cluster.Record
	log     []cluster.Record
	changed chan struct{} // closed with the next change
	calls   []call
}

// call is one call of a client, for the history.
type call struct {
	client   int
	op       string // get, create, update, delete
	key      string
	expected uint64
	revision uint64    // that it gives, or has read
	term     uint64    // of the job or lease that is written
	left     time.Time // when the caller had an answer, or gave up
	began    time.Time
	ended    time.Time // by then it has happened, if it has
	outcome  string    // ok, conflict; unknown; never, which the caller takes for unknown
}

func newStore(seed uint64) *store {
	return &store{rand: rand.New(rand.NewPCG(seed, 1)), records: map[string]cluster.Record{}, changed: make(chan struct{})}
}

// apply changes a record if it has the revision expected.
func (s *store) apply(key string, value []byte, expected, revision uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.records[key].Revision; got != expected || revision <= got {
		return fmt.Errorf("%s: %w", key, cluster.ErrConflict)
	}
	r := cluster.Record{Key: key, Value: value, Revision: revision}
	if s.records[key] = r; value == nil {
		delete(s.records, key)
	}
	s.log = append(s.log, r)
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

func (s *store) get(key string) (cluster.Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[key]
	return r, ok
}

func (s *store) draw() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.Float64()
}

func (s *store) revision() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	return s.next
}

// put writes without any faults.
func (s *store) put(key string, value []byte) {
	for {
		r, _ := s.get(key)
		k := call{op: "update", key: key, expected: r.Revision, revision: s.revision(), term: termOf(key, value), began: time.Now(), ended: time.Now(), outcome: "ok"}
		if value == nil {
			k.op = "delete"
		}
		if s.apply(key, value, k.expected, k.revision) == nil {
			s.mu.Lock()
			s.calls = append(s.calls, k)
			s.mu.Unlock()
			return
		}
	}
}

// client is the store as one process sees it.
type client struct {
	*store
	id    int
	mu    sync.Mutex
	cut   bool
	deaf  bool          // what it sends gets there, and no answer and no message comes back
	cuts  chan struct{} // closed with the next cut
	delay time.Duration // of each way, at most
	fails float64       // how many messages get lost
	late  float64       // how many of the lost ones are only late, by up to 5 s
}

func (s *store) client(id int) *client {
	return &client{store: s, id: id, cuts: make(chan struct{}), delay: 2 * time.Millisecond}
}

// set changes how bad the connection is.
func (c *client) set(delay time.Duration, fails, late float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delay, c.fails, c.late = delay, fails, late
}

func (c *client) setCut(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut = cut; cut {
		close(c.cuts)
		c.cuts = make(chan struct{})
	}
}

func (c *client) setDeaf(deaf bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf = deaf
}

func (c *client) isDeaf() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deaf
}

// ears are the messages of one process.
type ears struct {
	*hub
	c *client
}

func (e ears) Subscribe(subject string, deliver func(string, []byte)) (func(), error) {
	return e.hub.Subscribe(subject, func(subject string, message []byte) {
		if !e.c.isDeaf() {
			deliver(subject, message)
		}
	})
}

func (c *client) state() (cut bool, cuts chan struct{}, delay time.Duration, fails, late float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut, c.cuts, c.delay, c.fails, c.late
}

var errCut = errors.New("store not reached")

// way waits as long as a message takes.
func (c *client) way(ctx context.Context) error {
	cut, cuts, delay, fails, _ := c.state()
	t := time.NewTimer(time.Duration(c.draw() * float64(delay)))
	defer t.Stop()
	if cut { // nobody says so: the caller waits
		cuts, t.C = nil, nil
	}
	select {
	case <-t.C:
		if c.draw() < fails {
			return errCut
		}
		return nil
	case <-cuts:
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(200 * time.Millisecond):
	}
	return errCut
}

func (c *client) note(k call) {
	if k.client, k.left = c.id, time.Now(); k.ended.IsZero() {
		k.ended = time.Now()
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	c.calls = append(c.calls, k)
}

func (c *client) Get(ctx context.Context, key string) (cluster.Record, error) {
	k := call{op: "get", key: key, began: time.Now()}
	if err := c.way(ctx); err != nil {
		return cluster.Record{}, err
	}
	r, ok := c.get(key)
	if err := c.way(ctx); err != nil {
		return cluster.Record{}, err
	}
	k.revision, k.outcome = r.Revision, "ok"
	c.note(k)
	if !ok {
		return r, fmt.Errorf("%s: %w", key, cluster.ErrNoRecord)
	}
	return r, nil
}

func (c *client) write(ctx context.Context, op, key string, value []byte, expected uint64) (uint64, error) {
	k := call{op: op, key: key, expected: expected, revision: c.revision(), term: termOf(key, value), began: time.Now()}
	defer func() { c.note(k) }()
	if err := c.way(ctx); err != nil {
		_, _, _, _, late := c.state()
		if k.outcome = "never"; c.draw() < late {
			after := time.Duration(c.draw() * float64(5*time.Second))
			time.AfterFunc(after, func() { _ = c.apply(key, value, expected, k.revision) })
			k.outcome, k.ended = "unknown", time.Now().Add(after)
		}
		return 0, fmt.Errorf("%s: %w", key, err)
	}
	k.outcome = "unknown"
	err := c.apply(key, value, expected, k.revision)
	lost := c.way(ctx)
	if c.isDeaf() {
		<-ctx.Done()
		lost = ctx.Err()
	}
	if lost != nil {
		return 0, fmt.Errorf("%s: %w", key, lost)
	}
	if k.outcome = "ok"; err != nil {
		k.outcome = "conflict"
	}
	return k.revision, err
}

func termOf(key string, value []byte) uint64 {
	if key == cluster.LeaderKey {
		l, _ := cluster.DecodeLeader(value)
		return l.Term
	}
	if strings.HasPrefix(key, cluster.JobPrefix) {
		if j, err := cluster.DecodeJob(value); err == nil {
			return j.Term
		}
	}
	return 0
}

func (c *client) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	return c.write(ctx, "create", key, value, 0)
}

func (c *client) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return c.write(ctx, "update", key, value, revision)
}

func (c *client) Delete(ctx context.Context, key string, revision uint64) error {
	_, err := c.write(ctx, "delete", key, nil, revision)
	return err
}

func (c *client) List(context.Context, string) ([]cluster.Record, error) {
	return nil, errors.New("controllers watch")
}

func (c *client) Watch(ctx context.Context, prefix string, changed func(cluster.Record), synced func()) error {
	if err := c.way(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	c.store.mu.Lock()
	at, records := len(c.log), maps.Clone(c.records)
	c.store.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(records)) {
		if strings.HasPrefix(key, prefix) {
			changed(records[key])
		}
	}
	synced()
	_, cuts, delay, _, _ := c.state()
	for {
		c.store.mu.Lock()
		news, more := c.log[at:], c.changed
		at = len(c.log)
		c.store.mu.Unlock()
		if len(news) > 0 {
			time.Sleep(time.Duration(c.draw() * float64(delay)))
		}
		for _, r := range news {
			if strings.HasPrefix(r.Key, prefix) {
				changed(r)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-cuts:
			return errCut
		case <-more:
		}
	}
}

// hub carries messages at once.
type hub struct {
	mu   sync.Mutex
	next int
	subs map[int]func(string, []byte)
}

func newHub() *hub { return &hub{subs: map[int]func(string, []byte){}} }

func (h *hub) Publish(subject string, message []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, deliver := range h.subs {
		deliver(subject, message)
	}
	return nil
}

func (h *hub) Subscribe(_ string, deliver func(string, []byte)) (func(), error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	id := h.next
	h.subs[id] = deliver
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subs, id)
	}, nil
}
