package spacesaving

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// ErrWeight is wrapped by the errors of Process and ProcessBatch about an item whose weight is negative, not finite, or
// above Options.Alpha.
var ErrWeight = errors.New("spacesaving: weight out of range")

// Count summarises the items of one partition. It emits its summary at the end of each window only and must be built
// with stream.EmitOnClose; its input may be shuffled, or partitioned in any way.
//
// An item costs one access to a Go map and O(log Capacity) moves in a heap, mostly none or a few. Nothing is allocated
// once all counters are in use.
type Count struct {
	options Options
	summary summary
	largest float64 // weight of an item

	// The fault tolerance is that of package histogram: counters that have changed, and two totals.
	marked  []bool   // per counter: it is in changed
	changed []uint32 // counters that have changed since the last backup was begun
	flying  []uint32 // counters in the backup in flight
	tracked bool     // theta is finite
	covered float64  // total in the durable backup
	saved   bool     // a backup was begun
	stale   bool     // backups may hold counters of a window that is over
	most    int      // counters that they may hold

	inFlight, complete bool
	flight             float64 // total in the backup in flight
}

// NewCount returns an empty Count. It panics if o is not valid; see Options.Validate.
func NewCount(o Options) *Count {
	o.mustBeValid()
	c := &Count{options: o, summary: newSummary(o.Capacity), largest: math.MaxFloat64}
	if o.Alpha > 0 {
		c.largest = o.Alpha
	}
	return c
}

// Process implements stream.Operator. The error wraps ErrWeight.
func (c *Count) Process(in connector.Keyed, out *stream.Emitter[Partial]) error {
	return c.ProcessBatch([]connector.Keyed{in}, out)
}

// ProcessBatch implements stream.BatchOperator. The error wraps ErrWeight; the items before the faulty one have then
// been counted.
func (c *Count) ProcessBatch(in []connector.Keyed, _ *stream.Emitter[Partial]) error {
	for i := range in {
		item := &in[i]
		if !(item.Weight >= 0 && item.Weight <= c.largest) { // so that NaN is out of range
			return fmt.Errorf("%w: %v of key %q, want 0 to %v", ErrWeight, item.Weight, item.Key, c.largest)
		}
		if item.Weight > 0 {
			c.mark(c.summary.add(&item.Key, item.Hash, item.Weight))
		}
	}
	return nil
}

// mark notes that a counter has changed.
func (c *Count) mark(i uint32) {
	if int(i) == len(c.marked) {
		c.marked = append(c.marked, false)
	}
	if !c.marked[i] {
		c.marked[i] = true
		c.changed = append(c.changed, i)
	}
}

// Counters returns the counters of this partition, ordered by the hash of their keys. It allocates.
func (c *Count) Counters() []Counter {
	list := make([]Counter, 0, len(c.summary.counters))
	for _, i := range c.summary.sorted() {
		list = append(list, c.summary.counters[i])
	}
	return list
}

// CloseWindow implements stream.WindowCloser: it emits the summary in pieces, the same for the same state, and, unless
// the stream ends, empties it for the next window.
func (c *Count) CloseWindow(w stream.Window, out *stream.Emitter[Partial]) error {
	for p := range c.summary.partials() {
		out.Emit(p)
	}
	if !w.Last {
		c.reset()
	}
	return nil
}

// reset forgets all counters; the next backup, partial or not, then replaces all that older ones hold.
func (c *Count) reset() {
	c.most = max(c.most, len(c.summary.counters))
	c.summary.clear()
	c.marked, c.changed, c.flying = c.marked[:0], c.changed[:0], c.flying[:0]
	c.covered, c.stale, c.inFlight = 0, c.saved, false
}

// Measure implements stream.Measurer: the L1 norm, and summaries that are added up downstream.
func (c *Count) Measure() stream.Measure {
	return stream.Measure{Alpha: c.options.Alpha, Norm: errorbound.L1, Combine: errorbound.Added}
}

// SetTheta implements stream.Thresholder; only whether theta is infinite matters.
func (c *Count) SetTheta(theta float64) { c.tracked = !math.IsInf(theta, 1) }

// StateDivergence implements stream.StateDivergence in constant time: the weight of the items since the last durable
// backup, up to the rounding of their sums; not finite, so that the runtime stops, if a sum is not.
func (c *Count) StateDivergence() float64 {
	if !c.tracked || c.stale {
		return math.Inf(1)
	}
	return c.summary.total - c.covered
}

