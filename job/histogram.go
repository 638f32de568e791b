package job

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/afstream/afstream/algorithms/histogram"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// HistogramName is the name of the job and of its topology.
const HistogramName = "histogram"

// Layout is which bins a histogram has; its text is what users call it.
type Layout string

// Layouts.
const (
	// EquiWidth has bins of the same width: counts of ranges are exact, and a quantile is off by a width at most.
	EquiWidth Layout = "equi-width"
	// Quantile has bins of the same relative width, so that a quantile is off by at most a share of itself, however large
	// or small it is.
	Quantile Layout = "quantile"
)

// Range of the sizes that Quantile tells apart unless it is set: nearer to 0 is 0, and beyond is only known to be beyond.
const (
	defaultLeast = 1e-3
	defaultMost  = 1e9
)

// maxQuantiles bounds a report.
const maxQuantiles = 1000

// Histogram counts numbers by ranges and tells quantiles. Its operators are numbers (the source), histogram (Workers of
// them, each with a histogram of its part), merge (adds them up) and table (takes the result).
//
// Of KeyedItems, Input.Key names what the numbers are: a column, "bytes" of packets, nothing for text, which has a number a
// line. Numbers may be negative. Those of the Generator are the ranks of its keys, the most frequent being 0. Input.Weight
// has no meaning. Verifying takes 8 bytes a number.
//
// Start from DefaultHistogram: the zero value is not valid.
type Histogram struct {
	Engine
	KeyedItems

	// Layout says which bins there are.
	Layout Layout
	// Bins is how many bins EquiWidth has, 1 to histogram.MaxBins-2, default 20. Where the range is found out it has as
	// many as a round width comes to, and no more than these.
	Bins int
	// From and To are the range of EquiWidth, From <= x < To, in which the bins are; the numbers below and above are counted
	// together. Under Quantile they are the least and the largest size |x| that is told apart. Both 0 means to find out by
	// reading the input once before the job, for Quantile 0.001 to 1e9.
	From, To float64
	// Accuracy is the share of itself by which a quantile may be off under Quantile, 1e-6 to below 1, default 0.01. There
	// are about ln(To/From)/Accuracy bins.
	Accuracy float64
	// Quantiles are those to report, as shares from 0 to 1, at most 1000.
	Quantiles []float64
}

// DefaultHistogram returns the job with all defaults: the delays in minutes of the flights that come with the program, in
// 20 bins of a range that is found out, under Theta 100, L 100 and Gamma 100.
func DefaultHistogram() Histogram {
	h := Histogram{
		Engine:     Engine{Params: errorbound.Params{Theta: 100, L: 100, Gamma: 100}, Workers: 2, Compute: 1},
		KeyedItems: defaultItems(),
		Layout:     EquiWidth,
		Bins:       20,
		Accuracy:   0.01,
		Quantiles:  []float64{0.01, 0.25, 0.5, 0.75, 0.9, 0.99},
	}
	h.Input = connector.KeyedOptions{Path: connector.Builtin + "flights", Key: "delay"}
	return h
}

// validate returns all faults of the settings, joined, wrapping ErrSettings.
func (h *Histogram) validate() error {
	faults := append(h.Engine.faults(), h.inputFaults()...)
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(h.Layout == EquiWidth || h.Layout == Quantile, "unknown layout %q: there are %s, %s", h.Layout, EquiWidth, Quantile)
	check(h.Bins >= 1 && h.Bins <= histogram.MaxBins-2, "%d bins: want 1 to %d", h.Bins, histogram.MaxBins-2)
	check(len(h.Quantiles) <= maxQuantiles, "%d quantiles: want at most %d", len(h.Quantiles), maxQuantiles)
	for _, q := range h.Quantiles {
		check(q >= 0 && q <= 1, "quantile %v: want a share from 0 to 1", q)
	}
	if len(faults) == 0 && !h.unranged() {
		if _, err := h.layout(); err != nil {
			faults = append(faults, err)
		}
	}
	return settingsError(faults)
}

