package connector

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/afstream/afstream/stream"
)

// decoder turns a content into items. It is used by one goroutine.
type decoder[T any] interface {
	// read is stream.Source.Read: n items, then an error. It returns early rather
	// than wait for more input once it has an item.
	read(dst []T) (int, error)
	// at returns where the next row begins and how many were read; 0 for an offset
	// that cannot be used to get there.
	at() (offset int64, line uint64)
}

// build starts a decoder at from, or as far before it as its format needs; skip is how
// many items are then to be passed over.
type build[T any] func(c *content, r *rows, from stream.Position) (d decoder[T], skip uint64, err error)

// rows is the policy for bad rows and their count.
type rows struct {
	input, unit string // for errors: read INPUT UNIT 3
	skip        bool
	muted       bool // while Seek passes over rows that were counted before

	skipped, ignored atomic.Int64
}

// bad says what to do about bad row n: nothing but count it, or fail with the error.
func (r *rows) bad(n uint64, why error) error {
	if r.skip {
		if !r.muted {
			r.skipped.Add(1)
		}
		return nil
	}
	return r.fail(n, why)
}

// broken says how an input ends whose reader returned err other than io.EOF at row n:
// data that is cut off or damaged is one bad row, an error of the device fails.
func (r *rows) broken(n uint64, err error) error {
	if !errors.Is(err, errCut) {
		return r.fail(n, err)
	}
	if err := r.bad(n, err); err != nil {
		return err
	}
	return io.EOF
}

// fail is the error for row n, whatever the policy.
func (r *rows) fail(n uint64, why error) error {
	return fmt.Errorf("read %s %s %d: %w", r.input, r.unit, n, why)
}

// ignore counts rows that have no item in them.
func (r *rows) ignore() {
	if !r.muted {
		r.ignored.Add(1)
	}
}

// source reads items from an input through a decoder. Read, Seek and Position belong to
// one goroutine; Close, Progress, Skipped and Ignored may be called from any.
type source[T any] struct {
	in    input
	build build[T]
	rows  rows
	meter meter

	dec   decoder[T] // nil until the first Read of an input that does not replay
	items uint64
	err   error // what ended the source; all later Reads return it

	mu     sync.Mutex // guards what follows, between Close and the reading goroutine
	closed bool
	raw    io.Closer // the opening of the input that is being read
}

// newSource makes the factory for the only partition of an input.
func newSource[T any](in input, skip bool, b build[T]) stream.NewSource[T] {
	return func(part, parts int) (stream.Source[T], error) {
		if err := checkPart(part, parts); err != nil {
			return nil, err
		}
		if parts != 1 {
			return nil, fmt.Errorf("open %s: an input is read by one partition, not %d; use one source and a partitioner after it", in.name, parts)
		}
		s := &source[T]{in: in, build: b, rows: rows{input: in.name, unit: "line", skip: skip}}
		if !in.replays {
			return s, nil
		}
		if err := s.start(stream.Position{}); err != nil {
			s.Close()
			return nil, err
		}
		return replaySource[T]{s}, nil
	}
}

// start opens the input and moves to a position.
func (s *source[T]) start(p stream.Position) error {
	raw, err := s.in.open(&s.meter)
	if err != nil {
		return err
	}
	// From here on Close can interrupt it: looking at the first bytes may block.
	if err := s.install(raw); err != nil {
		return err
	}
	s.meter.done.Store(0)
	c, err := newContent(raw, &s.meter)
	if err != nil && !(errors.Is(err, errCut) && s.rows.skip) {
		return fmt.Errorf("read %s: %w", s.in.name, err)
	}
	if err != nil { // nothing can be read from it, under a policy to carry on
		s.rows.bad(0, err)
		s.dec = emptyDecoder[T]{}
		return nil
	}
	var skip uint64
	if s.dec, skip, err = s.build(c, &s.rows, p); err != nil {
		return err
	}
	return s.passOver(skip)
}

// install makes raw the opening that Close closes, in place of the one before.
func (s *source[T]) install(raw io.Closer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.raw != nil {
		s.raw.Close() // it was only read from: there is nothing to lose
		s.raw = nil
	}
	if s.closed {
		raw.Close()
		return ErrClosed
	}
	s.raw = raw
	return nil
}

// passOver reads items that were delivered before.
func (s *source[T]) passOver(n uint64) error {
	s.rows.muted = true
	defer func() { s.rows.muted = false }()
	var scratch []T
	for n > 0 {
		if scratch == nil {
			scratch = make([]T, min(n, 1024))
		}
		got, err := s.dec.read(scratch[:min(n, uint64(len(scratch)))])
		n -= uint64(got)
		if n > 0 && err == io.EOF {
			return fmt.Errorf("%w: %s ends %d items earlier", ErrBadPosition, s.in.name, n)
		}
		if n > 0 && err != nil {
			return err
		}
	}
	return nil
}

// Read implements stream.Source. Its first call may wait for the beginning of an input
// that does not replay.
func (s *source[T]) Read(dst []T) (int, error) {
	if s.isClosed() {
		return 0, ErrClosed
	}
	if s.err != nil || len(dst) == 0 {
		return 0, s.err
	}
	n := 0
	if s.dec == nil {
		s.err = s.start(stream.Position{})
	}
	if s.err == nil {
		n, s.err = s.dec.read(dst)
		s.items += uint64(n)
	}
	if s.err != nil && s.err != io.EOF && s.isClosed() {
		s.err = ErrClosed // whatever the interrupted read called it
	}
	return n, s.err
}

func (s *source[T]) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Close implements stream.Source.
func (s *source[T]) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.raw == nil {
		return nil
	}
	if err := s.raw.Close(); err != nil {
		return fmt.Errorf("close %s: %w", s.in.name, err)
	}
	return nil
}

// Progress implements stream.Progresser.
func (s *source[T]) Progress() (done, total int64) {
	return s.meter.done.Load(), s.meter.total.Load()
}

// Skipped implements Skipper.
func (s *source[T]) Skipped() int64 { return s.rows.skipped.Load() }

// Ignored implements Skipper.
func (s *source[T]) Ignored() int64 { return s.rows.ignored.Load() }

// replaySource adds what only inputs with a second beginning can do.
type replaySource[T any] struct{ *source[T] }

// Position implements stream.Replayable.
func (s replaySource[T]) Position() stream.Position {
	p := stream.Position{Item: s.items}
	p.Offset, p.Line = s.dec.at()
	return p
}

// Seek implements stream.Replayable, by opening the input anew. A failed Seek leaves
// the source failed.
func (s replaySource[T]) Seek(p stream.Position) error {
	if s.isClosed() {
		return ErrClosed
	}
	if err := s.start(p); err != nil {
		s.err = fmt.Errorf("seek %s: %w", s.in.name, err)
		return s.err
	}
	s.items, s.err = p.Item, nil
	return nil
}

// emptyDecoder has no items.
type emptyDecoder[T any] struct{}

func (emptyDecoder[T]) read([]T) (int, error) { return 0, io.EOF }
func (emptyDecoder[T]) at() (int64, uint64)   { return 0, 0 }
