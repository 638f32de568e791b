package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/algorithms/logreg"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/job"
)

// LogisticRegression returns the job logistic-regression.
func LogisticRegression() Job {
	d := job.DefaultLogisticRegression()
	return Job{
		Name:  job.LogisticRegressionName,
		Usage: "learn to predict labels from labelled examples",
		Description: "Operators: examples (the source), learn (--workers of them), model and weights.\n" +
			"Without flags it learns which flights will be late, from those that come with the program. Each example is predicted\n" +
			"before it is learned from, so no test set is needed.",
		Flags: slices.Concat(exampleFlags(d), learningFlags(d.Model), EngineFlags(d.Engine)),
		Run:   runLogisticRegression,
	}
}

func exampleFlags(d job.LogisticRegression) []cli.Flag {
	examples := count(d.Examples)
	return []cli.Flag{
		&cli.StringFlag{
			Name: "input", TakesFile: true, Value: d.Path, Category: categoryInput, EnvVars: env("input"),
			Usage: "`FILE` to read, gzipped or not, - for stdin",
		},
		&cli.StringFlag{
			Name: "format", Category: categoryInput, EnvVars: env("format"), DefaultText: "flights for .csv and .parquet, else libsvm",
			Usage: "what the input holds: flights (CSV or Parquet with the columns " + logreg.FlightsHeader + ") or libsvm (lines of label index:value ...)",
		},
		&cli.IntFlag{
			Name: "first", Value: d.First, Category: categoryInput, EnvVars: env("first"),
			Usage: "index that a libsvm file gives to the first feature, 1 or 0",
		},
		&cli.StringFlag{
			Name: "on-bad", Value: string(d.OnBad), Category: categoryInput, EnvVars: env("on-bad"),
			Usage: "what to do about a line that cannot be used: fail, or skip and count it",
		},
		&cli.GenericFlag{
			Name: "examples", Value: &examples, Category: categoryInput, EnvVars: env("examples"), DefaultText: "all",
			Usage: "`N` examples to learn from, the first of the input",
		},
	}
}

func learningFlags(d logreg.Options) []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{
			Name: "bits", Value: d.Bits, Category: categoryAnswer, EnvVars: env("bits"),
			Usage: "logarithm of the number of weights: 18 is 262,144; categories of flights are hashed into them",
		},
		&cli.StringFlag{
			Name: "method", Value: "adagrad", Category: categoryAnswer, EnvVars: env("method"),
			Usage: "how the size of steps is chosen: adagrad (for each weight) or sgd (falling with the root of the number of examples)",
		},
		&cli.Float64Flag{
			Name: "rate", Value: d.Rate, Category: categoryAnswer, EnvVars: env("rate"),
			Usage: "size of the first step; too large and the model swings, too small and it learns slowly",
		},
		&cli.IntFlag{
			Name: "every", Value: d.Every, Category: categoryAnswer, EnvVars: env("every"),
			Usage: "`EXAMPLES` after which a learner tells the others what it has learned",
		},
		&cli.StringFlag{
			Name: "consistency", Value: "asynchronous", Category: categoryAnswer, EnvVars: env("consistency"),
			Usage: "how far learners may be apart: asynchronous (any), stale-synchronous (--staleness updates) or bulk-synchronous (none)",
		},
		&cli.GenericFlag{
			Name: "staleness", Value: new(count), Category: categoryAnswer, EnvVars: env("staleness"),
			Usage: "`UPDATES` that a learner may be ahead of the slowest under --consistency stale-synchronous",
		},
		&cli.IntFlag{
			Name: "max-features", Category: categoryAnswer, EnvVars: env("max-features"), DefaultText: "10 for flights, else unknown",
			Usage: "the most features that one `EXAMPLE` has; knowing it makes the job faster",
		},
		&cli.Float64Flag{
			Name: "max-value", Value: 1, Category: categoryAnswer, EnvVars: env("max-value"),
			Usage: "the largest size of a value of a feature; an example above it fails the job",
		},
	}
}

// model reads the flags of learningFlags.
func (e *Env) model() (o logreg.Options, err error) {
	c := e.Flags
	methods := map[string]logreg.Method{"adagrad": logreg.AdaGrad, "sgd": logreg.SGD}
	consistencies := map[string]logreg.Consistency{
		"asynchronous": logreg.Asynchronous, "stale-synchronous": logreg.StaleSynchronous, "bulk-synchronous": logreg.BulkSynchronous,
	}
	o = logreg.Options{
		Bits: c.Int("bits"), Rate: c.Float64("rate"), Every: c.Int("every"), Staleness: e.count("staleness"),
		MaxFeatures: c.Int("max-features"), MaxValue: c.Float64("max-value"),
	}
	var ok bool
	if o.Method, ok = methods[c.String("method")]; !ok {
		return o, choice("method", c.String("method"), "adagrad", "sgd")
	}
	if o.Consistency, ok = consistencies[c.String("consistency")]; !ok {
		return o, choice("consistency", c.String("consistency"), "asynchronous", "stale-synchronous", "bulk-synchronous")
	}
	if c.IsSet("staleness") != (o.Consistency == logreg.StaleSynchronous) {
		return o, fmt.Errorf("%w: --staleness and --consistency stale-synchronous need each other", ErrUsage)
	}
	for _, name := range []string{"rate", "max-value"} {
		if !(c.Float64(name) > 0) {
			return o, fmt.Errorf("%w: --%s %v: want a number above 0", ErrUsage, name, c.Float64(name))
		}
	}
	return o, nil
}

func runLogisticRegression(ctx context.Context, e *Env) error {
	l := job.DefaultLogisticRegression()
	var err error
	if l.Engine, err = e.Engine(); err != nil {
		return err
	}
	if l.Model, err = e.model(); err != nil {
		return err
	}
	c := e.Flags
	l.Path, l.Format = c.String("input"), job.ExampleFormat(c.String("format"))
	l.First, l.OnBad, l.Examples = c.Int("first"), connector.BadRows(c.String("on-bad")), e.count("examples")
	report, err := l.Run(ctx)
	return present(e, report, err)
}
