package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/experiments"
	"github.com/afstream/afstream/job"
)

// defaultRepeat returns how many seeds a case gets. Small runs are there to check bounds, not to measure rates.
func defaultRepeat(s experiments.Scale) int {
	if s == experiments.Small {
		return 1
	}
	return 3
}

// experimentCommand is the command experiment over the given experiments.
func experimentCommand(stdout, stderr io.Writer, all []experiments.Experiment) *cli.Command {
	run := &cli.Command{
		Name:         "run",
		Usage:        "run an experiment and write its results",
		ArgsUsage:    "NAME",
		OnUsageError: usageError,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return unknownCommand(c)
			}
			return fmt.Errorf("%w: run which experiment? There are: %s", ErrUsage, strings.Join(commandNames(c.Command.Subcommands, false), ", "))
		},
	}
	for _, e := range all {
		j := experimentJob(e.Name, e.Title, e.Question, []experiments.Experiment{e}, all)
		run.Subcommands = append(run.Subcommands, j.command(stdout, stderr))
	}
	every := experimentJob("all", "run all experiments and write their results", "", all, all)
	return &cli.Command{
		Name:  "experiment",
		Usage: "measure what tolerance for failures costs, and write tables, plots and a report",
		Description: "Results are kept in --out: a CSV file for each experiment, to which each run adds a row, plots as SVG files, and\n" +
			"report.html, which opens without a network. Runs that are there already are not made again: after an\n" +
			"interruption the same command goes on. Other load on the machine distorts rates.",
		OnUsageError: usageError,
		Action:       unknownCommand,
		Subcommands:  []*cli.Command{listCommand(all), run, every.command(stdout, stderr)},
	}
}

func listCommand(all []experiments.Experiment) *cli.Command {
	return &cli.Command{
		Name:            "list",
		Usage:           "list the experiments",
		HideHelpCommand: true,
		OnUsageError:    usageError,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("%w: unexpected argument %q: list takes none", ErrUsage, c.Args().First())
			}
			table, err := connector.Table(c.App.Writer,
				connector.Column[experiments.Experiment]{Title: "name", Value: func(e experiments.Experiment) string { return e.Name }},
				connector.Column[experiments.Experiment]{Title: "what it shows", Value: func(e experiments.Experiment) string { return e.Title }},
			)(0, 1)
			if err != nil {
				return err
			}
			if err := table.Write(all); err != nil {
				return err
			}
			return table.Close()
		},
	}
}

// experimentJob is the command that runs some of all experiments.
func experimentJob(name, usage, description string, list, all []experiments.Experiment) Job {
	seed := count(1)
	return Job{
		Name: name, Usage: usage, Description: description,
		Flags: []cli.Flag{
			&cli.StringFlag{
				Name: "out", Value: "results", Category: categoryOutput, EnvVars: env("out"),
				Usage: "`DIRECTORY` for the results, made if missing; what it holds already is not run again",
			},
			&cli.StringFlag{
				Name: "scale", Value: string(experiments.Small), Category: categoryInput, EnvVars: env("scale"),
				Usage: "how much work a run does: small (to check bounds), paper (a second and more, for figures), large (ten times that)",
			},
			&cli.GenericFlag{
				Name: "seed", Value: &seed, Category: categoryInput, EnvVars: env("seed"),
				Usage: "`NUMBER` of the first seed; each run of a case has one of its own, which selects input and failures",
			},
			&cli.IntFlag{
				Name: "repeat", Category: categoryInput, EnvVars: env("repeat"), DefaultText: "1 at small scale, else 3",
				Usage: "`N` runs of each case, of which the median counts",
			},
		},
		Run: func(ctx context.Context, e *Env) error { return runExperiments(ctx, e, list, all) },
	}
}

func runExperiments(ctx context.Context, e *Env, list, all []experiments.Experiment) error {
	o := experiments.Options{
		Plan: experiments.Plan{Scale: experiments.Scale(e.Flags.String("scale")), Seed: e.count("seed"), Repeat: e.Flags.Int("repeat")},
		Dir:  e.Flags.String("out"), Also: all, Log: e.Log,
		OnProgress: func(p experiments.Progress) {
			e.screen.progress(job.Phase(p.Experiment), int64(p.Done), int64(p.Total))
		},
	}
	if strings.TrimSpace(o.Dir) == "" {
		return fmt.Errorf("%w: --out: the name is empty", ErrUsage)
	}
	if !e.Flags.IsSet("repeat") {
		o.Repeat = defaultRepeat(o.Scale)
	}
	outcomes, err := experiments.Run(ctx, list, o)
	if errors.Is(err, experiments.ErrExperiment) && outcomes == nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if outcomes == nil {
		return err
	}
	return errors.Join(err, e.Print(experimentReport{outcomes: outcomes, page: filepath.Join(o.Dir, "report.html")}))
}

// experimentReport is what experiments have come to, and where the rest is.
type experimentReport struct {
	outcomes []experiments.Outcome
	page     string
}

// WriteText implements Report.
func (r experimentReport) WriteText(w io.Writer) error {
	for _, o := range r.outcomes {
		if err := o.WriteText(w); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%d runs made, %d kept from earlier, %d broke a bound\n\n", o.Made, o.Kept, o.Broken); err != nil {
			return fmt.Errorf("write outcome: %w", err)
		}
	}
	if _, err := fmt.Fprintf(w, "report: %s\n", r.page); err != nil {
		return fmt.Errorf("write outcome: %w", err)
	}
	return nil
}

// WriteJSON implements Report.
func (r experimentReport) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(r.outcomes); err != nil {
		return fmt.Errorf("write outcome: %w", err)
	}
	return nil
}
