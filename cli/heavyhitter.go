package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/job"
)

// HeavyHitter returns the job heavy-hitter.
func HeavyHitter() Job {
	d := job.DefaultHeavyHitter()
	verify := &cli.BoolFlag{
		Name: "verify", Category: categoryInject, EnvVars: env("verify"),
		Usage: "run the input again without failures, count it exactly, and print each error beside its bound; exit 1 if one is broken",
	}
	return Job{
		Name:  job.HeavyHitterName,
		Usage: "find the keys that make up more than a share of a stream",
		Description: "Operators: trace (the source), sketch (--workers of them), merge and table.\n" +
			"Without flags it finds the busiest senders of the packet trace that comes with the program.",
		Flags: slices.Concat(inputFlags(d), answerFlags(d), EngineFlags(d.Engine), []cli.Flag{verify}),
		Run:   runHeavyHitter,
	}
}

func inputFlags(d job.HeavyHitter) []cli.Flag {
	items, keys := count(d.Generator.Items), count(d.Generator.Keys)
	return []cli.Flag{
		&cli.StringFlag{
			Name: "input", Category: categoryInput, EnvVars: env("input"), DefaultText: d.Input.Path,
			Usage: "`FILE` to read, gzipped or not, - for stdin, builtin:cip.pcap or builtin:flights for what comes with the program",
		},
		&cli.StringFlag{
			Name: "format", Value: string(connector.FormatAuto), Category: categoryInput, EnvVars: env("format"),
			Usage: "format of the input: auto (by name and content), text (lines of key and perhaps weight), csv, jsonl, pcap, pcapng, parquet",
		},
		&cli.StringFlag{
			Name: "key", Category: categoryInput, EnvVars: env("key"), DefaultText: "src for packets",
			Usage: "what the key is. Packets: src, dst, pair or flow. csv, jsonl, parquet: the name of a column; csv also its number from 1, if there is no header",
		},
		&cli.StringFlag{
			Name: "weight", Category: categoryInput, EnvVars: env("weight"), DefaultText: "1 for each item",
			Usage: "what an item weighs. Packets: packets or bytes. csv, jsonl, parquet: a column",
		},
		&cli.StringFlag{
			Name: "on-bad", Value: string(connector.FailOnBad), Category: categoryInput, EnvVars: env("on-bad"),
			Usage: "what to do about a row that cannot be used: fail, or skip and count it",
		},
		&cli.GenericFlag{
			Name: "items", Value: &items, Category: categoryInput, EnvVars: env("items"),
			Usage: "make up `N` items instead of reading some; any of --items, --keys, --zipf does that",
		},
		&cli.GenericFlag{
			Name: "keys", Value: &keys, Category: categoryInput, EnvVars: env("keys"),
			Usage: "`N` distinct keys of the made-up items",
		},
		&cli.Float64Flag{
			Name: "zipf", Value: d.Generator.S, Category: categoryInput, EnvVars: env("zipf"),
			Usage: "`SKEW` of the made-up items: the r-th most frequent key appears in proportion to 1/r^SKEW; 0 is uniform",
		},
	}
}

func answerFlags(d job.HeavyHitter) []cli.Flag {
	return []cli.Flag{
		&cli.Float64Flag{
			Name: "threshold", Value: d.Threshold, Category: categoryAnswer, EnvVars: env("threshold"),
			Usage: "`SHARE` of the total weight from which on a key is reported, 0.000001 to 1",
		},
		&cli.IntFlag{
			Name: "rows", Value: d.Rows, Category: categoryAnswer, EnvVars: env("rows"),
			Usage: "rows of each sketch, 1 to 64; more make a large overcount less likely",
		},
		&cli.IntFlag{
			Name: "width", Value: d.Width, Category: categoryAnswer, EnvVars: env("width"),
			Usage: "counters in a row of a sketch; overcounts are about the total weight divided by it",
		},
		&cli.Float64Flag{
			Name: "alpha", Category: categoryAnswer, EnvVars: env("alpha"), DefaultText: "1 for counts, 65535 for bytes of packets, else unknown",
			Usage: "the most that one `ITEM` may weigh; knowing it makes a job with weights faster",
		},
		&cli.BoolFlag{
			Name: "compensate", Category: categoryAnswer, EnvVars: env("compensate"),
			Usage: "add to a recovered sketch what the failure may have lost: no heavy hitter is missed, estimates may be too high",
		},
		&cli.IntFlag{
			Name: "workers", Value: d.Workers, Category: categoryAnswer, EnvVars: env("workers"),
			Usage: "workers that run the sketch; each can fail on its own",
		},
		&cli.IntFlag{
			Name: "compute", Value: d.Compute, Category: categoryAnswer, EnvVars: env("compute"),
			Usage: "compute goroutines of each worker, each with a sketch of its own",
		},
	}
}

// heavyHitter reads the flags.
func heavyHitter(e *Env) (job.HeavyHitter, error) {
	c := e.Flags
	h := job.DefaultHeavyHitter()
	var err error
	if h.Engine, err = e.Engine(); err != nil {
		return h, err
	}
	if err := chooseInput(e, &h); err != nil {
		return h, err
	}
	h.Threshold, h.Alpha = c.Float64("threshold"), c.Float64("alpha")
	h.Rows, h.Width = c.Int("rows"), c.Int("width")
	h.Workers, h.Compute = c.Int("workers"), c.Int("compute")
	h.Compensate, h.Verify = c.Bool("compensate"), c.Bool("verify")
	return h, nil
}

// chooseInput decides between a file and the generator.
func chooseInput(e *Env, h *job.HeavyHitter) error {
	c := e.Flags
	generate := anySet(c, "items", "keys", "zipf")
	if generate != "" {
		if other := anySet(c, "input", "format", "key", "weight", "on-bad"); other != "" {
			return fmt.Errorf("%w: --%s makes up items and --%s is about reading some: leave out one of them", ErrUsage, generate, other)
		}
		h.Input = connector.KeyedOptions{}
		h.Generator = connector.ZipfOptions{Items: e.count("items"), Keys: e.count("keys"), S: c.Float64("zipf"), Seed: h.Seed}
		return nil
	}
	if c.IsSet("input") {
		h.Input.Path = c.String("input")
	}
	if strings.TrimSpace(h.Input.Path) == "" {
		return fmt.Errorf("%w: --input: the name is empty", ErrUsage)
	}
	h.Input.Format = connector.Format(c.String("format"))
	h.Input.Key, h.Input.Weight = c.String("key"), c.String("weight")
	h.Input.OnBad = connector.BadRows(c.String("on-bad"))
	return nil
}

// anySet returns the first of the flags that the user has set, "" if there is none.
func anySet(c *cli.Context, names ...string) string {
	for _, name := range names {
		if c.IsSet(name) {
			return name
		}
	}
	return ""
}

func runHeavyHitter(ctx context.Context, e *Env) error {
	h, err := heavyHitter(e)
	if err != nil {
		return err
	}
	report, err := h.Run(ctx)
	if report == nil {
		return err
	}
	return errors.Join(err, e.Print(report))
}
