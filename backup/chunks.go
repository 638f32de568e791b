package backup

import (
	"fmt"
	"io"
)

// pageBytes is how much of the state one read of the store collects, give or take one record.
const pageBytes = 1 << 20

// newChunks returns the iterator over the elements of g, whose extent is fixed here: what is committed later is not
// part of it.
func newChunks(p *Partition, g generation) func() (Chunk, error) {
	base := pager{p: p, kind: kindChunk, generation: g.number, end: g.chunks}
	deltas := pager{p: p, kind: kindDelta, generation: g.number, end: g.deltas}
	var d delta
	var failed error
	next := func() (Chunk, error) {
		if n, value, err := base.next(); err != io.EOF {
			if err != nil {
				return Chunk{}, err
			}
			data, why := decodeChunk(value, g.number, n)
			if why != "" {
				return Chunk{}, base.damaged(n, why)
			}
			return Chunk{Data: data, Whole: true, End: n+1 == g.chunks}, nil
		}
		for {
			n, value, err := deltas.next()
			if err != nil {
				return Chunk{}, err
			}
			if why := decodeDelta(value, g.number, n, &d); why != "" {
				return Chunk{}, deltas.damaged(n, why)
			}
			if len(d.data) > 0 {
				return Chunk{Data: d.data, End: d.final}, nil
			}
		}
	}
	return func() (Chunk, error) {
		if failed != nil {
			return Chunk{}, failed
		}
		c, err := next()
		if err != nil {
			failed = err
			if err != io.EOF {
				failed = fmt.Errorf("restore %s: %w", p.owner, err)
			}
		}
		return c, failed
	}
}

// pager reads the records [at, end) of one kind and generation in order. It collects a page of them with each scan, so
// that small records do not cost a scan each, and holds neither a goroutine nor a snapshot between calls, so that it
// may be abandoned at any point.
type pager struct {
	p          *Partition
	kind       byte
	generation uint64
	at, end    uint64
	buf        []byte
	ends       []int // where each record of the page ends in buf
	read       int   // how many records of the page were delivered
}

// next returns the next record and its number, or io.EOF. value is valid until the next call.
func (g *pager) next() (n uint64, value []byte, err error) {
	if g.at == g.end {
		return 0, nil, io.EOF
	}
	if g.read == len(g.ends) {
		if err := g.fill(); err != nil {
			return 0, nil, err
		}
	}
	from := 0
	if g.read > 0 {
		from = g.ends[g.read-1]
	}
	n, value = g.at, g.buf[from:g.ends[g.read]]
	g.at++
	g.read++
	return n, value, nil
}

// fill reads from record at on: at most up to the end of its group of 1<<pageBits numbers, which share a prefix.
func (g *pager) fill() error {
	key := appendKey(nil, g.p.prefix, g.kind, g.generation, g.at)
	skip := len(key) - 8
	err := repeat(func() error {
		g.buf, g.ends, g.read = g.buf[:0], g.ends[:0], 0
		return g.p.store.Scan(key[:len(key)-pageBits/8], func(key, value []byte) error {
			n, ok := lastNumber(key, skip)
			want := g.at + uint64(len(g.ends))
			switch {
			case !ok || n < g.at:
				return nil
			case n != want || n == g.end:
				return errStop
			}
			g.buf = append(g.buf, value...)
			g.ends = append(g.ends, len(g.buf))
			if len(g.buf) >= pageBytes {
				return errStop
			}
			return nil
		})
	})
	if err != nil && err != errStop {
		return err
	}
	if len(g.ends) == 0 {
		return g.damaged(g.at, "missing")
	}
	return nil
}

func (g *pager) damaged(n uint64, what string) error {
	return damaged(appendKey(nil, g.p.prefix, g.kind, g.generation, n), what)
}
