package cli

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/algorithms/grep"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/job"
)

// Grep returns the job grep.
func Grep() Job {
	d := job.DefaultGrep()
	return Job{
		Name:  job.GrepName,
		Usage: "find the lines of a text that hold a string or match a pattern",
		Description: "Operators: text (the source), grep (--workers of them) and lines.\n" +
			"Without flags it looks for Prism in the First Book of Newton's Opticks, which comes with the program. Items are blocks of\n" +
			"lines, and lines found. There is no state: theta means nothing, l and gamma bound the lines that failures lose or repeat.",
		Flags: append(append([]cli.Flag{textFlag(d.Input)}, findFlags(d)...), EngineFlags(d.Engine)...),
		Run:   runGrep,
	}
}

func findFlags(d job.Grep) []cli.Flag {
	show := count(d.Show)
	return []cli.Flag{
		blockFlag(connector.DefaultBlockSize, "`BYTES` of lines that make a block, which is one item; a longer line is a block of its own"),
		&cli.StringSliceFlag{
			Name: "find", Category: categoryAnswer, EnvVars: env("find"), DefaultText: "Prism, in the text that comes with the program",
			Usage: "`STRING` to look for; repeatable: a line that holds any of them is found",
		},
		&cli.StringSliceFlag{
			Name: "regexp", Category: categoryAnswer, EnvVars: env("regexp"),
			Usage: "`PATTERN` to look for, in the syntax of Go's package regexp; repeatable, and together with --find",
		},
		&cli.BoolFlag{
			Name: "ignore-case", Category: categoryAnswer, EnvVars: env("ignore-case"),
			Usage: "take lower and upper case as the same: of ASCII letters in strings, of all letters in patterns",
		},
		&cli.GenericFlag{
			Name: "show", Value: &show, Category: categoryAnswer, EnvVars: env("show"),
			Usage: "`N` lines to print, the first in the text; 0 prints all that were found",
		},
	}
}

// wanted reads what to look for.
func (e *Env) wanted(d grep.Options) (grep.Options, error) {
	c := e.Flags
	o := grep.Options{Strings: c.StringSlice("find"), Patterns: c.StringSlice("regexp"), IgnoreCase: c.Bool("ignore-case")}
	if len(o.Strings)+len(o.Patterns) == 0 {
		if c.IsSet("input") {
			return o, fmt.Errorf("%w: nothing to look for: give --find or --regexp", ErrUsage)
		}
		o.Strings = d.Strings
	}
	var err error
	o.BlockSize, err = e.size("block")
	return o, err
}

func runGrep(ctx context.Context, e *Env) error {
	g := job.DefaultGrep()
	var err error
	if g.Engine, err = e.Engine(); err != nil {
		return err
	}
	if g.Input, err = e.text(); err != nil {
		return err
	}
	if g.Find, err = e.wanted(g.Find); err != nil {
		return err
	}
	if g.Show, err = e.size("show"); err != nil {
		return err
	}
	report, err := g.Run(ctx)
	return present(e, report, err)
}
