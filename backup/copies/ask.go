package copies

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/afstream/afstream/backup"
)

// errDropped ends whatever waits for a member that was dropped.
var errDropped = errors.New("copy was dropped")

// errStopped ends a scan that nobody reads any more.
var errStopped = errors.New("stopped")

// ask has a member carry out f until it succeeds or is refused, or nobody waits for the member any more. f runs on a goroutine
// of its own, which may outlive the call: what it shares with the caller must be read only if ask succeeds.
func (s *Store) ask(ctx context.Context, m *member, f func(backup.Store) error) error {
	for {
		select {
		case <-m.ready:
		case <-m.gone:
			return s.gone(m)
		case <-ctx.Done():
			return ctx.Err()
		}
		result := make(chan error, 1)
		s.mu.Lock()
		m.asked++
		s.mu.Unlock()
		s.going.Go(func() {
			err := f(m.store)
			s.mu.Lock()
			m.asked--
			s.mu.Unlock()
			result <- err
		})
		var err error
		select {
		case err = <-result:
		case <-m.gone:
			return s.gone(m)
		case <-ctx.Done():
			if context.Cause(ctx) == errAgain { // what m is still to do must not come after what it is asked then
				select {
				case <-result:
				case <-m.gone:
				}
			}
			return ctx.Err()
		}
		wait, final := s.judge(m, err)
		if final {
			return err
		}
		s.pause(ctx, m, wait)
	}
}

// pause waits before m is asked again; false if that is not to be done.
func (s *Store) pause(ctx context.Context, m *member, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-m.gone:
	case <-ctx.Done():
	}
	return false
}

// query is ask for something that has a result.
func query[T any](ctx context.Context, s *Store, m *member, f func(backup.Store) (T, error)) (result T, err error) {
	answers := make(chan T, 1) // goroutines that outlive the call must share nothing with it
	err = s.ask(ctx, m, func(store backup.Store) error {
		answer, err := f(store)
		if err == nil {
			answers <- answer
		}
		return err
	})
	if err == nil {
		result = <-answers
	}
	return result, err
}

// judge takes note of an outcome, and says whether it is to be left at that; otherwise how long to wait before asking again.
func (s *Store) judge(m *member, err error) (wait time.Duration, final bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil || isRefusal(err) {
		m.heard()
		return 0, true
	}
	s.failed(m, err)
	return m.wait, len(s.view) == 1 || s.closed
}

func (s *Store) gone(m *member) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whyGone(m)
}

// each carries out f for all members of the view at the same time, until all of them are through or were dropped, or one has
// failed. What was dropped does not count. After errAgain no member is still at work on what it was asked before.
func (s *Store) each(view []*member, f func(ctx context.Context, m *member) error) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	errs := make(chan error, len(view))
	var working sync.WaitGroup
	for _, m := range view {
		working.Go(func() { errs <- f(ctx, m) })
	}
	var first error
	for range view {
		if err := <-errs; err != nil && !errors.Is(err, errDropped) && first == nil {
			first = err
			cancel(err)
		}
	}
	cancel(nil)
	working.Wait()
	return first
}

// applyWait applies a batch at a store.
func applyWait(store backup.Store, b *backup.Batch) error {
	done := make(chan error, 1)
	store.Apply(b, func(err error) { done <- err })
	return <-done
}

// valueOf returns a copy of what a store has for key, nil if nothing.
func valueOf(store backup.Store, key []byte) (value []byte, err error) {
	err = store.Scan(key, func(k, v []byte) error {
		if bytes.Equal(k, key) {
			value = append([]byte{}, v...)
		}
		return errStopped // the key itself comes before those that begin with it
	})
	if err == errStopped {
		err = nil
	}
	return value, err
}

// chunkBytes is about how much of a scan one chunk holds.
const chunkBytes = 64 << 10

type chunk struct {
	entries []backup.Entry
	last    bool
	err     error // of the scan, with last
}

// stream is a scan of a member that is read entry by entry. It holds two chunks at most, and one goroutine of the Store's, which
// waits for the reader, and ends when the stream is closed and the member lets it.
type stream struct {
	s        *Store
	m        *member
	chunks   chan chunk
	stop     chan struct{}
	now      chunk
	patience time.Duration // for the next chunk; 0 for no limit
	timer    *time.Timer
}

func (s *Store) stream(m *member, prefix []byte) (*stream, error) {
	if !m.isReady() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if m.trouble != nil {
			return nil, m.trouble
		}
		return nil, fmt.Errorf("backup copy %q has not answered yet", m.name)
	}
	in := &stream{s: s, m: m, chunks: make(chan chunk), stop: make(chan struct{})}
	s.going.Go(func() {
		var f filler
		err := m.store.Scan(prefix, func(key, value []byte) error {
			if !f.fits(key, value) && !in.hand(f.cut()) {
				return errStopped
			}
			f.add(key, value)
			return nil
		})
		if err == errStopped {
			return
		}
		last := f.cut()
		last.last, last.err = true, err
		in.hand(last)
	})
	return in, nil
}

// hand gives a chunk to the reader; false if that reads no more.
func (in *stream) hand(c chunk) bool {
	select {
	case in.chunks <- c:
		return true
	case <-in.stop:
		return false
	}
}

// filler collects entries. Readers may keep what they are given.
type filler struct {
	entries []backup.Entry
	buf     []byte
	size    int
}

func (f *filler) fits(key, value []byte) bool {
	return len(f.entries) == 0 || f.size+len(key)+len(value) <= chunkBytes
}

func (f *filler) add(key, value []byte) {
	n := len(key) + len(value)
	if cap(f.buf)-len(f.buf) < n { // entries before it keep the old one
		f.buf = make([]byte, 0, max(n, min(2*cap(f.buf), chunkBytes), 512))
	}
	at := len(f.buf)
	f.buf = append(append(f.buf, key...), value...)
	mid, end := at+len(key), len(f.buf)
	f.entries = append(f.entries, backup.Entry{Key: f.buf[at:mid:mid], Value: f.buf[mid:end:end]})
	f.size += n + 48
}

func (f *filler) cut() chunk {
	c := chunk{entries: f.entries}
	*f = filler{}
	return c
}

// next returns the next entry, and io.EOF at the end. An entry is the reader's.
func (in *stream) next() (backup.Entry, error) {
	for len(in.now.entries) == 0 {
		if in.now.last {
			if in.now.err != nil {
				return backup.Entry{}, in.now.err
			}
			return backup.Entry{}, io.EOF
		}
		if err := in.receive(); err != nil {
			return backup.Entry{}, err
		}
	}
	e := in.now.entries[0]
	in.now.entries = in.now.entries[1:]
	return e, nil
}

// receive waits for a chunk. Only as long as somebody waits does the member owe one.
func (in *stream) receive() error {
	s, m := in.s, in.m
	if m.isGone() {
		return s.gone(m)
	}
	var late <-chan time.Time
	if in.patience > 0 {
		if in.timer == nil {
			in.timer = time.NewTimer(in.patience)
		}
		late = in.timer.C
	}
	s.mu.Lock()
	m.asked++
	s.mu.Unlock()
	var err error
	select {
	case in.now = <-in.chunks:
	case <-m.gone:
		err = s.gone(m)
	case <-late:
		err = fmt.Errorf("no answer for %v", in.patience)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m.asked--
	if err == nil && in.now.err == nil {
		m.heard()
	}
	return err
}

// close lets the goroutine end.
func (in *stream) close() {
	close(in.stop)
	if in.timer != nil {
		in.timer.Stop()
	}
}
