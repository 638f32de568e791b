package copies

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/afstream/afstream/backup"
)

// errAgain says that the source was lost while it was read.
var errAgain = errors.New("source was dropped")

// ErrIncomplete is returned by Fence if what the members of the view have of an owner is incomplete: the one that they
// were being made equal to was lost.
var ErrIncomplete = errors.New("copies are incomplete, and the one that was whole is lost")

// Fence implements backup.Store. When it returns all members of the view have been fenced and have the same keys of owner:
// those of the one that had got furthest. It costs a question to each member if they have them already, and reading and
// writing a batch if one of them lacks the last; a member that was away for longer is compared as a whole.
//
// No batch of owner in this epoch may be under way in another process. Errors: also ErrIncomplete.
func (s *Store) Fence(owner string, epoch uint64) error {
	err := backup.CheckOwner(owner)
	if err == nil {
		err = s.begin()
	}
	if err != nil {
		return err
	}
	begin := make(chan struct{})
	s.queue(owner, turn{begin: begin})
	<-begin
	s.mu.Lock()
	l := s.lanes[owner]
	s.mu.Unlock()
	err = s.fence(l, epoch)
	if err != nil {
		s.refuse(l, epoch, err)
	}
	s.release(l)
	return err
}

func (s *Store) fence(l *lane, epoch uint64) error {
	l.marking.Lock() // no mark of this process comes in between
	defer l.marking.Unlock()
	s.mu.Lock()
	l.counted, l.marks = false, false
	s.mu.Unlock()
	err := s.each(s.members(), func(ctx context.Context, m *member) error {
		return s.ask(ctx, m, func(store backup.Store) error { return store.Fence(l.owner, epoch) })
	})
	if err != nil {
		return err
	}
	f := leveller{s: s, owner: l.owner, epoch: epoch}
	for {
		err = f.level()
		if err == nil {
			err = f.levelMarks()
		}
		if err != errAgain {
			break
		}
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.epoch, l.counted, l.broken, l.at = epoch, true, nil, f.at
	l.marks, l.mark = f.marks, point{epoch: epoch}
	if f.mark.epoch == epoch {
		l.mark = f.mark
	}
	return nil
}

// leveller makes the members equal in the keys of an owner that was fenced at all of them.
type leveller struct {
	s     *Store
	owner string
	epoch uint64

	at    progress // of all members
	marks bool     // all members keep marks
	mark  point    // of their marks
}

// standing is how far a member is.
type standing struct {
	m *member
	progress
}

// level makes the keys equal. It may be interrupted at any point and begun again, here or elsewhere.
func (f *leveller) level() error {
	list, err := f.standings()
	if err != nil {
		return err
	}
	source, equal := list[0], true
	for _, x := range list[1:] {
		equal = equal && x.same(&source.progress)
		if x.ahead(&source.progress) {
			source = x
		}
	}
	switch {
	case source.torn:
		return fmt.Errorf("%q at backup copy %q: %w", f.owner, source.m.name, ErrIncomplete)
	case equal && (source.settled() || len(list) == 1 && !source.known):
		f.at = source.progress
		f.at.step = nil
		return nil
	}
	var mu sync.Mutex
	changed := !equal || source.known
	err = f.s.each(members(list), func(ctx context.Context, m *member) error {
		x := standingOf(list, m)
		if m == source.m || x.settled() && x.same(&source.progress) {
			return nil
		}
		wrote, err := f.copy(ctx, source, x)
		mu.Lock()
		changed = changed || wrote
		mu.Unlock()
		return err
	})
	if err != nil {
		return err
	}
	if source.m.isGone() { // whoever copied from it may have ended early
		return f.lost(source.m)
	}
	if !changed { // nobody has ever written anything
		f.at = progress{}
		return nil
	}
	f.at = progress{known: true, point: point{epoch: f.epoch}}
	if source.known && source.epoch == f.epoch {
		f.at.number = (source.number + 3) / 2 * 2
	}
	record := appendProgress(nil, &f.at)
	return f.s.each(f.s.members(), func(ctx context.Context, m *member) error { return f.apply(ctx, m, f.record(record)) })
}

func (f *leveller) lost(m *member) error {
	if err := f.s.gone(m); err != errDropped {
		return err
	}
	return errAgain
}

func members(list []standing) (view []*member) {
	for i := range list {
		view = append(view, list[i].m)
	}
	return view
}

func standingOf(list []standing, m *member) standing {
	for _, x := range list {
		if x.m == m {
			return x
		}
	}
	panic("copies: a member without a standing")
}

// standings asks all members how far they are, in the order of the view.
func (f *leveller) standings() (list []standing, err error) {
	view := f.s.members()
	found := make([]progress, len(view))
	err = f.s.each(view, func(ctx context.Context, m *member) error {
		value, err := f.valueAt(ctx, m, recordKey(f.owner))
		if err == nil {
			found[slices.Index(view, m)] = decodeProgress(value)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, m := range view {
		if !m.isGone() {
			list = append(list, standing{m, found[i]})
		}
	}
	if len(list) == 0 { // the Store is being closed
		return nil, backup.ErrClosed
	}
	return list, nil
}

// valueAt returns what a member has for key, nil if nothing.
func (f *leveller) valueAt(ctx context.Context, m *member, key []byte) ([]byte, error) {
	return query(ctx, f.s, m, func(store backup.Store) ([]byte, error) { return valueOf(store, key) })
}

func (f *leveller) empty() *backup.Batch { return &backup.Batch{Owner: f.owner, Epoch: f.epoch} }

func (f *leveller) record(value []byte) *backup.Batch {
	b := f.empty()
	b.Puts = []backup.Entry{{Key: recordKey(f.owner), Value: value}}
	return b
}

func (f *leveller) apply(ctx context.Context, m *member, b *backup.Batch) error {
	return f.s.ask(ctx, m, func(store backup.Store) error { return applyWait(store, b) })
}

// copy gives x what source has, and says whether anything was missing.
func (f *leveller) copy(ctx context.Context, source, x standing) (wrote bool, err error) {
	c := copier{f: f, ctx: ctx, from: source.m, to: x.m, batch: f.empty()}
	if t := source.step; t != nil && x.known && !x.torn && x.point == t.before {
		err = c.step(t)
	} else {
		for _, r := range backup.OwnedKeys(f.owner) {
			if err = c.merge(r); err != nil {
				break
			}
		}
	}
	if err == nil && c.differs() {
		err = c.finish(&source.progress, &x.progress)
	}
	return c.differs(), err
}

// copier writes what differs at a member, and with the last of it the record of the one it copies. As long as that fits one
// batch it is an atom; if not, the member is torn until its record is written.
type copier struct {
	f        *leveller
	ctx      context.Context
	from, to *member
	batch    *backup.Batch
	size     int
	torn     bool
}

// entryOverhead is at least what an entry counts beside its bytes.
const entryOverhead = 96

// makeRoom sends what has come together if n bytes more do not fit.
func (c *copier) makeRoom(n int) error {
	n += entryOverhead
	if c.size+n > backup.MaxBatchBytes {
		if err := c.flush(); err != nil {
			return err
		}
	}
	c.size += n
	return nil
}

func (c *copier) put(e backup.Entry) error {
	err := c.makeRoom(len(e.Key) + len(e.Value))
	c.batch.Puts = append(c.batch.Puts, e)
	return err
}

func (c *copier) remove(key []byte) error {
	err := c.makeRoom(len(key))
	c.batch.Deletes = append(c.batch.Deletes, key)
	return err
}

// flush sends what has come together, and more is to come.
func (c *copier) flush() error {
	if c.size == 0 {
		return nil
	}
	if !c.torn {
		p := progress{known: true, torn: true}
		if err := c.f.apply(c.ctx, c.to, c.f.record(appendProgress(nil, &p))); err != nil {
			return err
		}
		c.torn = true
	}
	err := c.f.apply(c.ctx, c.to, c.batch)
	c.batch, c.size = c.f.empty(), 0
	return err
}

// differs says whether anything was missing.
func (c *copier) differs() bool { return c.torn || c.size > 0 }

// finish sends the rest, with the record of the source: the member's own would go on to say that it has what it had before. If
// there is no room for that, its own says in between that it may have more, as with a batch that has none for its number.
func (c *copier) finish(source, own *progress) error {
	if !source.known {
		return c.f.apply(c.ctx, c.to, c.batch)
	}
	record := c.f.record(appendProgress(nil, source))
	if c.size+record.Size() <= backup.MaxBatchBytes {
		c.batch.Puts = append(c.batch.Puts, record.Puts...)
		return c.f.apply(c.ctx, c.to, c.batch)
	}
	if own.settled() && !c.torn {
		half := progress{known: true, point: point{own.epoch, own.number + 1}}
		if err := c.f.apply(c.ctx, c.to, c.f.record(appendProgress(nil, &half))); err != nil {
			return err
		}
	}
	if err := c.f.apply(c.ctx, c.to, c.batch); err != nil {
		return err
	}
	return c.f.apply(c.ctx, c.to, record)
}

// step copies what one batch has touched.
func (c *copier) step(t *step) error {
	for _, key := range t.puts {
		value, err := c.f.valueAt(c.ctx, c.from, key)
		switch {
		case errors.Is(err, errDropped):
			return errAgain
		case err != nil:
			return err
		case value == nil:
			err = c.remove(key)
		default:
			err = c.put(backup.Entry{Key: key, Value: value})
		}
		if err != nil {
			return err
		}
	}
	for _, key := range t.deletes {
		if err := c.remove(key); err != nil {
			return err
		}
	}
	return nil
}

// merge compares the keys of a range.
func (c *copier) merge(r backup.KeyRange) error {
	want, err := c.open(c.from, r)
	if err != nil {
		return err
	}
	defer want.in.close()
	has, err := c.open(c.to, r)
	if err != nil {
		return err
	}
	defer has.in.close()
	for want.more || has.more {
		order := has.compare(want)
		switch {
		case order > 0, order == 0 && !bytes.Equal(want.Value, has.Value):
			err = c.put(want.Entry)
		case order < 0:
			err = c.remove(has.Key)
		}
		if err == nil && order >= 0 {
			err = c.advance(want)
		}
		if err == nil && order <= 0 {
			err = c.advance(has)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cursor is at one entry of a range.
type cursor struct {
	in *stream
	r  backup.KeyRange
	backup.Entry
	more bool // there is one
}

// compare orders two cursors by their keys; the end comes last.
func (c *cursor) compare(o *cursor) int {
	switch {
	case !c.more:
		return 1
	case !o.more:
		return -1
	}
	return bytes.Compare(c.Key, o.Key)
}

func (c *copier) open(m *member, r backup.KeyRange) (*cursor, error) {
	in, err := c.f.s.stream(m, r.Prefix)
	if err != nil {
		return nil, c.again(m, err)
	}
	at := &cursor{in: in, r: r}
	if err := c.advance(at); err != nil {
		in.close()
		return nil, err
	}
	return at, nil
}

func (c *copier) advance(at *cursor) error {
	e, err := at.in.next()
	at.Entry, at.more = e, err == nil && at.r.Has(e.Key)
	if err == nil || err == io.EOF {
		return nil
	}
	return c.again(at.in.m, err)
}

// again makes of what has ended a scan the error to return: all is compared anew after some time, unless m was dropped.
func (c *copier) again(m *member, err error) error {
	if !errors.Is(err, errDropped) {
		wait, final := c.f.s.judge(m, err)
		if final {
			return err
		}
		c.f.s.pause(c.ctx, m, wait)
	}
	if m == c.to && m.isGone() {
		return c.f.s.gone(m)
	}
	return errAgain
}
