package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/job"
)

// Defaults of what a target leaves open.
const (
	defaultConfidence = 0.99
	defaultFailures   = 10
)

// planCommand is the command plan. It plans the jobs that have a notion of accuracy.
func planCommand(stdout, stderr io.Writer) *cli.Command {
	heavyHitter := Job{
		Name:  job.HeavyHitterName,
		Usage: "find theta, l, gamma and the sketches that keep the estimates within an error",
		Description: "Prints the settings, what they promise, and what they are predicted to cost, ending with the command\n" +
			"line to run. \"run heavy-hitter --target-error\" does the same and runs it.",
		Flags: append(targetOfPlan(), workloadOfPlan()...),
		Run:   planHeavyHitter,
	}
	return &cli.Command{
		Name:         "plan",
		Usage:        "find the settings of a job that keep an error, and what they cost",
		ArgsUsage:    "JOB",
		OnUsageError: usageError,
		Action:       unknownCommand,
		Subcommands:  []*cli.Command{heavyHitter.command(stdout, stderr)},
	}
}

func confidenceFlag() cli.Flag {
	return &cli.Float64Flag{
		Name: "confidence", Value: defaultConfidence, Category: categoryAnswer, EnvVars: env("confidence"),
		Usage: "`PROBABILITY`, for each key, that its estimate is within the target error; what failures take away always is",
	}
}

func expectFailuresFlag() cli.Flag {
	failures := count(defaultFailures)
	return &cli.GenericFlag{
		Name: "expect-failures", Value: &failures, Category: categoryAnswer, EnvVars: env("expect-failures"),
		Usage: "`N` failures to be prepared for: they decide the series; the bound of the state holds for any number",
	}
}

func memoryFlag() cli.Flag {
	memory := count(0)
	return &cli.GenericFlag{
		Name: "memory", Value: &memory, Category: categoryAnswer, EnvVars: env("memory"), DefaultText: "1 MiB a sketch, if that is enough",
		Usage: "`BYTES`, such as 64M, that all sketches of the target together may take; more allow for fewer rows, which are faster",
	}
}

// targetFlags are the flags of run that ask for an accuracy.
func targetFlags() []cli.Flag {
	return []cli.Flag{
		&cli.Float64Flag{
			Name: "target-error", Category: categoryAnswer, EnvVars: env("target-error"),
			Usage: "`SHARE` of the total weight by which estimates may be off, failures included; decides theta, l, gamma, rows and width",
		},
		confidenceFlag(), expectFailuresFlag(), memoryFlag(),
		&cli.Float64Flag{
			Name: "target-total", Category: categoryAnswer, EnvVars: env("target-total"), DefaultText: "found by reading the input first",
			Usage: "total `WEIGHT` of which the target error is a share; an input that can be read only once needs it",
		},
	}
}

// target reads the flags of targetFlags, and refuses what the target would decide.
func target(e *Env) (job.Accuracy, error) {
	c := e.Flags
	if !c.IsSet("target-error") {
		if other := anySet(c, "confidence", "expect-failures", "memory", "target-total"); other != "" {
			return job.Accuracy{}, fmt.Errorf("%w: --%s says more about a target error and there is none: add --target-error",
				ErrUsage, other)
		}
		return job.Accuracy{}, nil
	}
	if other := anySet(c, "theta", "l", "gamma", "rows", "width"); other != "" {
		return job.Accuracy{}, fmt.Errorf("%w: --target-error decides --%[2]s: leave out one of them", ErrUsage, other)
	}
	a := job.Accuracy{
		Error: c.Float64("target-error"), Confidence: c.Float64("confidence"), Failures: e.count("expect-failures"),
		Total: c.Float64("target-total"), Memory: float64(e.count("memory")),
	}
	if a.Error == 0 {
		return a, fmt.Errorf("%w: --target-error 0: want a share of the total above 0 and below 1, such as 0.001", ErrUsage)
	}
	if c.IsSet("series") {
		var err error
		a.Series, err = chosenSeries(c.String("series"))
		return a, err
	}
	return a, nil
}

// chosenSeries returns the series to choose from, nil for all.
func chosenSeries(name string) ([]errorbound.Series, error) {
	if name == "auto" {
		return nil, nil
	}
	s, err := errorbound.ParseSeries(name)
	if err != nil {
		return nil, choice("series", name, "auto", "geometric", "telescoping")
	}
	return []errorbound.Series{s}, nil
}

