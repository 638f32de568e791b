package errorbound

import (
	"errors"
	"fmt"
	"math"
)

// ErrPlan is wrapped by every error of the planner: a target that is no target, or one that nothing can keep. The text
// names the figure at fault and what to change.
var ErrPlan = errors.New("errorbound: no plan")

// Workload is what the planner has to know about a job, whatever it computes. Items must be given, the zero value of
// the rest has a meaning.
type Workload struct {
	// Items is the number of items that the stateful operator will see in all its partitions together. A stream may be
	// longer: errors that are shares of the total are then smaller than planned.
	Items float64
	// Weight is the divergence that one item adds on average, 0 stands for Alpha, or 1 if that is unknown.
	Weight float64
	// Alpha is the most divergence that one item can add. 0: unknown, which will not do where items can be lost.
	Alpha float64
	// Heaviest is the share of all divergence that falls to the element that changes most (of a sketch about the share of
	// the heaviest key). 0: unknown, which counts as 1. The less it is, the fewer commits are needed.
	Heaviest float64
	// Norm and Combine say how the partitions' divergences add up; see Share.
	Norm    Norm
	Combine Combine
	// Pipe says that the source cannot be read again, so that items in flight are at risk and L and Gamma count.
	Pipe bool
	// Workers is the number of workers of the stateful operator and Compute the number of partitions of each, 0 is 1.
	Workers, Compute int
	// Failures is how many failures are expected through the whole run, of any workers. The bound on the state holds for
	// any number; this one is what the costs are computed for, and how many failures of a pipe are paid for in advance
	// (see Params.Overdraft).
	Failures uint64
	// Series are those to choose from, empty for all.
	Series []Series
	// Costs are what the machine takes; a zero figure stands for that of DefaultCosts.
	Costs Costs
}

// Costs are what a machine takes for the things that fault tolerance adds to a job. They change predictions and
// choices, never a bound.
type Costs struct {
	// ItemsPerSecond is how many items one worker processes if nothing is backed up.
	ItemsPerSecond float64
	// CommitsPerSecond is how many commits the backup store takes from all workers together.
	CommitsPerSecond float64
	// ElementsPerSecond is how many elements it takes within such commits.
	ElementsPerSecond float64
	// ElementBytes is what one element takes in the store, its key included.
	ElementBytes float64
	// Handover is how many seconds a sender waits, beside the work of the receiver, each time its window is used up.
	Handover float64
}

// DefaultCosts returns figures measured on two cores with the store on Badger, without waiting for the disk.
func DefaultCosts() Costs {
	return Costs{ItemsPerSecond: 5e6, CommitsPerSecond: 2e4, ElementsPerSecond: 5e6, ElementBytes: 20, Handover: 1e-5}
}

// orDefault fills in the figures that are not given.
func (c Costs) orDefault() Costs {
	d := DefaultCosts()
	for _, f := range []struct{ given, standard *float64 }{
		{&c.ItemsPerSecond, &d.ItemsPerSecond}, {&c.CommitsPerSecond, &d.CommitsPerSecond},
		{&c.ElementsPerSecond, &d.ElementsPerSecond}, {&c.ElementBytes, &d.ElementBytes}, {&c.Handover, &d.Handover},
	} {
		if *f.given == 0 {
			*f.given = *f.standard
		}
	}
	return c
}

// Total returns Items times the mean weight.
func (w Workload) Total() float64 { return w.Items * w.weight() }

func (w Workload) weight() float64 {
	switch {
	case w.Weight > 0:
		return w.Weight
	case w.Alpha > 0:
		return w.Alpha
	}
	return 1
}

func (w Workload) partitions() int { return max(w.Workers, 1) * max(w.Compute, 1) }

// series returns those to choose from.
func (w Workload) series() []Series {
	if len(w.Series) > 0 {
		return w.Series
	}
	return []Series{Geometric, Telescoping}
}

// maxPlanned bounds the failures and partitions of a plan, whose cost is computed incarnation by incarnation.
const maxPlanned = 1_000_000

// faults returns what is wrong with w.
func (w Workload) faults() []error {
	var c checks
	c.add(w.Items >= 1 && finite(w.Items), "items %v: want a number of at least 1", w.Items)
	c.add(w.Weight >= 0 && finite(w.Weight), "weight %v: want a finite number of at least 0", w.Weight)
	c.add(w.Alpha >= 0 && finite(w.Alpha), "alpha %v: want a finite number of at least 0", w.Alpha)
	c.add(w.Alpha == 0 || w.Weight <= w.Alpha, "mean weight %v: it is above alpha %v, the most that one item weighs", w.Weight, w.Alpha)
	c.add(w.Heaviest >= 0 && w.Heaviest <= 1, "share %v of the heaviest: want 0 to 1", w.Heaviest)
	c.add(w.Workers >= 0 && w.Compute >= 0 && w.Workers <= maxPlanned && w.Compute <= maxPlanned/max(w.Workers, 1),
		"%d workers of %d partitions: want at least one and at most %d in all", w.Workers, w.Compute, maxPlanned)
	c.add(w.Failures <= maxPlanned, "%d failures: want at most %d", w.Failures, maxPlanned)
	c.add(!w.Pipe || w.Alpha > 0, "alpha is unknown, and items of a source that cannot be read again may be lost:"+
		" give the most that one item weighs")
	for _, s := range w.Series {
		c.add(s <= Telescoping, "unknown %v", s)
	}
	k := w.Costs
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"items per second", k.ItemsPerSecond}, {"commits per second", k.CommitsPerSecond},
		{"elements per second", k.ElementsPerSecond}, {"bytes of an element", k.ElementBytes}, {"handover", k.Handover},
	} {
		c.add(f.value >= 0 && finite(f.value), "%s %v: want a finite number above 0, or 0 for the usual", f.name, f.value)
	}
	return c
}

