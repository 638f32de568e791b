package aggregate

import (
	"errors"
	"fmt"
	"math"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// ErrValue is wrapped by the errors of Process and ProcessBatch about a value that is not finite or beyond
// Options.Alpha.
var ErrValue = errors.New("aggregate: value out of range")

// Aggregate keeps the aggregates of the items of one partition. It emits at the end of each window only and must be
// built with stream.EmitOnClose. An item costs a lookup in a hash table and what the functions of Options cost; nothing is
// allocated but for new keys, which take about 200 bytes each.
type Aggregate[T any] struct {
	options Options[T]
	groups  groups
	largest float64 // absolute value
}

// New returns an Aggregate of no items. It panics if o is not valid; see Options.Validate.
func New[T any](o Options[T]) *Aggregate[T] {
	if err := o.Validate(); err != nil {
		panic(err)
	}
	a := &Aggregate[T]{options: o, largest: o.limit()}
	a.groups.alpha, a.groups.l1 = o.alpha(), o.Norm == errorbound.L1
	a.groups.setTheta(math.Inf(1))
	return a
}

// Process implements stream.Operator. The error wraps ErrValue.
func (a *Aggregate[T]) Process(in T, out *stream.Emitter[Row]) error {
	return a.ProcessBatch([]T{in}, out)
}

// ProcessBatch implements stream.BatchOperator. The error wraps ErrValue; the items before the faulty one have then
// been aggregated.
func (a *Aggregate[T]) ProcessBatch(in []T, _ *stream.Emitter[Row]) error {
	o := &a.options
	for i := range in {
		item := &in[i]
		if o.Keep != nil && !o.Keep(item) {
			continue
		}
		v, weight := 1.0, 1.0
		if o.Value != nil {
			if v = o.Value(item); !(math.Abs(v) <= a.largest) { // so that NaN is out of range
				return fmt.Errorf("%w: %v of key %q, want -%v to %[4]v", ErrValue, v, o.Key(item), a.largest)
			}
		}
		if o.Measure == BySum {
			weight = math.Abs(v)
		}
		key := o.Key(item)
		hash := uint64(0)
		if o.Hash != nil {
			hash = o.Hash(item)
		} else {
			hash = key.Hash()
		}
		a.groups.add(&key, hash, v, weight)
	}
	return nil
}

// CloseWindow implements stream.WindowCloser: it emits the rows by key and, unless the stream ends, starts the next
// window with none.
func (a *Aggregate[T]) CloseWindow(w stream.Window, out *stream.Emitter[Row]) error {
	return a.groups.close(w, out)
}

// Rows returns what CloseWindow would emit.
func (a *Aggregate[T]) Rows() []Row { return a.groups.rows() }

// Measure implements stream.Measurer.
func (a *Aggregate[T]) Measure() stream.Measure {
	return stream.Measure{Alpha: a.options.alpha(), Norm: a.options.Norm, Combine: a.options.Combine}
}

// SetTheta implements stream.Thresholder, in time proportional to the number of keys.
func (a *Aggregate[T]) SetTheta(theta float64) { a.groups.setTheta(theta) }

// StateDivergence implements stream.StateDivergence in constant time: what the items since the last durable backup add
// up to. Under Max it is rounded up, by at most 1/32 theta where it is above 1/2 theta.
func (a *Aggregate[T]) StateDivergence() float64 { return a.groups.divergence() }

// BackupState implements stream.BackupState. A partial backup writes, under Max, the keys that have moved by 1/2 theta
// or more, under L1 all that had an item.
func (a *Aggregate[T]) BackupState(w *stream.StateWriter) error { return a.groups.backup(w) }

// BackupDurable implements stream.BackupDurable.
func (a *Aggregate[T]) BackupDurable() { a.groups.backupDurable() }

// RestoreState implements stream.RestoreState. The error wraps stream.ErrState.
func (a *Aggregate[T]) RestoreState(r *stream.StateReader) error { return a.groups.restore(r) }

// MergeState implements stream.MergeState, for an Aggregate whose states are added up downstream (Options.Combine).
func (a *Aggregate[T]) MergeState(r *stream.StateReader) error { return a.groups.mergeState(r) }

// PartitionOf implements stream.Keyed, for an input that is partitioned by stream.HashUint64 of the hashes of the keys.
func (a *Aggregate[T]) PartitionOf(key []byte, n int) int { return partitionOf(key, n) }

// Merge makes one row of all rows of the same key, for Aggregates that are not partitioned by key. It emits at the end
// of each window and must be built with stream.EmitOnClose; its input must be partitioned by key if it has more than
// one partition (ByKey).
//
// Its state is exact: it has no StateDivergence, so the runtime commits it whole at the end of a window and has the
// rows, which can be emitted again, sent again after a failure.
type Merge struct {
	groups groups // a field, not embedded: its divergence must not be promoted
}

// NewMerge returns an empty Merge.
func NewMerge() *Merge {
	m := &Merge{}
	m.groups.setTheta(math.Inf(1))
	return m
}

// ByKey sends all rows of a key to the same partition.
func ByKey() stream.Option {
	return stream.HashUint64(func(r Row) uint64 { return r.Key.Hash() })
}

// Process implements stream.Operator. The error wraps ErrRow.
func (m *Merge) Process(in Row, _ *stream.Emitter[Row]) error {
	if err := in.check(); err != nil {
		return err
	}
	m.groups.merge(&in.Key, &in.Aggregates)
	return nil
}

// CloseWindow implements stream.WindowCloser as Aggregate does.
func (m *Merge) CloseWindow(w stream.Window, out *stream.Emitter[Row]) error {
	return m.groups.close(w, out)
}

// BackupState implements stream.BackupState. It always writes everything.
func (m *Merge) BackupState(w *stream.StateWriter) error { return m.groups.backup(w) }

// BackupDurable implements stream.BackupDurable: keys of a window that is over are then forgotten.
func (m *Merge) BackupDurable() { m.groups.backupDurable() }

// PartitionOf implements stream.Keyed, for an input that is partitioned ByKey.
func (m *Merge) PartitionOf(key []byte, n int) int { return partitionOf(key, n) }

// RestoreState implements stream.RestoreState. The error wraps stream.ErrState.
func (m *Merge) RestoreState(r *stream.StateReader) error { return m.groups.restore(r) }
