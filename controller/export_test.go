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

// watchSlots has f told of the workers of each layout, after whoever is told already.
func (o *Options) watchSlots(f func([]*slot)) {
	before := o.onStart
	o.onStart = func(s []*slot) {
		if before != nil {
			before(s)
		}
		f(s)
	}
}

// Kills kills random workers at random moments, n times at most, until stop is called.
func (o *Options) Kills(seed uint64, n int, pause time.Duration) (stop func()) {
	var slots atomic.Pointer[[]*slot]
	o.watchSlots(func(s []*slot) { slots.Store(&s) })
	rng := rand.New(rand.NewPCG(seed, 3))
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n > 0 {
			select {
			case <-quit:
				return
			case <-time.After(time.Duration(rng.Int64N(int64(pause)))):
			}
			if all := slots.Load(); all != nil {
				if w := (*all)[rng.IntN(len(*all))].current.Load(); w != nil {
					w.Kill()
					n--
				}
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// Moves has random workers retire and be replaced, again and again until stop is called, which returns how many did. Some are
// called off.
func (o *Options) Moves(seed uint64) (stop func() int) {
	var slots atomic.Pointer[[]*slot]
	o.watchSlots(func(s []*slot) { slots.Store(&s) })
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

// Forgetful has no incarnation be told what the one before it did, as between processes.
func (o *Options) Forgetful() { o.amnesia = true }

// Thetas tells f what theta each partition of an operator begins with, whenever the workers of a layout run.
func (o *Options) Thetas(operator string, f func(workers int, theta float64)) {
	o.watchSlots(func(slots []*slot) {
		for _, s := range slots {
			if s.node.Name == operator {
				f(s.node.Workers, s.loaded.Budget().Theta)
			}
		}
	})
}
