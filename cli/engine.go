package cli

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/job"
	"github.com/afstream/afstream/worker"
)

// EngineFlags returns the flags that say how a job runs, for any job that has a job.Engine. Read them with
// Env.Engine. Each call returns flags of their own.
func EngineFlags(defaults job.Engine) []cli.Flag {
	l, gamma, seed := count(defaults.L), count(defaults.Gamma), count(defaults.Seed)
	return slices.Concat(parallelFlags(defaults), toleranceFlags(defaults, &l, &gamma), guaranteeFlags(defaults), serverFlags(), injectionFlags(&seed))
}

func parallelFlags(defaults job.Engine) []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{
			Name: "workers", Value: defaults.Workers, Category: categoryAnswer, EnvVars: env("workers"),
			Usage: "workers of the operator that does the work; each can fail on its own",
		},
		&cli.IntFlag{
			Name: "compute", Value: defaults.Compute, Category: categoryAnswer, EnvVars: env("compute"),
			Usage: "compute goroutines of each worker, each with a state of its own",
		},
		&cli.BoolFlag{
			Name: "pin", Value: defaults.Pin, Category: categoryAnswer, EnvVars: env("pin"),
			Usage: "tie compute goroutines to cores, by turns, where the system allows it: on Linux, to those that afstream may use (see taskset); elsewhere each gets only a thread of its own. Helps if there are cores enough for all of them, if at all",
		},
	}
}

func guaranteeFlags(defaults job.Engine) []cli.Flag {
	batch := count(defaults.Batch)
	return []cli.Flag{
		&cli.StringFlag{
			Name: "guarantee", Value: defaults.Guarantee.String(), Category: categoryTolerate, EnvVars: env("guarantee"),
			Usage: "what failures may cost: approximate (at most what theta, l and gamma allow), error-free (nothing: each item and change is backed up), mini-batch (nothing, but outputs may come twice: all is backed up every --batch items), upstream-backup (the same: senders keep items until their effects are backed up) or none (anything; nothing is backed up)",
		},
		&cli.GenericFlag{
			Name: "batch", Value: &batch, Category: categoryTolerate, EnvVars: env("batch"), DefaultText: "65536",
			Usage: "`ITEMS` that a partition processes between two backups under --guarantee mini-batch or upstream-backup",
		},
	}
}

func toleranceFlags(defaults job.Engine, l, gamma *count) []cli.Flag {
	return []cli.Flag{
		&cli.Float64Flag{
			Name: "theta", Value: defaults.Theta, Category: categoryTolerate, EnvVars: env("theta"),
			Usage: "how far the state may diverge through all failures together, in the unit of what is counted; 0 backs up every change, inf none",
		},
		&cli.GenericFlag{
			Name: "l", Value: l, Category: categoryTolerate, EnvVars: env("l"),
			Usage: "how many `ITEMS` failures of receivers may lose, all together; 0 logs every item",
		},
		&cli.GenericFlag{
			Name: "gamma", Value: gamma, Category: categoryTolerate, EnvVars: env("gamma"),
			Usage: "how many `ITEMS` failures of senders may lose, all together; small values slow the senders down",
		},
		&cli.StringFlag{
			Name: "series", Value: defaults.Series.String(), Category: categoryTolerate, EnvVars: env("series"),
			Usage: "how the budget is spread over failures: geometric (halves each time) or telescoping (1/2, 1/6, 1/12, ...: more is left after many failures)",
		},
		&cli.BoolFlag{
			Name: "source-replay", Value: !defaults.PipeSources, Category: categoryTolerate, EnvVars: env("source-replay"),
			Usage: "read the input again after a failure, which loses no item; with =false it is read like a pipe, and l and gamma count",
		},
		&cli.StringFlag{
			Name: "allocate", Value: defaults.Allocate.String(), Category: categoryTolerate, EnvVars: env("allocate"),
			Usage: "how theta is divided among the workers of an operator: equal, or by-cost (a worker whose state changes faster gets more, as measured while the job runs, so that fewer backups keep the same bound)",
		},
		&cli.StringFlag{
			Name: "backup-dir", Category: categoryTolerate, EnvVars: env("backup-dir"),
			Usage: "`DIRECTORY` for the backups, made if missing (default: a temporary one, removed at the end, or by the next run if afstream is killed)",
		},
		&cli.BoolFlag{
			Name: "backup-sync", Category: categoryTolerate, EnvVars: env("backup-sync"),
			Usage: "wait for the disk with each backup, so that backups survive a power cut",
		},
	}
}