// checks collects faults.
type checks []error

func (c *checks) add(ok bool, format string, args ...any) {
	if !ok {
		*c = append(*c, fmt.Errorf(format, args...))
	}
}

// planError makes one error of all faults, nil if there is none.
func planError(faults []error) error {
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrPlan, errors.Join(faults...))
}

func finite(x float64) bool { return !math.IsInf(x, 0) && !math.IsNaN(x) }

// Divide returns the parameters that keep Theta + (L + Gamma + overdraft)*alpha at or below most, the divergence that
// all failures together may cost, and what they are predicted to cost. rows is how many elements of the state one item
// changes (for a count-min sketch its rows), 1 or more.
//
// A source that can be read again loses no item: Theta is all of most, L and Gamma are 0. For a pipe the two shares are
// weighed against each other: a window of M items is used up every M items and costs one handover each time, a theta
// one commit each time a counter has grown by most of it, so the work per item has the form A/Theta + B/M with
// Theta = most - M*alpha. That is convex in M, but for the rounding of small grants; M is tried at every whole number
// up to 64 and then in steps of 9%, which comes within 15% of the least (a test searches finer). L and Gamma are half of
// M each, since only their sum is the window.
//
// The overdraft is Params.Overdraft of one sender that takes all of w.Failures. The series is that of the least
// predicted cost, the earlier in w.Series where two are equal.
//
// The error wraps ErrPlan: for faults of w, and where most is too small for the one item at a time that a pipe must
// have in flight.
func (w Workload) Divide(most, rows float64) (Params, Prediction, error) {
	var c checks
	c = append(c, w.faults()...)
	c.add(most > 0 && finite(most), "error budget %v: want a finite number above 0", most)
	c.add(rows >= 1 && finite(rows), "%v elements changed by an item: want at least 1", rows)
	if err := planError(c); err != nil {
		return Params{}, Prediction{}, err
	}
	var best Params
	least := Prediction{Slowdown: math.Inf(1)}
	for _, s := range w.series() {
		for _, window := range w.windows(most) {
			p, ok := w.within(most, window, s)
			if !ok {
				continue
			}
			if cost := w.Predict(p, rows); cost.Slowdown < least.Slowdown {
				best, least = p, cost
			}
		}
	}
	if math.IsInf(least.Slowdown, 1) {
		return Params{}, Prediction{}, planError([]error{fmt.Errorf("failures may cost %v, but %d failures of a source that"+
			" cannot be read again may cost one item of up to %v each: allow a larger error, or read the input from a file",
			most, w.Failures, w.Alpha)})
	}
	return best, least, nil
}

// maxWindow bounds L + Gamma: the sender keeps what is not acknowledged in memory, and windows beyond what the rings
// between two workers hold bring nothing. It is large against these 8,192 items because it shrinks with every failure.
const maxWindow = 1 << 22

// windows returns the values of L + Gamma to be tried.
func (w Workload) windows(most float64) []uint64 {
	if !w.Pipe {
		return []uint64{0}
	}
	windows := []uint64{0}
	for items := 1.0; items <= maxWindow && items*w.Alpha < most; {
		windows = append(windows, uint64(items))
		if items < 64 {
			items++
		} else {
			items = math.Ceil(items * 1.09)
		}
	}
	return windows
}

// within returns the parameters with that window, and whether they leave anything for Theta.
func (w Workload) within(most float64, window uint64, s Series) (Params, bool) {
	p := Params{L: window - window/2, Gamma: window / 2, Series: s}
	theta := most
	if w.Pipe {
		theta -= (float64(p.L) + float64(p.Gamma) + float64(p.Overdraft(1, w.Failures))) * w.Alpha
	}
	if theta >= 100 {
		theta = math.Floor(theta) // a figure that is easy to read; at most 1% of it
	}
	p.Theta = theta
	return p, theta > 0
}

// FailureBound returns the most by which any number of failures of the stateful operator, and w.Failures of its source,
// can move the state under p: Theta, and for a pipe (L + Gamma + overdraft)*alpha more.
func (w Workload) FailureBound(p Params) float64 {
	if !w.Pipe {
		return p.Theta
	}
	return p.Theta + (float64(p.L)+float64(p.Gamma)+float64(p.Overdraft(1, w.Failures)))*w.Alpha
}
