package job

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/algorithms/grep"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/worker"
)

// short is the job in blocks so short that they are many.
func short() Grep {
	g := DefaultGrep()
	g.Find = grep.Options{Strings: []string{"the"}, BlockSize: 128}
	g.L, g.Gamma = 50, 200
	return g
}

// TestGrepThroughFailures checks what the job says about itself, whatever fails.
func TestGrepThroughFailures(t *testing.T) {
	throughFailures(t, part{n: 5}, allPromises(), map[string][]string{
		"searches": {"grep/0@300", "grep/1@300", "grep/0@600"},
		"source":   {"text/0@20%", "text/0@50%"},
		"sink":     {"lines/0@100", "lines/0@700", "lines/0@900"},
		"all":      {"grep/0@500", "grep/1@500", "text/0@50%", "lines/0@800"},
	}, func(t *testing.T, c trial) {
		g := short()
		c.in(&g.Engine)
		r, err := g.Run(t.Context())
		v := survived(t, c, r, err)
		require.Zero(t, v.CleanDivergence)
		require.Zero(t, v.Extra)
		require.Equal(t, v.Matches-v.Missing, r.Outcome.Count, "what comes twice is there once")
		require.Greater(t, v.Matches, 1000)
	})
}

func TestGrepBounds(t *testing.T) {
	g := DefaultGrep()
	g.L, g.Gamma = 10, 100
	result := &controller.Result{Failures: []controller.Failure{{Operator: "text"}, {Operator: "grep"}, {Operator: "lines"}}}
	inf := math.Inf(1)
	for _, c := range []struct {
		name                          string
		change                        func(g *Grep)
		lines, repeated, lost, double float64
	}{
		{"replay", func(*Grep) {}, 110, 30 + 10, 110, 10},
		{"pipe", func(g *Grep) { g.PipeSources = true }, 110 + 110*3, 30 + 10, 220, 10},
		{"error-free", func(g *Grep) { g.Guarantee = worker.ErrorFree }, 3, 6 + 1, 3, 2}, // one item in flight at each of two searches
		{"mini-batch", func(g *Grep) { g.Guarantee, g.Batch = worker.MiniBatch, 20 }, 0, 20*3 + 20, 0, 20},
		{"upstream backup", func(g *Grep) { g.Guarantee, g.Batch = worker.UpstreamBackup, 20 }, 0, 40*3 + 40, 0, 40},
		{"none", func(g *Grep) { g.Guarantee = worker.None }, inf, inf, inf, inf},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := g
			c.change(&g)
			v := &GrepVerification{Beta: 3}
			g.bounds(v, result)
			require.Equal(t, Number(c.lines), v.LostLinesBound)
			require.Equal(t, Number(c.repeated), v.RepeatedLinesBound)
			require.Equal(t, Number(c.lost), v.LostItemsBound)
			require.Equal(t, Number(c.double), v.DuplicatedBound)
		})
	}
}

// TestGrepFindsBrokenBounds breaks each bound of a run that kept them.
func TestGrepFindsBrokenBounds(t *testing.T) {
	g := short()
	g.Verify = true
	r, err := g.Run(t.Context())
	require.NoError(t, err)
	requireBroken(t, *r.Verify, map[string]func(v *GrepVerification){
		"lines lost":       func(v *GrepVerification) { v.Missing = 251 },
		"lines repeated":   func(v *GrepVerification) { v.Repeated = 1 + int(v.RepeatedLinesBound) },
		"lines made up":    func(v *GrepVerification) { v.Extra = 1 },
		"without failures": func(v *GrepVerification) { v.CleanDivergence = 1 },
		"items lost":       func(v *GrepVerification) { v.LostItems = 251 },
		"items repeated":   func(v *GrepVerification) { v.DuplicatedItems = 51 },
	})
}

func TestGrepAnswers(t *testing.T) {
	g := DefaultGrep()
	g.Input = textFile(t, "one\ntwo prisms\nno\r\nA PRISM\n\nprism")
	g.Find = grep.Options{Strings: []string{"prism"}, IgnoreCase: true}
	g.Show, g.Verify = 2, true
	r, err := g.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, Lines{Lines: []Line{{2, 4, "two prisms"}, {4, 19, "A PRISM"}}, Count: 3}, r.Outcome)
	var text, raw bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.Contains(t, text.String(), "   4  A PRISM\n\n3 lines match\n")
	require.Regexp(t, "\nrecall +100.00% +3 of 3 lines found\n", text.String())
	require.NoError(t, r.WriteJSON(&raw))
	require.Contains(t, raw.String(), `"missing_bound": 2000`)

	g.Show, g.Find = 0, grep.Options{Patterns: []string{"^$", "^no$"}}
	r, err = g.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, []Line{{3, 15, "no"}, {5, 27, ""}}, r.Outcome.Lines)
}

func TestGrepOfNothing(t *testing.T) {
	for _, content := range []string{"", "nothing here\n"} {
		g := DefaultGrep()
		g.Input, g.Verify = textFile(t, content), true
		r, err := g.Run(t.Context())
		require.NoError(t, err)
		var text, raw bytes.Buffer
		require.NoError(t, r.WriteText(&text))
		require.Contains(t, text.String(), "no line matches\n")
		require.NoError(t, r.WriteJSON(&raw))
		require.Contains(t, raw.String(), `"lines": []`)
		require.True(t, json.Valid(raw.Bytes()))
	}
}

func TestGrepSettings(t *testing.T) {
	requireRefused(t, DefaultGrep, func(g *Grep) *Engine { return &g.Engine }, Grep.Run, map[string]func(g *Grep){
		"engine":     func(g *Grep) { g.Workers = -1 },
		"nothing":    func(g *Grep) { g.Find = grep.Options{} },
		"pattern":    func(g *Grep) { g.Find.Patterns = []string{"("} },
		"block":      func(g *Grep) { g.Find.BlockSize = 1 },
		"show":       func(g *Grep) { g.Show = -1 },
		"no input":   func(g *Grep) { g.Input = Text{Path: " "} },
		"stdin":      func(g *Grep) { g.Input, g.Verify = Text{Path: connector.Stdin}, true },
		"batch pipe": func(g *Grep) { g.Guarantee, g.PipeSources = worker.MiniBatch, true },
		"operator":   func(g *Grep) { g.Faults = []controller.Fault{{Operator: "sketch", Items: 1}} },
	})
}

// TestGrepFromReader reads what can be read only once, lines of which are too long for a block.
func TestGrepFromReader(t *testing.T) {
	g := short()
	g.Input = Text{Reader: strings.NewReader(strings.Repeat(strings.Repeat("x", 200)+" the\n", 100))}
	r, err := g.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, 100, r.Outcome.Count)
	require.Len(t, r.Outcome.Lines, 10)
}
