package cli

import (
	"cmp"
	"context"
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
	return Job{
		Name:  job.HeavyHitterName,
		Usage: "find the keys that make up more than a share of a stream",
		Description: "Operators: trace (the source), sketch (--workers of them), merge and table.\n" +
			"Without flags it finds the busiest senders of the packet trace that comes with the program.",
		Flags: slices.Concat(inputFlags(d.KeyedItems), answerFlags(d), targetFlags(), EngineFlags(d.Engine)),
		Run:   runHeavyHitter,
	}
}

// inputFlags are the flags for the input of jobs on keyed items. Read them with Env.items.
func inputFlags(d job.KeyedItems) []cli.Flag {
	items, keys := count(d.Generator.Items), count(d.Generator.Keys)
	key, weight := "src for packets", "1 for each item"
	if d.Input.Key != "" {
		key, weight = d.Input.Key+" of "+d.Input.Path, cmp.Or(d.Input.Weight, weight)
	}
	return []cli.Flag{
		&cli.StringFlag{
			Name: "input", TakesFile: true, Category: categoryInput, EnvVars: env("input"), DefaultText: d.Input.Path,
			Usage: "`FILE` to read, gzipped or not, - for stdin, builtin:cip.pcap or builtin:flights for data that comes with the program",
		},
		&cli.StringFlag{
			Name: "format", Value: string(connector.FormatAuto), Category: categoryInput, EnvVars: env("format"),
			Usage: "format of the input: auto (by name and content), text (lines of key and perhaps weight), csv, jsonl, pcap, pcapng, parquet",
		},
		&cli.StringFlag{
			Name: "key", Category: categoryInput, EnvVars: env("key"), DefaultText: key,
			Usage: "what the key is. Packets: src, dst, pair or flow. csv, jsonl, parquet: the name of a column; csv also its number from 1, if there is no header",
		},
		&cli.StringFlag{
			Name: "weight", Category: categoryInput, EnvVars: env("weight"), DefaultText: weight,
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
		&cli.StringFlag{
			Name: "method", Value: string(job.CountMin), Category: categoryAnswer, EnvVars: env("method"),
			Usage: "how to count: count-min (all keys in sketches of --rows times --width counters; fast) or space-saving (--capacity keys by name; no estimate is ever far too high)",
		},
		&cli.IntFlag{
			Name: "capacity", Category: categoryAnswer, EnvVars: env("capacity"), DefaultText: "10 / threshold",
			Usage: "keys that a partition counts under --method space-saving; estimates are too high by the total weight divided by it at most",
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
	if h.KeyedItems, err = e.items(h.KeyedItems); err != nil {
		return h, err
	}
	if h.Method, err = e.method(); err != nil {
		return h, err
	}
	h.Threshold, h.Alpha = c.Float64("threshold"), c.Float64("alpha")
	h.Rows, h.Width = c.Int("rows"), c.Int("width")
	h.Compensate, h.Capacity = c.Bool("compensate"), c.Int("capacity")
	h.Target, err = target(e)
	return h, err
}

// method reads the method of heavy-hitter and refuses flags that it has no use for.
func (e *Env) method() (job.Method, error) {
	method, other, others := job.Method(e.Flags.String("method")), job.SpaceSaving, []string{"capacity"}
	switch method {
	case job.CountMin:
	case job.SpaceSaving:
		// What else says more about a target error is refused without one.
		other, others = job.CountMin, []string{"rows", "width", "compensate", "target-error"}
	default:
		return method, choice("method", string(method), string(job.CountMin), string(job.SpaceSaving))
	}
	if flag := anySet(e.Flags, others...); flag != "" {
		return method, fmt.Errorf("%w: --%s is for --method %s, not for %s: leave it out", ErrUsage, flag, other, method)
	}
	return method, nil
}

// items decides between a file and the generator.
func (e *Env) items(d job.KeyedItems) (job.KeyedItems, error) {
	c := e.Flags
	generate := anySet(c, "items", "keys", "zipf")
	if generate != "" {
		if other := anySet(c, "input", "format", "key", "value", "weight", "on-bad"); other != "" {
			return d, fmt.Errorf("%w: --%s makes up items and --%s is about reading some: leave out one of them", ErrUsage, generate, other)
		}
		d.Input = connector.KeyedOptions{}
		d.Generator = connector.ZipfOptions{Items: e.count("items"), Keys: e.count("keys"), S: c.Float64("zipf"), Seed: e.count("seed")}
		return d, nil
	}
	if c.IsSet("input") {
		d.Input = connector.KeyedOptions{Path: c.String("input")}
	}
	if strings.TrimSpace(d.Input.Path) == "" {
		return d, fmt.Errorf("%w: --input: the name is empty", ErrUsage)
	}
	// Jobs have a key and a weight, or a value, which is read as the key is.
	for name, to := range map[string]*string{"key": &d.Input.Key, "value": &d.Input.Key, "weight": &d.Input.Weight} {
		if c.IsSet(name) {
			*to = c.String(name)
		}
	}
	d.Input.Format = connector.Format(c.String("format"))
	d.Input.OnBad = connector.BadRows(c.String("on-bad"))
	return d, nil
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
	return present(e, report, err)
}
