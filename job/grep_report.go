package job

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/afstream/afstream/algorithms/grep"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
)

// GrepReport is what the job grep has done.
type GrepReport = Report[Lines, GrepVerification]

// Lines is what the job grep found. A line that failures brought twice is there once.
type Lines struct {
	Lines []Line `json:"lines"` // in the order of the text; as many as were asked for
	Count int    `json:"count"` // of all lines that were found
}

// Line is a line that was found.
type Line struct {
	Number uint64 `json:"line"`   // 1 for the first of the text
	Offset int64  `json:"offset"` // of its first byte in the text
	Text   string `json:"text"`
}

func (g *Grep) answer(matches []grep.Match) Lines {
	slices.SortFunc(matches, func(a, b grep.Match) int { return cmp.Compare(a.Offset, b.Offset) })
	matches = slices.CompactFunc(matches, func(a, b grep.Match) bool { return a.Offset == b.Offset })
	l := Lines{Lines: []Line{}, Count: len(matches)}
	if g.Show > 0 && g.Show < len(matches) {
		matches = matches[:g.Show]
	}
	for _, m := range matches {
		l.Lines = append(l.Lines, Line{Number: m.Line, Offset: m.Offset, Text: string(m.Text)})
	}
	return l
}

// write implements answer.
func (l Lines) write(b *bytes.Buffer, _ *GrepVerification) error {
	if l.Count == 0 {
		fmt.Fprintln(b, "no line matches")
		return nil
	}
	err := writeTable(b, l.Lines, []connector.Column[Line]{
		{Title: "line", Number: true, Value: func(l Line) string { return group(l.Number) }},
		{Title: "text", Value: func(l Line) string { return l.Text }},
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "\n%s", plural(uint64(l.Count), "line matches", "lines match"))
	return nil
}

// GrepVerification is the job beside its failure-free run and beside every line compared with everything looked for.
type GrepVerification struct {
	LostLinesBound     Number `json:"missing_bound"`  // of Missing
	RepeatedLinesBound Number `json:"repeated_bound"` // of Repeated
	grep.Quality
	// CleanDivergence is how many lines the failure-free run lost, repeated or made up. It must be 0.
	CleanDivergence int `json:"clean_divergence"`
	Verification
	Beta Number `json:"beta"` // most lines that one block of the input yields, for the bounds
}

func (g *Grep) verify(ctx context.Context, in *textInput, got, clean []grep.Match, result *controller.Result) (
	*GrepVerification, uint64, error,
) {
	var exact []grep.Match
	most := 0
	items, err := readAgain(ctx, in.open, g.progress(PhaseExact), func(blocks []connector.Block) error {
		for _, block := range blocks {
			found := grep.Exact(g.Find, block.Text)
			for _, m := range found {
				m.Offset += block.Offset
				m.Line += block.Line - 1
				exact = append(exact, m)
			}
			most = max(most, len(found))
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	v := &GrepVerification{Beta: Number(most), Quality: grep.Compare(got, exact)}
	again := grep.Compare(clean, exact)
	v.CleanDivergence = again.Missing + again.Repeated + again.Extra
	v.losses(result)
	g.bounds(v, result)
	v.Kept = allKept(v.Checks())
	return v, items, nil
}

// bounds fills in what the package comment derives.
func (g *Grep) bounds(v *GrepVerification, result *controller.Result) {
	p, beta, parts := g.promised(result), float64(v.Beta), g.Workers*g.Compute
	found := p.fromOperator("grep", parts) + p.inSink("lines")
	blocks, twice := p.fromSource("text"), p.again("grep", parts)
	v.LostLinesBound = Number(found + costs(blocks, beta))
	v.RepeatedLinesBound = Number(costs(twice, beta) + p.again("lines", 1))
	if p.nothing {
		v.RepeatedLinesBound = Number(p.never())
	}
	v.LostItemsBound, v.DuplicatedBound = Number(found+blocks), Number(twice)
}

// Checks returns each figure that has a bound.
func (v GrepVerification) Checks() []Check {
	return append([]Check{
		{What: "lines lost", Measured: Number(v.Missing), Bound: v.LostLinesBound},
		{What: "lines repeated", Measured: Number(v.Repeated), Bound: v.RepeatedLinesBound},
		{What: "lines made up", Measured: Number(v.Extra)},
		{What: "without failures", Measured: Number(v.CleanDivergence)},
	}, v.items()...)
}

func (v GrepVerification) figures() []figure {
	found := v.Matches - v.Missing
	recall := 1.0
	if v.Matches > 0 {
		recall = float64(found) / float64(v.Matches)
	}
	return []figure{{what: "recall", measured: percent(recall), verdict: fmt.Sprintf("%s of %s lines found",
		group(uint64(found)), group(uint64(v.Matches)))}}
}
