package cli

import (
	"context"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/algorithms/aggregate"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/job"
)

// Aggregate returns the job aggregate.
func Aggregate() Job {
	d := job.DefaultAggregate()
	return Job{
		Name:  job.AggregateName,
		Usage: "count, sum, mean, least and largest weight of the items of each key",
		Description: "Operators: items (the source), aggregate (--workers of them) and table.\n" +
			"Without flags it takes the distances of the flights that come with the program, by their origin.",
		Flags: slices.Concat(inputFlags(d.KeyedItems), aggregateFlags(d), EngineFlags(d.Engine)),
		Run:   runAggregate,
	}
}

func aggregateFlags(d job.Aggregate) []cli.Flag {
	show := count(d.Show)
	return []cli.Flag{
		&cli.Float64Flag{
			Name: "least", Category: categoryAnswer, EnvVars: env("least"),
			Usage: "leave out items that weigh less than `WEIGHT`",
		},
		&cli.GenericFlag{
			Name: "show", Value: &show, Category: categoryAnswer, EnvVars: env("show"),
			Usage: "`N` keys to print, those with the most items; 0 prints all",
		},
		&cli.StringFlag{
			Name: "measure", Value: "count", Category: categoryTolerate, EnvVars: env("measure"),
			Usage: "what theta bounds: count (items missing from a key) or sum (by how much the sum of a key is off)",
		},
		normFlag(d.Norm, "what theta holds for: max (each key) or l1 (all keys together, which takes many more backups)"),
		&cli.Float64Flag{
			Name: "alpha", Category: categoryTolerate, EnvVars: env("alpha"), DefaultText: "1 for counts, 65535 for bytes of packets, else unknown",
			Usage: "the most that one `ITEM` may weigh; knowing it makes --measure sum faster",
		},
	}
}

// normFlag is the flag for a norm that may be max or l1. Read it with Env.norm.
func normFlag(d errorbound.Norm, usage string) cli.Flag {
	return &cli.StringFlag{Name: "norm", Value: d.String(), Category: categoryTolerate, EnvVars: env("norm"), Usage: usage}
}

func (e *Env) norm() (errorbound.Norm, error) {
	n, err := errorbound.ParseNorm(e.Flags.String("norm"))
	if err != nil {
		return n, choice("norm", e.Flags.String("norm"), "max", "l1")
	}
	return n, nil
}

func runAggregate(ctx context.Context, e *Env) error {
	a := job.DefaultAggregate()
	var err error
	if a.Engine, err = e.Engine(); err != nil {
		return err
	}
	if a.KeyedItems, err = e.items(a.KeyedItems); err != nil {
		return err
	}
	if a.Norm, err = e.norm(); err != nil {
		return err
	}
	c := e.Flags
	switch c.String("measure") {
	case "count":
		a.Measure = aggregate.ByCount
	case "sum":
		a.Measure = aggregate.BySum
	default:
		return choice("measure", c.String("measure"), "count", "sum")
	}
	if a.Show, err = e.size("show"); err != nil {
		return err
	}
	a.Alpha, a.Least = c.Float64("alpha"), c.Float64("least")
	report, err := a.Run(ctx)
	return present(e, report, err)
}
