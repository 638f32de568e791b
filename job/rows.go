package job

import (
	"cmp"
	"slices"
	"sync"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/stream"
)

// rowCount counts the rows that sources of one input left out, each row once, however often failures of the source make
// it read rows again: a source opened anew counts from 0, so it goes on from what was counted up to where it resumes.
type rowCount struct {
	mu    sync.Mutex
	marks []rowMark // ascending; one for every place at which a read ended that left out rows
}

// rowMark is how many rows were left out before a position of the input.
type rowMark struct {
	at               stream.Position
	skipped, ignored int64
}

// totals returns the numbers of bad rows and of rows without an item.
func (c *rowCount) totals() (skipped, ignored int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.marks) == 0 {
		return 0, 0
	}
	last := c.marks[len(c.marks)-1]
	return last.skipped, last.ignored
}

// before returns what was left out before a position at which a read has ended.
func (c *rowCount) before(to stream.Position) rowMark {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, found := slices.BinarySearchFunc(c.marks, to, compareMark)
	switch {
	case found:
		return c.marks[i]
	case i > 0:
		return c.marks[i-1]
	}
	return rowMark{}
}

// add takes a mark, which may lie before those that an earlier source has made.
func (c *rowCount) add(m rowMark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, found := slices.BinarySearchFunc(c.marks, m.at, compareMark)
	if found {
		c.marks[i] = m
		return
	}
	c.marks = slices.Insert(c.marks, i, m)
}

// compareMark orders by position; rows may be left out between two that have the same number of items before them.
func compareMark(m rowMark, p stream.Position) int {
	return cmp.Or(cmp.Compare(m.at.Item, p.Item), cmp.Compare(m.at.Line, p.Line), cmp.Compare(m.at.Offset, p.Offset))
}

// count wraps an input so that its sources are counted. What they can do stays visible.
func count[T any](c *rowCount, open stream.NewSource[T]) stream.NewSource[T] {
	return func(part, parts int) (stream.Source[T], error) {
		source, err := open(part, parts)
		if err != nil {
			return nil, err
		}
		skipper, ok := source.(connector.Skipper)
		if !ok {
			return source, nil
		}
		s := &countedSource[T]{Source: source, rows: c, skipper: skipper}
		if replay, ok := source.(stream.Replayable); ok {
			return &replayedSource[T]{countedSource: s, Replayable: replay}, nil
		}
		return s, nil
	}
}

// countedSource is a source whose left-out rows are counted.
type countedSource[T any] struct {
	stream.Source[T]
	rows    *rowCount
	skipper connector.Skipper
	base    rowMark // counted before this source was opened
	last    rowMark // what this source has reported so far
	items   uint64
}

// Read implements stream.Source.
func (s *countedSource[T]) Read(dst []T) (int, error) {
	n, err := s.Source.Read(dst)
	s.items += uint64(n)
	now := rowMark{at: stream.Position{Item: s.items}, skipped: s.skipper.Skipped(), ignored: s.skipper.Ignored()}
	if now.skipped != s.last.skipped || now.ignored != s.last.ignored {
		s.last = now
		if replay, ok := s.Source.(stream.Replayable); ok {
			now.at = replay.Position()
		}
		now.skipped += s.base.skipped
		now.ignored += s.base.ignored
		s.rows.add(now)
	}
	return n, err
}

// Progress implements stream.Progresser; the size of an input that has none is not known.
func (s *countedSource[T]) Progress() (done, total int64) {
	if p, ok := s.Source.(stream.Progresser); ok {
		return p.Progress()
	}
	return 0, 0
}

// replayedSource is a countedSource that can be read again.
type replayedSource[T any] struct {
	*countedSource[T]
	stream.Replayable
}

// Seek implements stream.Replayable.
func (s *replayedSource[T]) Seek(p stream.Position) error {
	if err := s.Replayable.Seek(p); err != nil {
		return err
	}
	s.items = p.Item
	s.last = rowMark{skipped: s.skipper.Skipped(), ignored: s.skipper.Ignored()}
	s.base = s.rows.before(p)
	s.base.skipped -= s.last.skipped // what this source counted before it went back is in the marks
	s.base.ignored -= s.last.ignored
	return nil
}
