package cli

import (
	"context"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/job"
)

// Sample returns the job sample.
func Sample() Job {
	d := job.DefaultSample()
	size, show := count(d.Size), count(d.Show)
	flags := []cli.Flag{
		&cli.GenericFlag{
			Name: "size", Value: &size, Category: categoryAnswer, EnvVars: env("size"),
			Usage: "`N` items to draw; theta is a number of these",
		},
		&cli.BoolFlag{
			Name: "weighted", Category: categoryAnswer, EnvVars: env("weighted"),
			Usage: "draw items in proportion to their weights instead of all alike",
		},
		&cli.GenericFlag{
			Name: "show", Value: &show, Category: categoryAnswer, EnvVars: env("show"),
			Usage: "`N` of the items drawn to print, in random order; 0 prints all",
		},
	}
	return Job{
		Name:  job.SampleName,
		Usage: "draw a random sample of the items, all alike or by weight",
		Description: "Operators: items (the source), sample (--workers of them), merge and table. --seed selects the sample.\n" +
			"Without flags it draws from the packet trace that comes with the program: flows with the bytes of a packet.",
		Flags: slices.Concat(inputFlags(d.KeyedItems), flags, EngineFlags(d.Engine)),
		Run:   runSample,
	}
}

func runSample(ctx context.Context, e *Env) error {
	s := job.DefaultSample()
	var err error
	if s.Engine, err = e.Engine(); err != nil {
		return err
	}
	if s.KeyedItems, err = e.items(s.KeyedItems); err != nil {
		return err
	}
	if s.Size, err = e.size("size"); err != nil {
		return err
	}
	if s.Show, err = e.size("show"); err != nil {
		return err
	}
	s.Weighted = e.Flags.Bool("weighted")
	report, err := s.Run(ctx)
	return present(e, report, err)
}
