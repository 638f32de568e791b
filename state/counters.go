package state

import (
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// ErrNotFinite is wrapped by the errors of BackupState when the state holds NaN or an infinity.
var ErrNotFinite = errors.New("state: value is not finite")

// ErrLength is wrapped by the errors about two Counters of different lengths.
var ErrLength = errors.New("state: lengths differ")

// Counters is a fixed number of sums that only grow, compared by the maximum norm: every sum is off by at most theta
// after a failure.
//
// An addition compares the new sum with one limit that lies beside it in memory. Only a sum that reaches its limit
// costs more, a few times for each theta that it grows. The limits follow from how far a sum may be from its durable
// value d:
//
//	value < d + 1/2 theta    quiet      no backup wants it
//	value < d + 3/4 theta    due        the next partial backup writes it
//	value < d + 7/8 theta    requested  StateDivergence exceeds 3/4 theta, so that the runtime starts that backup
//	beyond                   near       every addition is tracked, so that StateDivergence is exact
//
// Invariants:
//  1. limit[i] is the end of the level mark[i]; of a clean sum (value equals the durable one) and of a near one it is
//     -Inf, so that every addition is noticed.
//  2. due holds exactly the indices whose level is due or higher, each once.
//  3. count[l] is the number of sums of level l.
//  4. peak is at least the distance of every near sum.
//
// SetTheta makes the tracking start; before it theta is +Inf.
type Counters struct {
	cells []cell

	// What follows is touched only when a limit is reached, and by backups.
	durable   []float64       // the values that a restore would find; nil for zeros, or if untracked
	mark      []level         // nil if untracked
	slack     map[int]float64 // sums whose theta is multiplied by a factor
	due       []int
	always    []int // sums that every backup writes
	count     [levels]int
	peak      float64
	ends      [levels]float64 // distance at which a level ends, as a part of theta
	alpha     float64
	theta     float64
	flight    []flown   // what the partial backup in flight wrote
	snapshot  []float64 // what the complete backup in flight saw
	complete  bool      // the backup in flight holds every sum
	stale     bool      // reset since the last complete backup
	poisoned  bool
	unstales  bool // the backup in flight was taken after the reset
	untracked bool
	unknown   bool // something is durable, and durable does not say what
	intact    bool // untracked, and nothing was added since the state was restored: each limit is -Inf, to notice it
}

// cell keeps a sum and its limit on one cache line.
type cell struct{ value, limit float64 }

// flown is one element of a partial backup in flight.
type flown struct {
	index int
	value float64
}

// level says how far a sum is from its durable value.
type level uint8

const (
	clean level = iota
	quiet
	due
	requested
	near
	levels
)

// NewCounters returns n sums of zero. It panics if n is negative.
func NewCounters(n int) *Counters {
	c := &Counters{cells: make([]cell, n)}
	c.SetTheta(math.Inf(1))
	return c
}

// Add adds w to sum i. w must not be negative; in return, an addition is one memory access and one comparison. NaN and
// sums beyond the range of float64 poison the state (see the package comment). It panics if i is out of range.
//
// It does not return the new sum because it would then be a little too large to be inlined; At after Add costs nothing.
func (c *Counters) Add(i int, w float64) {
	p := &c.cells[i]
	if p.value += w; !(p.value < p.limit) { // not p.value >= p.limit, which would let NaN pass
		c.attention(i)
	}
}

// At returns sum i.
func (c *Counters) At(i int) float64 { return c.cells[i].value }

// Len returns the number of sums.
func (c *Counters) Len() int { return len(c.cells) }

// All yields every index with its sum, in order.
func (c *Counters) All() iter.Seq2[int, float64] {
	return func(yield func(int, float64) bool) {
		for i := range c.cells {
			if !yield(i, c.cells[i].value) {
				return
			}
		}
	}
}

// AddAll adds the sums of other to those of c, one by one. The error wraps ErrLength.
func (c *Counters) AddAll(other *Counters) error {
	if len(c.cells) != len(other.cells) {
		return fmt.Errorf("%w: %d and %d", ErrLength, len(c.cells), len(other.cells))
	}
	for i := range other.cells {
		c.Add(i, other.cells[i].value)
	}
	return nil
}

// AddRange adds w, which must not be negative, to each of the sums [from, to).
func (c *Counters) AddRange(from, to int, w float64) {
	for i := from; i < to; i++ {
		c.Add(i, w)
	}
}

// Reset makes every sum zero, as at the start of a window. Unless nothing was ever backed up, StateDivergence is +Inf
// from then on until a backup taken after the Reset is durable: that backup, partial or not, replaces every sum.
func (c *Counters) Reset() {
	for i := range c.cells {
		c.cells[i].value = 0
	}
	c.poisoned, c.unstales = false, false
	c.stale = c.stale || c.complete || c.unknown || c.intact || len(c.flight) > 0
	for _, d := range c.durable {
		c.stale = c.stale || d != 0
	}
	c.classify()
}

// SetAlpha declares the most that one item adds to one sum, 0 if that is unknown. Where theta is not large against
// it, partial backups write sums earlier, so that after each of them at least one item can be processed. It must be
// called before SetTheta, and it is what Measure reports: whoever replaces Measure must report the same.
func (c *Counters) SetAlpha(alpha float64) { c.alpha = max(0, alpha) }

// SetSlack lets sum i diverge by factor times theta, for a sum whose error weighs less than that of the others. The
// divergence of that sum is divided by factor accordingly. factor must be positive and finite. It must be called
// before SetTheta.
func (c *Counters) SetSlack(i int, factor float64) {
	if c.slack == nil {
		c.slack = map[int]float64{}
	}
	c.slack[i] = factor
}

// SetAlways has sum i written by every backup, however little it has changed: for a sum that others are compared with.
// It is then as old as the position that a backup was made at, so that a source that can go back makes it exact again.
func (c *Counters) SetAlways(i int) { c.always = append(c.always, i) }

// Measure implements stream.Measurer: the maximum norm, alpha as declared, and sums that are added up downstream.
func (c *Counters) Measure() stream.Measure {
	return stream.Measure{Alpha: c.alpha, Norm: errorbound.Max, Combine: errorbound.Added}
}

// SetTheta implements stream.Thresholder. It takes time in proportion to Len. If theta was +Inf when the state was backed up
// last, or changed after it was restored, nobody knows how far it has diverged: StateDivergence is +Inf until the next backup
// is durable.
func (c *Counters) SetTheta(theta float64) {
	c.theta = theta
	c.untracked = math.IsInf(theta, 1)
	c.track()
	c.ends = levelEnds(theta, c.alpha)
	c.classify()
}

// track makes what tracking takes, unless there is no theta.
func (c *Counters) track() {
	if c.untracked {
		return
	}
	if c.mark == nil {
		c.mark = make([]level, len(c.cells))
	}
	if c.durable == nil {
		c.durable = make([]float64, len(c.cells))
	}
	if c.intact {
		c.copyTo(c.durable)
	}
	c.stale, c.unknown, c.intact = c.stale || c.unknown, false, false
}

// copyTo makes values those of the sums.
func (c *Counters) copyTo(values []float64) {
	for i := range c.cells {
		values[i] = c.cells[i].value
	}
}

// levelEnds returns where the levels end. A partial backup leaves sums that are not due as they are, hence due must
// begin early enough for one more item of alpha to fit below theta. Where only a few items fit, the coarse levels
// would stop the runtime long before theta, and exact tracking begins earlier.
func levelEnds(theta, alpha float64) (ends [levels]float64) {
	ends[quiet] = max(0, min(theta/2, theta-alpha))
	ends[requested] = max(ends[quiet], min(theta*7/8, theta-2*alpha))
	ends[due] = min(max(theta*3/4, ends[quiet]), ends[requested])
	ends[near] = math.Inf(1)
	return ends
}

// StateDivergence implements stream.StateDivergence in constant time. It is an upper bound of the largest change of a
// sum since the last durable backup: 0 if there is none, the end of the highest level that a sum has reached, and
// exact where a sum is near theta.
func (c *Counters) StateDivergence() float64 {
	switch {
	case c.poisoned:
		return math.NaN()
	case c.untracked || c.stale:
		return math.Inf(1)
	case c.count[near] > 0:
		return c.peak
	case c.count[requested] > 0:
		return c.ends[requested]
	case c.count[due] > 0:
		return c.ends[due]
	case c.count[quiet] > 0:
		return c.ends[quiet]
	}
	return 0
}

// attention is called when sum i has reached its limit.
func (c *Counters) attention(i int) {
	v := c.cells[i].value
	if math.IsNaN(v) || math.IsInf(v, 0) {
		c.poisoned = true
		return
	}
	if c.untracked { // for the first time since it was restored
		c.intact, c.unknown = false, true
		c.classify()
		return
	}
	c.place(i)
}

// place moves sum i to the level that its distance demands.
func (c *Counters) place(i int) {
	d, factor := c.cells[i].value-c.durable[i], c.factor(i)
	l := c.levelOf(d / factor)
	if l >= due && c.mark[i] < due {
		c.due = append(c.due, i)
	}
	c.count[c.mark[i]]--
	c.count[l]++
	c.mark[i] = l
	if l == near {
		c.peak = max(c.peak, d/factor)
	}
	c.cells[i].limit = c.limit(l, c.durable[i], factor)
}

func (c *Counters) levelOf(d float64) level {
	if d == 0 {
		return clean
	}
	l := quiet
	for l < near && d >= c.ends[l] {
		l++
	}
	return l
}

// limit returns the value at which a sum leaves level l. It is one step below the rounded sum, which may have been
// rounded up: the divergence must not be larger than what StateDivergence says, not even by a rounding error.
func (c *Counters) limit(l level, durable, factor float64) float64 {
	if l == clean || l == near {
		return math.Inf(-1)
	}
	return math.Nextafter(durable+c.ends[l]*factor, math.Inf(-1))
}

func (c *Counters) factor(i int) float64 {
	if f, ok := c.slack[i]; ok {
		return f
	}
	return 1
}

// classify places every sum anew.
func (c *Counters) classify() {
	if c.untracked {
		limit := math.Inf(1)
		if c.intact {
			limit = math.Inf(-1)
		}
		for i := range c.cells {
			c.cells[i].limit = limit
		}
		return
	}
	clear(c.mark)
	c.due, c.peak = c.due[:0], 0
	c.count = [levels]int{clean: len(c.cells)}
	for i := range c.cells {
		if p := &c.cells[i]; p.value == c.durable[i] { // all are after a recovery
			p.limit = math.Inf(-1)
		} else {
			c.place(i)
		}
	}
}
