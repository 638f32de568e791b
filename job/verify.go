package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/afstream/afstream/algorithms/heavyhitter"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// Verification is a run beside its own failure-free run and beside exact counts. The package comment says what is
// compared with which bound. A bound is null in JSON where nothing is promised: under guarantee none, or with an infinite
// Theta.
type Verification struct {
	StateDivergence      Number `json:"state_divergence"` // largest absolute difference of a counter
	StateDivergenceBound Number `json:"state_divergence_bound"`
	TotalDivergence      Number `json:"total_divergence"` // difference of the total weight
	TotalDivergenceBound Number `json:"total_divergence_bound"`
	LostItems            uint64 `json:"lost_items"`
	LostItemsBound       Number `json:"lost_items_bound"`
	DuplicatedItems      uint64 `json:"duplicated_items"` // items whose outputs were emitted twice; always to be 0
	Alpha                Number `json:"alpha"`            // largest weight of the input, for the bounds
	Keys                 int    `json:"keys"`             // distinct ones
	heavyhitter.Quality
	HeavyHitters []ExactRow `json:"heavy_hitters"` // the true ones
	Kept         bool       `json:"kept"`          // no bound is broken

	exact *heavyhitter.Exact
	slack float64 // rounding that the comparison of sums allows
}

// ExactRow is a true heavy hitter.
type ExactRow struct {
	Key    connector.Key `json:"key"`
	Weight Number        `json:"weight"`
	Share  Number        `json:"share"`
}

// roundingShare is the part of the total weight by which sums may differ because floating-point addition depends on the
// order; whole weights add up exactly.
const roundingShare = 1e-9

// verify repeats the job without failures, counts its input exactly, and compares.
func (h *HeavyHitter) verify(ctx context.Context, in *input, got *answer, result *controller.Result) (*Verification, error) {
	var clean answer
	again, err := h.Engine.repeat(ctx, h.topology(in.open, in.alpha, &clean))
	if err != nil {
		return nil, fmt.Errorf("repeat the job without failures: %w", err)
	}
	exact, largest, items, err := countExactly(ctx, in.open, h.Engine.progress(PhaseExact))
	if err != nil {
		return nil, fmt.Errorf("count exactly: %w", err)
	}
	if result.Items != items || again.Items != items {
		return nil, fmt.Errorf("verify: the input changed between the runs: it had %d items, then %d, then %d",
			result.Items, again.Items, items)
	}
	v := &Verification{Alpha: Number(largest), Keys: exact.Len(), exact: exact, slack: roundingShare * exact.Total()}
	v.StateDivergence = Number(distance(got.cells, clean.cells))
	v.TotalDivergence = Number(math.Abs(got.total - clean.total))
	v.LostItems, v.DuplicatedItems = losses(result)
	h.bounds(v, result)
	v.Quality = heavyhitter.Compare(got.rows.Items(), exact, h.Threshold)
	for _, r := range exact.HeavyHitters(h.Threshold) {
		v.HeavyHitters = append(v.HeavyHitters, ExactRow{Key: r.Key, Weight: Number(r.Estimate), Share: Number(r.Share)})
	}
	v.Kept = v.err() == nil
	return v, nil
}

// bounds fills in what the package comment derives.
func (h *HeavyHitter) bounds(v *Verification, result *controller.Result) {
	if h.Guarantee == worker.None {
		v.StateDivergenceBound = Number(math.Inf(1))
		v.TotalDivergenceBound, v.LostItemsBound = v.StateDivergenceBound, v.StateDivergenceBound
		return
	}
	atRisk := 0.0 // items
	if h.PipeSources {
		var ofSource uint64
		for _, f := range result.Failures {
			if f.Operator == "trace" {
				ofSource++
			}
		}
		atRisk = h.LossBound(1) + float64(h.Overdraft(1, ofSource))
	}
	inState := atRisk
	if h.Compensate && !h.PipeSources {
		inState = float64(h.L)
	}
	v.LostItemsBound = Number(atRisk)
	v.StateDivergenceBound = Number(h.Theta) + Number(inState)*v.Alpha
	v.TotalDivergenceBound = Number(h.Theta/h.Threshold) + Number(atRisk)*v.Alpha
}

// err returns which bounds are broken, wrapping ErrBound, nil if none is.
func (v *Verification) err() error {
	var broken []error
	check := func(what string, measured, bound, slack Number) {
		if !(measured <= bound+slack) { // so that NaN is broken
			broken = append(broken, fmt.Errorf("%w: %s is %v, promised at most %v", ErrBound, what, measured, bound))
		}
	}
	check("state divergence", v.StateDivergence, v.StateDivergenceBound, Number(v.slack))
	check("divergence of the total", v.TotalDivergence, v.TotalDivergenceBound, Number(v.slack))
	check("number of items lost", Number(v.LostItems), v.LostItemsBound, 0)
	if v.DuplicatedItems > 0 && !math.IsInf(float64(v.LostItemsBound), 1) {
		check("number of items duplicated", Number(v.DuplicatedItems), 0, 0)
	}
	return errors.Join(broken...)
}

// distance returns the largest absolute difference of two vectors; +Inf if they cannot be compared.
func distance(a, b []float64) float64 {
	if len(a) != len(b) || a == nil {
		return math.Inf(1)
	}
	d := 0.0
	for i := range a {
		d = max(d, math.Abs(a[i]-b[i])) // max passes NaN on
	}
	return d
}

// countExactly reads the whole input and returns the weight of every key, the largest weight of an item, and how many
// items there are.
func countExactly(ctx context.Context, open stream.NewSource[connector.Keyed], progress func(done, total int64)) (
	exact *heavyhitter.Exact, largest float64, items uint64, err error,
) {
	source, err := open(0, 1)
	if err != nil {
		return nil, 0, 0, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	size, _ := source.(stream.Progresser)
	exact = heavyhitter.NewExact()
	slab := make([]connector.Keyed, stream.SlabItems)
	for ctx.Err() == nil {
		n, err := source.Read(slab)
		for _, item := range slab[:n] {
			if err := exact.Add(item); err != nil {
				return nil, 0, 0, err
			}
			largest = max(largest, item.Weight)
		}
		items += uint64(n)
		if progress != nil && size != nil {
			progress(size.Progress())
		}
		if err == io.EOF {
			return exact, largest, items, nil
		}
		if err != nil {
			return nil, 0, 0, err
		}
	}
	return nil, 0, 0, ctx.Err()
}
