package connector

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/afstream/afstream/stream"
)

// ErrClosed is returned by Read and Seek of a source after Close.
var ErrClosed = errors.New("connector: source is closed")

// ErrBadPosition is returned by Seek for a position that the input does not have.
var ErrBadPosition = errors.New("connector: no such position in the input")

// Slice returns a source of the items of a slice, for tests and examples. Partition p
// of n yields items p, p+n, p+2n and so on. The slice is not copied and must not change.
// It is replayable.
func Slice[T any](items []T) stream.NewSource[T] {
	return func(part, parts int) (stream.Source[T], error) {
		if err := checkPart(part, parts); err != nil {
			return nil, err
		}
		return &sliceSource[T]{items: items, share: newShare(part, parts, uint64(len(items)))}, nil
	}
}

type sliceSource[T any] struct {
	share
	items []T
}

func (s *sliceSource[T]) Read(dst []T) (int, error) {
	first, n, err := s.take(len(dst))
	if err != nil {
		return 0, err
	}
	for i := range n {
		dst[i] = s.items[first+uint64(i)*s.step]
	}
	return n, nil
}

// share deals the indexes 0..total-1 to partitions: part, part+parts, ... It is what
// Slice and Zipf have in common: position, progress and end are arithmetic.
type share struct {
	part, step uint64
	items      uint64        // how many fall to this partition
	next       atomic.Uint64 // how many of them were taken; atomic for Progress only
	closed     atomic.Bool
}

func newShare(part, parts int, total uint64) share {
	p, n := uint64(part), uint64(parts)
	items := total / n
	if p < total%n {
		items++
	}
	return share{part: p, step: n, items: items}
}

// take claims up to n items and returns the index of the first of them.
func (s *share) take(n int) (first uint64, taken int, err error) {
	if s.closed.Load() {
		return 0, 0, ErrClosed
	}
	next := s.next.Load()
	if next == s.items {
		return 0, 0, io.EOF
	}
	if left := s.items - next; uint64(n) > left {
		n = int(left)
	}
	s.next.Store(next + uint64(n))
	return s.part + next*s.step, n, nil
}

// Close makes further Reads return ErrClosed.
func (s *share) Close() error {
	s.closed.Store(true)
	return nil
}

// Position implements stream.Replayable.
func (s *share) Position() stream.Position { return stream.Position{Item: s.next.Load()} }

// Seek implements stream.Replayable in constant time.
func (s *share) Seek(p stream.Position) error {
	if s.closed.Load() {
		return ErrClosed
	}
	if p.Item > s.items {
		return fmt.Errorf("%w: item %d of %d", ErrBadPosition, p.Item, s.items)
	}
	s.next.Store(p.Item)
	return nil
}

// Progress implements stream.Progresser, in items; the total of an endless source is
// given as unknown.
func (s *share) Progress() (done, total int64) {
	const endless = 1 << 62
	done = int64(s.next.Load())
	if s.items >= endless {
		return done, 0
	}
	return done, int64(s.items)
}

// checkPart checks what the runtime asks a factory for.
func checkPart(part, parts int) error {
	if parts < 1 || part < 0 || part >= parts {
		return fmt.Errorf("connector: partition %d of %d", part, parts)
	}
	return nil
}
