package stream

import (
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// holder is an Exit that keeps what it is sent, to be released by the test.
type holder struct{ slabs []*batch[uint64] }

func (h *holder) Send(_, _ int, s Slab) { h.slabs = append(h.slabs, s.(*batch[uint64])) }
func (*holder) Hurry()                  {}
func (*holder) Credit(int) int64        { return Unlimited }
func (*holder) AwaitCredit(int64) int64 { return Unlimited }

// However many hold a slab and in whatever order they let go, its items do not change before the last has, and slabs
// in use at the same time are different ones.
func TestSlabIsNotReusedWhileHeld(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := &holder{}
		e := newEmitter[uint64](sender[uint64](t, output{Forward(), 1}), 0, h)
		type held struct {
			slab  *batch[uint64]
			first uint64
			holds int
		}
		var live []*held
		item := uint64(0)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			if len(live) == 0 || rapid.Bool().Draw(rt, "send") {
				first := item
				for range rapid.IntRange(1, 4).Draw(rt, "items") {
					e.Emit(item)
					item++
				}
				e.flush()
				s := h.slabs[len(h.slabs)-1]
				extra := rapid.IntRange(0, 2).Draw(rt, "retains")
				for range extra {
					s.Retain()
				}
				for _, other := range live {
					require.NotSame(rt, other.slab, s)
				}
				live = append(live, &held{s, first, 1 + extra})
			} else {
				i := rapid.IntRange(0, len(live)-1).Draw(rt, "which")
				live[i].slab.Release()
				if live[i].holds--; live[i].holds == 0 {
					live = append(live[:i], live[i+1:]...)
				}
			}
			for _, l := range live {
				for i, x := range l.slab.items {
					require.Equal(rt, l.first+uint64(i), x)
				}
			}
		}
	})
}

func TestReleasedSlabIsReused(t *testing.T) {
	h := &holder{}
	e := newEmitter[uint64](sender[uint64](t, output{Forward(), 1}), 0, h)
	for range 3 {
		e.Emit(1)
		e.flush()
		h.slabs[len(h.slabs)-1].Release()
	}
	require.Same(t, h.slabs[0], h.slabs[1])
	require.Same(t, h.slabs[1], h.slabs[2])
	require.Panics(t, h.slabs[0].Release, "it is released already")
}

// With several cores an emitter comes to go through so many slabs that it does not soon write where a consumer on another one has
// just read.
func TestReleasedSlabsRest(t *testing.T) {
	type item [3]uint64
	slab := int(reflect.TypeFor[item]().Size()) * SlabItems
	for procs, want := range map[int]int{1: 1, 2: apart / slab} {
		t.Run(fmt.Sprint(procs), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			f, seen := newFreeList[item](), map[*batch[item]]bool{}
			for range freshEvery * (want + 1) {
				b := f.take(SlabItems)
				seen[b] = true
				b.Release()
			}
			require.Len(t, seen, want)
			first := f.take(SlabItems)
			first.Release()
			for range want - 1 {
				b := f.take(SlabItems)
				require.NotSame(t, first, b, "the one that has rested longest is next")
				b.Release()
			}
			require.Same(t, first, f.take(SlabItems))
		})
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	require.Equal(t, freeSlabs, newFreeList[byte]().fresh, "no more than the list has room for")
	require.Equal(t, freeSlabs, newFreeList[struct{}]().fresh)
}

// The free list takes what it has room for and drops the rest.
func TestFullFreeListDrops(t *testing.T) {
	f := newFreeList[uint64]()
	var slabs []*batch[uint64]
	for range freeSlabs + 10 {
		slabs = append(slabs, f.take(SlabItems))
	}
	for _, b := range slabs {
		b.Release()
	}
	for i := range freeSlabs {
		require.Same(t, slabs[i], f.take(SlabItems))
	}
	fresh := f.take(7)
	require.NotContains(t, slabs, fresh)
	require.Zero(t, fresh.Len())
	require.Equal(t, SlabItems, cap(fresh.items))
	require.Equal(t, 7, fresh.limit)
}

// Consumers on other goroutines give slabs back while the emitter takes: under -race this also shows that the last
// reader's reads come before the emitter's next writes.
func TestSlabsGoRoundBetweenGoroutines(t *testing.T) {
	const consumers, total = 2, 100 * SlabItems
	queue := make(chan *batch[uint64], 8)
	e := newEmitter[uint64](sender[uint64](t, output{Forward(), 1}), 0, exitTo(queue))
	var wg sync.WaitGroup
	sums := make([]uint64, consumers)
	for i := range consumers {
		wg.Go(func() {
			for b := range queue {
				for _, x := range b.items {
					sums[i] += x
				}
				b.Release()
			}
		})
	}
	for i := range total {
		e.Emit(uint64(i))
	}
	e.flush()
	close(queue)
	wg.Wait()
	require.EqualValues(t, total/2*(total-1), sums[0]+sums[1])
}

type exitTo chan *batch[uint64]

func (q exitTo) Send(_, _ int, s Slab) { q <- s.(*batch[uint64]) }
func (exitTo) Hurry()                  {}
func (exitTo) Credit(int) int64        { return Unlimited }
func (exitTo) AwaitCredit(int64) int64 { return Unlimited }
