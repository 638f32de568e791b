package state

import (
	"encoding/binary"
	"fmt"

	"github.com/afstream/afstream/stream"
)

// Matrix is an Array that is read by rows and columns: the weights of several classes, a table of counts by two
// categories. Costs, norms and backups are those of Array; the norms take all elements as one vector (L2 is the Frobenius
// norm). A backup also says the shape, so that it is not restored into another one.
type Matrix[T Number] struct {
	cells         *Array[T]
	rows, columns int
}

// NewMatrix returns rows times columns zeros. It panics if one of them is negative, or as NewArray does.
func NewMatrix[T Number](rows, columns int, o Options) *Matrix[T] {
	if rows < 0 || columns < 0 {
		panic(fmt.Errorf("%w: a matrix of %d rows and %d columns", ErrOptions, rows, columns))
	}
	return &Matrix[T]{cells: NewArray[T](rows*columns, o), rows: rows, columns: columns}
}

// Rows returns the number of rows.
func (m *Matrix[T]) Rows() int { return m.rows }

// Columns returns the number of columns.
func (m *Matrix[T]) Columns() int { return m.columns }

// At returns the element in row r and column c. Like all methods with these arguments it panics if one is out of range.
func (m *Matrix[T]) At(r, c int) T { return m.cells.At(m.index(r, c)) }

// Row returns a copy of the elements of row r.
func (m *Matrix[T]) Row(r int) []T { return m.cells.values(r*m.columns, (r+1)*m.columns) }

// Add adds d, which may be negative, to one element.
func (m *Matrix[T]) Add(r, c int, d T) { m.cells.Add(m.index(r, c), d) }

// Set replaces one element.
func (m *Matrix[T]) Set(r, c int, v T) { m.cells.Set(m.index(r, c), v) }

// AddRow adds the elements of d to those of row r. The error wraps ErrLength; nothing has then been added.
func (m *Matrix[T]) AddRow(r int, d []T) error {
	from := m.index(r, 0)
	return m.cells.addRange(from, from+m.columns, d)
}

// Reset makes every element zero. The change counts as divergence like any other.
func (m *Matrix[T]) Reset() { m.cells.Reset() }

// index returns the place of an element. A column out of range would else be an element of another row.
func (m *Matrix[T]) index(r, c int) int {
	if c < 0 || c >= max(m.columns, 1) {
		panic(fmt.Errorf("state: column %d of %d", c, m.columns))
	}
	return r*m.columns + c
}

// Measure implements stream.Measurer, as configured.
func (m *Matrix[T]) Measure() stream.Measure { return m.cells.Measure() }

// SetTheta implements stream.Thresholder. It takes time in proportion to the number of elements.
func (m *Matrix[T]) SetTheta(theta float64) { m.cells.SetTheta(theta) }

// StateDivergence implements stream.StateDivergence in constant time; see Array.StateDivergence.
func (m *Matrix[T]) StateDivergence() float64 { return m.cells.StateDivergence() }

// shapeKey is the key of the element that says the shape. Those of the others have 8 bytes.
const shapeKey = "shape"

// BackupState implements stream.BackupState; see Array.BackupState.
func (m *Matrix[T]) BackupState(w *stream.StateWriter) error {
	w.Put([]byte(shapeKey), m.shape())
	return m.cells.BackupState(w)
}

func (m *Matrix[T]) shape() []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(m.rows)), uint64(m.columns))
}

// BackupDurable implements stream.BackupDurable.
func (m *Matrix[T]) BackupDurable() { m.cells.BackupDurable() }

// RestoreState implements stream.RestoreState.
func (m *Matrix[T]) RestoreState(r *stream.StateReader) error {
	return m.cells.restoreWith(r, m.checkShape)
}

// AddState adds the elements of another state one by one, for stream.MergeState.
func (m *Matrix[T]) AddState(r *stream.StateReader) error {
	return m.cells.addStateWith(r, m.checkShape)
}

func (m *Matrix[T]) checkShape(r *stream.StateReader) error {
	if string(r.Key()) != shapeKey || string(r.Value()) != string(m.shape()) {
		return fmt.Errorf("%w: element %q holds %x, want shape %x", stream.ErrState, r.Key(), r.Value(), m.shape())
	}
	return nil
}