// targetOfPlan are the flags of plan that describe the answer.
func targetOfPlan() []cli.Flag {
	d := job.DefaultHeavyHitter()
	return []cli.Flag{
		&cli.Float64Flag{
			Name: "error", Category: categoryAnswer, EnvVars: env("target-error"),
			Usage: "`SHARE` of the total weight by which estimates may be off, failures included, such as 0.001",
		},
		confidenceFlag(), expectFailuresFlag(), memoryFlag(),
		&cli.Float64Flag{
			Name: "threshold", Value: d.Threshold, Category: categoryAnswer, EnvVars: env("threshold"),
			Usage: "`SHARE` of the total weight from which on a key is reported",
		},
		&cli.BoolFlag{
			Name: "compensate", Category: categoryAnswer, EnvVars: env("compensate"),
			Usage: "plan for recoveries that add what the failure may have taken, so that no heavy hitter is missed",
		},
		&cli.StringFlag{
			Name: "series", Value: "auto", Category: categoryTolerate, EnvVars: env("series"),
			Usage: "how the budget is spread over failures: auto (the one that costs less), geometric or telescoping",
		},
		&cli.BoolFlag{
			Name: "source-replay", Value: true, Category: categoryTolerate, EnvVars: env("source-replay"),
			Usage: "the input can be read again after a failure; with =false items in flight are at risk, and l and gamma have a part of the error",
		},
	}
}

// workloadOfPlan are the flags of plan that describe the input and the machine.
func workloadOfPlan() []cli.Flag {
	d, costs := job.DefaultHeavyHitter(), errorbound.DefaultCosts()
	items, rate, commits := count(d.Generator.Items), count(costs.ItemsPerSecond), count(costs.CommitsPerSecond)
	return []cli.Flag{
		&cli.GenericFlag{
			Name: "items", Value: &items, Category: categoryInput, EnvVars: env("items"),
			Usage: "`N` items to expect, such as 1e9; of a longer stream, the error is a smaller share",
		},
		&cli.Float64Flag{
			Name: "alpha", Value: 1, Category: categoryInput, EnvVars: env("alpha"),
			Usage: "the most that one `ITEM` weighs; 0 if that is unknown",
		},
		&cli.Float64Flag{
			Name: "mean-weight", Category: categoryInput, EnvVars: env("mean-weight"), DefaultText: "alpha",
			Usage: "what an item weighs on average: the total is --items times this `WEIGHT`",
		},
		&cli.IntFlag{
			Name: "workers", Value: d.Workers, Category: categoryInput, EnvVars: env("workers"),
			Usage: "workers that run the sketch; each can fail on its own",
		},
		&cli.IntFlag{
			Name: "compute", Value: d.Compute, Category: categoryInput, EnvVars: env("compute"),
			Usage: "compute goroutines of each worker, each with a sketch of its own",
		},
		&cli.Float64Flag{
			Name: "heaviest", Category: categoryInput, EnvVars: env("heaviest"), DefaultText: "unknown, counts as 1",
			Usage: "`SHARE` of the heaviest key, for the prediction: the less it is, the fewer commits are needed",
		},
		&cli.GenericFlag{
			Name: "rate", Value: &rate, Category: categoryInput, EnvVars: env("rate"),
			Usage: "`ITEMS` per second that a worker processes without backups, for the prediction",
		},
		&cli.GenericFlag{
			Name: "commits", Value: &commits, Category: categoryInput, EnvVars: env("commits"),
			Usage: "`COMMITS` per second that the store takes, for the prediction",
		},
	}
}

func planHeavyHitter(_ context.Context, e *Env) error {
	c := e.Flags
	if !c.IsSet("error") {
		return fmt.Errorf("%w: which error may estimates have? Give --error, a share of the total such as 0.001", ErrUsage)
	}
	series, err := chosenSeries(c.String("series"))
	if err != nil {
		return err
	}
	for _, name := range []string{"workers", "compute"} {
		if c.Int(name) < 1 {
			return fmt.Errorf("%w: --%s %d: want at least 1", ErrUsage, name, c.Int(name))
		}
	}
	plan, err := job.PlanHeavyHitter(errorbound.HeavyHitterTarget{
		Workload: errorbound.Workload{
			Items: float64(e.count("items")), Weight: c.Float64("mean-weight"), Alpha: c.Float64("alpha"), Heaviest: c.Float64("heaviest"),
			Pipe: !c.Bool("source-replay"), Workers: c.Int("workers"), Compute: c.Int("compute"),
			Failures: e.count("expect-failures"), Series: series,
			Costs: errorbound.Costs{ItemsPerSecond: float64(e.count("rate")), CommitsPerSecond: float64(e.count("commits"))},
		},
		Error: c.Float64("error"), Confidence: c.Float64("confidence"), Threshold: c.Float64("threshold"),
		Compensated: c.Bool("compensate"), Memory: float64(e.count("memory")),
	})
	if err != nil {
		return err
	}
	plan.Command[0] = c.App.Name
	return e.Print(plan)
}
