package experiments

import (
	"context"
	"math"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/state"
	"github.com/afstream/afstream/stream"
)

// dealtItem counts for a counter, at a worker that was drawn for it.
type dealtItem struct{ Counter, Worker uint32 }

// dealtCounters is how many counters each worker has.
const dealtCounters = 1024

// replayableKeys is what the generator of keys can do.
type replayableKeys interface {
	stream.Source[connector.Keyed]
	stream.Replayable
	stream.Progresser
}

// dealer deals Zipf-distributed keys to workers at random. It can be read again: who gets an item follows from its number.
type dealer struct {
	replayableKeys
	room []connector.Keyed
	ends []float64 // of each worker's part of [0, 1)
	seed uint64
}

func newDealer(z connector.ZipfOptions, parts []float64) (stream.NewSource[dealtItem], error) {
	open, err := connector.Zipf(z)
	if err != nil {
		return nil, err
	}
	total := 0.0
	for _, part := range parts {
		total += part
	}
	ends, end := make([]float64, len(parts)), 0.0
	for i, part := range parts {
		end += part / total
		ends[i] = end
	}
	ends[len(ends)-1] = 1
	return func(part, partitions int) (stream.Source[dealtItem], error) {
		keys, err := open(part, partitions)
		if err != nil {
			return nil, err
		}
		return &dealer{replayableKeys: keys.(replayableKeys), room: make([]connector.Keyed, stream.SlabItems), ends: ends, seed: z.Seed}, nil
	}, nil
}

// Read implements stream.Source.
func (d *dealer) Read(dst []dealtItem) (int, error) {
	at := d.Position().Item
	n, err := d.replayableKeys.Read(d.room[:min(len(dst), len(d.room))])
	for i := range dst[:n] {
		dst[i] = dealtItem{Counter: uint32(d.room[i].Hash % dealtCounters), Worker: d.draw(at + uint64(i))}
	}
	return n, err
}

// draw returns whose part the number of an item falls into.
func (d *dealer) draw(item uint64) uint32 {
	x := float64(scramble(d.seed^scramble(item))>>11) / (1 << 53)
	w := uint32(0)
	for x >= d.ends[w] {
		w++
	}
	return w
}

// scramble is the finaliser of splitmix64, which turns numbers in a row into numbers that look drawn.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// byWorker sends each item to the worker that was drawn.
func byWorker() stream.Option {
	return stream.Custom(func(item dealtItem, _ int) int { return int(item.Worker) })
}

// counterSum is the value of one counter of one worker.
type counterSum struct {
	Counter uint32
	Sum     float64
}

// dealtCounts counts in a ready state.
type dealtCounts struct{ *state.Counters }

func newDealtCounts() *dealtCounts {
	c := &dealtCounts{state.NewCounters(dealtCounters)}
	c.SetAlpha(1)
	return c
}

// Process implements stream.Operator.
func (c *dealtCounts) Process(item dealtItem, _ *stream.Emitter[counterSum]) error {
	c.Add(int(item.Counter), 1)
	return nil
}

// CloseWindow implements stream.WindowCloser.
func (c *dealtCounts) CloseWindow(_ stream.Window, out *stream.Emitter[counterSum]) error {
	for i, sum := range c.All() {
		out.Emit(counterSum{uint32(i), sum})
	}
	return nil
}

// worstSum returns the largest difference of a merged counter to that of the input, counted in one loop.
func worstSum(ctx context.Context, open stream.NewSource[dealtItem], got []counterSum) (float64, error) {
	var left [dealtCounters]float64
	if err := each(ctx, open, func(item dealtItem) { left[item.Counter]++ }); err != nil {
		return 0, err
	}
	for _, c := range got {
		left[c.Counter] -= c.Sum
	}
	worst := 0.0
	for _, d := range left {
		worst = max(worst, math.Abs(d))
	}
	return worst, nil
}
