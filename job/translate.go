package job

import (
	"cmp"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/stream"
)

// translation makes items of type Out of the lines or rows that a source yields.
type translation[In, Out any] struct {
	// name is what errors call the input, and unit what they call a row, "line" if it is empty.
	name, unit string
	// convert returns the item of a row, or false for a row that has none in it. It may keep what it is given.
	convert func(row In) (item Out, ok bool, err error)
	// over, if not nil, is given an item that nobody uses any more, whose memory the next convert may use; see stream.Reuser.
	over func(old Out)
	// skip leaves out rows that convert has an error for, instead of failing.
	skip bool
	// header says that the first row has no item.
	header bool
	// most is how many items there are at most, 0 for all.
	most uint64
}

// open translates the sources of one partition that inner opens. Whatever they can do, the translated ones can. The
// position of an inner source must be told by its Line, which counts the rows that it has yielded, and its Offset.
//
// Translating within the source, and not in an operator of its own, keeps the items replayable: an operator that emits
// as it processes has them at risk.
func (t translation[In, Out]) open(inner stream.NewSource[In]) stream.NewSource[Out] {
	return func(part, parts int) (stream.Source[Out], error) {
		source, err := inner(part, parts)
		if err != nil {
			return nil, err
		}
		s := &translated[In, Out]{inner: source, by: t}
		if replay, ok := source.(stream.Replayable); ok {
			return &replayedTranslation[In, Out]{translated: s, inner: replay}, nil
		}
		return s, nil
	}
}

// translated is a source of translated items. It implements connector.Skipper, stream.Progresser and stream.Reuser.
type translated[In, Out any] struct {
	by          translation[In, Out] // not embedded: open would be compiled as a method of each source again
	inner       stream.Source[In]
	rows        []In
	read, items uint64 // rows and items so far
	skipped     atomic.Int64
}

// Read implements stream.Source. A read of rows of which none has an item goes on with the next ones.
func (s *translated[In, Out]) Read(dst []Out) (int, error) { return s.load(dst, nil) }

// ReadOver implements stream.Reuser.
func (s *translated[In, Out]) ReadOver(dst []Out) (int, error) { return s.load(dst, s.by.over) }

func (s *translated[In, Out]) load(dst []Out, over func(old Out)) (int, error) {
	n := 0
	for n == 0 {
		want := len(dst)
		if s.by.most > 0 {
			want = int(min(uint64(want), s.by.most-s.items))
		}
		if want == 0 {
			return 0, io.EOF
		}
		if want > len(s.rows) {
			s.rows = make([]In, want)
		}
		got, err := s.inner.Read(s.rows[:want])
		for _, row := range s.rows[:got] {
			if s.read++; s.read == 1 && s.by.header {
				continue
			}
			if over != nil {
				over(dst[n])
			}
			item, ok, bad := s.by.convert(row)
			switch {
			case bad != nil && !s.by.skip:
				return n, fmt.Errorf("read %s %s %d: %w", s.by.name, cmp.Or(s.by.unit, "line"), s.read, bad)
			case bad != nil:
				s.skipped.Add(1)
			case ok:
				dst[n] = item
				n++
				s.items++
			}
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Close implements stream.Source.
func (s *translated[In, Out]) Close() error { return s.inner.Close() }

// Skipped implements connector.Skipper: those of the inner source, and those that could not be translated.
func (s *translated[In, Out]) Skipped() int64 {
	n := s.skipped.Load()
	if inner, ok := s.inner.(connector.Skipper); ok {
		n += inner.Skipped()
	}
	return n
}

// Ignored implements connector.Skipper. Headers and comments are nothing to report.
func (s *translated[In, Out]) Ignored() int64 {
	if inner, ok := s.inner.(connector.Skipper); ok {
		return inner.Ignored()
	}
	return 0
}

// Progress implements stream.Progresser.
func (s *translated[In, Out]) Progress() (done, total int64) {
	if s.by.most > 0 {
		return int64(s.items), int64(s.by.most)
	}
	if p, ok := s.inner.(stream.Progresser); ok {
		return p.Progress()
	}
	return 0, 0
}

// replayedTranslation is one whose input can be read again.
type replayedTranslation[In, Out any] struct {
	*translated[In, Out]
	inner stream.Replayable
}

// Position implements stream.Replayable.
func (s *replayedTranslation[In, Out]) Position() stream.Position {
	return stream.Position{Item: s.items, Offset: s.inner.Position().Offset, Line: s.read}
}

// Seek implements stream.Replayable.
func (s *replayedTranslation[In, Out]) Seek(p stream.Position) error {
	if err := s.inner.Seek(stream.Position{Item: p.Line, Offset: p.Offset, Line: p.Line}); err != nil {
		return err
	}
	s.items, s.read = p.Item, p.Line
	return nil
}
