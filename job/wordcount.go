package job

import (
	"context"

	"github.com/afstream/afstream/algorithms/wordcount"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// WordCountName is the name of the job and of its topology.
const WordCountName = "wordcount"

// WordCount counts the words of a text. Its operators are text (the source), count (Workers of them, with a table per
// partition), merge (adds the tables up) and table (takes the result); with Split it has split and tally (Workers of
// each) in place of count. Items are blocks of text. See package wordcount for what a word is, and what Theta means.
//
// Start from DefaultWordCount: the zero value is not valid.
type WordCount struct {
	Engine

	// Input is what to read.
	Input Text

	// Words says what a word is, how long a block, and in which norm Theta bounds the counts. The job counts all words
	// whatever Words.Top is: that is how many of the most frequent the report has, 0 all.
	Words wordcount.Options

	// Split sends each word as an item of its own to the partition of its hash, as the source paper's experiment does,
	// instead of counting the words of a block where it arrives. It is several times slower.
	Split bool
}

// DefaultWordCount returns the job with all defaults: the text that comes with the program, Unicode words as they are
// written, under Theta 1,000, L 1,000 and Gamma 1,000 in the Max norm, the 10 most frequent words reported.
func DefaultWordCount() WordCount {
	return WordCount{
		Engine: Engine{Params: errorbound.Params{Theta: 1_000, L: 1_000, Gamma: 1_000}, Workers: 2, Compute: 1},
		Input:  defaultText(),
		Words:  wordcount.Options{Top: 10},
	}
}

// validate returns all faults of the settings, joined, wrapping ErrSettings.
func (w *WordCount) validate() error {
	faults := append(w.Engine.faults(), w.Input.faults()...)
	if err := w.Words.Validate(); err != nil {
		faults = append(faults, err)
	}
	return settingsError(faults)
}

// topology builds the job; its rows go to rows.
func (w *WordCount) topology(open stream.NewSource[connector.Block], rows *connector.Collector[wordcount.Row]) *stream.Topology {
	o, workers := w.Words, wordcount.Workers{Split: w.Workers, Count: w.Workers, Compute: w.Compute}
	o.Top = 0
	t := stream.New(WordCountName)
	text := stream.From(t, "text", open)
	assemble := wordcount.Assemble
	if w.Split {
		assemble = wordcount.AssembleSplit
	}
	stream.To(assemble(text, o, workers), "table", connector.Collect(rows))
	return t
}

// Run runs the job until its input ends; see HeavyHitter.Run for the errors, and for what happens when ctx ends.
func (w WordCount) Run(ctx context.Context) (*WordCountReport, error) {
	if err := w.validate(); err != nil {
		return nil, err
	}
	in, err := w.Input.openBlocks(wordcount.Blocks(w.Input.Path, w.Words))
	if err != nil {
		return nil, err
	}
	return run(ctx, &w.Engine, ofRows(WordCountName, &in.origin,
		func(rows *connector.Collector[wordcount.Row]) *stream.Topology { return w.topology(in.open, rows) }, w.answer,
		func(ctx context.Context, got, clean []wordcount.Row, result *controller.Result) (*WordCountVerification, uint64, error) {
			return w.verify(ctx, in, got, clean, result)
		}))
}
