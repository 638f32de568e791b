package stream

import (
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
	Len() int
	Retain()
	Release()
	// AppendItems appends items [from, to) in their wire form.
	AppendItems(dst []byte, from, to int) ([]byte, error)
}

type batch[T any] struct {
	items []T
	refs  atomic.Int32
	home  *freeList[T]
}

func (b *batch[T]) Len() int { return len(b.items) }

func (b *batch[T]) Retain() { b.refs.Add(1) }

func (b *batch[T]) Release() {
	if b.refs.Add(-1) == 0 && b.home != nil {
		b.home.put(b)
	}
}

func (b *batch[T]) AppendItems(dst []byte, from, to int) ([]byte, error) {
	return appendItems(dst, b.items[from:to])
}

// freeList recycles the slabs of one emitter: many consumers give back, the emitter takes. A full list drops the slab.
type freeList[T any] struct {
	ring *ringbuf.MPSC[*batch[T]]
}

// freeSlabs bounds the slabs that wait for reuse; with rings of dozens of slabs more are never in use at once.
const freeSlabs = 256

func newFreeList[T any]() *freeList[T] {
	return &freeList[T]{ring: ringbuf.NewMPSC[*batch[T]](freeSlabs)}
}

func (f *freeList[T]) put(b *batch[T]) { f.ring.TryPush(b) }

func (f *freeList[T]) take() *batch[T] {
	b, ok := f.ring.TryPop()
	if !ok {
		b = &batch[T]{items: make([]T, 0, SlabItems), home: f}
	}
	b.items = b.items[:0]
	b.refs.Store(1)
	return b
}
