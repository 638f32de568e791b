package controller

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Hasty makes o divide Theta anew as often as it can and for any gain, so that short runs see many changes.
func (o *Options) Hasty() {
	o.pace = pace{every: 200 * time.Microsecond, least: time.Nanosecond, commits: 0.5, floor: 0.1}
}

// Moves has random workers retire and be replaced, again and again until stop is called, which returns how many did. Some are
// called off.
func (o *Options) Moves(seed uint64) (stop func() int) {
	var slots atomic.Pointer[[]*slot]
	o.onStart = func(s []*slot) { slots.Store(&s) }
	rng := rand.New(rand.NewPCG(seed, 1))
	quit, done, n := make(chan struct{}), make(chan struct{}), 0
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case <-time.After(time.Duration(rng.IntN(3000)) * time.Microsecond):
			}
			all := slots.Load()
			if all == nil {
				continue
			}
			// One after the other: two that wait for each other would never end.
			w := (*all)[rng.IntN(len(*all))].current.Load()
			if w == nil || w.Retire() != nil {
				continue
			}
			if rng.IntN(3) == 0 {
				time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond)
				if w.CallOff() {
					continue
				}
			}
			for range 1000 {
				if w.Retired() {
					n++
					break
				}
				time.Sleep(100 * time.Microsecond)
			}
			w.Stop() // a failure, if it has not retired
		}
	}()
	return func() int {
		close(quit)
		<-done
		return n
	}
}

// Rebuild bounds what a failure may replay to rebuild a state, so that short runs see commits of places, and states that are
// backed up after all.
func (o *Options) Rebuild(items uint64) { o.rebuild = items }
