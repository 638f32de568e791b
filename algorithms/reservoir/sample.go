package reservoir

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// ErrWeight is wrapped by the errors of Process and ProcessBatch about a weight that is negative or not finite.
var ErrWeight = errors.New("reservoir: weight out of range")

// Sample draws from the items of one partition. It emits its entries at the end of each window only and must be built
// with stream.EmitOnClose; its input may be shuffled, or partitioned in any way.
//
// An item that is not drawn costs a few nanoseconds, one that is drawn O(log Size). Nothing is allocated once Size items
// have been drawn.
type Sample[T any] struct {
	options Options[T]
	mix     uint64 // of seed and partition
	drawn   []drawn[T]
	bar     float64 // priority below which an item is drawn: the largest once the sample is full, else +Inf

	number uint64  // of the next item, over all windows: no two have the same priority for having the same number
	seen   uint64  // items of this window
	weight float64 // and what they weigh

	tracked     bool // theta is finite
	unsaved     int  // entries that are not, or not yet, in the durable backup
	gone        []uint64
	goneFlying  int // the first of gone are deleted by the backup in flight
	seenDurable uint64
	inFlight    bool
	seenFlying  uint64
}

// drawn is an entry of the sample, which is a heap with the largest priority first.
type drawn[T any] struct {
	priority float64
	number   uint64
	saved    saved
	item     T
}

// saved says how far an entry is on its way into the backup.
type saved uint8

const (
	fresh saved = iota
	flying
	durable
)

// NewSample returns an empty Sample. It panics if o is not valid; see Options.Validate.
func NewSample[T any](o Options[T]) *Sample[T] {
	o.mustBeValid()
	s := &Sample[T]{options: o, bar: math.Inf(1)}
	s.mix = mix(o.Seed)
	return s
}

// Open implements stream.Opener: partitions draw independently, unless items have an ID, which is different in any case.
func (s *Sample[T]) Open(_ context.Context, p stream.Placement) error {
	if s.options.ID != nil {
		return nil
	}
	s.mix = mix(s.options.Seed + uint64(p.Partition)*0x9e3779b97f4a7c15)
	return nil
}

// mix is the finaliser of splitmix64: every input bit changes every output bit with probability near one half.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// uniform returns the random number of the next item, strictly between 0 and 1.
func (s *Sample[T]) uniform(item *T) float64 {
	id := s.number
	if s.options.ID != nil {
		id = s.options.ID(item)
	}
	x := mix(s.mix + (id+1)*0x9e3779b97f4a7c15)
	return (float64(x>>12) + 0.5) * 0x1p-52
}

// Process implements stream.Operator. The error wraps ErrWeight.
func (s *Sample[T]) Process(in T, out *stream.Emitter[Entry[T]]) error {
	return s.ProcessBatch([]T{in}, out)
}

// ProcessBatch implements stream.BatchOperator. The error wraps ErrWeight; the items before the faulty one have then
// been processed.
func (s *Sample[T]) ProcessBatch(in []T, _ *stream.Emitter[Entry[T]]) error {
	if s.options.Weight != nil {
		return s.processWeighted(in)
	}
	for i := range in {
		if u := s.uniform(&in[i]); u < s.bar {
			s.draw(&in[i], u)
		}
		s.number++
	}
	s.seen += uint64(len(in))
	s.weight += float64(len(in))
	return nil
}

func (s *Sample[T]) processWeighted(in []T) error {
	for i := range in {
		w := s.options.Weight(&in[i])
		if !isSum(w) || !isSum(s.weight+w) {
			return fmt.Errorf("%w: %v", ErrWeight, w)
		}
		// -ln(u) >= 1-u: mostly the logarithm need not be known.
		if u := s.uniform(&in[i]); w > 0 && 1-u < s.bar*w {
			if p := -math.Log(u) / w; p < s.bar && p <= math.MaxFloat64 {
				s.draw(&in[i], p)
			}
		}
		s.number++
		s.seen++
		s.weight += w
	}
	return nil
}