func injectionFlags(seed *count) []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{
			Name: "verify", Category: categoryInject, EnvVars: env("verify"),
			Usage: "run the input again without failures, work out the exact answer, and print each error beside its bound; exit 1 if one is broken",
		},
		&cli.StringSliceFlag{
			Name: "fail", Category: categoryInject, EnvVars: env("fail"),
			Usage: "kill a worker: `OPERATOR/WORKER@WHEN`, WHEN being a share of the input, such as sketch/0@30%, or a number of items it has processed, in all its incarnations and with those it was given again: the number that the report then has as \"at item\"; repeatable",
		},
		&cli.IntFlag{
			Name: "failures", Category: categoryInject, EnvVars: env("failures"),
			Usage: "kill `N` workers chosen by --seed, at points of the input chosen by --seed",
		},
		&cli.GenericFlag{
			Name: "seed", Value: seed, Category: categoryInject, EnvVars: env("seed"),
			Usage: "`NUMBER` that selects the random failures and the generated input; the same number gives the same",
		},
	}
}

// Engine reads the flags of EngineFlags. Events and progress go to stderr.
func (e *Env) Engine() (job.Engine, error) {
	c := e.Flags
	series, err := errorbound.ParseSeries(c.String("series"))
	if err != nil {
		return job.Engine{}, choice("series", c.String("series"), "geometric", "telescoping")
	}
	guarantee, err := worker.ParseGuarantee(c.String("guarantee"))
	if err != nil {
		return job.Engine{}, choice("guarantee", c.String("guarantee"), "approximate", "none", "error-free", "mini-batch", "upstream-backup")
	}
	allocate, err := controller.ParseAllocation(c.String("allocate"))
	if err != nil {
		return job.Engine{}, choice("allocate", c.String("allocate"), "equal", "by-cost")
	}
	engine := job.Engine{
		Params:       errorbound.Params{Theta: c.Float64("theta"), L: e.count("l"), Gamma: e.count("gamma"), Series: series},
		Guarantee:    guarantee,
		Allocate:     allocate,
		Batch:        e.count("batch"),
		Workers:      c.Int("workers"),
		Compute:      c.Int("compute"),
		Pin:          c.Bool("pin"),
		Verify:       c.Bool("verify"),
		PipeSources:  !c.Bool("source-replay"),
		RandomFaults: c.Int("failures"),
		Seed:         e.count("seed"),
		BackupDir:    c.String("backup-dir"),
		BackupSync:   c.Bool("backup-sync"),
		Runner:       e.runner,
		Log:          e.Log,
		OnEvent:      e.screen.event,
		OnProgress:   e.screen.progress,
	}
	if engine.BackupServer, err = e.backupServer(); err != nil {
		return job.Engine{}, err
	}
	if c.IsSet("backup-dir") && engine.BackupDir == "" {
		return job.Engine{}, fmt.Errorf("%w: --backup-dir: the name is empty", ErrUsage)
	}
	for _, text := range strings.Split(strings.Join(c.StringSlice("fail"), ","), ",") {
		if text == "" {
			continue
		}
		fault, err := controller.ParseFault(text)
		if err != nil {
			return job.Engine{}, fmt.Errorf("%w: --fail: %w", ErrUsage, err)
		}
		engine.Faults = append(engine.Faults, fault)
	}
	return engine, nil
}

// count reads a flag whose value is a count.
func (e *Env) count(name string) uint64 {
	if n, ok := e.Flags.Generic(name).(*count); ok {
		return uint64(*n)
	}
	return 0
}

// size reads a flag whose value is a count of what has to fit into memory.
func (e *Env) size(name string) (int, error) {
	n := e.count(name)
	if n > math.MaxInt32 {
		return 0, fmt.Errorf("%w: --%s %d: want at most %d", ErrUsage, name, n, math.MaxInt32)
	}
	return int(n), nil
}

// choice is the error for a value that is none of those there are.
func choice(flag, got string, have ...string) error {
	hint := ""
	if s := nearest(got, have); s != "" {
		hint = fmt.Sprintf("did you mean %s? ", s)
	}
	return fmt.Errorf("%w: --%s %q: %sthere are %s", ErrUsage, flag, got, hint, strings.Join(have, ", "))
}
