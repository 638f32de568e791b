package job

import (
	"context"
	"fmt"
	"math"

	"github.com/afstream/afstream/algorithms/heavyhitter"
	"github.com/afstream/afstream/algorithms/spacesaving"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/stream"
)

// Method is how heavy-hitter counts; its text is what users call it.
type Method string

// Methods. The empty Method is CountMin.
const (
	// CountMin counts every key in sketches that keys share: it can be planned for a target, and compensated, and an item
	// costs a few nanoseconds; that an estimate is much too high is improbable (package heavyhitter).
	CountMin Method = "count-min"
	// SpaceSaving counts some keys by name, which takes less memory where the threshold is not small, and no estimate is
	// ever more than the total weight / Capacity too high; an item costs more (package spacesaving).
	SpaceSaving Method = "space-saving"
)

// capacityPerHitter is how many counters there are, by default, for each key that the threshold has room for: estimates
// are then off by at most a tenth of it.
const capacityPerHitter = 10

// methodFaults returns what is wrong with the method, and which settings it has no use for.
func (h *HeavyHitter) methodFaults() []error {
	switch h.Method {
	case "", CountMin:
		if h.Capacity != 0 {
			return []error{fmt.Errorf("capacity %d: method %s has no counters of single keys, %s has", h.Capacity, CountMin, SpaceSaving)}
		}
		return nil
	case SpaceSaving:
	default:
		return []error{fmt.Errorf("unknown method %q: there are %s, %s", h.Method, CountMin, SpaceSaving)}
	}
	var faults []error
	if h.Compensate {
		faults = append(faults, fmt.Errorf("method %s cannot compensate: it does not know which key a failure took from", SpaceSaving))
	}
	if h.Target.Error != 0 {
		faults = append(faults, fmt.Errorf("method %s cannot have a target error: only %s is planned", SpaceSaving, CountMin))
	}
	if h.Threshold > 0 { // another fault says so if not
		if err := h.summaryOptions(h.Alpha, nil).Validate(); err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}

func (h *HeavyHitter) summaryOptions(alpha float64, merged func(stream.Window, spacesaving.Estimates) error) spacesaving.Options {
	o := spacesaving.Options{Capacity: h.Capacity, Threshold: h.Threshold, Alpha: alpha, OnMerged: merged}
	if o.Capacity == 0 {
		o.Capacity = int(min(math.Ceil(capacityPerHitter/h.Threshold), spacesaving.MaxCapacity))
	}
	return o
}

// summarised adds the operators of SpaceSaving, which have the names of those of CountMin.
func (h *HeavyHitter) summarised(trace stream.Stream[connector.Keyed], alpha float64, m *merged) stream.Stream[heavyhitter.Row] {
	o := h.summaryOptions(alpha, m.keepEstimates)
	summaries := stream.Then(trace, "sketch", func() *spacesaving.Count { return spacesaving.NewCount(o) },
		stream.Shuffle(), stream.Workers(h.Workers), stream.Compute(h.Compute), stream.EmitOnClose())
	return stream.Then(summaries, "merge", func() *spacesaving.Merge { return spacesaving.NewMerge(o) }, stream.EmitOnClose())
}

// SummaryCheck is what only the estimates of SpaceSaving promise.
type SummaryCheck struct {
	Capacity       int    `json:"capacity"`  // counters of each partition
	Overcount      Number `json:"overcount"` // by how much the highest estimate of a key is too high
	OvercountBound Number `json:"overcount_bound"`
	// CleanDivergence is by how much the lowest estimate of the run without failures is too low. It must be 0.
	CleanDivergence Number `json:"clean_divergence"`
}

// checkSummaries compares what the two runs say about every key with its weight. Summaries cannot be compared with each
// other: which keys have counters depends on the order of the items.
func (h *HeavyHitter) checkSummaries(v *HeavyHitterVerification, got, clean *merged, result *controller.Result) {
	o := h.summaryOptions(0, nil)
	under, over := offBy(got.estimates, v.exact)
	cleanUnder, _ := offBy(clean.estimates, v.exact)
	v.StateDivergence = Number(under)
	v.Summary = &SummaryCheck{
		Capacity: o.Capacity, Overcount: Number(over), OvercountBound: Number(v.exact.Total() / float64(o.Capacity)),
		CleanDivergence: Number(cleanUnder),
	}
	// The total is one of the counters that theta is about, unlike that of a sketch.
	p := h.promised(result)
	v.TotalDivergenceBound = Number(p.Theta + costs(p.fromSource("trace"), float64(v.Alpha)))
}

// offBy returns by how much the lowest estimate is too low, and the highest too high; 0 if none is.
func offBy(e spacesaving.Estimates, exact *heavyhitter.Exact) (under, over float64) {
	for _, row := range exact.HeavyHitters(0) {
		off := e.Of(row.Key) - row.Estimate
		under, over = max(under, -off), max(over, off)
	}
	return under, over
}

func (s *SummaryCheck) checks(slack float64) []Check {
	return []Check{
		{What: "estimate too high", Measured: s.Overcount, Bound: s.OvercountBound, slack: slack},
		{What: "without failures", Measured: s.CleanDivergence, slack: slack},
	}
}

// readExact counts every key of an input, and returns the largest weight.
func (h *HeavyHitter) readExact(ctx context.Context, in *keyedInput) (exact *heavyhitter.Exact, largest float64, items uint64, err error) {
	exact = heavyhitter.NewExact()
	items, err = readAgain(ctx, in.open, h.progress(PhaseExact), func(slab []connector.Keyed) error {
		for _, item := range slab {
			if err := exact.Add(item); err != nil {
				return err
			}
			largest = max(largest, item.Weight)
		}
		return nil
	})
	return exact, largest, items, err
}
