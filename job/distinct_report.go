package job

import (
	"bytes"
	"context"
	"fmt"

	"github.com/afstream/afstream/algorithms/distinct"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
)

// DistinctReport is what the job distinct has done.
type DistinctReport = Report[Estimate, DistinctVerification]

// Estimate is what the job distinct found.
type Estimate struct {
	Keys          Number `json:"keys"`           // about how many there are
	StandardError Number `json:"standard_error"` // of Keys, as a share of it
	Precision     int    `json:"precision"`
}

// sketchOf returns the sketch that a run has made, that of no keys if it came to none.
func sketchOf(sketches []distinct.Sketch) distinct.Sketch {
	if len(sketches) == 0 {
		return distinct.Sketch{}
	}
	return sketches[len(sketches)-1]
}

func (d *Distinct) answer(sketches []distinct.Sketch) Estimate {
	return Estimate{
		Keys: Number(sketchOf(sketches).Estimate()), StandardError: Number(distinct.StandardError(d.Precision)), Precision: d.Precision,
	}
}

// write implements answer.
func (e Estimate) write(b *bytes.Buffer, v *DistinctVerification) error {
	fmt.Fprintf(b, "about %.0f different keys, standard error %s", float64(e.Keys), percent(float64(e.StandardError)))
	if v != nil {
		fmt.Fprintf(b, "; exactly %s", group(uint64(v.Quality.Keys)))
	}
	b.WriteByte('\n')
	return nil
}

// DistinctVerification is the job beside its failure-free run and beside the sketch of all its keys made at once.
type DistinctVerification struct {
	StateDivergence      Number `json:"state_divergence"` // registers that are lower than without failures
	StateDivergenceBound Number `json:"state_divergence_bound"`
	// Low and High are between what the estimate without failures can be, given the bound and the sketch that there is.
	Low  Number `json:"low"`
	High Number `json:"high"`
	// CleanDivergence is how many registers of the failure-free run are wrong. It must be 0.
	CleanDivergence int `json:"clean_divergence"`
	Verification
	distinct.Quality
}

func (d *Distinct) verify(ctx context.Context, in *keyedInput, got, clean []distinct.Sketch, result *controller.Result) (
	*DistinctVerification, uint64, error,
) {
	exact := distinct.NewExact(d.Precision)
	items, err := readAgain(ctx, in.open, d.progress(PhaseExact), func(slab []connector.Keyed) error {
		for _, item := range slab {
			exact.Add(item)
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	if len(got) != 1 || len(clean) != 1 {
		return nil, 0, fmt.Errorf("the runs made %d and %d sketches, want 1 each", len(got), len(clean))
	}
	v := &DistinctVerification{Quality: distinct.Compare(got[0], exact)}
	v.StateDivergence = Number(v.LowRegisters)
	again := distinct.Compare(clean[0], exact)
	v.CleanDivergence = again.LowRegisters + again.HighRegisters
	v.losses(result)
	d.bounds(v, result)
	low, high := got[0].Range(uint64(min(float64(v.StateDivergenceBound), float64(uint64(1)<<d.Precision))))
	v.Low, v.High = Number(low), Number(high)
	v.Kept = allKept(v.Checks())
	return v, items, nil
}

// bounds fills in what the package comment derives. An item raises one register at most.
func (d *Distinct) bounds(v *DistinctVerification, result *controller.Result) {
	p := d.promised(result)
	items := p.fromSource("items")
	v.StateDivergenceBound = Number(p.Theta + items)
	v.LostItemsBound, v.DuplicatedBound = Number(items), Number(p.never())
}

// Checks returns each figure that has a bound.
func (v DistinctVerification) Checks() []Check {
	return append([]Check{
		{What: "registers too low", Measured: v.StateDivergence, Bound: v.StateDivergenceBound},
		{What: "registers too high", Measured: Number(v.HighRegisters)},
		{What: "without failures", Measured: Number(v.CleanDivergence)},
	}, v.items()...)
}

func (v DistinctVerification) figures() []figure {
	return []figure{
		{what: "relative error", measured: fmt.Sprintf("%+.3f%%", 100*v.RelativeError), verdict: "of the estimate"},
		{what: "lost to failures", measured: fmt.Sprintf("%.3f%%", 100*v.Loss), verdict: "of the estimate"},
		{what: "estimate", measured: v.Low.String(), verdict: fmt.Sprintf("and at most %v without failures", v.High)},
	}
}
