package job

import (
	"bytes"
	"context"
	"fmt"

	"github.com/afstream/afstream/algorithms/wordcount"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
)

// WordCountReport is what the job wordcount has done.
type WordCountReport = Report[WordTable, WordCountVerification]

// WordTable is what the job wordcount found.
type WordTable struct {
	Words     []wordcount.Row `json:"words"` // most frequent first; as many as were asked for
	Different int             `json:"different_words"`
	Total     uint64          `json:"total"` // words counted, as far as failures left them
}

func (w *WordCount) answer(rows []wordcount.Row) WordTable {
	t := WordTable{Words: []wordcount.Row{}, Different: len(rows)}
	for _, r := range rows {
		t.Total += r.Count
	}
	if top := w.Words.Top; top > 0 && top < len(rows) {
		rows = rows[:top]
	}
	t.Words = append(t.Words, rows...)
	return t
}

// write implements answer. A verified job has the exact counts beside its own.
func (t WordTable) write(b *bytes.Buffer, v *WordCountVerification) error {
	if t.Total == 0 {
		fmt.Fprintln(b, "no words")
		return nil
	}
	columns := []connector.Column[wordcount.Row]{
		{Title: "rank", Number: true, Value: func(r wordcount.Row) string { return group(uint64(r.Rank)) }},
		{Title: "word", Value: func(r wordcount.Row) string { return r.Word }},
		{Title: "count", Number: true, Value: func(r wordcount.Row) string { return group(r.Count) }},
		{Title: "share", Number: true, Value: func(r wordcount.Row) string { return percent(float64(r.Count) / float64(t.Total)) }},
	}
	if v != nil {
		columns = append(columns,
			connector.Column[wordcount.Row]{Title: "exact", Number: true, Value: func(r wordcount.Row) string {
				return group(v.exact.Count(r.Word))
			}},
			connector.Column[wordcount.Row]{Title: "error", Number: true, Value: func(r wordcount.Row) string {
				return (Number(r.Count) - Number(v.exact.Count(r.Word))).String()
			}})
	}
	if err := writeTable(b, t.Words, columns); err != nil {
		return err
	}
	fmt.Fprintf(b, "\n%s, %s", plural(t.Total, "word", "words"), plural(uint64(t.Different), "different one", "different ones"))
	return nil
}

// WordCountVerification is the job beside its failure-free run and beside counts made in another way.
type WordCountVerification struct {
	// StateDivergence is how far the counts are from the exact ones, in the norm of the job, and so from those of the
	// failure-free run, as long as CleanDivergence is 0.
	StateDivergence      Number `json:"state_divergence"`
	StateDivergenceBound Number `json:"state_divergence_bound"`
	// CleanDivergence is how far the failure-free run is from the exact counts. It must be 0.
	CleanDivergence uint64 `json:"clean_divergence"`
	Verification
	Alpha Number `json:"alpha"` // most words of a block of the input, for the bounds
	Norm  string `json:"norm"`
	wordcount.Quality
	Total uint64 `json:"total"` // words of the text

	exact *wordcount.Exact
}

func (w *WordCount) verify(ctx context.Context, in *textInput, got, clean []wordcount.Row, result *controller.Result) (
	*WordCountVerification, uint64, error,
) {
	exact, most := wordcount.NewExact(w.Words), uint64(0)
	items, err := readAgain(ctx, in.open, w.progress(PhaseExact), func(blocks []connector.Block) error {
		for _, block := range blocks {
			before := exact.Total()
			exact.Add(block.Text)
			most = max(most, exact.Total()-before)
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	v := &WordCountVerification{
		Alpha: Number(most), Norm: w.Words.Norm.String(), Total: exact.Total(), exact: exact,
		Quality: wordcount.Compare(got, exact),
	}
	v.StateDivergence = Number(divergence(w.Words.Norm, v.Quality))
	v.CleanDivergence = divergence(w.Words.Norm, wordcount.Compare(clean, exact))
	v.losses(result)
	w.bounds(v, result)
	v.Kept = allKept(v.Checks())
	return v, items, nil
}

func divergence(n errorbound.Norm, q wordcount.Quality) uint64 {
	if n == errorbound.L1 {
		return q.SumError
	}
	return q.MaxError
}

// bounds fills in what wordcount.Bound and BoundSplit derive, for the longest block there really is, with what rounding
// adds for the failures there really were.
func (w *WordCount) bounds(v *WordCountVerification, result *controller.Result) {
	p, alpha := w.promised(result), float64(v.Alpha)
	blocks := p.fromSource("text")
	if !w.Split {
		v.StateDivergenceBound = Number(p.Theta + costs(blocks, alpha))
		v.LostItemsBound, v.DuplicatedBound = Number(blocks), Number(p.never())
		return
	}
	parts := w.Workers * w.Compute
	words := float64(p.L) + p.fromOperator("split", parts)
	twice := p.again("split", parts)
	// A block that split had acknowledged and not processed is lost, one that it had processed and not acknowledged is
	// split twice: of both together there are no more than of each alone.
	if !p.nothing && p.pipe {
		blocks += twice - float64(p.L)
	} else {
		blocks = twice
	}
	v.StateDivergenceBound = Number(p.Theta + words + costs(blocks, alpha))
	v.LostItemsBound, v.DuplicatedBound = Number(p.fromSource("text")+words), Number(twice)
}

// Checks returns each figure that has a bound.
func (v WordCountVerification) Checks() []Check {
	return append([]Check{
		{What: "state divergence", Measured: v.StateDivergence, Bound: v.StateDivergenceBound},
		{What: "without failures", Measured: Number(v.CleanDivergence)},
	}, v.items()...)
}

func (v WordCountVerification) figures() []figure {
	return []figure{
		{what: "largest error", measured: group(v.MaxError), verdict: "of the count of one word"},
		{what: "sum of errors", measured: group(v.SumError), verdict: fmt.Sprintf("of %s", plural(v.Total, "word", "words"))},
		{what: "words missed", measured: group(uint64(v.Missing)), verdict: fmt.Sprintf("of %s", group(uint64(v.Words)))},
	}
}
