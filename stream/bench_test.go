package stream

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// sieve is the cheapest Exit there can be: it gives the slabs back unseen.
type sieve struct{ slabs int }

func (s *sieve) Send(_, _ int, b Slab) { s.slabs++; b.Release() }
func (*sieve) Hurry()                  {}
func (*sieve) Credit(int) int64        { return Unlimited }
func (*sieve) AwaitCredit(int64) int64 { return Unlimited }
func identity(x uint64) uint64         { return x }
func byItem(x uint64, n int) int       { return int(x % uint64(n)) }
func emitterForBench(b testing.TB, outputs ...output) *Emitter[uint64] {
	return newEmitter[uint64](sender[uint64](b, outputs...), 0, &sieve{})
}

var routes = []struct {
	name    string
	outputs []output
}{
	{"shuffle", []output{{Shuffle(), 4}}},
	{"forward", []output{{Forward(), 4}}},
	{"hash", []output{{HashUint64(identity), 4}}},
	{"custom", []output{{Custom(byItem), 4}}},
	{"broadcast", []output{{Broadcast(), 4}}},
	{"two-legs", []output{{Shuffle(), 4}, {HashUint64(identity), 4}}},
}

// BenchmarkEmit is the cost of one emitted item, the share of its slab's round trip included.
func BenchmarkEmit(b *testing.B) {
	for _, r := range routes {
		b.Run(r.name, func(b *testing.B) {
			e := emitterForBench(b, r.outputs...)
			b.ReportAllocs()
			x := uint64(0)
			for b.Loop() {
				e.Emit(x)
				x++
			}
		})
	}
}

// BenchmarkRoom is the cost per item of a source that reads straight into the slabs.
func BenchmarkRoom(b *testing.B) {
	e := emitterForBench(b, output{Shuffle(), 4})
	b.ReportAllocs()
	x := uint64(0)
	for b.Loop() {
		dst := e.room()
		for i := range dst {
			dst[i] = x
			x++
		}
		e.filled(len(dst))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(x), "ns/item")
}

// TestEmitAllocatesNothing is the budget: once the free list holds the slabs that are in use, no item allocates.
func TestEmitAllocatesNothing(t *testing.T) {
	for _, r := range routes {
		t.Run(r.name, func(t *testing.T) {
			e := emitterForBench(t, r.outputs...)
			x := uint64(0)
			slabs := func() {
				for range 8 * SlabItems {
					e.Emit(x)
					x++
				}
			}
			for slabs(); e.free.fresh > 0; { // until they go round
				slabs()
			}
			require.Zero(t, testing.AllocsPerRun(20, slabs))
		})
	}
	t.Run("room", func(t *testing.T) {
		e := emitterForBench(t, output{Shuffle(), 4})
		slab := func() { e.filled(len(e.room())) }
		for slab(); e.free.fresh > 0; {
			slab()
		}
		require.Zero(t, testing.AllocsPerRun(20, slab))
	})
}
