package job

import (
	"context"
	"fmt"

	"github.com/afstream/afstream/algorithms/grep"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// GrepName is the name of the job and of its topology.
const GrepName = "grep"

// Grep finds the lines of a text that hold a string or match a pattern. Its operators are text (the source), grep
// (Workers of them) and lines (takes the result). Items are blocks of whole lines, and lines that match. Nothing has a
// state, so Theta means nothing; failures can lose lines on their way and bring others twice, within L and Gamma. All
// lines found are kept in memory, and the blocks around them.
//
// Start from DefaultGrep: the zero value is not valid.
type Grep struct {
	Engine

	// Input is what to read.
	Input Text

	// Find says what to look for, and how long a block is.
	Find grep.Options

	// Show is how many of the lines the report has, the first in the text; 0 all.
	Show int
}

// DefaultGrep returns the job with all defaults: the lines that name a prism in the text that comes with the program,
// under L 1,000 and Gamma 1,000, the first 10 reported.
func DefaultGrep() Grep {
	return Grep{
		Engine: Engine{Params: errorbound.Params{L: 1_000, Gamma: 1_000}, Workers: 2, Compute: 1},
		Input:  defaultText(),
		Find:   grep.Options{Strings: []string{"Prism"}},
		Show:   10,
	}
}

// validate returns all faults of the settings, joined, wrapping ErrSettings.
func (g *Grep) validate() error {
	faults := append(g.Engine.faults(), g.Input.faults()...)
	if err := g.Find.Validate(); err != nil {
		faults = append(faults, err)
	}
	if g.Show < 0 {
		faults = append(faults, fmt.Errorf("%d lines to show: want 0 for all or a number of lines", g.Show))
	}
	return settingsError(faults)
}

// topology builds the job; what matches goes to matches.
func (g *Grep) topology(open stream.NewSource[connector.Block], matches *connector.Collector[grep.Match]) *stream.Topology {
	t := stream.New(GrepName)
	text := stream.From(t, "text", open)
	found := stream.Then(text, "grep", func() *grep.Search { return grep.NewSearch(g.Find) },
		stream.Shuffle(), stream.Workers(g.Workers), stream.Compute(g.Compute))
	stream.To(found, "lines", connector.Collect(matches))
	return t
}

// Run runs the job until its input ends; see HeavyHitter.Run for the errors, and for what happens when ctx ends.
func (g Grep) Run(ctx context.Context) (*GrepReport, error) {
	if err := g.validate(); err != nil {
		return nil, err
	}
	in, err := g.Input.openBlocks(grep.Blocks(g.Input.Path, g.Find))
	if err != nil {
		return nil, err
	}
	return run(ctx, &g.Engine, ofRows(GrepName, &in.origin,
		func(matches *connector.Collector[grep.Match]) *stream.Topology { return g.topology(in.open, matches) }, g.answer,
		func(ctx context.Context, got, clean []grep.Match, result *controller.Result) (*GrepVerification, uint64, error) {
			return g.verify(ctx, in, got, clean, result)
		}))
}
