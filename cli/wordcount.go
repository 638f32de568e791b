package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/algorithms/wordcount"
	"github.com/afstream/afstream/job"
)

// WordCount returns the job wordcount.
func WordCount() Job {
	d := job.DefaultWordCount()
	return Job{
		Name:  job.WordCountName,
		Usage: "count the words of a text",
		Description: "Operators: text (the source), count (--workers of them), merge and table; with --split also split, and tally in place of count.\n" +
			"Without flags it counts the words of the First Book of Newton's Opticks, which comes with the program. Items are blocks of text.",
		Flags: append(append([]cli.Flag{textFlag(d.Input)}, wordFlags(d.Words)...), EngineFlags(d.Engine)...),
		Run:   runWordCount,
	}
}

// textFlag is the flag for the input of jobs on text. Read it with Env.text.
func textFlag(d job.Text) cli.Flag {
	return &cli.StringFlag{
		Name: "input", TakesFile: true, Value: d.Path, Category: categoryInput, EnvVars: env("input"),
		Usage: "text `FILE` to read, gzipped or not, - for stdin",
	}
}

func (e *Env) text() (job.Text, error) {
	t := job.Text{Path: e.Flags.String("input")}
	if strings.TrimSpace(t.Path) == "" {
		return t, fmt.Errorf("%w: --input: the name is empty", ErrUsage)
	}
	return t, nil
}

// blockFlag is the flag for how long a block of text is.
func blockFlag(size int, usage string) cli.Flag {
	bytes := count(size)
	return &cli.GenericFlag{Name: "block", Value: &bytes, Category: categoryInput, EnvVars: env("block"), Usage: usage}
}

func wordFlags(d wordcount.Options) []cli.Flag {
	top := count(d.Top)
	return []cli.Flag{
		blockFlag(wordcount.DefaultBlockSize, "`BYTES` of a block of text at most, which is one item; half as many words may be lost with one, so theta must be well above"),
		&cli.StringFlag{
			Name: "boundaries", Value: string(wordcount.Unicode), Category: categoryAnswer, EnvVars: env("boundaries"),
			Usage: "what a word is: unicode (by the rules of Unicode), alnum (a run of ASCII letters and digits), letters (of letters alone) or fields (a run of anything but white space)",
		},
		&cli.BoolFlag{
			Name: "fold", Category: categoryAnswer, EnvVars: env("fold"),
			Usage: "count words that differ only in case as the same",
		},
		&cli.GenericFlag{
			Name: "top", Value: &top, Category: categoryAnswer, EnvVars: env("top"),
			Usage: "`N` most frequent words to print; 0 prints all",
		},
		normFlag(d.Norm, "what theta bounds: max (the error of each count) or l1 (the sum of all errors, which takes many more backups)"),
		&cli.BoolFlag{
			Name: "split", Category: categoryAnswer, EnvVars: env("split"),
			Usage: "send each word as an item to the worker of its hash; slower, and words on their way are at risk",
		},
	}
}

func runWordCount(ctx context.Context, e *Env) error {
	w := job.DefaultWordCount()
	var err error
	if w.Engine, err = e.Engine(); err != nil {
		return err
	}
	if w.Input, err = e.text(); err != nil {
		return err
	}
	c := e.Flags
	if w.Words.Norm, err = e.norm(); err != nil {
		return err
	}
	w.Words.Boundaries, w.Words.Fold = wordcount.Boundaries(c.String("boundaries")), c.Bool("fold")
	if w.Words.BlockSize, err = e.size("block"); err != nil {
		return err
	}
	if w.Words.Top, err = e.size("top"); err != nil {
		return err
	}
	w.Split = c.Bool("split")
	report, err := w.Run(ctx)
	return present(e, report, err)
}
