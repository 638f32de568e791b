package copies

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/afstream/afstream/backup"
)

// A mark is kept with its place in the sequence of its owner's marks in front, epoch and number: of the marks that members
// have the latest is known by it.
const markHead = 16

func appendMark(dst []byte, at point, record []byte) []byte {
	return append(appendPoint(dst, at), record...)
}

// cutMark is the inverse. The zero point is that of no mark.
func cutMark(b []byte) (point, []byte) {
	if len(b) < markHead {
		return point{}, nil
	}
	return point{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}, b[markHead:]
}

// Mark implements backup.Marker. It writes to all members before it returns. It reports false as long as not all of them keep
// marks and answer, and for owners that were not fenced by this Store.
func (s *Store) Mark(owner string, epoch uint64, record []byte) (bool, error) {
	if err := backup.CheckOwner(owner); err != nil {
		return false, err
	}
	if err := s.begin(); err != nil {
		return false, err
	}
	defer s.end()
	s.mu.Lock()
	l := s.lanes[owner]
	s.mu.Unlock()
	if l == nil || len(record) > backup.MaxMarkBytes-markHead {
		return false, nil
	}
	l.marking.Lock()
	defer l.marking.Unlock()
	s.mu.Lock()
	view, usable := s.view, l.marks && l.counted && epoch == l.epoch
	fenced := epoch < l.refused || l.counted && epoch < l.epoch
	s.mu.Unlock()
	if fenced {
		return false, fmt.Errorf("epoch %d of %q: %w", epoch, owner, backup.ErrFenced)
	}
	if !usable {
		return false, nil
	}
	l.mark.number++
	l.buf = appendMark(l.buf[:0], l.mark, record)
	for _, m := range view {
		ok, err := m.store.(backup.Marker).Mark(owner, epoch, l.buf)
		switch {
		case isFenced(err):
			s.refuse(l, epoch, err)
			return false, err
		case err != nil || !ok:
			return false, nil // the batch that is written instead will find out
		}
	}
	return true, nil
}

// ReadMark implements backup.Marker: it returns the latest mark that any member has.
func (s *Store) ReadMark(owner string) ([]byte, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.end()
	if !s.canMark(s.members()) {
		return nil, nil
	}
	f := leveller{s: s, owner: owner}
	marks, err := f.readMarks()
	var latest point
	var record []byte
	for _, x := range marks {
		if at, r := cutMark(x.mark); latest.less(at) {
			latest, record = at, r
		}
	}
	return record, err
}

// DropMarks implements backup.Marker.
func (s *Store) DropMarks(prefix string) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	view := s.members()
	if !s.canMark(view) {
		return nil
	}
	return s.each(view, func(ctx context.Context, m *member) error {
		return s.ask(ctx, m, func(store backup.Store) error { return store.(backup.Marker).DropMarks(prefix) })
	})
}

// canMark says whether all members keep marks.
func (s *Store) canMark(view []*member) bool {
	for _, m := range view {
		if !m.isReady() {
			return false
		}
		if _, ok := m.store.(backup.Marker); !ok {
			return false
		}
	}
	return true
}

// marked is the mark that a member has.
type marked struct {
	m    *member
	mark []byte
}

// readMarks returns the marks of all members of the view.
func (f *leveller) readMarks() (list []marked, err error) {
	view := f.s.members()
	list = make([]marked, len(view))
	err = f.s.each(view, func(ctx context.Context, m *member) error {
		mark, err := query(ctx, f.s, m, func(store backup.Store) ([]byte, error) { return store.(backup.Marker).ReadMark(f.owner) })
		for i := range view {
			if view[i] == m && err == nil {
				list[i] = marked{m, mark}
			}
		}
		return err
	})
	return list, err
}

// levelMarks gives all members the latest mark. If one has no room for it, there are no more marks.
func (f *leveller) levelMarks() error {
	f.marks, f.mark = false, point{}
	if !f.s.canMark(f.s.members()) {
		return nil
	}
	list, err := f.readMarks()
	if err != nil {
		return err
	}
	var latest []byte
	for _, x := range list {
		if at, _ := cutMark(x.mark); f.mark.less(at) {
			f.mark, latest = at, x.mark
		}
	}
	f.marks = true
	if latest == nil {
		return nil
	}
	return f.s.each(f.s.members(), func(ctx context.Context, m *member) error {
		for _, x := range list {
			if at, _ := cutMark(x.mark); x.m == m && at == f.mark {
				return nil
			}
		}
		ok, err := query(ctx, f.s, m, func(store backup.Store) (bool, error) {
			return store.(backup.Marker).Mark(f.owner, f.epoch, latest)
		})
		if err == nil && !ok {
			f.s.mu.Lock()
			f.marks = false
			f.s.mu.Unlock()
		}
		return err
	})
}
