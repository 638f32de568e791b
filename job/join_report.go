package job

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/afstream/afstream/algorithms/join"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/stream"
)

// JoinReport is what the job join has done.
type JoinReport = Report[Pairs, JoinVerification]

// Pairs is what the job join found. A pair that failures brought twice is there once.
type Pairs struct {
	Pairs []JoinPair `json:"pairs"` // by left row; as many as were asked for
	Count int        `json:"count"` // of all pairs
	Left  int        `json:"left_rows_matched"`

	timed bool
}

// JoinPair is a left row and its partner.
type JoinPair struct {
	Left  JoinRow `json:"left"`
	Right JoinRow `json:"right"`
}

func comparePairs(a, b pair) int {
	return cmp.Or(cmp.Compare(a.Left.Number, b.Left.Number), cmp.Compare(a.Right.Number, b.Right.Number))
}

func (j *Join) answer(pairs []pair) Pairs {
	slices.SortFunc(pairs, comparePairs)
	pairs = slices.CompactFunc(pairs, func(a, b pair) bool { return comparePairs(a, b) == 0 })
	p := Pairs{Pairs: []JoinPair{}, Count: len(pairs), Left: matched(pairs), timed: j.Table == ""}
	if j.Show > 0 && j.Show < len(pairs) {
		pairs = pairs[:j.Show]
	}
	for _, q := range pairs {
		p.Pairs = append(p.Pairs, JoinPair{Left: q.Left, Right: q.Right})
	}
	return p
}

// matched returns how many left rows have a partner.
func matched(pairs []pair) int {
	rows := make(map[uint64]struct{})
	for _, p := range pairs {
		rows[p.Left.Number] = struct{}{}
	}
	return len(rows)
}

// write implements answer.
func (p Pairs) write(b *bytes.Buffer, _ *JoinVerification) error {
	if p.Count == 0 {
		fmt.Fprintln(b, "no pairs")
		return nil
	}
	columns := []connector.Column[JoinPair]{
		{Title: "key", Value: func(p JoinPair) string { return p.Left.Key.String() }},
		{Title: "left row", Number: true, Value: func(p JoinPair) string { return group(p.Left.Number) }},
		{Title: "right row", Number: true, Value: func(p JoinPair) string { return group(p.Right.Number) }},
	}
	if p.timed {
		columns = append(columns, connector.Column[JoinPair]{Title: "minutes later", Number: true,
			Value: func(p JoinPair) string { return Number(p.Right.Minute - p.Left.Minute).String() }})
	}
	if err := writeTable(b, p.Pairs, columns); err != nil {
		return err
	}
	fmt.Fprintf(b, "\n%s, of %s", plural(uint64(p.Count), "pair", "pairs"), plural(uint64(p.Left), "left row", "left rows"))
	return nil
}

// JoinVerification is the job beside its failure-free run, and beside both inputs joined at once.
type JoinVerification struct {
	MissingBound Number `json:"missing_bound"` // of Missing
	ExtraBound   Number `json:"extra_bound"`   // of Extra
	join.Completeness
	// CleanDivergence is how many pairs the failure-free run misses or has too many. It must be 0.
	CleanDivergence int `json:"clean_divergence"`
	Verification
	Beta      Number `json:"beta"`           // most partners of a row, for the bounds
	Unmatched int    `json:"left_unmatched"` // left rows that have no partner at all

	found, left int // pairs and left rows
}

func (j *Join) verify(ctx context.Context, in *joinInput, got, clean []pair, result *controller.Result) (
	*JoinVerification, uint64, error,
) {
	var sides [2][]JoinRow
	for i, open := range []stream.NewSource[JoinRow]{in.left, in.right} {
		_, err := readAgain(ctx, open, j.progress(PhaseExact), func(rows []JoinRow) error {
			sides[i] = append(sides[i], rows...)
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
	}
	exact := join.Exact(j.options(), sides[0], sides[1])
	v := &JoinVerification{Completeness: join.Compare(got, exact), Beta: Number(partners(exact)), left: len(sides[0])}
	again := join.Compare(clean, exact)
	v.CleanDivergence = again.Missing + again.Extra
	v.Unmatched = len(sides[0]) - matched(exact)
	v.found = v.Expected - v.Missing
	v.losses(result)
	j.bounds(v, result)
	v.Kept = allKept(v.Checks())
	return v, uint64(len(sides[0]) + len(sides[1])), nil
}

// partners returns the most partners that any row has.
func partners(pairs []pair) int {
	left, right, most := map[uint64]int{}, map[uint64]int{}, 0
	for _, p := range pairs {
		left[p.Left.Number]++
		right[p.Right.Number]++
		most = max(most, left[p.Left.Number], right[p.Right.Number])
	}
	return most
}

// bounds fills in what the package comment derives.
func (j *Join) bounds(v *JoinVerification, result *controller.Result) {
	p, parts, beta := j.promised(result), j.Workers*j.Compute, float64(v.Beta)
	rows := p.fromSource("left") + p.fromSource("right")
	onTheWay := p.fromOperator("join", parts) + p.inSink("pairs")
	twice := p.again("join", parts)
	v.LostItemsBound, v.DuplicatedBound = Number(rows+onTheWay), Number(twice)
	v.MissingBound = Number(costs(p.Theta+float64(p.L)+rows, beta) + onTheWay)
	v.ExtraBound = Number(costs(twice, beta) + p.again("pairs", 1))
}

// Checks returns each figure that has a bound.
func (v JoinVerification) Checks() []Check {
	return append([]Check{
		{What: "pairs missing", Measured: Number(v.Missing), Bound: v.MissingBound},
		{What: "pairs repeated", Measured: Number(v.Extra), Bound: v.ExtraBound},
		{What: "without failures", Measured: Number(v.CleanDivergence)},
	}, v.items()...)
}

func (v JoinVerification) figures() []figure {
	return []figure{
		{what: "completeness", measured: percent(v.Share), verdict: fmt.Sprintf("%s of %s pairs found", group(uint64(v.found)), group(uint64(v.Expected)))},
		{what: "left unmatched", measured: group(uint64(v.Unmatched)), verdict: fmt.Sprintf("of %s have no partner", group(uint64(v.left)))},
	}
}
