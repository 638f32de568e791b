package job

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/afstream/afstream/algorithms/aggregate"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
)

// AggregateReport is what the job aggregate has done.
type AggregateReport = Report[Aggregates, AggregateVerification]

// Aggregates is what the job aggregate found.
type Aggregates struct {
	Rows []AggregateRow `json:"rows"` // by number of items; as many as were asked for
	Keys int            `json:"keys"` // all of them
}

// AggregateRow is one key.
type AggregateRow struct {
	Key   connector.Key `json:"key"`
	Count uint64        `json:"count"`
	Sum   Number        `json:"sum"`
	Mean  Number        `json:"mean"`
	Min   Number        `json:"min"`
	Max   Number        `json:"max"`
}

func (a *Aggregate) answer(rows []aggregate.Row) Aggregates {
	slices.SortStableFunc(rows, func(x, y aggregate.Row) int { return cmp.Compare(y.Count, x.Count) })
	found := Aggregates{Rows: []AggregateRow{}, Keys: len(rows)}
	if a.Show > 0 && a.Show < len(rows) {
		rows = rows[:a.Show]
	}
	for _, r := range rows {
		found.Rows = append(found.Rows, AggregateRow{
			Key: r.Key, Count: r.Count, Sum: Number(r.Sum), Mean: Number(r.Mean()), Min: Number(r.Min), Max: Number(r.Max),
		})
	}
	return found
}

// write implements answer. A verified job has the exact counts beside its own.
func (a Aggregates) write(b *bytes.Buffer, v *AggregateVerification) error {
	if a.Keys == 0 {
		fmt.Fprintln(b, "no keys")
		return nil
	}
	number := func(title string, of func(AggregateRow) Number) connector.Column[AggregateRow] {
		return connector.Column[AggregateRow]{Title: title, Number: true, Value: func(r AggregateRow) string { return of(r).String() }}
	}
	columns := []connector.Column[AggregateRow]{
		{Title: "key", Value: func(r AggregateRow) string { return r.Key.String() }},
		number("count", func(r AggregateRow) Number { return Number(r.Count) }),
		number("sum", func(r AggregateRow) Number { return r.Sum }),
		number("mean", func(r AggregateRow) Number { return r.Mean }),
		number("min", func(r AggregateRow) Number { return r.Min }),
		number("max", func(r AggregateRow) Number { return r.Max }),
	}
	if v != nil {
		columns = append(columns,
			number("exact count", func(r AggregateRow) Number { return Number(v.exact.At(r.Key).Count) }),
			number("exact sum", func(r AggregateRow) Number { return Number(v.exact.At(r.Key).Sum) }))
	}
	if err := writeTable(b, a.Rows, columns); err != nil {
		return err
	}
	fmt.Fprintf(b, "\n%s", plural(uint64(a.Keys), "key", "keys"))
	return nil
}

// AggregateVerification is the job beside its failure-free run and beside exact aggregates.
type AggregateVerification struct {
	// StateDivergence is how far the counts or sums, see Aggregate.Measure, are from the exact ones, in the norm of the job.
	StateDivergence      Number `json:"state_divergence"`
	StateDivergenceBound Number `json:"state_divergence_bound"`
	// CleanDivergence is all that is wrong with the run without failures. It must be 0, up to rounding.
	CleanDivergence Number `json:"clean_divergence"`
	Verification
	Alpha Number `json:"alpha"` // the most that an item of the input counts, for the bounds
	aggregate.Quality

	exact *aggregate.Exact[connector.Keyed]
	slack float64
}

func (a *Aggregate) verify(ctx context.Context, in *keyedInput, got, clean []aggregate.Row, result *controller.Result) (
	*AggregateVerification, uint64, error,
) {
	exact, total, largest := aggregate.NewExact(a.options(in.alpha)), 0.0, 0.0
	items, err := readAgain(ctx, in.open, a.progress(PhaseExact), func(slab []connector.Keyed) error {
		for _, item := range slab {
			exact.Add(item)
			total += item.Weight
			largest = max(largest, item.Weight)
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	v := &AggregateVerification{Alpha: 1, Quality: aggregate.Compare(got, exact), exact: exact, slack: roundingShare * total}
	if a.Measure == aggregate.BySum {
		v.Alpha = Number(largest)
	}
	v.StateDivergence = Number(a.distance(v.Quality))
	q := aggregate.Compare(clean, exact)
	v.CleanDivergence = Number(float64(q.MaxCountError) + q.MaxSumError + float64(q.Missing+q.Extra+q.WrongMin+q.WrongMax))
	v.losses(result)
	a.bounds(v, result)
	v.Kept = allKept(v.Checks())
	return v, items, nil
}

// distance returns the figure that Theta bounds.
func (a *Aggregate) distance(q aggregate.Quality) float64 {
	switch {
	case a.Measure == aggregate.BySum && a.Norm == errorbound.L1:
		return q.SumSumError
	case a.Measure == aggregate.BySum:
		return q.MaxSumError
	case a.Norm == errorbound.L1:
		return float64(q.SumCountError)
	}
	return float64(q.MaxCountError)
}

// bounds fills in what the package comment derives.
func (a *Aggregate) bounds(v *AggregateVerification, result *controller.Result) {
	p := a.promised(result)
	items := p.fromSource("items")
	v.StateDivergenceBound = Number(p.Theta + costs(items, float64(v.Alpha)))
	v.LostItemsBound, v.DuplicatedBound = Number(items), Number(p.never())
}

// Checks returns each figure that has a bound.
func (v AggregateVerification) Checks() []Check {
	return append([]Check{
		{What: "state divergence", Measured: v.StateDivergence, Bound: v.StateDivergenceBound, slack: v.slack},
		{What: "without failures", Measured: v.CleanDivergence, slack: v.slack},
	}, v.items()...)
}

func (v AggregateVerification) figures() []figure {
	of := fmt.Sprintf("of %s", plural(uint64(v.Keys), "key", "keys"))
	return []figure{
		{what: "items missing", measured: group(v.SumCountError), verdict: "from the counts"},
		{what: "largest mean error", measured: Number(v.MaxMeanError).String(), verdict: of},
		{what: "wrong least", measured: group(uint64(v.WrongMin)), verdict: of},
		{what: "wrong largest", measured: group(uint64(v.WrongMax)), verdict: of},
	}
}
