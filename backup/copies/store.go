package copies

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/afstream/afstream/backup"
)

// ErrLast is returned by Drop for the only member that is left.
var ErrLast = errors.New("the last copy cannot be dropped")

// Member is one of the stores that hold the copies.
type Member struct {
	Name  string // unique among the members
	Store backup.Store
}

// Options are how a Store works. The zero value is fine.
type Options struct {
	// Suspect is told of a member that fails, or is silent for Patience with something to answer: once, and again only if it
	// has answered in between. Whether it is dropped is for others to decide, see Drop; until then all that needs it waits.
	// Calls come one at a time, from a goroutine of the Store's; Suspect may call Drop, but not Close.
	Suspect func(name string, err error)
	// Patience is how long a member may take to answer before it is suspected; default 5 s. Time during which the process
	// was stopped does not count. Less finds dead servers sooner and suspects slow ones.
	Patience time.Duration
	// Log gets what happens to members; default none.
	Log *slog.Logger
}

// Store is a backup.Store whose content is on all members of its view. All methods may be called concurrently.
//
// It owns one goroutine, and one for each question under way that a member has to answer while others wait; Close ends them.
type Store struct {
	o        Options
	wake     chan struct{} // capacity 1: for the watch
	stop     chan struct{} // ends the watch
	watching sync.WaitGroup
	going    sync.WaitGroup // questions and openings
	hangUp   func()         // closes what the Store owns below the members; nil if nothing

	mu         sync.Mutex
	drained    sync.Cond // signals: busy is 0
	closed     bool
	finished   chan struct{} // closed when Close is through
	view       []*member     // in the order given; replaced, never changed
	owned      []owned
	lanes      map[string]*lane
	busy       int // calls and batches under way
	suspicions []Suspicion
	free       []*write
}

// owned is a member's store that the Store has opened itself.
type owned struct {
	m     *member
	close func(abandon bool) error
}

var (
	_ backup.Store  = (*Store)(nil)
	_ backup.Marker = (*Store)(nil)
)

// New returns a Store over members, of which there must be one at least, with different names. They stay the caller's: Close
// does not close them, and they have to outlive it. If one of them may be silent for ever, so may Close.
func New(members []Member, o Options) *Store {
	list := make([]*member, len(members))
	for i, m := range members {
		list[i] = newMember(m.Name, m.Store)
	}
	return start(list, o)
}

func start(view []*member, o Options) *Store {
	if o.Patience <= 0 {
		o.Patience = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Suspect == nil {
		o.Suspect = func(string, error) {}
	}
	s := &Store{
		o: o, view: view, lanes: map[string]*lane{},
		wake: make(chan struct{}, 1), stop: make(chan struct{}), finished: make(chan struct{}),
	}
	if len(view) == 0 {
		panic("copies: no members")
	}
	for i, m := range view {
		if slices.ContainsFunc(view[:i], func(o *member) bool { return o.name == m.name }) {
			panic(fmt.Sprintf("copies: two members %q", m.name))
		}
	}
	s.drained.L = &s.mu
	s.watching.Go(s.watch)
	return s
}

// View returns the names of the members that count.
func (s *Store) View() []string {
	var names []string
	for _, m := range s.members() {
		names = append(names, m.name)
	}
	return names
}

func (s *Store) members() []*member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view
}

// Drop takes a member out of the view, for good: what waits for it goes on without it. It must have been decided for all who
// use the view, durably, before anybody calls it. Dropping what is not in the view is fine; the last member cannot be dropped.
func (s *Store) Drop(name string) error {
	s.mu.Lock()
	i := slices.IndexFunc(s.view, func(m *member) bool { return m.name == name })
	if i < 0 {
		s.mu.Unlock()
		return nil
	}
	if len(s.view) == 1 {
		s.mu.Unlock()
		return fmt.Errorf("drop backup copy %q: %w", name, ErrLast)
	}
	m := s.view[i]
	s.view = slices.Concat(s.view[:i], s.view[i+1:])
	m.dropped = true
	if !m.isGone() {
		close(m.gone)
	}
	m.again = nil
	finished := s.settleAll(m, nil)
	abandon := s.disown(m)
	closed := s.closed
	if abandon != nil && !closed {
		s.going.Go(func() { _ = abandon(true) }) // the errors of what was given up
	}
	s.mu.Unlock()
	if abandon != nil && closed {
		_ = abandon(true)
	}
	s.o.Log.Warn("backup copy dropped", "copy", name)
	for _, w := range finished {
		s.finish(w)
	}
	return nil
}

// disown returns how to close a member's store, nil if that is not the Store's. s.mu is held.
func (s *Store) disown(m *member) func(bool) error {
	i := slices.IndexFunc(s.owned, func(o owned) bool { return o.m == m })
	if i < 0 {
		return nil
	}
	o := s.owned[i]
	s.owned = slices.Delete(s.owned, i, i+1)
	return o.close
}

