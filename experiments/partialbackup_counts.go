package experiments

import (
	"maps"
	"slices"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/state"
	"github.com/afstream/afstream/stream"
)

// keyCount is how often the key with a hash appeared.
type keyCount struct {
	Key   uint64
	Count int64
}

// partialCounts counts in a ready state.
type partialCounts struct{ state.Map[uint64, int64] }

func newPartialCounts() *partialCounts {
	c := new(partialCounts)
	c.Configure(state.Options{Combine: errorbound.Disjoint, Alpha: 1})
	return c
}

// Process implements stream.Operator.
func (c *partialCounts) Process(item connector.Keyed, _ *stream.Emitter[keyCount]) error {
	c.Add(item.Hash, 1)
	return nil
}

// CloseWindow implements stream.WindowCloser.
func (c *partialCounts) CloseWindow(_ stream.Window, out *stream.Emitter[keyCount]) error {
	for key, n := range c.All() {
		out.Emit(keyCount{Key: key, Count: n})
	}
	return nil
}

// wholeCounts counts in a state written by hand, as simply as the three methods allow: every backup holds everything.
type wholeCounts struct {
	counts map[uint64]*wholeCount
	moved  int64 // the most that a count has grown since the last backup
}

type wholeCount struct{ now, saved int64 }

func newWholeCounts() *wholeCounts { return &wholeCounts{counts: make(map[uint64]*wholeCount)} }

// Process implements stream.Operator.
func (c *wholeCounts) Process(item connector.Keyed, _ *stream.Emitter[keyCount]) error {
	n := c.counts[item.Hash]
	if n == nil {
		n = new(wholeCount)
		c.counts[item.Hash] = n
	}
	n.now++
	c.moved = max(c.moved, n.now-n.saved)
	return nil
}

// CloseWindow implements stream.WindowCloser.
func (c *wholeCounts) CloseWindow(_ stream.Window, out *stream.Emitter[keyCount]) error {
	for _, key := range slices.Sorted(maps.Keys(c.counts)) { // the order must not change if the close is run again
		out.Emit(keyCount{Key: key, Count: c.counts[key].now})
	}
	return nil
}

// Measure implements stream.Measurer.
func (c *wholeCounts) Measure() stream.Measure {
	return stream.Measure{Alpha: 1, Norm: errorbound.Max, Combine: errorbound.Disjoint}
}

// StateDivergence implements stream.StateDivergence: since the last backup that was begun. The runtime adds what that
// one cleared until it is durable.
func (c *wholeCounts) StateDivergence() float64 { return float64(c.moved) }

// BackupState implements stream.BackupState.
func (c *wholeCounts) BackupState(w *stream.StateWriter) error {
	for key, n := range c.counts {
		n.saved = n.now
		w.PutUint64(key, uint64(n.now))
	}
	c.moved = 0
	return nil
}

// RestoreState implements stream.RestoreState.
func (c *wholeCounts) RestoreState(r *stream.StateReader) error {
	for r.Next() {
		key, n, err := r.Uint64()
		if err != nil {
			return err
		}
		c.counts[key] = &wholeCount{now: int64(n), saved: int64(n)}
	}
	return r.Err()
}
