package join

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// reset forgets all samples. Keys stay, with sums of zero, until their elements have been deleted.
func (r *Ripple) reset() {
	r.moves += r.rows[0] + r.rows[1]
	r.pairs, r.spread, r.both, r.rows = 0, [2]float64{}, 0, [2]uint64{}
	for _, key := range slices.Sorted(maps.Keys(r.keys)) {
		k := r.keys[key]
		*k = sums{dirty: k.dirty}
		r.soil(key, k)
	}
}

// Measure implements stream.Measurer: the norm counts sampled rows, each is one, and keys are in one partition only. It
// emits one estimate a window.
func (r *Ripple) Measure() stream.Measure {
	return stream.Measure{Alpha: 1, Beta: 1, Norm: errorbound.Count, Combine: errorbound.Disjoint}
}

// SetTheta implements stream.Thresholder. It takes time in proportion to the number of keys.
func (r *Ripple) SetTheta(theta float64) {
	if r.tracked = !math.IsInf(theta, 1); !r.tracked {
		return
	}
	if r.moves > r.durable {
		for _, key := range slices.Sorted(maps.Keys(r.keys)) {
			r.soil(key, r.keys[key])
		}
	}
}

// StateDivergence implements stream.StateDivergence: the rows that no durable backup holds.
func (r *Ripple) StateDivergence() float64 {
	if !r.tracked {
		return math.Inf(1)
	}
	return float64(r.moves - r.durable)
}

// BackupState implements stream.BackupState: the sums of all keys, or of those that have changed.
func (r *Ripple) BackupState(w *stream.StateWriter) error {
	for _, key := range r.flight { // of a backup that did not become durable
		if k := r.keys[key]; k != nil {
			r.soil(key, k)
		}
	}
	r.flight = append(r.flight[:0], r.dirty...)
	for _, key := range r.dirty {
		r.keys[key].dirty = false
	}
	r.dirty, r.flown = r.dirty[:0], r.moves
	if w.Whole() || !r.tracked {
		r.flight = slices.AppendSeq(r.flight[:0], maps.Keys(r.keys))
	}
	slices.Sort(r.flight)
	var value []byte
	for _, key := range r.flight {
		k := r.keys[key]
		switch {
		case k.count != [2]uint64{}:
			value = k.appendBinary(value[:0])
			w.Put(binary.BigEndian.AppendUint64(nil, key), value)
		case !w.Whole():
			w.Delete(binary.BigEndian.AppendUint64(nil, key))
		}
	}
	return nil
}

func (k *sums) appendBinary(dst []byte) []byte {
	for side := range k.count {
		dst = binary.LittleEndian.AppendUint64(dst, k.count[side])
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(k.total[side]))
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(k.squares[side]))
	}
	return dst
}

// BackupDurable implements stream.BackupDurable.
func (r *Ripple) BackupDurable() {
	r.durable = r.flown
	for _, key := range r.flight {
		if k := r.keys[key]; k != nil && !k.dirty && k.count == [2]uint64{} {
			delete(r.keys, key)
		}
	}
	r.flight = r.flight[:0]
}

// RestoreState implements stream.RestoreState.
func (r *Ripple) RestoreState(reader *stream.StateReader) error {
	for reader.Next() {
		if len(reader.Key()) != 8 || !reader.Deleted() && len(reader.Value()) != 48 {
			return fmt.Errorf("%w: element %q of %d bytes", stream.ErrState, reader.Key(), len(reader.Value()))
		}
		key := binary.BigEndian.Uint64(reader.Key())
		if reader.Deleted() {
			delete(r.keys, key)
			continue
		}
		k, err := decodeSums(reader.Value())
		if err != nil {
			return err
		}
		r.keys[key] = k
	}
	r.pairs, r.spread, r.both, r.rows = 0, [2]float64{}, 0, [2]uint64{}
	for _, key := range slices.Sorted(maps.Keys(r.keys)) { // in order, so that rounding is the same each time
		k := r.keys[key]
		r.account(k, 1)
		r.rows[0] += k.count[0]
		r.rows[1] += k.count[1]
	}
	return reader.Err()
}

// decodeSums is the inverse of appendBinary. It refuses what no samples can have added up to.
func decodeSums(b []byte) (*sums, error) {
	k := &sums{}
	for side := range k.count {
		k.count[side] = binary.LittleEndian.Uint64(b[24*side:])
		k.total[side] = math.Float64frombits(binary.LittleEndian.Uint64(b[24*side+8:]))
		k.squares[side] = math.Float64frombits(binary.LittleEndian.Uint64(b[24*side+16:]))
		if k.total[side]-k.total[side] != 0 || !(k.squares[side] >= 0 && k.squares[side] <= math.MaxFloat64) || k.count[side] > 1<<62 {
			return nil, fmt.Errorf("%w: sums of %d samples: %v and %v", stream.ErrState, k.count[side], k.total[side], k.squares[side])
		}
	}
	return k, nil
}
