package logreg

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/afstream/afstream/stream"
)

// Measure implements stream.Measurer. The weights of the model are sums over the learners, so the states are Added. One
// example can complete an update, in as many pieces as it holds weights for; the first after a recovery holds all.
func (l *Learner) Measure() stream.Measure {
	m := l.own.Measure()
	m.Beta = math.Ceil(float64(l.width) / maxPiece)
	return m
}

// SetTheta implements stream.Thresholder.
func (l *Learner) SetTheta(theta float64) { l.own.SetTheta(theta) }

// StateDivergence implements stream.StateDivergence: the Euclidean distance of the learner's own steps.
func (l *Learner) StateDivergence() float64 { return l.own.StateDivergence() }

// BackupDurable implements stream.BackupDurable.
func (l *Learner) BackupDurable() { l.own.BackupDurable() }

// progressKey is the key of the element that holds steps and clock. Those of weights have 8 bytes.
const progressKey = "progress."

// BackupState implements stream.BackupState: the weights that the learner has itself changed, or that it changed most,
// each with its sum of squared gradients.
//
// The sums need no divergence of their own. With r the root of one, a step of AdaGrad is d = rate*|g|/r', where
// r'^2 = r^2 + g^2, and r'-r = g^2/(r'+r) <= |g|*d/rate: the roots move at most MaxValue/rate times as far as the weights,
// so they lag behind their backup by at most that many times the path of the weight since. And even a sum that was lost
// altogether never makes a step larger than rate.
func (l *Learner) BackupState(w *stream.StateWriter) error {
	w.Put([]byte(progressKey), binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, l.steps), l.clock))
	return l.own.BackupWith(w, func(i int) uint64 { return math.Float64bits(l.own.Beside(i).squares) })
}

// RestoreState implements stream.RestoreState. All weights are part of the next update, since it is not known which of
// them Global has.
func (l *Learner) RestoreState(r *stream.StateReader) error {
	if err := l.own.RestoreState(through(r, l.restore)); err != nil {
		return err
	}
	l.alone()
	l.touchAll()
	l.restored = l.clock
	return nil
}

// restore takes one element off r and writes what of it belongs to the weights.
func (l *Learner) restore(r *stream.StateReader, w *stream.StateWriter) error {
	value := r.Value()
	switch {
	case string(r.Key()) == progressKey && len(value) == 16:
		l.steps, l.clock = binary.LittleEndian.Uint64(value), binary.LittleEndian.Uint64(value[8:])
		return nil
	case len(r.Key()) != 8 || len(value) != 16:
		return fmt.Errorf("%w: element %q of %d bytes", stream.ErrState, r.Key(), len(value))
	}
	index := binary.LittleEndian.Uint64(r.Key())
	squares := math.Float64frombits(binary.LittleEndian.Uint64(value[8:]))
	if index >= uint64(l.width) || !(squares >= 0 && squares <= math.MaxFloat64) {
		return fmt.Errorf("%w: weight %d of %d with sum of squares %v", stream.ErrState, index, l.width, squares)
	}
	l.own.Beside(int(index)).squares = squares
	w.Put(r.Key(), value[:8])
	return nil
}

// throughBytes is how much through holds at a time.
const throughBytes = 64 << 10

// through returns a reader of what convert makes of the elements of r.
func through(r *stream.StateReader, convert func(*stream.StateReader, *stream.StateWriter) error) *stream.StateReader {
	w := stream.NewStateWriter(nil, false)
	return stream.NewStateReader(func() ([]byte, error) {
		w.Reset(false)
		for len(w.Bytes()) < throughBytes && r.Next() {
			if err := convert(r, w); err != nil {
				return nil, err
			}
		}
		if err := r.Err(); err != nil {
			return nil, err
		}
		if len(w.Bytes()) == 0 {
			return nil, io.EOF
		}
		return w.Bytes(), nil
	})
}
