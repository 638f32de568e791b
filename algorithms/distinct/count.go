package distinct

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// Count keeps the sketch of the keys of one partition. It emits it at the end of each window only and must be built with
// stream.EmitOnClose; its input may be shuffled, or partitioned in any way. An item costs one memory access and one
// comparison; nothing is allocated.
//
// Invariants:
//  1. A register that is not as in the durable backup is marked changed, or flying if the backup in flight has it as it
//     is, or both if it has grown since.
//  2. changed holds exactly the registers that are marked changed, and inFlight those that are marked flying.
type Count struct {
	precision int
	registers []uint8
	marks     []mark
	changed   []uint32
	inFlight  []uint32
	unsaved   int // registers with a mark

	tracked  bool // theta is finite
	saved    bool // a backup was begun
	stale    bool // backups may hold registers of a window that is over
	unstales bool // the backup in flight replaces them
	flying   bool // a backup is in flight
	shaped   bool // the precision is in a durable backup
}

type mark uint8

const (
	changed mark = 1 << iota
	flying
)

// New returns a Count of no keys. It panics if the precision is out of range.
func New(precision int) *Count {
	if err := checkPrecision(precision); err != nil {
		panic(err)
	}
	return &Count{precision: precision, registers: make([]uint8, 1<<precision), marks: make([]mark, 1<<precision)}
}

// Process implements stream.Operator. It never fails.
func (c *Count) Process(in connector.Keyed, out *stream.Emitter[Sketch]) error {
	return c.ProcessBatch([]connector.Keyed{in}, out)
}

// ProcessBatch implements stream.BatchOperator. It never fails.
func (c *Count) ProcessBatch(in []connector.Keyed, _ *stream.Emitter[Sketch]) error {
	registers, up, down := c.registers, uint(c.precision)&63, uint(64-c.precision)&63
	end := uint64(1) << (up - 1) // one bit more than the rest of a hash ends its zeros
	for i := range in {
		hash := in[i].Hash
		at := hash >> down
		zeros := uint8(bits.LeadingZeros64(hash<<up|end)) + 1
		if zeros > registers[at] {
			registers[at] = zeros
			c.grown(uint32(at))
		}
	}
	return nil
}

// grown notes that a register has grown.
func (c *Count) grown(at uint32) {
	m := &c.marks[at]
	if *m == 0 {
		c.unsaved++
	}
	if *m&changed == 0 {
		*m |= changed
		c.changed = append(c.changed, at)
	}
}

// Sketch returns a copy of the sketch.
func (c *Count) Sketch() Sketch { return Sketch{slices.Clone(c.registers)} }

// CloseWindow implements stream.WindowCloser: it emits the sketch and, unless the stream ends, starts the next window
// with no keys.
func (c *Count) CloseWindow(w stream.Window, out *stream.Emitter[Sketch]) error {
	out.Emit(c.Sketch())
	if !w.Last {
		c.reset()
	}
	return nil
}

// reset makes all registers zero; the next backup, partial or not, then replaces all that older ones hold.
func (c *Count) reset() {
	clear(c.registers)
	clear(c.marks)
	c.changed, c.inFlight, c.unsaved = c.changed[:0], c.inFlight[:0], 0
	c.stale, c.unstales, c.flying = c.saved, false, false
}

// Measure implements stream.Measurer: the Count norm, one register per item, and sketches that are merged downstream.
func (c *Count) Measure() stream.Measure {
	return stream.Measure{Alpha: 1, Norm: errorbound.Count, Combine: errorbound.Added}
}

// SetTheta implements stream.Thresholder; only whether theta is infinite matters.
func (c *Count) SetTheta(theta float64) { c.tracked = !math.IsInf(theta, 1) }

// StateDivergence implements stream.StateDivergence: how many registers have grown since the last durable backup, in
// constant time.
func (c *Count) StateDivergence() float64 {
	if !c.tracked || c.stale {
		return math.Inf(1)
	}
	return float64(c.unsaved)
}

// precisionKey is the key of the element that tells the precision. Without it a sketch of another one would take the
// registers for its own.
const precisionKey = "precision"

// BackupState implements stream.BackupState: the precision, once, and the registers that have grown, or, in a whole
// backup, all that are not zero. The key of a register is its number in 4 bytes.
func (c *Count) BackupState(w *stream.StateWriter) error {
	for _, at := range c.inFlight { // of a backup that was lost
		c.marks[at] &^= flying
		if c.marks[at] == 0 {
			c.unsaved--
			c.grown(at)
		}
	}
	if w.Whole() || !c.shaped {
		w.Put([]byte(precisionKey), []byte{byte(c.precision)})
	}
	var key [4]byte
	put := func(at uint32) {
		binary.BigEndian.PutUint32(key[:], at)
		w.Put(key[:], c.registers[at:at+1])
	}
	all := w.Whole() || c.stale || !c.tracked
	if all {
		for at, r := range c.registers {
			if r > 0 || c.stale && !w.Whole() { // older elements stay unless they are overwritten
				put(uint32(at))
			}
		}
	}
	for _, at := range c.changed {
		if !all {
			put(at)
		}
		c.marks[at] = flying
	}
	c.inFlight, c.changed = append(c.inFlight[:0], c.changed...), c.changed[:0]
	c.flying, c.saved, c.unstales = true, true, all
	return nil
}

