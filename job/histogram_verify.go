package job

import (
	"context"
	"fmt"
	"math"

	"github.com/afstream/afstream/algorithms/histogram"
	"github.com/afstream/afstream/controller"
)

// HistogramVerification is the job beside its failure-free run and beside all numbers in order.
type HistogramVerification struct {
	// StateDivergence is the sum of the differences of all bins: how many numbers are missing.
	StateDivergence      Number `json:"state_divergence"`
	StateDivergenceBound Number `json:"state_divergence_bound"`
	// RankError is the largest of the quantiles 0.01 to 0.99 and those that are reported, in numbers; see
	// histogram.RankError.
	RankError      Number `json:"rank_error"`
	RankErrorBound Number `json:"rank_error_bound"`
	// OutOfRange is how many of the exact quantiles do not lie between the values that follow from the histogram and the
	// bound. It must be 0.
	OutOfRange int `json:"quantiles_out_of_range"`
	// CleanDivergence is what StateDivergence is without failures, Inaccurate how many of its quantiles 0.01 to 0.99 are off
	// by more than the layout allows. Both must be 0.
	CleanDivergence uint64 `json:"clean_divergence"`
	Inaccurate      int    `json:"inaccurate_quantiles"`
	Verification
	histogram.Quality
	Quantiles []ExactQuantile `json:"quantiles"` // those that are reported

	exact  *histogram.Exact
	layout histogram.Layout
}

// ExactQuantile is a quantile of all numbers.
type ExactQuantile struct {
	Share     Number `json:"share"`
	Exact     Number `json:"exact"`
	Low       Number `json:"low"`  // it is at least this, as far as the histogram and the bound tell; null: any
	High      Number `json:"high"` // and at most this
	RankError uint64 `json:"rank_error"`
}

func (h *Histogram) verify(ctx context.Context, in *numberInput, got, clean []histogram.Histogram, result *controller.Result) (
	*HistogramVerification, uint64, error,
) {
	exact := new(histogram.Exact)
	items, err := readAgain(ctx, in.open, h.progress(PhaseExact), func(slab []float64) error {
		for _, x := range slab {
			exact.Add(x)
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	if len(got) != 1 || len(clean) != 1 {
		return nil, 0, fmt.Errorf("the runs made %d and %d histograms, want 1 each", len(got), len(clean))
	}
	v := &HistogramVerification{Quality: histogram.Compare(got[0], exact), exact: exact, layout: got[0].Layout()}
	v.StateDivergence = Number(v.SumBinError)
	v.CleanDivergence = histogram.Compare(clean[0], exact).SumBinError
	v.Inaccurate = h.inaccurate(clean[0], exact)
	v.losses(result)
	h.bounds(v, result)
	h.checkQuantiles(v, got[0])
	v.Kept = allKept(v.Checks())
	return v, items, nil
}

// bounds fills in what the package comment derives. A number counts 1.
func (h *Histogram) bounds(v *HistogramVerification, result *controller.Result) {
	p := h.promised(result)
	items := p.fromSource("numbers")
	v.StateDivergenceBound = Number(p.Theta + items)
	v.RankErrorBound = v.StateDivergenceBound
	v.LostItemsBound, v.DuplicatedBound = Number(items), Number(p.never())
}

// checkQuantiles compares the quantiles with the exact ones. The bounds must be known.
func (h *Histogram) checkQuantiles(v *HistogramVerification, got histogram.Histogram) {
	lost := uint64(math.MaxUint64 / 4) // nothing is promised
	if bound := float64(v.StateDivergenceBound); bound < float64(lost) {
		lost = uint64(bound)
	}
	v.Quantiles = []ExactQuantile{}
	for _, q := range h.Quantiles {
		low, high := got.Range(q, lost)
		v.Quantiles = append(v.Quantiles, ExactQuantile{
			Share: Number(q), Exact: Number(v.exact.Quantile(q)), Low: Number(low), High: Number(high),
			RankError: histogram.RankError(got, v.exact, q),
		})
	}
	check := func(q float64) {
		v.RankError = max(v.RankError, Number(histogram.RankError(got, v.exact, q)))
		low, high := got.Range(q, lost)
		// No comparison holds if there are no numbers. Bounds are powers, rounded.
		if x := v.exact.Quantile(q); x < low-roundingShare*math.Abs(low) || x > high+roundingShare*math.Abs(high) {
			v.OutOfRange++
		}
	}
	for _, q := range h.Quantiles {
		check(q)
	}
	for percent := range 99 {
		check(float64(percent+1) / 100)
	}
}

// inaccurate returns how many percentiles of a histogram of all numbers are off by more than its layout allows. Those
// beyond the range are left out.
func (h *Histogram) inaccurate(whole histogram.Histogram, exact *histogram.Exact) int {
	n, l := 0, whole.Layout()
	for percent := 1; percent < 100; percent++ {
		q := float64(percent) / 100
		got, ok := whole.Quantile(q)
		if !ok {
			continue
		}
		x := exact.Quantile(q)
		low, high := l.Bounds(l.Bin(x))
		allowed := high - low // also around 0, where Quantile does not tell numbers apart
		if h.Layout == Quantile && got != 0 {
			allowed = h.Accuracy * math.Abs(x)
		}
		if !(math.Abs(got-x) <= allowed*(1+roundingShare)) {
			n++
		}
	}
	return n
}

// exactBin returns how many of the numbers are in a bin of EquiWidth.
func (v *HistogramVerification) exactBin(bin Bin) uint64 {
	less, _ := v.exact.Rank(float64(bin.From))
	all, _ := v.exact.Rank(float64(bin.To))
	if math.IsInf(float64(bin.To), 1) {
		all = v.exact.Total()
	}
	return all - less
}

// Checks returns each figure that has a bound.
func (v HistogramVerification) Checks() []Check {
	return append([]Check{
		{What: "numbers missing", Measured: v.StateDivergence, Bound: v.StateDivergenceBound},
		{What: "rank error", Measured: v.RankError, Bound: v.RankErrorBound},
		{What: "quantiles out of range", Measured: Number(v.OutOfRange)},
		{What: "without failures", Measured: Number(v.CleanDivergence)},
		{What: "inaccurate quantiles", Measured: Number(v.Inaccurate)},
	}, v.items()...)
}

func (v HistogramVerification) figures() []figure {
	return []figure{
		{what: "largest quantile error", measured: Number(v.MaxQuantileError).String(), verdict: "of the quantiles 0.01 to 0.99"},
		{what: "relative", measured: percent(v.MaxRelativeError), verdict: "of those that are not 0"},
	}
}
