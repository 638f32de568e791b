package ringbuf_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/afstream/afstream/ringbuf"
)

// One stage hands slabs to the next; each waits for the other with its Parker.
func Example() {
	var (
		ring     = ringbuf.NewSPSC[[]int](2)
		producer = ringbuf.NewParker()
		consumer = ringbuf.NewParker()
		closed   atomic.Bool
	)
	go func() {
		for i := range 5 {
			slab := []int{2 * i, 2*i + 1}
			producer.Wait(func() bool { return ring.TryPush(slab) })
			consumer.Wake()
		}
		closed.Store(true)
		consumer.Wake()
	}()

	sum := 0
	for {
		var slab []int
		var ok bool
		consumer.Wait(func() bool {
			over := closed.Load() // before TryPop: what was pushed before closing is still seen
			slab, ok = ring.TryPop()
			return ok || over
		})
		if !ok {
			break
		}
		producer.Wake()
		for _, item := range slab {
			sum += item
		}
	}
	fmt.Println(sum)
	// Output: 45
}

func ExampleSPSC() {
	r := ringbuf.NewSPSC[string](2)
	fmt.Println(r.TryPush("a"), r.TryPush("b"), r.TryPush("c"))
	v, ok := r.TryPop()
	fmt.Println(v, ok, r.Len(), r.Cap())
	// Output:
	// true true false
	// a true 1 2
}

func ExampleMPSC() {
	r := ringbuf.NewMPSC[int](3)
	var producers sync.WaitGroup
	for id := range 3 {
		producers.Go(func() { r.TryPush(id) })
	}
	producers.Wait()

	sum := 0
	for v, ok := r.TryPop(); ok; v, ok = r.TryPop() {
		sum += v
	}
	fmt.Println(sum, r.Len())
	// Output: 3 0
}

// A goroutine that also has something to do when nothing comes writes the
// protocol out and sleeps with a deadline.
func ExampleParker_ParkTimeout() {
	r, p := ringbuf.NewSPSC[int](1), ringbuf.NewParker()

	p.Prepare()
	if r.Len() > 0 {
		p.Cancel()
	} else if !p.ParkTimeout(time.Millisecond) {
		fmt.Println("nothing came: flush")
	}
	// Output: nothing came: flush
}