// draw adds an item to the sample, in place of the one with the largest priority if it is full.
func (s *Sample[T]) draw(item *T, priority float64) {
	s.unsaved++
	d := drawn[T]{priority: priority, number: s.number, item: *item}
	if len(s.drawn) < s.options.Size {
		s.drawn = append(s.drawn, d)
		s.up(len(s.drawn) - 1)
	} else {
		s.forget(&s.drawn[0])
		s.drawn[0] = d
		s.down(0)
	}
	s.raiseBar()
}

func (s *Sample[T]) raiseBar() {
	s.bar = math.Inf(1)
	if len(s.drawn) == s.options.Size {
		s.bar = s.drawn[0].priority
	}
}

// forget takes note that an entry leaves the sample.
func (s *Sample[T]) forget(d *drawn[T]) {
	if d.saved != durable {
		s.unsaved--
	}
	if d.saved != fresh {
		s.gone = append(s.gone, d.number)
	}
}

func (s *Sample[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if s.drawn[parent].priority >= s.drawn[i].priority {
			return
		}
		s.drawn[parent], s.drawn[i] = s.drawn[i], s.drawn[parent]
		i = parent
	}
}

func (s *Sample[T]) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(s.drawn) {
			return
		}
		if child+1 < len(s.drawn) && s.drawn[child+1].priority > s.drawn[child].priority {
			child++
		}
		if s.drawn[i].priority >= s.drawn[child].priority {
			return
		}
		s.drawn[i], s.drawn[child] = s.drawn[child], s.drawn[i]
		i = child
	}
}

// Entries returns the sample in the order of priorities, which is a random one. It allocates.
func (s *Sample[T]) Entries() ([]Entry[T], error) {
	entries := make([]Entry[T], len(s.drawn))
	for i := range s.drawn {
		entries[i] = Entry[T]{Item: s.drawn[i].item, Priority: s.drawn[i].priority}
	}
	entries, err := smallest(entries, len(entries))
	if len(entries) > 0 {
		entries[0].Seen, entries[0].Weight = s.seen, s.weight
	}
	return entries, err
}

// CloseWindow implements stream.WindowCloser: it emits the entries, the same for the same state, and, unless the stream
// ends, starts the next window with none.
func (s *Sample[T]) CloseWindow(w stream.Window, out *stream.Emitter[Entry[T]]) error {
	entries, err := s.Entries()
	if err != nil {
		return err
	}
	for i := range entries {
		out.Emit(entries[i])
	}
	if !w.Last {
		s.reset()
	}
	return nil
}

func (s *Sample[T]) reset() {
	for i := range s.drawn {
		s.forget(&s.drawn[i])
	}
	clear(s.drawn)
	s.drawn, s.seen, s.weight = s.drawn[:0], 0, 0
	s.raiseBar()
}

// Measure implements stream.Measurer: the Count norm, alpha 3, and samples that are merged downstream.
func (s *Sample[T]) Measure() stream.Measure {
	return stream.Measure{Alpha: alpha, Norm: errorbound.Count, Combine: errorbound.Added}
}

// SetTheta implements stream.Thresholder; only whether theta is infinite matters.
func (s *Sample[T]) SetTheta(theta float64) { s.tracked = !math.IsInf(theta, 1) }

// StateDivergence implements stream.StateDivergence in constant time: how many entries came or went since the last
// durable backup, and by how many times seen/Size the number of items seen has changed.
func (s *Sample[T]) StateDivergence() float64 {
	if !s.tracked {
		return math.Inf(1)
	}
	more := max(s.seen, s.seenDurable)
	if more == 0 {
		return float64(s.unsaved + len(s.gone))
	}
	fewer := min(s.seen, s.seenDurable)
	return float64(s.unsaved+len(s.gone)) + float64(more-fewer)/float64(more)*min(float64(s.options.Size), float64(more))
}
