package backup

import (
	"errors"
	"fmt"
	"io"
	"iter"
)

// errAbandoned ends a scan whose chunks nobody wants any more.
var errAbandoned = errors.New("abandoned")

// chunks reads the elements of a generation whose extent is fixed: what is committed later is not part of it. It takes one scan
// of the base and one of the deltas, which run in a coroutine between calls of next: reading in pages would mean to scan, for
// each, all that comes before it under the same prefix.
type chunks struct {
	p    *Partition
	g    generation
	next func() (Chunk, error, bool) // nil before the first call
	stop func()
	err  error // once there is one, or io.EOF
}

func (c *chunks) read() (Chunk, error) {
	if c.next == nil && c.err == nil {
		c.next, c.stop = iter.Pull2(c.all)
	}
	if c.err == nil {
		chunk, err, ok := c.next()
		switch {
		case !ok:
			c.err = io.EOF
		case err != nil:
			c.err = fmt.Errorf("restore %s: %w", c.p.owner, err)
		default:
			return chunk, nil
		}
		c.end()
	}
	return Chunk{}, c.err
}

// end lets go of the store, and may be called at any time.
func (c *chunks) end() {
	if c.err == nil {
		c.err = fmt.Errorf("restore %s: reading was stopped", c.p.owner)
	}
	if c.stop != nil {
		c.stop()
		c.next, c.stop = nil, nil
	}
}

// all yields the chunks, and at last an error if there is one.
func (c *chunks) all(yield func(Chunk, error) bool) {
	err := c.base(yield)
	if err == nil {
		err = c.deltas(yield)
	}
	if err != nil && err != errAbandoned {
		yield(Chunk{}, err)
	}
}

func (c *chunks) base(yield func(Chunk, error) bool) error {
	s := sequence{p: c.p, kind: kindChunk, generation: c.g.number, end: c.g.chunks}
	return s.each(func(n uint64, value []byte) error {
		data, why := decodeChunk(value, c.g.number, n)
		if why != "" {
			return s.damaged(n, why)
		}
		if !yield(Chunk{Data: data, Whole: true, End: n+1 == c.g.chunks}, nil) {
			return errAbandoned
		}
		return nil
	})
}

func (c *chunks) deltas(yield func(Chunk, error) bool) error {
	var d delta
	s := sequence{p: c.p, kind: kindDelta, generation: c.g.number, end: c.g.deltas}
	return s.each(func(n uint64, value []byte) error {
		if why := decodeDelta(value, c.g.number, n, &d); why != "" {
			return s.damaged(n, why)
		}
		if len(d.data) > 0 && !yield(Chunk{Data: d.data, End: d.final}, nil) {
			return errAbandoned
		}
		return nil
	})
}

// sequence reads the records [at, end) of one kind and generation in order.
type sequence struct {
	p          *Partition
	kind       byte
	generation uint64
	at, end    uint64
	value      []byte // copy of a record: that of a file which is cut short meanwhile can be read by its scan alone
}

// each calls fn for each record. If the store is started again meanwhile it goes on where it was.
func (s *sequence) each(fn func(n uint64, value []byte) error) error {
	if s.at == s.end {
		return nil
	}
	prefix := appendKey(nil, s.p.prefix, s.kind, s.generation)
	err := repeat(func() error {
		return s.p.store.Scan(prefix, func(key, value []byte) error {
			n, ok := lastNumber(key, len(prefix))
			switch {
			case !ok || n < s.at:
				return nil
			case n != s.at || n == s.end:
				return errStop
			}
			s.value = append(s.value[:0], value...)
			s.at++
			return fn(n, s.value)
		})
	})
	if err != nil && err != errStop {
		return err
	}
	if s.at < s.end {
		return s.damaged(s.at, "missing")
	}
	return nil
}

func (s *sequence) damaged(n uint64, what string) error {
	return damaged(appendKey(nil, s.p.prefix, s.kind, s.generation, n), what)
}
