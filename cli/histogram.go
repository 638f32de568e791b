package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/job"
)

// Histogram returns the job histogram.
func Histogram() Job {
	d := job.DefaultHistogram()
	return Job{
		Name:  job.HistogramName,
		Usage: "count numbers by ranges and find quantiles",
		Description: "Operators: numbers (the source), histogram (--workers of them), merge and table.\n" +
			"Without flags it takes the delays in minutes of the flights that come with the program.",
		Flags: slices.Concat(numberFlags(d), histogramFlags(d), EngineFlags(d.Engine)),
		Run:   runHistogram,
	}
}

// numberFlags are inputFlags with a value in the place of key and weight. Read them with Env.items as well.
func numberFlags(d job.Histogram) []cli.Flag {
	flags := slices.DeleteFunc(inputFlags(d.KeyedItems), func(f cli.Flag) bool {
		return f.Names()[0] == "key" || f.Names()[0] == "weight"
	})
	return append(flags, &cli.StringFlag{
		Name: "value", Category: categoryInput, EnvVars: env("value"), DefaultText: d.Input.Key + " of " + d.Input.Path,
		Usage: "what the numbers are. csv, jsonl, parquet: the name of a column; csv also its number from 1, if there is no header. Packets have bytes only, text a number a line, made-up items the rank of their key",
	})
}

func histogramFlags(d job.Histogram) []cli.Flag {
	bins := count(d.Bins)
	return []cli.Flag{
		&cli.StringFlag{
			Name: "layout", Value: string(d.Layout), Category: categoryAnswer, EnvVars: env("layout"),
			Usage: "which bins there are: equi-width (--bins from --from to --to) or quantile (as many as tell each quantile to within --accuracy of itself)",
		},
		&cli.GenericFlag{
			Name: "bins", Value: &bins, Category: categoryAnswer, EnvVars: env("bins"),
			Usage: "`N` bins of the layout equi-width, at most so many where the range is found out",
		},
		&cli.Float64Flag{
			Name: "from", Category: categoryAnswer, EnvVars: env("from"), DefaultText: "found by reading the input first; 0.001 for quantile",
			Usage: "`NUMBER` where the bins begin; for the layout quantile the least size that is not 0",
		},
		&cli.Float64Flag{
			Name: "to", Category: categoryAnswer, EnvVars: env("to"), DefaultText: "found by reading the input first; 1e9 for quantile",
			Usage: "`NUMBER` where the bins end; for the layout quantile the largest size that is told from larger ones",
		},
		&cli.Float64Flag{
			Name: "accuracy", Value: d.Accuracy, Category: categoryAnswer, EnvVars: env("accuracy"),
			Usage: "`SHARE` of itself by which a quantile of the layout quantile may be off, from 0.000001",
		},
		&cli.StringFlag{
			Name: "quantiles", Value: joined(d.Quantiles), Category: categoryAnswer, EnvVars: env("quantiles"),
			Usage: "`SHARES` from 0 to 1 whose quantiles to print, with commas between them",
		},
	}
}

func joined(numbers []float64) string {
	var texts []string
	for _, x := range numbers {
		texts = append(texts, strconv.FormatFloat(x, 'g', -1, 64))
	}
	return strings.Join(texts, ",")
}

// shares reads a flag that holds numbers with commas between them.
func (e *Env) shares(name string) ([]float64, error) {
	var numbers []float64
	for _, text := range strings.Split(e.Flags.String(name), ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: --%s: %q is not a number", ErrUsage, name, text)
		}
		numbers = append(numbers, x)
	}
	return numbers, nil
}

// layout reads which bins there are and refuses what has no meaning for them.
func (e *Env) layout() (job.Layout, error) {
	layout, only, other := job.Layout(e.Flags.String("layout")), "accuracy", job.Quantile
	switch layout {
	case job.EquiWidth:
	case job.Quantile:
		only, other = "bins", job.EquiWidth
	default:
		return layout, choice("layout", string(layout), string(job.EquiWidth), string(job.Quantile))
	}
	if e.Flags.IsSet(only) {
		return layout, fmt.Errorf("%w: --%s is for --layout %s, not for %s: leave it out", ErrUsage, only, other, layout)
	}
	if from := e.Flags.IsSet("from"); from != e.Flags.IsSet("to") {
		return layout, fmt.Errorf("%w: --from and --to go together: give both, or none", ErrUsage)
	}
	return layout, nil
}

func runHistogram(ctx context.Context, e *Env) error {
	h := job.DefaultHistogram()
	var err error
	if h.Engine, err = e.Engine(); err != nil {
		return err
	}
	if h.KeyedItems, err = e.items(h.KeyedItems); err != nil {
		return err
	}
	if h.Layout, err = e.layout(); err != nil {
		return err
	}
	if h.Bins, err = e.size("bins"); err != nil {
		return err
	}
	if h.Quantiles, err = e.shares("quantiles"); err != nil {
		return err
	}
	c := e.Flags
	h.From, h.To, h.Accuracy = c.Float64("from"), c.Float64("to"), c.Float64("accuracy")
	report, err := h.Run(ctx)
	return present(e, report, err)
}
