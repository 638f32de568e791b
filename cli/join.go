package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/job"
)

// Join returns the job join.
func Join() Job {
	d := job.DefaultJoin()
	return Job{
		Name:  job.JoinName,
		Usage: "join flights with the flights that go on, or with a table of airports",
		Description: "Operators: left and right (the sources), join (--workers of them) and pairs.\n" +
			"Without flags it joins the arrivals and the departures at the same airport, at most half an hour apart, of the flights\n" +
			"that come with the program. Theta is a number of rows that joins may forget. All pairs are kept in memory until the end,\n" +
			"and with --verify those of both runs: some 200 bytes each.",
		Flags: slices.Concat(joinFlags(d), EngineFlags(d.Engine)),
		Run:   runJoin,
	}
}

func joinFlags(d job.Join) []cli.Flag {
	flights, window, slack, show := count(d.Flights), count(d.Window), count(d.Slack), count(d.Show)
	return []cli.Flag{
		&cli.StringFlag{
			Name: "input", TakesFile: true, Value: d.Path, Category: categoryInput, EnvVars: env("input"),
			Usage: "`FILE` of flights to read, twice: CSV, gzipped or not, or Parquet, with the columns date (microseconds), delay, distance, origin, destination",
		},
		&cli.StringFlag{
			Name: "table", TakesFile: true, Category: categoryInput, EnvVars: env("table"),
			Usage: "CSV `FILE` with a header and an airport (up to 8 bytes) in the first column: join flights with it instead of with departures",
		},
		&cli.GenericFlag{
			Name: "flights", Value: &flights, Category: categoryInput, EnvVars: env("flights"), DefaultText: "all",
			Usage: "`N` flights to read, the first of the input",
		},
		&cli.GenericFlag{
			Name: "window", Value: &window, Category: categoryAnswer, EnvVars: env("window"),
			Usage: "`MINUTES` that a departure may be before or after an arrival",
		},
		&cli.GenericFlag{
			Name: "slack", Value: &slack, Category: categoryAnswer, EnvVars: env("slack"),
			Usage: "`MINUTES` by which arrivals may be out of order; larger ones keep more rows, smaller ones may miss pairs",
		},
		&cli.GenericFlag{
			Name: "show", Value: &show, Category: categoryAnswer, EnvVars: env("show"),
			Usage: "`N` pairs to print, the first by flight; 0 prints all",
		},
	}
}

func runJoin(ctx context.Context, e *Env) error {
	j := job.DefaultJoin()
	var err error
	if j.Engine, err = e.Engine(); err != nil {
		return err
	}
	c := e.Flags
	j.Path, j.Table, j.Flights = c.String("input"), c.String("table"), e.count("flights")
	if c.IsSet("table") && strings.TrimSpace(j.Table) == "" {
		return fmt.Errorf("%w: --table: the name is empty", ErrUsage)
	}
	if other := anySet(c, "window", "slack"); j.Table != "" && other != "" {
		return fmt.Errorf("%w: --%s is about times and a table has none: leave out --%[2]s or --table", ErrUsage, other)
	}
	if j.Show, err = e.size("show"); err != nil {
		return err
	}
	minutes, err := e.size("window")
	if err != nil {
		return err
	}
	j.Window = int64(minutes)
	if minutes, err = e.size("slack"); err != nil {
		return err
	}
	j.Slack = int64(minutes)
	report, err := j.Run(ctx)
	return present(e, report, err)
}
