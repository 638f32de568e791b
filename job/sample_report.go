package job

import (
	"bytes"
	"context"
	"fmt"
	"math"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
)

// SampleReport is what the job sample has done.
type SampleReport = Report[Drawn, SampleVerification]

// Drawn is the sample that the job sample drew.
type Drawn struct {
	Entries  []SampleEntry `json:"entries"` // in random order; as many as were asked for
	Drawn    int           `json:"drawn"`   // all of them
	Seen     uint64        `json:"seen"`    // items that they were drawn from, as far as failures left them
	Weighted bool          `json:"weighted"`
	// MeanWeight is what the sample says about the mean weight of all items, of those that weigh something if Weighted;
	// StandardError is that of the estimate. Both are null if nothing can be said.
	MeanWeight    Number `json:"mean_weight"`
	StandardError Number `json:"mean_weight_standard_error"`
}

// SampleEntry is an item that was drawn.
type SampleEntry struct {
	Key    connector.Key `json:"key"`
	Weight Number        `json:"weight"`
}

func (s *Sample) answer(entries []drawnItem) Drawn {
	seen, _ := seenBy(entries)
	d := Drawn{Entries: []SampleEntry{}, Drawn: len(entries), Seen: seen, Weighted: s.Weighted}
	mean, deviation := s.meanWeight(entries)
	d.MeanWeight, d.StandardError = Number(mean), Number(deviation)
	if s.Show > 0 && s.Show < len(entries) {
		entries = entries[:s.Show]
	}
	for i := range entries {
		d.Entries = append(d.Entries, SampleEntry{Key: entries[i].Item.Key, Weight: Number(entries[i].Item.Weight)})
	}
	return d
}

// seenBy returns how many items a sample was drawn from, and what they weighed.
func seenBy(entries []drawnItem) (items uint64, weight float64) {
	for i := range entries {
		items += entries[i].Seen
		weight += entries[i].Weight
	}
	return items, weight
}

// meanWeight estimates the mean weight of the items that can be drawn, as a ratio of Horvitz-Thompson estimators: each
// entry stands for 1/p items, p being the probability that it was drawn. Plain samples have p = n/N. In a weighted one
// the entry with the largest priority t is left out, and the others were drawn with p = 1-exp(-weight*t) (Cohen and
// Kaplan, "Summarizing data using bottom-k sketches", PODC 2007). The standard error is that of the linearised ratio.
func (s *Sample) meanWeight(entries []drawnItem) (mean, standardError float64) {
	seen, _ := seenBy(entries)
	chance := func(float64) float64 { return float64(len(entries)) / float64(seen) }
	if s.Weighted {
		chance = func(float64) float64 { return 1 } // everything that weighs something was drawn
		if len(entries) == s.Size {
			largest := entries[len(entries)-1].Priority
			entries = entries[:len(entries)-1]
			chance = func(weight float64) float64 { return -math.Expm1(-weight * largest) }
		}
	}
	items, weight := 0.0, 0.0
	for i := range entries {
		each := 1 / chance(entries[i].Item.Weight)
		items += each
		weight += each * entries[i].Item.Weight
	}
	mean = weight / items // NaN if there are none
	variance := 0.0
	for i := range entries {
		p, off := chance(entries[i].Item.Weight), entries[i].Item.Weight-mean
		variance += (1 - p) / (p * p) * off * off
	}
	return mean, math.Sqrt(variance) / items
}

