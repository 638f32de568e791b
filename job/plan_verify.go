package job

import (
	"fmt"

	"github.com/afstream/afstream/algorithms/countmin"
	"github.com/afstream/afstream/algorithms/heavyhitter"
)

// TargetCheck is the accuracy of the estimates of all keys, reported or not, beside the target. Weights are in the unit
// of the input.
type TargetCheck struct {
	ErrorBound      Number `json:"error_bound"` // the target's share of the planned total
	Undercount      Number `json:"undercount"`  // by how much the lowest estimate is too low, 0 if none is
	UndercountBound Number `json:"undercount_bound"`
	Overcount       Number `json:"overcount"` // by how much the highest is too high
	// KeysBeyond is how many estimates are off by more than ErrorBound, KeysAllowed how many the confidence allows.
	KeysBeyond  int `json:"keys_beyond"`
	KeysAllowed int `json:"keys_allowed"`
}

// checkTarget asks the merged sketch for every key of the input.
func checkTarget(p *Plan, cells []float64, exact *heavyhitter.Exact) (*TargetCheck, error) {
	s, err := countmin.New(countmin.Params{Rows: p.Rows, Width: p.Width})
	if err == nil {
		err = s.AddCells(0, cells)
	}
	if err != nil {
		return nil, fmt.Errorf("check the target: %w", err)
	}
	t := &TargetCheck{
		ErrorBound: p.Error * p.Total, UndercountBound: p.FailureError * p.Total,
		KeysAllowed: int((1 - float64(p.Confidence)) * float64(exact.Len())),
	}
	beyond := t.ErrorBound + Number(roundingShare*exact.Total())
	for _, key := range exact.HeavyHitters(0) {
		off := Number(s.Estimate(key.Key.Hash()) - key.Estimate)
		t.Undercount, t.Overcount = max(t.Undercount, -off), max(t.Overcount, off)
		if off > beyond || -off > beyond {
			t.KeysBeyond++
		}
	}
	return t, nil
}

// checks returns the promises. That more keys than allowed are beyond the target is against the odds, not impossible: the
// confidence is that of each key.
func (t *TargetCheck) checks(slack float64) []Check {
	return []Check{
		{What: "estimate too low", Measured: t.Undercount, Bound: t.UndercountBound, slack: slack},
		{What: "keys beyond target", Measured: Number(t.KeysBeyond), Bound: Number(t.KeysAllowed)},
	}
}
