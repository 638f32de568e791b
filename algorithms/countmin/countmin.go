package countmin

import (
	"errors"
	"fmt"
	"math"

	"github.com/afstream/afstream/state"
)

var (
	// ErrParams is wrapped by the errors of Validate and New.
	ErrParams = errors.New("countmin: invalid parameters")

	// ErrShape is wrapped by the errors about two sketches, or a sketch and a backup, of different shapes.
	ErrShape = errors.New("countmin: shapes differ")
)

// Limits of a sketch's shape.
const (
	MaxRows  = 64
	MaxCells = 1 << 27 // 3 GiB
)

// Params is the shape of a sketch and what its fault tolerance needs to know.
type Params struct {
	// Rows and Width are the counters: more rows make a large error less likely, a larger width makes it smaller.
	// A counter takes 16 bytes, and 17 more if it has a theta. 4 and 8192 are a good start: total/Width is the mean error
	// of a row.
	Rows, Width int

	// Alpha is the most that one item weighs: 1 if items are counted, 1500 for the bytes of Ethernet packets, 65535 for
	// those of any IP packet. 0 means that it is unknown; the runtime must then look at the divergence after each item.
	// Update does not check it.
	Alpha float64

	// TotalSlack lets the total diverge by TotalSlack times theta; 0 stands for 1. The total grows with every item, so
	// with 1 it is backed up more often than any counter. Whoever compares estimates with a share of the total loses
	// nothing by 1/share: the bar is then off by theta at most, as the estimates are.
	TotalSlack float64
}

// Validate returns all faults of p, joined, each wrapping ErrParams.
func (p Params) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: %s", ErrParams, fmt.Sprintf(format, args...)))
		}
	}
	check(p.Rows >= 1 && p.Rows <= MaxRows, "%d rows, want 1 to %d", p.Rows, MaxRows)
	check(p.Width >= 1 && p.Width <= MaxCells/max(p.Rows, 1), "width %d, want 1 to %d", p.Width, MaxCells/max(p.Rows, 1))
	check(p.Alpha >= 0 && p.Alpha <= math.MaxFloat64, "alpha %v, want a finite number >= 0", p.Alpha)
	check(p.TotalSlack == 0 || p.TotalSlack >= 1 && p.TotalSlack <= math.MaxFloat64,
		"total slack %v, want 0 or a finite number >= 1", p.TotalSlack)
	return errors.Join(faults...)
}

// Sketch is a count-min sketch with the fault tolerance of state.Counters.
type Sketch struct {
	params  Params
	factors []uint64        // one per row
	cells   *state.Counters // row by row, then the total
	shape   shape
}

// New returns an empty sketch. The error wraps ErrParams.
func New(p Params) (*Sketch, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	s := &Sketch{params: p, factors: rowFactors(p.Rows), cells: state.NewCounters(p.Rows*p.Width + 1)}
	s.cells.SetAlpha(p.Alpha)
	s.cells.SetAlways(s.total())
	if p.TotalSlack > 1 {
		s.cells.SetSlack(s.total(), p.TotalSlack)
	}
	return s, nil
}

// Params returns what the sketch was made with.
func (s *Sketch) Params() Params { return s.params }

// Update adds weight to the key of hash and returns the key's estimate after it. weight must be finite and not
// negative; neither is checked here, but a sum that is not finite poisons the state (see package state).
func (s *Sketch) Update(hash uint64, weight float64) float64 {
	c, width := s.cells, uint64(s.params.Width)
	c.Add(s.total(), weight)
	least := math.Inf(1)
	base := 0
	for _, factor := range s.factors {
		at := base + column(hash, factor, width)
		c.Add(at, weight)
		least = min(least, c.At(at))
		base += int(width)
	}
	return least
}

// Estimate returns the estimate of the key of hash, never less than the weights that were added for it.
func (s *Sketch) Estimate(hash uint64) float64 {
	least := math.Inf(1)
	for i, factor := range s.factors {
		least = min(least, s.cells.At(i*s.params.Width+column(hash, factor, uint64(s.params.Width))))
	}
	return least
}

// Total returns the sum of all weights.
func (s *Sketch) Total() float64 { return s.cells.At(s.total()) }

// AddTotal adds to the total alone, and AddCells to the counters from index first on, row by row: together they add a
// sketch that arrives in pieces. The error of AddCells wraps ErrShape.
func (s *Sketch) AddTotal(weight float64) { s.cells.Add(s.total(), weight) }

// AddCells is described at AddTotal.
func (s *Sketch) AddCells(first int, cells []float64) error {
	if first < 0 || first > s.total() || len(cells) > s.total()-first {
		return fmt.Errorf("%w: counters %d to %d of %d", ErrShape, first, first+len(cells), s.total())
	}
	for i, v := range cells {
		s.cells.Add(first+i, v)
	}
	return nil
}

// AppendCells appends n counters, from index first on, row by row, to dst. It panics if there are not so many.
func (s *Sketch) AppendCells(dst []float64, first, n int) []float64 {
	for i := first; i < first+n; i++ {
		dst = append(dst, s.cells.At(i))
	}
	return dst
}

// Merge adds other to s: the estimates are then those of a sketch that has seen the items of both. The error wraps
// ErrShape.
func (s *Sketch) Merge(other *Sketch) error {
	if s.params.Rows != other.params.Rows || s.params.Width != other.params.Width {
		return fmt.Errorf("%w: %dx%d and %dx%d", ErrShape,
			s.params.Rows, s.params.Width, other.params.Rows, other.params.Width)
	}
	return s.cells.AddAll(other.cells)
}

// Reset empties the sketch, as at the start of a window; see [state.Counters.Reset] for what that means for backups.
func (s *Sketch) Reset() { s.cells.Reset() }

// total is the index of the total.
func (s *Sketch) total() int { return s.params.Rows * s.params.Width }

// column scales the upper half of hash*factor to width. The lower half of a product knows little of the upper half of
// the hash; the upper half depends on all of it.
func column(hash, factor, width uint64) int {
	return int(hash * factor >> 32 * width >> 32)
}

// rowFactors returns the odd factors of n rows: splitmix64 of 1, 2, and so on. They must never change, since backups
// and merges rely on them.
func rowFactors(n int) []uint64 {
	factors := make([]uint64, n)
	for i := range factors {
		z := uint64(i+1) * 0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		factors[i] = (z ^ z>>31) | 1
	}
	return factors
}