// write implements answer.
func (d Drawn) write(b *bytes.Buffer, _ *SampleVerification) error {
	if d.Drawn == 0 {
		fmt.Fprintln(b, "nothing to draw from")
		return nil
	}
	err := writeTable(b, d.Entries, []connector.Column[SampleEntry]{
		{Title: "key", Value: func(e SampleEntry) string { return e.Key.String() }},
		{Title: "weight", Number: true, Value: func(e SampleEntry) string { return e.Weight.String() }},
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "\n%s of %s drawn; mean weight about %v, standard error %v\n", group(uint64(d.Drawn)),
		plural(d.Seen, "item", "items"), d.MeanWeight, d.StandardError)
	return nil
}

// SampleVerification is the job beside its failure-free run and beside the input.
type SampleVerification struct {
	// StateDivergence is how many entries are in one of the samples of the two runs and not in the other.
	StateDivergence      Number `json:"state_divergence"`
	StateDivergenceBound Number `json:"state_divergence_bound"`
	// Missing is by how much the number of items that were drawn from is off.
	Missing      Number `json:"missing_items"`
	MissingBound Number `json:"missing_items_bound"`
	// Foreign is how many entries are no items of the input, or are in the sample more often. It must be 0.
	Foreign int `json:"foreign_entries"`
	// CleanDivergence is all that is wrong with the run without failures: its size, the items and the weight that it has
	// seen, and entries that are no items. It must be 0, up to rounding.
	CleanDivergence Number `json:"clean_divergence"`
	Verification
	// ExactMean is the mean weight of the input, of the items that can be drawn. Off is by how many standard errors the
	// estimate is off: more than 3 in about 1 of 400 seeds if the sample is large. It is no promise.
	ExactMean Number `json:"exact_mean_weight"`
	Off       Number `json:"standard_errors_off"`

	slack float64
}

// content is what a reading of the input tells about samples.
type content struct {
	items, drawable uint64
	total           float64
	unmatched       []int // entries of each sample that the input does not have
}

// readContent reads the input and finds the entries of samples in it.
func (s *Sample) readContent(ctx context.Context, in *keyedInput, samples ...[]drawnItem) (c content, err error) {
	wanted := make([]map[connector.Keyed]int, len(samples))
	for i, entries := range samples {
		wanted[i] = make(map[connector.Keyed]int, len(entries))
		for j := range entries {
			wanted[i][entries[j].Item]++
		}
	}
	c.items, err = readAgain(ctx, in.open, s.progress(PhaseExact), func(slab []connector.Keyed) error {
		for _, item := range slab {
			c.total += item.Weight
			if !s.Weighted || item.Weight > 0 {
				c.drawable++
			}
			for _, want := range wanted {
				if want[item] > 0 {
					want[item]--
				}
			}
		}
		return nil
	})
	for _, want := range wanted {
		left := 0
		for _, n := range want {
			left += n
		}
		c.unmatched = append(c.unmatched, left)
	}
	return c, err
}

func (s *Sample) verify(ctx context.Context, in *keyedInput, got, clean []drawnItem, result *controller.Result) (
	*SampleVerification, uint64, error,
) {
	c, err := s.readContent(ctx, in, got, clean)
	if err != nil {
		return nil, 0, err
	}
	seen, _ := seenBy(got)
	v := &SampleVerification{
		StateDivergence: Number(differing(got, clean)), Missing: Number(math.Abs(float64(c.items) - float64(seen))),
		Foreign: c.unmatched[0], CleanDivergence: Number(s.cleanFaults(c, clean)),
		ExactMean: Number(c.total / float64(c.drawable)), slack: roundingShare * c.total,
	}
	if c.drawable == 0 { // no sample can tell how many items there were
		v.Missing = 0
	}
	mean, deviation := s.meanWeight(got)
	v.Off = Number(math.Abs(mean-float64(v.ExactMean)) / deviation)
	if math.Abs(mean-float64(v.ExactMean)) <= roundingShare*mean {
		v.Off = 0 // also if all items were drawn, or weigh the same, and there is no error
	}
	v.losses(result)
	s.bounds(v, c.items, result)
	v.Kept = allKept(v.Checks())
	return v, c.items, nil
}

// cleanFaults returns how far a sample is from what one without failures must be.
func (s *Sample) cleanFaults(c content, clean []drawnItem) float64 {
	items, weight := seenBy(clean)
	if c.drawable == 0 {
		return float64(len(clean))
	}
	off := math.Abs(float64(len(clean))-float64(min(uint64(s.Size), c.drawable))) + math.Abs(float64(items)-float64(c.items)) +
		float64(c.unmatched[1])
	if s.Weighted {
		return off + math.Abs(weight-c.total)
	}
	return off + math.Abs(weight-float64(c.items))
}

// differing returns how many entries are in one of two samples only. The priority tells items apart that look the same.
func differing(a, b []drawnItem) int {
	type identity struct {
		item     connector.Keyed
		priority float64
	}
	surplus := make(map[identity]int, len(a))
	for i := range a {
		surplus[identity{a[i].Item, a[i].Priority}]++
	}
	for i := range b {
		surplus[identity{b[i].Item, b[i].Priority}]--
	}
	n := 0
	for _, more := range surplus {
		n += max(more, -more)
	}
	return n
}

// bounds fills in what the package comment derives.
func (s *Sample) bounds(v *SampleVerification, items uint64, result *controller.Result) {
	p := s.promised(result)
	lost := p.fromSource("items")
	v.LostItemsBound, v.DuplicatedBound = Number(lost), Number(p.never())
	v.StateDivergenceBound = Number(p.Theta)
	if lost > 0 && len(result.Failures) > 0 {
		v.StateDivergenceBound = Number(math.Inf(1)) // as random a sample as before, but another one
	}
	each := max(1, float64(items)/float64(s.Size)) // items that an entry stands for
	v.MissingBound = Number(costs(p.Theta, each) + lost)
}

// Checks returns each figure that has a bound.
func (v SampleVerification) Checks() []Check {
	return append([]Check{
		{What: "entries that differ", Measured: v.StateDivergence, Bound: v.StateDivergenceBound},
		{What: "entries not of the input", Measured: Number(v.Foreign)},
		{What: "items not counted", Measured: v.Missing, Bound: v.MissingBound, slack: roundingShare * float64(v.MissingBound)},
		{What: "without failures", Measured: v.CleanDivergence, slack: v.slack},
	}, v.items()...)
}

func (v SampleVerification) figures() []figure {
	return []figure{
		{what: "exact mean weight", measured: v.ExactMean.String(), verdict: fmt.Sprintf("the sample is %v standard errors off", v.Off)},
	}
}