// begin counts a call.
func (s *Store) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return backup.ErrClosed
	}
	s.busy++
	return nil
}

func (s *Store) end() {
	s.mu.Lock()
	s.ended()
	s.mu.Unlock()
}

// ended takes note that a call or batch is through. s.mu is held.
func (s *Store) ended() {
	if s.busy--; s.busy == 0 {
		s.drained.Broadcast()
	}
}

// Apply implements backup.Store. Batches become visible in the order of their Apply calls for each owner, and not across
// owners. done is called when all members of the view have the batch.
func (s *Store) Apply(b *backup.Batch, done func(error)) {
	err := backup.CheckBatch(b)
	if err == nil {
		err = s.begin()
	}
	if err != nil {
		done(err)
		return
	}
	s.queue(b.Owner, turn{batch: b, done: done})
}

// Scan implements backup.Store. It reads one member, and begins anew at another if that fails before fn was called;
// afterwards it ends with backup.ErrInterrupted, unless there is no other.
func (s *Store) Scan(prefix []byte, fn func(key, value []byte) error) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	if strings.HasPrefix(string(prefix), recordPrefix) {
		return nil // records are no keys
	}
	var tried []*member
	var last error
	for {
		m, others := s.reader(tried)
		if m == nil {
			return last
		}
		begun, err := s.scanAt(m, prefix, others, fn)
		if err == nil {
			return nil
		}
		var failure *memberError
		if !errors.As(err, &failure) {
			return err // of fn
		}
		if begun {
			if others || len(s.members()) > 1 {
				return fmt.Errorf("%w: %w", backup.ErrInterrupted, err)
			}
			return failure.err
		}
		last = failure.err
		tried = append(tried, m)
	}
}

// memberError is an error of a member, to be told from one of a scan's function.
type memberError struct {
	name string
	err  error
}

func (e *memberError) Error() string { return fmt.Sprintf("backup copy %q: %v", e.name, e.err) }
func (e *memberError) Unwrap() error { return e.err }

// reader returns the member to read from: the first that has not been tried, rather one that is not in trouble. others says
// whether there is another one that is not either.
func (s *Store) reader(tried []*member) (m *member, others bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.view {
		if slices.Contains(tried, c) {
			continue
		}
		healthy := c.trouble == nil && c.suspected == nil && c.isReady()
		switch {
		case m == nil:
			m = c
		case !healthy:
		case m.trouble != nil || m.suspected != nil || !m.isReady():
			m, others = c, false
		default:
			others = true
		}
	}
	return m, others
}

// scanAt carries out a scan at m. With others, m has Options.Patience to begin. begun says whether fn was called. Errors other than
// those of fn are memberErrors.
func (s *Store) scanAt(m *member, prefix []byte, others bool, fn func(key, value []byte) error) (begun bool, err error) {
	in, err := s.stream(m, prefix)
	if err != nil {
		return false, &memberError{m.name, err}
	}
	defer in.close()
	hidden := strings.HasPrefix(recordPrefix, string(prefix))
	if others {
		in.patience = s.o.Patience
	}
	for {
		e, err := in.next()
		if err == io.EOF {
			return begun, nil
		}
		if err != nil {
			s.unread(m, err)
			return begun, &memberError{m.name, err}
		}
		if hidden && strings.HasPrefix(string(e.Key), recordPrefix) {
			continue
		}
		begun, in.patience = true, 0
		if err := fn(e.Key, e.Value); err != nil {
			return begun, err
		}
	}
}

// unread takes note that a scan has failed. That its server was started again, or that a part of it is damaged, says nothing
// against a member as a whole.
func (s *Store) unread(m *member, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !m.isGone() && !errors.Is(err, backup.ErrInterrupted) && !errors.Is(err, backup.ErrDamaged) {
		s.failed(m, err)
	}
}

// Close waits for what is under way. What needs a member that is in trouble, or is silent for longer than
// Options.Patience, fails. It closes what Dial and Open have opened, and no other member.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.finished
		return nil
	}
	s.closed = true
	var failing []*write
	for _, m := range s.view {
		if m.trouble != nil || !m.isReady() {
			failing = append(failing, s.giveUp(m)...)
		}
	}
	s.mu.Unlock()
	for _, w := range failing {
		s.finish(w)
	}
	s.mu.Lock()
	for s.busy > 0 {
		s.drained.Wait()
	}
	owned := s.owned
	s.owned = nil
	s.mu.Unlock()
	close(s.stop)
	s.watching.Wait()
	var errs []error
	for _, o := range owned {
		errs = append(errs, o.close(o.m.isGone()))
	}
	s.going.Wait()
	if s.hangUp != nil {
		s.hangUp()
	}
	close(s.finished)
	return errors.Join(errs...)
}
