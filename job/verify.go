package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// Verification is what the verification of every job tells. The package comment says what is compared with which bound.
// A bound is null in JSON where nothing is promised: under guarantee none, or with an infinite Theta.
type Verification struct {
	LostItems       uint64 `json:"lost_items"` // those of any operator that nobody could give it again
	LostItemsBound  Number `json:"lost_items_bound"`
	DuplicatedItems uint64 `json:"duplicated_items"` // items whose outputs were emitted twice
	DuplicatedBound Number `json:"duplicated_items_bound"`
	Kept            bool   `json:"kept"` // no bound is broken
}

// Check is a measured figure beside the most that it was promised to be.
type Check struct {
	What     string // as in "state divergence"
	Measured Number
	Bound    Number // infinite if nothing is promised

	slack float64 // rounding that the comparison allows
}

// Promised says whether there is a bound at all.
func (c Check) Promised() bool { return !math.IsInf(float64(c.Bound), 1) }

// Kept says whether the bound, if there is one, is not broken. NaN breaks it.
func (c Check) Kept() bool { return !c.Promised() || float64(c.Measured) <= float64(c.Bound)+c.slack }

// allKept says whether no check is broken.
func allKept(checks []Check) bool { return broken(checks) == nil }

// broken returns which bounds are broken, wrapping ErrBound, nil if none is.
func broken(checks []Check) error {
	var errs []error
	for _, c := range checks {
		if !c.Kept() {
			errs = append(errs, fmt.Errorf("%w: %s is %v, promised at most %v", ErrBound, c.What, c.Measured, c.Bound))
		}
	}
	return errors.Join(errs...)
}

// items returns the checks of what every job has. That nothing was repeated goes without saying where nothing could be.
func (v *Verification) items() []Check {
	checks := []Check{{What: "items lost", Measured: Number(v.LostItems), Bound: v.LostItemsBound}}
	if v.DuplicatedItems > 0 || v.DuplicatedBound > 0 && !math.IsInf(float64(v.DuplicatedBound), 1) {
		checks = append(checks, Check{What: "items repeated", Measured: Number(v.DuplicatedItems), Bound: v.DuplicatedBound})
	}
	return checks
}

// losses fills in what operators lost or repeated.
func (v *Verification) losses(result *controller.Result) {
	for _, o := range result.Operators {
		v.LostItems += o.Lost
		v.DuplicatedItems += o.Repeated
	}
}

// promise is how much failures may cost under the guarantee of a run.
type promise struct {
	// Params are those that the guarantee comes to: all 0 for batches, all infinite for none.
	errorbound.Params
	nothing  bool   // is promised
	pipe     bool   // the source is read like one
	batches  bool   // decide about commits, not thresholds
	beyond   uint64 // with batches, the most that a partition processes beyond its last durable commit
	compute  int    // partitions of a worker
	failures map[string]uint64
}

// promised returns what e promised in a run that ended so.
func (e *Engine) promised(result *controller.Result) promise {
	p := promise{
		Params: e.Params, pipe: e.PipeSources, batches: e.batches(), beyond: e.batch(), compute: e.Compute, failures: map[string]uint64{},
	}
	switch e.Guarantee {
	case worker.None:
		p.nothing, p.Theta = true, math.Inf(1)
	case worker.ErrorFree:
		p.Theta, p.L, p.Gamma = 0, 0, 1
	case worker.MiniBatch:
		p.Theta, p.L, p.Gamma = 0, 0, 0
	case worker.UpstreamBackup:
		p.Theta, p.L, p.Gamma = 0, 0, 0
		p.beyond *= 2 // it goes on while a commit waits for the receivers
	}
	for _, f := range result.Failures {
		p.failures[f.Operator]++
	}
	return p
}

// never returns how often may happen what no guarantee lets happen.
func (p promise) never() float64 {
	if p.nothing {
		return math.Inf(1)
	}
	return 0
}

// fromSource returns how many items can be lost on their way from a source of one partition, and by those that take
// them: none if it can be read again, else L + Gamma and what rounding adds to Gamma.
func (p promise) fromSource(name string) float64 {
	if p.nothing || !p.pipe {
		return p.never()
	}
	return p.LossBound(1) + float64(p.Overdraft(1, p.failures[name]))
}

// fromOperator returns how many items can be lost on their way from an operator of n partitions that emits as it
// processes, whatever its source: Gamma, and what rounding adds to it. With batches none is.
func (p promise) fromOperator(name string, n int) float64 {
	if p.nothing || p.batches {
		return p.never()
	}
	return float64(p.Gamma) + float64(p.Overdraft(n, p.failures[name]))
}

// again returns how many items an operator of n partitions that emits as it processes may process twice: L, and what
// rounding adds to it, for it needs at least one item between two backups as a sender needs one in flight. With batches
// it is what the partitions of those workers that did fail may have processed beyond their last commits.
func (p promise) again(name string, n int) float64 {
	if p.nothing {
		return math.Inf(1)
	}
	if p.batches {
		return float64(p.failures[name]) * float64(min(n, p.compute)) * float64(p.beyond)
	}
	like := errorbound.Params{Gamma: p.L, Series: p.Series}
	return float64(p.L) + float64(like.Overdraft(n, p.failures[name]))
}

// inSink returns how many items a sink of one partition may lose between its acknowledgement and its flush.
func (p promise) inSink(name string) float64 {
	if p.batches {
		return p.never()
	}
	return p.again(name, 1)
}

// costs is n*each with 0*Inf = 0: what cannot be lost costs nothing, and nothing is lost with what costs nothing.
func costs(n, each float64) float64 {
	if n == 0 || each == 0 {
		return 0
	}
	return n * each
}

// readAgain gives all items of an input to take, and returns how many there are.
func readAgain[T any](ctx context.Context, open stream.NewSource[T], progress func(done, total int64), take func([]T) error) (
	items uint64, err error,
) {
	source, err := open(0, 1)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	size, _ := source.(stream.Progresser)
	slab := make([]T, stream.SlabItems)
	for ctx.Err() == nil {
		n, err := source.Read(slab)
		if err := take(slab[:n]); err != nil {
			return items, err
		}
		items += uint64(n)
		if progress != nil && size != nil {
			progress(size.Progress())
		}
		if err == io.EOF {
			return items, nil
		}
		if err != nil {
			return items, err
		}
	}
	return items, ctx.Err()
}
