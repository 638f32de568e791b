package countmin

import (
	"encoding/binary"
	"fmt"

	"github.com/afstream/afstream/stream"
)

// shapeKey is the key of the element that tells the shape of the sketch in a backup, as two 4-byte numbers. Without
// it a sketch of another shape would take the counters for its own.
const shapeKey = "shape"

// shape tracks whether the shape element is in the backup.
type shape struct{ durable, inFlight bool }

// SetTheta implements stream.Thresholder.
func (s *Sketch) SetTheta(theta float64) { s.cells.SetTheta(theta) }

// StateDivergence implements stream.StateDivergence: an upper bound of the largest difference of a counter, in
// constant time.
func (s *Sketch) StateDivergence() float64 { return s.cells.StateDivergence() }

// Measure implements stream.Measurer: the Max norm, sketches that are added up downstream, no outputs.
func (s *Sketch) Measure() stream.Measure { return s.cells.Measure() }

// BackupState implements stream.BackupState.
func (s *Sketch) BackupState(w *stream.StateWriter) error {
	if w.Whole() || !s.shape.durable {
		var v [8]byte
		binary.LittleEndian.PutUint32(v[:4], uint32(s.params.Rows))
		binary.LittleEndian.PutUint32(v[4:], uint32(s.params.Width))
		w.Put([]byte(shapeKey), v[:])
		s.shape.inFlight = true
	}
	return s.cells.BackupState(w)
}

// BackupDurable implements stream.BackupDurable.
func (s *Sketch) BackupDurable() {
	s.shape.durable = s.shape.durable || s.shape.inFlight
	s.cells.BackupDurable()
}

// RestoreState implements stream.RestoreState. The error wraps ErrShape for the backup of a sketch of another shape,
// and stream.ErrState for what is no backup of a sketch.
func (s *Sketch) RestoreState(r *stream.StateReader) error {
	return s.RestoreWith(r, func(r *stream.StateReader) error {
		return fmt.Errorf("%w: unknown element %q", stream.ErrState, r.Key())
	})
}

// RestoreWith is RestoreState for a state that saves more than its sketch in one backup: elements that the sketch does
// not know are given to other. Their keys must not have 8 bytes.
func (s *Sketch) RestoreWith(r *stream.StateReader, other func(*stream.StateReader) error) error {
	return s.cells.RestoreWith(r, func(r *stream.StateReader) error {
		if string(r.Key()) != shapeKey {
			return other(r)
		}
		err := s.checkShape(r.Value())
		s.shape.durable = err == nil
		return err
	})
}

// AddState adds the counters of another sketch, for stream.MergeState, with the errors of RestoreState.
func (s *Sketch) AddState(r *stream.StateReader) error {
	return s.AddStateWith(r, func(r *stream.StateReader) error {
		return fmt.Errorf("%w: unknown element %q", stream.ErrState, r.Key())
	})
}

// AddStateWith is to AddState what RestoreWith is to RestoreState.
func (s *Sketch) AddStateWith(r *stream.StateReader, other func(*stream.StateReader) error) error {
	return s.cells.AddStateWith(r, func(r *stream.StateReader) error {
		if string(r.Key()) != shapeKey {
			return other(r)
		}
		return s.checkShape(r.Value())
	})
}

func (s *Sketch) checkShape(v []byte) error {
	if len(v) != 8 {
		return fmt.Errorf("%w: shape of %d bytes", stream.ErrState, len(v))
	}
	rows, width := binary.LittleEndian.Uint32(v), binary.LittleEndian.Uint32(v[4:])
	if rows != uint32(s.params.Rows) || width != uint32(s.params.Width) {
		return fmt.Errorf("%w: the backup is %dx%d, the sketch %dx%d", ErrShape, rows, width, s.params.Rows, s.params.Width)
	}
	return nil
}

// Compensate implements stream.Compensator: it raises every counter by what the failure may have lost, theta of the
// state and lost items of at most Alpha each, so that estimates are again never too low. The total stays as it is,
// too low rather than too high, for a bar that follows it must not rise. If Alpha is unknown, lost items cannot be
// compensated, only theta. An infinite theta promises nothing and is not compensated.
func (s *Sketch) Compensate(theta float64, lost uint64) {
	if add := theta + float64(lost)*s.params.Alpha; add > 0 && add < maxCompensation {
		s.cells.AddRange(0, s.total(), add)
	}
}

// maxCompensation rules out infinities, and sums of them.
const maxCompensation = 1e300