// totalKey is the key of the element with the weight of all items and the capacity: a summary with room for more would
// take it that keys without a counter have no weight. The key of a counter is its number in 4 bytes.
const (
	totalKey = "total"
	totalLen = 12
)

// BackupState implements stream.BackupState: the total, and the counters that have changed or, in a whole backup, all.
func (c *Count) BackupState(w *stream.StateWriter) error {
	if !isSum(c.summary.total) {
		return fmt.Errorf("back up %d counters: %w: they add up to %v", len(c.summary.counters), ErrWeight, c.summary.total)
	}
	for _, i := range c.flying { // of a backup that was lost
		c.mark(i)
	}
	c.complete = w.Whole() || c.stale || !c.tracked
	c.inFlight, c.saved, c.flight = true, true, c.summary.total
	if !c.complete && len(c.changed) == 0 {
		c.flying = c.flying[:0]
		return nil
	}
	var key, value []byte
	value = binary.LittleEndian.AppendUint32(appendFloat(value, c.summary.total), uint32(c.options.Capacity))
	w.Put([]byte(totalKey), value)
	put := func(i uint32) {
		key = binary.BigEndian.AppendUint32(key[:0], i)
		value = binary.LittleEndian.AppendUint64(value[:0], c.summary.hashes[i])
		value = c.summary.counters[i].append(value)
		w.Put(key, value)
	}
	if c.complete {
		for i := range c.summary.counters {
			put(uint32(i))
		}
		for i := len(c.summary.counters); i < c.most && !w.Whole(); i++ { // what a window that is over had more
			w.Delete(binary.BigEndian.AppendUint32(key[:0], uint32(i)))
		}
	} else {
		for _, i := range c.changed {
			put(i)
		}
	}
	for _, i := range c.changed {
		c.marked[i] = false
	}
	c.flying, c.changed = append(c.flying[:0], c.changed...), c.changed[:0]
	return nil
}

// BackupDurable implements stream.BackupDurable in constant time.
func (c *Count) BackupDurable() {
	if !c.inFlight {
		return
	}
	c.inFlight, c.covered, c.flying = false, c.flight, c.flying[:0]
	if c.complete {
		c.stale, c.most = false, 0
	}
}

// RestoreState implements stream.RestoreState. The error wraps stream.ErrState, and ErrOptions for a backup of another
// Options.Capacity.
func (c *Count) RestoreState(r *stream.StateReader) error {
	type saved struct {
		Counter
		hash uint64
	}
	found, total := map[uint32]saved{}, 0.0
	for r.Next() {
		v := r.Value()
		switch {
		case string(r.Key()) == totalKey && len(v) == totalLen && isSum(float(v)):
			if capacity := binary.LittleEndian.Uint32(v[8:]); int(capacity) != c.options.Capacity {
				return fmt.Errorf("%w: the backup has a capacity of %d, the operator of %d", ErrOptions, capacity, c.options.Capacity)
			}
			total = float(v)
			continue
		case len(r.Key()) != 4 || len(v) < 8 && !r.Deleted():
			return fmt.Errorf("%w: unknown element %q", stream.ErrState, r.Key())
		}
		i := binary.BigEndian.Uint32(r.Key())
		if r.Deleted() {
			delete(found, i)
			continue
		}
		s := saved{hash: binary.LittleEndian.Uint64(v)}
		if err := s.decode(v[8:]); err != nil {
			return fmt.Errorf("%w: counter %d: %w", stream.ErrState, i, err)
		}
		found[i] = s
	}
	if err := r.Err(); err != nil {
		return err
	}
	if len(found) > c.options.Capacity {
		return fmt.Errorf("%w: %d counters, want at most %d", stream.ErrState, len(found), c.options.Capacity)
	}
	for i := range uint32(len(found)) { // counters keep their numbers, which name their elements
		s, ok := found[i]
		if !ok {
			return fmt.Errorf("%w: counter %d is missing", stream.ErrState, i)
		}
		if _, twice := c.summary.index[s.hash]; twice {
			return fmt.Errorf("%w: key %q has two counters", stream.ErrState, s.Key)
		}
		c.summary.insert(s.Counter, s.hash)
		c.marked = append(c.marked, false)
	}
	c.summary.total, c.covered, c.saved = total, total, true
	return nil
}
