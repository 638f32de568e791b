package jobtest

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/stream"
)

// Scales has o change the number of workers of the operators, between 1 and 4, at random moments, again and again, until stop
// is called, which returns how often that was done.
func Scales(o *controller.Options, seed uint64, operators ...string) (stop func() int) {
	requests := make(chan controller.Scale)
	o.Scale = requests
	rng := rand.New(rand.NewPCG(seed, 4))
	quit, n := make(chan struct{}), 0
	var asking sync.WaitGroup
	asking.Go(func() {
		answer := make(chan error, 1)
		for {
			s := controller.Scale{
				Operator: operators[rng.IntN(len(operators))], Workers: 1 + rng.IntN(4), Done: func(err error) { answer <- err },
			}
			select {
			case <-quit:
				return
			case requests <- s:
			}
			select {
			case <-quit:
				return
			case err := <-answer:
				if err == nil {
					n++
				}
			}
			select {
			case <-quit:
				return
			case <-time.After(time.Duration(rng.IntN(3000)) * time.Microsecond):
			}
		}
	})
	return func() int {
		close(quit)
		asking.Wait()
		return n
	}
}

// Drip makes a source that can be read again, and knows its size, yield a few items at a time, so that few are in flight.
func Drip[T any](open stream.NewSource[T]) stream.NewSource[T] {
	return func(part, parts int) (stream.Source[T], error) {
		s, err := open(part, parts)
		if err != nil {
			return nil, err
		}
		return &drip[T]{Source: s, Replayable: s.(stream.Replayable), Progresser: s.(stream.Progresser)}, nil
	}
}

type drip[T any] struct {
	stream.Source[T]
	stream.Replayable
	stream.Progresser
	reads int
}

// Read yields 1 to 13 items.
func (d *drip[T]) Read(dst []T) (int, error) {
	d.reads++
	return d.Source.Read(dst[:min(len(dst), 1+d.reads*7%13)])
}
