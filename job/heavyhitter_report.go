package job

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/afstream/afstream/algorithms/heavyhitter"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
)

// HeavyHitterReport is what the job heavy-hitter has done.
type HeavyHitterReport = Report[HeavyKeys, HeavyHitterVerification]

// HeavyKeys is what the job heavy-hitter found.
type HeavyKeys struct {
	Method       Method     `json:"method"`
	HeavyHitters []HeavyKey `json:"heavy_hitters"` // heaviest first
	Threshold    Number     `json:"threshold"`     // share of the total
	Total        Number     `json:"total"`         // weight of all items, as far as failures left it
}

// HeavyKey is one heavy hitter.
type HeavyKey struct {
	Rank     int           `json:"rank"`
	Key      connector.Key `json:"key"`
	Estimate Number        `json:"estimate"`
	Share    Number        `json:"share"`
}

func (h *HeavyHitter) answer(m *merged) HeavyKeys {
	o := HeavyKeys{Method: cmp.Or(h.Method, CountMin), HeavyHitters: []HeavyKey{}, Threshold: Number(h.Threshold), Total: Number(m.total)}
	for _, row := range m.rows.Items() {
		o.HeavyHitters = append(o.HeavyHitters, HeavyKey{
			Rank: row.Rank, Key: row.Key, Estimate: Number(row.Estimate), Share: Number(row.Share),
		})
	}
	return o
}

// write implements answer. A verified job has the exact weights beside the estimates.
func (o HeavyKeys) write(b *bytes.Buffer, v *HeavyHitterVerification) error {
	if o.Total == 0 {
		fmt.Fprintln(b, "no heavy hitters: there was no item with a weight")
		return nil
	}
	if len(o.HeavyHitters) == 0 {
		fmt.Fprintf(b, "no key has %s of the total weight of %v\n", percent(float64(o.Threshold)), o.Total)
		return nil
	}
	columns := []connector.Column[HeavyKey]{
		{Title: "rank", Number: true, Value: func(k HeavyKey) string { return group(uint64(k.Rank)) }},
		{Title: "key", Value: func(k HeavyKey) string { return k.Key.String() }},
		{Title: "estimate", Number: true, Value: func(k HeavyKey) string { return k.Estimate.String() }},
		{Title: "share", Number: true, Value: func(k HeavyKey) string { return percent(float64(k.Share)) }},
	}
	if v != nil {
		columns = append(columns,
			connector.Column[HeavyKey]{Title: "exact", Number: true, Value: func(k HeavyKey) string {
				return Number(v.exact.Weight(k.Key)).String()
			}},
			connector.Column[HeavyKey]{Title: "error", Number: true, Value: func(k HeavyKey) string {
				exact := v.exact.Weight(k.Key)
				return fmt.Sprintf("%+.3f%%", 100*(float64(k.Estimate)-exact)/exact)
			}})
	}
	return writeTable(b, o.HeavyHitters, columns)
}

// HeavyHitterVerification is the job beside its failure-free run and beside exact counts.
type HeavyHitterVerification struct {
	// StateDivergence is the largest absolute difference of a counter, under SpaceSaving by how much the lowest estimate
	// of a key is too low.
	StateDivergence      Number `json:"state_divergence"`
	StateDivergenceBound Number `json:"state_divergence_bound"`
	TotalDivergence      Number `json:"total_divergence"` // difference of the total weight
	TotalDivergenceBound Number `json:"total_divergence_bound"`
	Verification
	Alpha Number `json:"alpha"` // largest weight of the input, for the bounds
	Keys  int    `json:"keys"`  // distinct ones
	heavyhitter.Quality
	HeavyHitters []ExactRow    `json:"heavy_hitters"`          // the true ones
	Target       *TargetCheck  `json:"target,omitempty"`       // of a job that has one
	Summary      *SummaryCheck `json:"space_saving,omitempty"` // of that method

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

func (h *HeavyHitter) verify(ctx context.Context, in *keyedInput, plan *Plan, got, clean *merged, result *controller.Result) (
	*HeavyHitterVerification, uint64, error,
) {
	exact, largest, items, err := h.readExact(ctx, in)
	if err != nil {
		return nil, 0, err
	}
	v := &HeavyHitterVerification{
		Alpha: Number(largest), Keys: exact.Len(), exact: exact, slack: roundingShare * exact.Total(),
		TotalDivergence: Number(math.Abs(got.total - clean.total)),
		Quality:         heavyhitter.Compare(got.rows.Items(), exact, h.Threshold),
	}
	v.losses(result)
	h.bounds(v, result)
	if h.Method == SpaceSaving {
		h.checkSummaries(v, got, clean, result)
	} else {
		v.StateDivergence = Number(distance(got.cells, clean.cells))
	}
	if plan != nil {
		if v.Target, err = checkTarget(plan, got.cells, exact); err != nil {
			return nil, 0, err
		}
	}
	for _, r := range exact.HeavyHitters(h.Threshold) {
		v.HeavyHitters = append(v.HeavyHitters, ExactRow{Key: r.Key, Weight: Number(r.Estimate), Share: Number(r.Share)})
	}
	v.Kept = allKept(v.Checks())
	return v, items, nil
}

// bounds fills in what the package comment derives.
func (h *HeavyHitter) bounds(v *HeavyHitterVerification, result *controller.Result) {
	p := h.promised(result)
	atRisk := p.fromSource("trace")
	v.LostItemsBound, v.DuplicatedBound = Number(atRisk), Number(p.never())
	inState := atRisk
	if h.Compensate && !p.pipe {
		inState = float64(p.L)
	}
	v.StateDivergenceBound = Number(p.Theta + costs(inState, float64(v.Alpha)))
	v.TotalDivergenceBound = Number(p.Theta/h.Threshold + costs(atRisk, float64(v.Alpha)))
}

// Checks returns each figure that has a bound.
func (v HeavyHitterVerification) Checks() []Check {
	checks := append([]Check{
		{What: "state divergence", Measured: v.StateDivergence, Bound: v.StateDivergenceBound, slack: v.slack},
		{What: "total divergence", Measured: v.TotalDivergence, Bound: v.TotalDivergenceBound, slack: v.slack},
	}, v.items()...)
	if v.Target != nil {
		checks = append(checks, v.Target.checks(v.slack)...)
	}
	if v.Summary != nil {
		checks = append(checks, v.Summary.checks(v.slack)...)
	}
	return checks
}

func (v HeavyHitterVerification) figures() []figure {
	return []figure{
		{what: "recall", measured: percent(v.Recall), verdict: fmt.Sprintf("%d of %d heavy hitters found", v.Correct, v.True)},
		{what: "precision", measured: percent(v.Precision), verdict: fmt.Sprintf("%d of %d reported are heavy", v.Correct, v.Reported)},
		{what: "mean relative error", measured: fmt.Sprintf("%.3f%%", 100*v.MeanRelativeError), verdict: "of the estimates of these"},
	}
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
