package connector

import (
	"errors"
	"reflect"
	"slices"
	"sync"

	"github.com/afstream/afstream/stream"
)

// errSuperseded is returned to a sink that writes although its successor is at work.
var errSuperseded = errors.New("connector: sink was replaced by a later one of its partition")

// Collector gathers what the partitions of a sink receive. The zero value is ready. All
// methods may be called from any goroutine, also while the job runs.
type Collector[T any] struct {
	mu    sync.Mutex
	parts map[int]*collected[T]
	vault Vault // where sinks keep their items instead, nil if nowhere else
}

// collected is what one partition received, in chunks: one long slice would be copied, and looked through by the garbage
// collector, again and again as it grows. A chunk is small, so that nobody waits long for the memory of the next: the join of
// docs/benchmarks.md has credit for some 20 us, and a chunk of 4,096 pairs took as long.
type collected[T any] struct {
	chunks [][]T // all full but the last
	n      int   // items
	final  int   // how many of them no successor will be given again
	sink   *collectSink[T]
}

// chunkBytes is how large a chunk is at most, if it has more than one item: what the allocator has ready.
const chunkBytes = 32 << 10

// chunkItems returns how many items a chunk holds.
func chunkItems[T any]() int { return max(1, chunkBytes/max(1, int(reflect.TypeFor[T]().Size()))) }

// add appends items.
func (p *collected[T]) add(items []T) {
	p.n += len(items)
	full := chunkItems[T]()
	for len(items) > 0 {
		last := len(p.chunks) - 1
		if last < 0 || len(p.chunks[last]) == full {
			var chunk []T
			if last >= 0 { // the first grows as it is filled, since few results are as large
				chunk = make([]T, 0, full)
			}
			p.chunks = append(p.chunks, chunk)
			last++
		}
		n := min(len(items), full-len(p.chunks[last]))
		p.chunks[last] = append(p.chunks[last], items[:n]...)
		items = items[n:]
	}
}

// cut drops all but the first n items.
func (p *collected[T]) cut(n int) {
	p.n = n
	full := chunkItems[T]()
	p.chunks = p.chunks[:(n+full-1)/full]
	if last := len(p.chunks) - 1; last >= 0 {
		p.chunks[last] = p.chunks[last][:n-last*full]
	}
}

// Items returns a copy of what has arrived so far, one partition after the other, each
// in the order of arrival.
func (c *Collector[T]) Items() []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, parts := 0, make([]int, 0, len(c.parts))
	for part, p := range c.parts {
		n += p.n
		parts = append(parts, part)
	}
	sortParts(parts)
	all := make([]T, 0, n)
	for _, part := range parts {
		for _, chunk := range c.parts[part].chunks {
			all = append(all, chunk...)
		}
	}
	return all
}

// sortParts is slices.Sort, but compiled here alone: where it is inlined it is compiled again, in each package with a Collector.
//
//go:noinline
func sortParts(parts []int) { slices.Sort(parts) }

// Len returns how many items have arrived so far.
func (c *Collector[T]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, p := range c.parts {
		n += p.n
	}
	return n
}

// Reset forgets all items, so that a Collector can serve another run. Sinks of the run
// before must not write any more, and get an error if they do.
func (c *Collector[T]) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts = nil
}

// Collect returns a sink that adds every item to c, for tests and for results that are
// used in the same process. It keeps all items in memory. Items are copied by
// assignment: what they point to must stay valid.
//
// It holds to the contract of stream.Flusher: when a partition's sink is opened again
// after a failure, what came since the last Flush is dropped, as it is given again, and
// the sink before it can write no more.
func Collect[T any](c *Collector[T]) stream.NewSink[T] {
	return func(part, parts int) (stream.Sink[T], error) {
		if err := checkPart(part, parts); err != nil {
			return nil, err
		}
		s := &collectSink[T]{c: c, part: part}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.vault != nil {
			return newVaultSink[T](c.vault), nil
		}
		if c.parts == nil {
			c.parts = map[int]*collected[T]{}
		}
		p := c.parts[part]
		if p == nil {
			p = &collected[T]{}
			c.parts[part] = p
		}
		p.cut(p.final)
		p.sink = s
		return s, nil
	}
}

type collectSink[T any] struct {
	c    *Collector[T]
	part int
}

// own returns the partition if it still is the sink's. c.mu must be held.
func (s *collectSink[T]) own() (*collected[T], error) {
	p := s.c.parts[s.part]
	if p == nil || p.sink != s {
		return nil, errSuperseded
	}
	return p, nil
}

func (s *collectSink[T]) Write(items []T) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	p, err := s.own()
	if err == nil {
		p.add(items)
	}
	return err
}

// Flush implements stream.Flusher.
func (s *collectSink[T]) Flush() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	p, err := s.own()
	if err == nil {
		p.final = p.n
	}
	return err
}

func (s *collectSink[T]) Close() error { return s.Flush() }

// Discard returns a sink that drops every item, for measuring what comes before it.
func Discard[T any]() stream.NewSink[T] {
	return func(int, int) (stream.Sink[T], error) { return discardSink[T]{}, nil }
}

type discardSink[T any] struct{}

func (discardSink[T]) Write([]T) error { return nil }
func (discardSink[T]) Flush() error    { return nil }
func (discardSink[T]) Close() error    { return nil }
