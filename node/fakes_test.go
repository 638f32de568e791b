package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/cluster"
)

var errUnreachable = errors.New("unreachable")

// records are cluster.Records in memory.
type records struct {
	mu       sync.Mutex
	of       map[string]cluster.Record
	revision uint64
	watches  map[*watching]bool
}

// watching is one Watch.
type watching struct {
	prefix string
	queue  []cluster.Record
	news   chan struct{}
}

func newRecords() *records {
	return &records{of: map[string]cluster.Record{}, watches: map[*watching]bool{}}
}

func (r *records) Get(_ context.Context, key string) (cluster.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec, ok := r.of[key]; ok {
		return rec, nil
	}
	return cluster.Record{}, fmt.Errorf("%w: %s", cluster.ErrNoRecord, key)
}

// put replaces a record that has revision expect, 0 if there must be none; a nil value deletes it.
func (r *records) put(key string, value []byte, expect uint64) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of[key].Revision != expect {
		return 0, fmt.Errorf("%w: %s", cluster.ErrConflict, key)
	}
	r.revision++
	rec := cluster.Record{Key: key, Value: value, Revision: r.revision}
	r.of[key] = rec
	if value == nil {
		delete(r.of, key)
	}
	for w := range r.watches {
		if strings.HasPrefix(key, w.prefix) {
			w.queue = append(w.queue, rec)
			select {
			case w.news <- struct{}{}:
			default:
			}
		}
	}
	return r.revision, nil
}

func (r *records) Create(_ context.Context, key string, value []byte) (uint64, error) {
	return r.put(key, value, 0)
}

func (r *records) Update(_ context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return r.put(key, value, revision)
}

func (r *records) Delete(_ context.Context, key string, revision uint64) error {
	_, err := r.put(key, nil, revision)
	return err
}

func (r *records) List(_ context.Context, prefix string) ([]cluster.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list(prefix), nil
}

func (r *records) list(prefix string) []cluster.Record {
	all := slices.SortedFunc(maps.Values(r.of), func(a, b cluster.Record) int { return cmp.Compare(a.Key, b.Key) })
	return slices.DeleteFunc(all, func(rec cluster.Record) bool { return !strings.HasPrefix(rec.Key, prefix) })
}

func (r *records) Watch(ctx context.Context, prefix string, changed func(cluster.Record), synced func()) error {
	w := &watching{prefix: prefix, news: make(chan struct{}, 1)}
	r.mu.Lock()
	first := r.list(prefix)
	r.watches[w] = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.watches, w)
		r.mu.Unlock()
	}()
	for _, rec := range first {
		changed(rec)
	}
	synced()
	for {
		select {
		case <-w.news:
		case <-ctx.Done():
			return nil
		}
		r.mu.Lock()
		queue := w.queue
		w.queue = nil
		r.mu.Unlock()
		for _, rec := range queue {
			changed(rec)
		}
	}
}

// messages are cluster.Messages in memory.
type messages struct {
	mu   sync.Mutex
	next int
	subs map[int]*subscribed
}

type subscribed struct {
	mu      sync.Mutex
	subject string
	deliver func(subject string, message []byte)
}

func newMessages() *messages { return &messages{subs: map[int]*subscribed{}} }

func (m *messages) Publish(subject string, message []byte) error {
	m.mu.Lock()
	subs := slices.Collect(maps.Values(m.subs))
	m.mu.Unlock()
	for _, s := range subs {
		if s.subject == subject || strings.HasSuffix(s.subject, "*") && strings.HasPrefix(subject, strings.TrimSuffix(s.subject, "*")) {
			s.mu.Lock()
			s.deliver(subject, slices.Clone(message))
			s.mu.Unlock()
		}
	}
	return nil
}

func (m *messages) Subscribe(subject string, deliver func(subject string, message []byte)) (func(), error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next++
	id := m.next
	m.subs[id] = &subscribed{subject: subject, deliver: deliver}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.subs, id)
	}, nil
}

// reach is how one process reaches records and messages, unless it is cut off.
type reach struct {
	*records
	*messages
	cut     atomic.Bool
	watches sync.Map // func() of those under way
}

// cutOff cuts the process off from all but links and stores.
func (r *reach) cutOff() {
	r.cut.Store(true)
	r.watches.Range(func(_, end any) bool {
		end.(context.CancelFunc)()
		return true
	})
}

func (r *reach) Watch(ctx context.Context, prefix string, changed func(cluster.Record), synced func()) error {
	inner, end := context.WithCancel(ctx)
	defer end()
	r.watches.Store(&inner, end)
	defer r.watches.Delete(&inner)
	if err := r.err(); err != nil {
		return err
	}
	if err := r.records.Watch(inner, prefix, changed, synced); err != nil || ctx.Err() != nil {
		return err
	}
	return errUnreachable
}

func (r *reach) err() error {
	if r.cut.Load() {
		return errUnreachable
	}
	return nil
}

func (r *reach) Get(ctx context.Context, key string) (cluster.Record, error) {
	if err := r.err(); err != nil {
		return cluster.Record{}, err
	}
	return r.records.Get(ctx, key)
}

func (r *reach) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if err := r.err(); err != nil {
		return 0, err
	}
	return r.records.Update(ctx, key, value, revision)
}

func (r *reach) Publish(subject string, message []byte) error {
	if err := r.err(); err != nil {
		return err
	}
	return r.messages.Publish(subject, message)
}

// unclosed is a store that others use, too.
type unclosed struct {
	backup.Store
	open *atomic.Int64
}

func (u unclosed) Close() error {
	u.open.Add(-1)
	return nil
}

// The marks of the store that it stands for.

func (u unclosed) Mark(owner string, epoch uint64, record []byte) (bool, error) {
	return u.Store.(backup.Marker).Mark(owner, epoch, record)
}

func (u unclosed) ReadMark(owner string) ([]byte, error) {
	return u.Store.(backup.Marker).ReadMark(owner)
}

func (u unclosed) DropMarks(prefix string) error { return u.Store.(backup.Marker).DropMarks(prefix) }