// BackupDurable implements stream.BackupDurable.
func (c *Count) BackupDurable() {
	if !c.flying {
		return
	}
	c.flying, c.shaped = false, true
	if c.unstales {
		c.stale = false
	}
	for _, at := range c.inFlight {
		if c.marks[at] &^= flying; c.marks[at] == 0 {
			c.unsaved--
		}
	}
	c.inFlight = c.inFlight[:0]
}

// RestoreState implements stream.RestoreState. The error wraps ErrPrecision for a backup of another precision, and
// stream.ErrState for what is no backup.
func (c *Count) RestoreState(r *stream.StateReader) error {
	for r.Next() {
		at, value, register, err := c.element(r)
		switch {
		case err != nil:
			return err
		case register:
			c.registers[at], c.saved = value, true
		default:
			c.shaped = true
		}
	}
	return r.Err()
}

// element reads a register, or checks the precision.
func (c *Count) element(r *stream.StateReader) (at uint32, value uint8, register bool, err error) {
	if len(r.Value()) != 1 {
		return 0, 0, false, fmt.Errorf("%w: element of %d bytes", stream.ErrState, len(r.Value()))
	}
	value = r.Value()[0]
	if string(r.Key()) == precisionKey {
		if int(value) != c.precision {
			return 0, 0, false, fmt.Errorf("%w: the backup has %d, the operator %d", ErrPrecision, value, c.precision)
		}
		return 0, 0, false, nil
	}
	if len(r.Key()) != 4 || binary.BigEndian.Uint32(r.Key()) >= uint32(len(c.registers)) || value > largest(c.precision) {
		return 0, 0, false, fmt.Errorf("%w: element %q is %d", stream.ErrState, r.Key(), value)
	}
	return binary.BigEndian.Uint32(r.Key()), value, true, nil
}

// MergeState implements stream.MergeState: each register is the larger of the two. The errors are those of RestoreState.
func (c *Count) MergeState(r *stream.StateReader) error {
	for r.Next() {
		at, value, register, err := c.element(r)
		if err != nil {
			return err
		}
		if register && value > c.registers[at] {
			c.registers[at] = value
			c.grown(at)
		}
	}
	return r.Err()
}

// Merge makes one sketch of those of all partitions and emits it at the end of each window. It must have one partition
// and be built with stream.EmitOnClose.
//
// Its state is exact: it has no StateDivergence, so the runtime commits it whole at the end of a window and has the
// sketches, which can be emitted again, sent again after a failure.
type Merge struct{ all Sketch }

// NewMerge returns a Merge of no keys. It panics if the precision is out of range.
func NewMerge(precision int) *Merge { return &Merge{New(precision).Sketch()} }

// Process implements stream.Operator. The error wraps ErrPrecision.
func (m *Merge) Process(in Sketch, _ *stream.Emitter[Sketch]) error {
	all, err := m.all.union(in)
	if err != nil {
		return err
	}
	m.all = all
	return nil
}

// CloseWindow implements stream.WindowCloser.
func (m *Merge) CloseWindow(w stream.Window, out *stream.Emitter[Sketch]) error {
	out.Emit(m.all)
	if !w.Last {
		m.all = New(m.all.Precision()).Sketch()
	}
	return nil
}

// mergeKey is the key of the one element of a Merge.
const mergeKey = "sketch"

// BackupState implements stream.BackupState. It always writes everything.
func (m *Merge) BackupState(w *stream.StateWriter) error {
	value, err := m.all.AppendBinary(nil)
	if err != nil {
		return fmt.Errorf("back up sketch: %w", err)
	}
	w.Put([]byte(mergeKey), value)
	return nil
}

// RestoreState implements stream.RestoreState. The error wraps ErrPrecision for a backup of another precision, and
// stream.ErrState for what is no backup.
func (m *Merge) RestoreState(r *stream.StateReader) error {
	for r.Next() {
		var s Sketch
		if string(r.Key()) != mergeKey || r.Deleted() {
			return fmt.Errorf("%w: unknown element %q", stream.ErrState, r.Key())
		}
		if err := s.UnmarshalBinary(r.Value()); err != nil {
			return fmt.Errorf("%w: %w", stream.ErrState, err)
		}
		if s.Precision() != m.all.Precision() {
			return fmt.Errorf("%w: the backup has %d, the operator %d", ErrPrecision, s.Precision(), m.all.Precision())
		}
		m.all = s
	}
	return r.Err()
}

// Assemble adds operators "distinct", of the given number of workers, and "merge" to the topology of in. It panics if
// the precision is out of range.
func Assemble(in stream.Stream[connector.Keyed], precision, workers int) stream.Stream[Sketch] {
	if err := checkPrecision(precision); err != nil {
		panic(err)
	}
	sketches := stream.Then(in, "distinct", func() *Count { return New(precision) },
		stream.Shuffle(), stream.Workers(workers), stream.EmitOnClose())
	return stream.Then(sketches, "merge", func() *Merge { return NewMerge(precision) }, stream.EmitOnClose())
}
