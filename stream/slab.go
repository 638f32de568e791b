package stream

import (
	"reflect"
	"runtime"
	"sync/atomic"

	"github.com/afstream/afstream/ringbuf"
)

// SlabItems is how many items a full slab holds. It is also the block that a shuffle deals to one partition before it
// turns to the next, and therefore part of the numbering that replay relies on: it must not change between runs that
// share a backup.
const SlabItems = 256

// Slab is what the runtime sees of a batch of items of one type, from one sender to one partition.
//
// The emitter owns a slab until it sends it; from then on its items are immutable and it is shared by those who
// Retain it. When the last of them releases it, it goes back to the free list of the emitter that made it. Whoever
// dies without releasing a slab leaves it to the garbage collector.
type Slab interface {
	// Len returns how many items there are.
	Len() int
	// Retain adds a holder. Only a holder may call it.
	Retain()
	// Release ends the hold of one holder, who must not touch the slab any more. Any goroutine may call it.
	Release()
	// AppendItems appends items [from, to) in their wire form, which [Edge.Decode] reads.
	AppendItems(dst []byte, from, to int) ([]byte, error)
}

type batch[T any] struct {
	items []T
	limit int // the emitter sends it when it holds so many
	refs  atomic.Int32
	home  *freeList[T] // nil if it is not to be recycled
	codec *codec[T]
}

// Len returns how many items there are.
func (b *batch[T]) Len() int { return len(b.items) }

// Retain adds a holder.
func (b *batch[T]) Retain() { b.refs.Add(1) }

// Release takes a holder away. One Release too many would have two owners write to one slab, so it panics where it
// can be seen.
func (b *batch[T]) Release() {
	switch left := b.refs.Add(-1); {
	case left > 0:
	case left < 0:
		panic("stream: a slab was released more often than retained")
	case b.home != nil:
		b.home.put(b)
	}
}

// AppendItems implements Slab.
func (b *batch[T]) AppendItems(dst []byte, from, to int) ([]byte, error) {
	return b.codec.append(dst, b.items[from:to])
}

// freeList recycles the slabs of one emitter: many consumers give back, the emitter takes. A full list drops the slab.
//
// A slab that waits for reuse keeps what its old items point to alive until they are overwritten. That is bounded by
// freeSlabs, and clearing them would cost more per item than the rest of the round trip. A [Reuser] fills that memory again.
type freeList[T any] struct {
	ring  *ringbuf.MPSC[Slab] // of *batch[T]; as Slab, so that not each T has a ring of its own compiled
	codec *codec[T]
	taken int // slabs, so far
	fresh int // slabs that are still to be made, some although there are others to be used again
}

// freeSlabs bounds the slabs that wait for reuse; with rings of dozens of slabs more are never in use at once.
const freeSlabs = 256

// apart is how many bytes of items an emitter comes to fill before it fills any of that memory again, where there are several cores:
// about what one has as a cache of its own. What a consumer has just read is still in its core's cache, and whoever writes there has to
// wait until it is not: the join of docs/benchmarks.md, which emits nine pairs a row, took 660 ns a row instead of 840 while a pair had 72
// bytes. On a single core the fewer slabs go round the better.
const apart = 1 << 20

// freshEvery is how many slabs are taken for each that is made for that reason: an emitter that does not send much, or does not
// live long, makes few.
const freshEvery = 32

func newFreeList[T any]() *freeList[T] {
	f := &freeList[T]{ring: ringbuf.NewMPSC[Slab](freeSlabs), codec: newCodec[T]()}
	if runtime.GOMAXPROCS(0) > 1 {
		size := max(1, int(reflect.TypeFor[T]().Size()))
		f.fresh = min(freeSlabs, apart/(size*SlabItems))
	}
	return f
}

// put gives b back; any goroutine may call it.
func (f *freeList[T]) put(b *batch[T]) { f.ring.TryPush(b) }

// take returns an empty slab with one holder, to be sent at limit items; only the emitter may call it.
func (f *freeList[T]) take(limit int) *batch[T] {
	var b *batch[T]
	if f.taken++; f.fresh <= 0 || f.taken%freshEvery != 0 {
		if s, ok := f.ring.TryPop(); ok {
			b = s.(*batch[T])
		}
	}
	if b == nil {
		f.fresh--
		b = &batch[T]{items: make([]T, 0, SlabItems), home: f, codec: f.codec}
	}
	b.items, b.limit = b.items[:0], limit
	b.refs.Store(1)
	return b
}
