package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/job"
)

func (s *shell) resultCommand() *cli.Command {
	return s.command(asked{
		name: "result", args: "ID", most: 1, usage: "print the result of a finished job, as run prints that of a job here",
		description: "What jobs count only where they run in one process, such as items lost and rows left out, is shown as 0.",
		flags: []cli.Flag{&cli.BoolFlag{
			Name: "verify", Category: categoryInject, EnvVars: env("verify"),
			Usage: "run the input here without failures, work out the exact answer, and print each error beside its bound; exit 1 if one is broken",
		}},
		run: jobResult,
	})
}

func jobResult(ctx context.Context, a *ask) (err error) {
	id := a.Flags.Args().First()
	j, _, err := a.find(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case j.State == cluster.Failed:
		return fmt.Errorf("job %s has failed: %s", id, j.Why)
	case j.State == cluster.Cancelled:
		return fmt.Errorf("job %s was cancelled: it has no result", id)
	case j.State != cluster.Finished:
		return fmt.Errorf("job %s is %s: it has no result yet", id, j.State)
	}
	known := slices.IndexFunc(a.shell.jobs, func(known Job) bool { return known.Name == j.Spec.Name })
	if known < 0 {
		return fmt.Errorf("job %s is a %s, of which this program knows nothing: use the one that submitted it", id, j.Spec.Name)
	}
	if j.Spec.Version != programVersion() {
		a.Log.Warn("the job was run by another build of the program", "job", id, "version", j.Spec.Version, "here", programVersion())
	}
	b, err := a.openBackups(ctx, j)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if len(b.away) > 0 {
		a.Log.Warn("backup servers do not answer: the result is what the others have", "servers", b.away)
	}
	if err := errors.Join(b.forgo(), b.settle(j)); err != nil {
		return err
	}
	args := slices.Clone(j.Spec.Args)
	if a.Flags.Bool("verify") {
		args = append(args, "--verify")
	}
	args = append(args, "--output="+a.Flags.String("output"), "--log-level="+a.Flags.String("log-level"))
	vault := backup.ResultsOf(b, j.Spec.Name, j.ID)
	return a.shell.jobs[known].runAs(ctx, args, a.stdout, a.screen, job.Recalled(vault, job.ResultOf(j)))
}
