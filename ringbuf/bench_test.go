package ringbuf

import (
	"fmt"
	"sync"
	"testing"
)

// BenchmarkPushPop is one push and one pop by the same goroutine: the cost of
// the instructions, with no traffic between processors.
func BenchmarkPushPop(b *testing.B) {
	v := new(int)
	b.Run("SPSC", func(b *testing.B) {
		r := NewSPSC[*int](64)
		b.ReportAllocs()
		for b.Loop() {
			r.TryPush(v)
			r.TryPop()
		}
	})
	b.Run("MPSC", func(b *testing.B) {
		r := NewMPSC[*int](64)
		b.ReportAllocs()
		for b.Loop() {
			r.TryPush(v)
			r.TryPop()
		}
	})
	b.Run("chan", func(b *testing.B) {
		c := make(chan *int, 64)
		b.ReportAllocs()
		for b.Loop() {
			c <- v
			<-c
		}
	})
}

// BenchmarkWakeIdle is what a push pays for the wake-up of a side that is awake.
func BenchmarkWakeIdle(b *testing.B) {
	p := NewParker()
	b.ReportAllocs()
	for b.Loop() {
		p.Wake()
	}
}

// slab is what the runtime sends through rings.
type slab struct{ items []uint64 }

// slabRing is a ring that carries slabs.
type slabRing interface {
	TryPush(s *slab) bool
	TryPop() (*slab, bool)
}

// BenchmarkHop hands slabs from one goroutine to another and their empty shells
// back, both sides parking. The producer writes every item and the consumer
// adds them up, as stages do; "loop" does the same in one goroutine, so that
// the difference is the hop. ns/op is per slab.
func BenchmarkHop(b *testing.B) {
	const capacity = 8
	for _, size := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("loop/slab=%d", size), func(b *testing.B) {
			s := &slab{items: make([]uint64, size)}
			var sum uint64
			for i := range b.N {
				s.fill(uint64(i))
				sum += s.sum()
			}
			reportItems(b, size, sum)
		})
		b.Run(fmt.Sprintf("SPSC/slab=%d", size), func(b *testing.B) {
			hop(b, size, NewSPSC[*slab](capacity), NewSPSC[*slab](capacity))
		})
		b.Run(fmt.Sprintf("MPSC/slab=%d", size), func(b *testing.B) {
			hop(b, size, NewMPSC[*slab](capacity), NewSPSC[*slab](capacity))
		})
		b.Run(fmt.Sprintf("chan/slab=%d", size), func(b *testing.B) {
			hopChan(b, size, capacity)
		})
	}
}

// BenchmarkRoundTrip sends one value there and back, each side having nothing
// else to do: the latency of two hand-overs.
func BenchmarkRoundTrip(b *testing.B) {
	there, back := NewSPSC[int](1), NewSPSC[int](1)
	here, far := NewParker(), NewParker()
	var echo sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	echo.Go(func() {
		for range b.N {
			var v int
			far.Wait(func() (ok bool) { v, ok = there.TryPop(); return ok })
			back.TryPush(v)
			here.Wake()
		}
	})
	for i := range b.N {
		there.TryPush(i)
		far.Wake()
		var v int
		here.Wait(func() (ok bool) { v, ok = back.TryPop(); return ok })
		if v != i {
			b.Errorf("sent %d, received %d", i, v)
		}
	}
	echo.Wait()
}

func (s *slab) fill(v uint64) {
	for i := range s.items {
		s.items[i] = v
	}
}

func (s *slab) sum() (sum uint64) {
	for _, v := range s.items {
		sum += v
	}
	return sum
}

// hop sends b.N slabs through full and gets them back through free.
func hop(b *testing.B, size int, full, free slabRing) {
	producer, consumer := NewParker(), NewParker()
	for free.TryPush(&slab{items: make([]uint64, size)}) {
	}
	var stage sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	stage.Go(func() {
		for i := range b.N {
			var s *slab
			producer.Wait(func() (ok bool) { s, ok = free.TryPop(); return ok })
			s.fill(uint64(i))
			full.TryPush(s) // has room for all slabs there are
			consumer.Wake()
		}
	})
	var sum uint64
	for range b.N {
		var s *slab
		consumer.Wait(func() (ok bool) { s, ok = full.TryPop(); return ok })
		sum += s.sum()
		free.TryPush(s)
		producer.Wake()
	}
	stage.Wait()
	reportItems(b, size, sum)
}

// hopChan is hop through channels.
func hopChan(b *testing.B, size, capacity int) {
	full, free := make(chan *slab, capacity), make(chan *slab, capacity)
	for range capacity {
		free <- &slab{items: make([]uint64, size)}
	}
	var stage sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	stage.Go(func() {
		for i := range b.N {
			s := <-free
			s.fill(uint64(i))
			full <- s
		}
	})
	var sum uint64
	for range b.N {
		s := <-full
		sum += s.sum()
		free <- s
	}
	stage.Wait()
	reportItems(b, size, sum)
}

// reportItems reports the cost per item after checking that none was lost.
func reportItems(b *testing.B, size int, sum uint64) {
	b.StopTimer()
	n := uint64(b.N)
	if want := uint64(size) * (n * (n - 1) / 2); sum != want {
		b.Fatalf("items add up to %d, not %d", sum, want)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(size), "ns/item")
}
