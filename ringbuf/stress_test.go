package ringbuf

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// waits are ways to wait for a condition; each must survive any interleaving.
var waits = map[string]func(p *Parker, rng *rand.Rand, cond func() bool){
	"wait": func(p *Parker, _ *rand.Rand, cond func() bool) { p.Wait(cond) },
	// Without spinning every wait goes through the announcement.
	"park": func(p *Parker, _ *rand.Rand, cond func() bool) {
		for {
			p.Prepare()
			if cond() {
				p.Cancel()
				return
			}
			p.Park()
		}
	},
	// Timeouts that race the wake-ups, between sleeps that only a wake-up ends.
	"timeout": func(p *Parker, rng *rand.Rand, cond func() bool) {
		for {
			p.Prepare()
			switch {
			case cond():
				p.Cancel()
				return
			case rng.IntN(2) == 0:
				p.ParkTimeout(time.Duration(rng.IntN(20)) * time.Microsecond)
			default:
				p.Park()
			}
		}
	},
}

// stress is one run: producers push through one ring to one consumer, all
// waiting with Parkers, on a ring so small that both sides wait all the time.
type stress struct {
	ring      ring
	producers int
	perEach   int
	wait      func(p *Parker, rng *rand.Rand, cond func() bool)
	seed      uint64

	consumer  *Parker
	producer  []*Parker
	pushed    []atomic.Int64
	popped    atomic.Int64
	stop      atomic.Bool // set to end the goroutines of a run that failed
	firstFail atomic.Pointer[string]
}

// run fails the test if anything is lost, doubled or out of order, and, instead
// of hanging, if a wake-up is lost.
func (s *stress) run(t *testing.T) {
	s.consumer = NewParker()
	s.pushed = make([]atomic.Int64, s.producers)
	for range s.producers {
		s.producer = append(s.producer, NewParker())
	}
	var running sync.WaitGroup
	running.Go(s.consume)
	for id := range s.producers {
		running.Go(func() { s.produce(id) })
	}
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }()

	watchdog := time.NewTicker(time.Minute)
	defer watchdog.Stop()
	for last := int64(-1); ; {
		select {
		case <-done:
			if m := s.firstFail.Load(); m != nil {
				t.Fatalf("%s; %s", *m, s.describe())
			}
			require.Zero(t, s.ring.Len())
			for _, p := range append(s.producer, s.consumer) {
				requireAtRest(t, p)
			}
			return
		case <-watchdog.C:
			if now := s.popped.Load(); now != last {
				last = now
				continue
			}
			stuck := s.describe()
			s.abort()
			<-done
			t.Fatalf("stuck, a wake-up was lost: %s", stuck)
		}
	}
}

// abort ends all goroutines of the run.
func (s *stress) abort() {
	s.stop.Store(true)
	for _, p := range append(s.producer, s.consumer) {
		p.Wake()
	}
}

func (s *stress) fail(format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	s.firstFail.CompareAndSwap(nil, &message)
	s.abort()
}

// describe names what is needed to understand a failure, from atomics only.
func (s *stress) describe() string {
	d := fmt.Sprintf("seed %d, %d of %d in ring, popped %d, consumer state %d",
		s.seed, s.ring.Len(), s.ring.Cap(), s.popped.Load(), s.consumer.state.Load())
	for id := range s.producer {
		d += fmt.Sprintf(", producer %d pushed %d state %d", id, s.pushed[id].Load(), s.producer[id].state.Load())
	}
	return d
}

// Values carry their producer and its running number, so that the consumer can
// tell a lost one from a doubled one.
const producerShift = 24

func (s *stress) produce(id int) {
	rng := rand.New(rand.NewPCG(s.seed, uint64(id)))
	for i := range s.perEach {
		v := id<<producerShift | i
		s.wait(s.producer[id], rng, func() bool { return s.stop.Load() || s.ring.TryPush(v) })
		if s.stop.Load() {
			return
		}
		s.consumer.Wake()
		s.pushed[id].Add(1)
		jitter(rng)
	}
}

func (s *stress) consume() {
	rng := rand.New(rand.NewPCG(s.seed, 1<<40))
	next := make([]int, s.producers)
	for range s.producers * s.perEach {
		var v int
		s.wait(s.consumer, rng, func() (ok bool) {
			if s.stop.Load() {
				return true
			}
			v, ok = s.ring.TryPop()
			return ok
		})
		if s.stop.Load() {
			return
		}
		for _, p := range s.producer {
			p.Wake()
		}
		id, i := v>>producerShift, v&(1<<producerShift-1)
		if i != next[id] {
			s.fail("producer %d: popped its value %d in place of %d", id, i, next[id])
			return
		}
		next[id]++
		s.popped.Add(1)
		jitter(rng)
	}
	if _, ok := s.ring.TryPop(); ok {
		s.fail("more values popped than pushed")
	}
}

// jitter moves the two sides against each other, so that a run meets empty and
// full rings, sleeping and waking sides in many orders.
func jitter(rng *rand.Rand) {
	switch n := rng.IntN(64); {
	case n < 4:
		runtime.Gosched()
	case n < 8:
		for range rng.IntN(200) {
			rng.Uint64()
		}
	}
}

func TestStressOneProducer(t *testing.T) {
	for _, k := range kinds {
		for name, wait := range waits {
			for i, capacity := range []int{1, 2, 3, 8} {
				t.Run(fmt.Sprintf("%s/%s/cap=%d", k.name, name, capacity), func(t *testing.T) {
					start := k.starts(capacity)[2] // just below the wrap
					s := stress{ring: k.make(capacity, start), producers: 1, perEach: 25_000, wait: wait, seed: uint64(i)}
					s.run(t)
				})
			}
		}
	}
}

func TestStressFourProducers(t *testing.T) {
	for name, wait := range waits {
		for i, capacity := range []int{1, 2, 3, 5, 64} {
			t.Run(fmt.Sprintf("%s/cap=%d", name, capacity), func(t *testing.T) {
				start := kinds[1].starts(capacity)[2]
				s := stress{ring: newMPSC[int](capacity, start), producers: 4, perEach: 5_000, wait: wait, seed: uint64(i)}
				s.run(t)
			})
		}
	}
}

// TestStressOneP runs where a spinning waiter would keep the other side from
// running at all.
func TestStressOneP(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			s := stress{ring: k.make(1, 0), producers: 1, perEach: 20_000, wait: waits["wait"]}
			s.run(t)
		})
	}
}

// TestLenBesideTraffic calls Len from a third goroutine all the while.
func TestLenBesideTraffic(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			s := stress{ring: k.make(3, k.starts(3)[2]), producers: 1, perEach: 20_000, wait: waits["wait"]}
			var outOfRange atomic.Int64
			var over atomic.Bool
			var observer sync.WaitGroup
			observer.Go(func() {
				for !over.Load() {
					if n := s.ring.Len(); n < 0 || n > s.ring.Cap() {
						outOfRange.Add(1)
					}
					runtime.Gosched()
				}
			})
			s.run(t)
			over.Store(true)
			observer.Wait()
			require.Zero(t, outOfRange.Load())
		})
	}
}