// unranged says whether the range has to be found out.
func (h *Histogram) unranged() bool { return h.Layout == EquiWidth && h.From == 0 && h.To == 0 }

// layout returns the bins; the range must be known.
func (h *Histogram) layout() (histogram.Layout, error) {
	if h.Layout == EquiWidth {
		return histogram.EquiWidth(h.From, h.To, h.Bins)
	}
	if h.From == 0 && h.To == 0 {
		return histogram.Relative(h.Accuracy, defaultLeast, defaultMost)
	}
	return histogram.Relative(h.Accuracy, h.From, h.To)
}

func (h *Histogram) topology(open stream.NewSource[float64], l histogram.Layout, found *connector.Collector[histogram.Histogram]) *stream.Topology {
	t := stream.New(HistogramName)
	parts := stream.Then(stream.From(t, "numbers", open), "histogram", func() *histogram.Count { return histogram.New(l) },
		stream.Shuffle(), stream.Workers(h.Workers), stream.Compute(h.Compute), stream.EmitOnClose())
	whole := stream.Then(parts, "merge", func() *histogram.Merge { return histogram.NewMerge(l) }, stream.EmitOnClose())
	stream.To(whole, "table", connector.Collect(found))
	return t
}

// Run runs the job until its input ends; see HeavyHitter.Run for the errors, and for what happens when ctx ends.
func (h Histogram) Run(ctx context.Context) (*HistogramReport, error) {
	if err := h.validate(); err != nil {
		return nil, err
	}
	in, err := h.openNumbers()
	if err != nil {
		return nil, err
	}
	var l histogram.Layout
	p := ofRows(HistogramName, &in.origin,
		func(found *connector.Collector[histogram.Histogram]) *stream.Topology {
			return h.topology(in.counted, l, found)
		}, h.answer,
		func(ctx context.Context, got, clean []histogram.Histogram, result *controller.Result) (*HistogramVerification, uint64, error) {
			return h.verify(ctx, in, got, clean, result)
		})
	p.prepare = func(ctx context.Context) (*Plan, error) {
		if err := h.findRange(ctx, in); err != nil {
			return nil, err
		}
		l, err = h.layout()
		return nil, err
	}
	return run(ctx, &h.Engine, p)
}

// findRange reads the input for the range of the bins if it is not set.
func (h *Histogram) findRange(ctx context.Context, in *numberInput) error {
	if !h.unranged() {
		return nil
	}
	if !in.replayable {
		return fmt.Errorf("%w: %s can be read only once, so that the range of the bins is not known before: give from and to, or the"+
			" layout %s", ErrSettings, in.name, Quantile)
	}
	least, most := math.Inf(1), math.Inf(-1)
	_, err := readAgain(ctx, in.open, h.progress(PhaseMeasure), func(slab []float64) error {
		for _, x := range slab {
			least, most = min(least, x), max(most, x)
		}
		return nil
	})
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return interrupted(nil, "while the input was measured")
	}
	if err != nil {
		return err
	}
	if least > most {
		least, most = 0, 0 // there are no numbers
	}
	h.From, h.To, h.Bins = roundRange(least, most, h.Bins)
	return nil
}

// roundRange returns at most the given number of bins that hold least <= x <= most, of a width of 1, 2 or 5 times a power
// of ten and beginning at a multiple of it, where that is possible.
func roundRange(least, most float64, bins int) (from, to float64, n int) {
	if least == most {
		return least, math.Nextafter(least+1, math.Inf(1)), 1
	}
	power := math.Pow(10, math.Floor(math.Log10((most-least)/float64(bins))))
	for _, factor := range []float64{1, 2, 5, 10, 20, 50} {
		width := factor * power
		from = math.Floor(least/width) * width
		last := math.Floor((most - from) / width)
		if to = from + (last+1)*width; last < float64(bins) && from <= least && to > most {
			return from, to, int(last) + 1
		}
	}
	return least, math.Nextafter(most, math.Inf(1)), bins // too few for a bin on either side of 0
}
