package cli

import (
	"context"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/job"
)

// Distinct returns the job distinct.
func Distinct() Job {
	d := job.DefaultDistinct()
	precision := &cli.IntFlag{
		Name: "precision", Value: d.Precision, Category: categoryAnswer, EnvVars: env("precision"),
		Usage: "logarithm of the number of registers, 4 to 18; the standard error is 1.04/sqrt(2^precision), theta a number of registers",
	}
	return Job{
		Name:  job.DistinctName,
		Usage: "estimate how many different keys there are",
		Description: "Operators: items (the source), distinct (--workers of them), merge and estimate.\n" +
			"Without flags it counts the flows of the packet trace that comes with the program.",
		Flags: slices.Concat(inputFlags(d.KeyedItems), []cli.Flag{precision}, EngineFlags(d.Engine)),
		Run:   runDistinct,
	}
}

func runDistinct(ctx context.Context, e *Env) error {
	d := job.DefaultDistinct()
	var err error
	if d.Engine, err = e.Engine(); err != nil {
		return err
	}
	if d.KeyedItems, err = e.items(d.KeyedItems); err != nil {
		return err
	}
	d.Precision = e.Flags.Int("precision")
	report, err := d.Run(ctx)
	return present(e, report, err)
}
