package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/backup/remote"
	"github.com/afstream/afstream/cluster"
)

// submitCommand has one command below it for each job.
func (s *shell) submitCommand() *cli.Command {
	submit := &cli.Command{
		Name: "submit", Usage: "submit a job to a cluster and print its ID", ArgsUsage: "JOB",
		Description:  "Nodes read the input where they are: by the same name everywhere, as on a shared file system.",
		OnUsageError: usageError,
		Action:       unknownCommand,
	}
	for _, j := range s.jobs {
		submit.Subcommands = append(submit.Subcommands, s.submitJob(j))
	}
	return submit
}

// submitFlags are those of a submission.
func submitFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name: "id", Category: categoryCluster, EnvVars: env("id"), DefaultText: "one that nobody has had",
			Usage: "`ID` to give the job, 1 to 64 of A-Z a-z 0-9 _ -",
		},
		&cli.BoolFlag{
			Name: "wait", Category: categoryCluster, EnvVars: env("wait"),
			Usage: "wait until the job has ended; exit 1 if it has not finished",
		},
		&cli.StringSliceFlag{
			Name: "backup-name", Category: categoryCluster, EnvVars: env("backup-name"), DefaultText: remote.DefaultName,
			Usage: "`NAME` of the backup server of the cluster for backups and results; repeatable: each of them then keeps everything, and the job survives the loss of all but one with their disks",
		},
		&cli.StringSliceFlag{
			Name: "locality", Category: categoryCluster, EnvVars: env("locality"),
			Usage: "`NODE` to prefer; repeatable",
		},
	}
}

// local says why flags of jobs that only mean something to run are refused.
var local = map[string]string{
	"fail":          "failures are injected into runs in one process: kill a node instead",
	"failures":      "failures are injected into runs in one process: kill a node instead",
	"backup-dir":    "backups are kept by the backup server of the cluster, see --backup-name",
	"backup-sync":   "the backup server of the cluster says how it keeps backups, see backup --backup-sync",
	"backup-server": "backups are kept by the backup server of the cluster, see --backup-name",
	"verify":        "ask for it with the result: job result --verify ID",
}

// submitJob is the command that submits one job.
func (s *shell) submitJob(j Job) *cli.Command {
	own := freshFlags(j.Flags)
	for _, f := range own {
		if name := f.Names()[0]; local[name] != "" || name == "source-replay" || name == "allocate" {
			hide(f) // it is refused, with the reason, or has one value only
		}
	}
	own = slices.DeleteFunc(own, func(f cli.Flag) bool { return f.Names()[0] == "backup-name" }) // it means more here
	return &cli.Command{
		Name: j.Name, Usage: j.Usage, Description: j.Description, HideHelpCommand: true, OnUsageError: usageError,
		Flags: together(own, slices.Concat(submitFlags(), clusterFlags(), outputFlags())...),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("%w: unexpected argument %q: %s takes flags only, see %s --help", ErrUsage, c.Args().First(), j.Name, c.Command.HelpName)
			}
			env, err := newEnv(c, s.stdout, s.stderr)
			if err != nil {
				return err
			}
			defer env.screen.close()
			record, err := newSubmission(c.Context, env, j)
			if err != nil {
				return err
			}
			m, err := s.dial(c, env.Log)
			if err != nil {
				return err
			}
			defer m.close()
			a := &ask{members: m, Env: env, shell: s}
			if err := a.submit(c.Context, record); err != nil || !c.Bool("wait") {
				return err
			}
			return a.await(c.Context, record.ID)
		},
	}
}

// newSubmission makes the record of a job, and finds out on the way whether its flags can work in a cluster.
func newSubmission(ctx context.Context, e *Env, j Job) (*cluster.Job, error) {
	c := e.Flags
	if err := fitsCluster(c); err != nil {
		return nil, err
	}
	args, err := argsOf(c, jobFlags(j))
	if err != nil {
		return nil, err
	}
	id := c.String("id")
	if id == "" {
		id = cluster.NewID()
	}
	for kind, name := range map[string]string{"job": id, "name of a job": j.Name} {
		if err := cluster.CheckName(kind, name); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUsage, err)
		}
	}
	backups, err := backupNames(c)
	if err != nil {
		return nil, err
	}
	b, err := j.capture(ctx, args)
	if err != nil {
		return nil, err
	}
	if b.Pipe {
		return nil, fmt.Errorf("%w: a cluster reads the input again after a failure, and this one can be read only once: write it to a file first", ErrUsage)
	}
	operators, err := b.Operators()
	if err != nil {
		return nil, err
	}
	record := cluster.NewJob(id, cluster.Spec{
		Name: j.Name, Version: programVersion(), Args: args, Operators: operators, Backups: backups, Locality: c.StringSlice("locality"),
	}, time.Now().UTC())
	if err := record.CheckSize(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return record, nil
}

// backupNames are the backup servers that a job shall have.
func backupNames(c *cli.Context) ([]string, error) {
	names := c.StringSlice("backup-name")
	if len(names) == 0 {
		return []string{remote.DefaultName}, nil
	}
	for i, name := range names {
		if err := cluster.CheckName("backup server", name); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUsage, err)
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("%w: --backup-name %s is given twice: each backup server keeps one copy", ErrUsage, name)
		}
	}
	return names, nil
}

// fitsCluster refuses flags that mean nothing in a cluster. What the environment says may be meant for other commands.
func fitsCluster(c *cli.Context) error {
	said := func(name string) bool { return c.IsSet(name) && os.Getenv(env(name)[0]) == "" }
	for _, f := range c.Command.Flags {
		if name := f.Names()[0]; local[name] != "" && said(name) {
			return fmt.Errorf("%w: --%s cannot be had in a cluster: %s", ErrUsage, name, local[name])
		}
	}
	if said("source-replay") && !c.Bool("source-replay") {
		return fmt.Errorf("%w: --source-replay=false cannot be had in a cluster: a source that has moved to another node has to read its input again", ErrUsage)
	}
	if said("allocate") && c.String("allocate") == "by-cost" {
		return fmt.Errorf("%w: --allocate by-cost cannot be had in a cluster yet: use equal", ErrUsage)
	}
	return nil
}

// jobFlags are the flags of a job that say what it is.
func jobFlags(j Job) []cli.Flag {
	return slices.DeleteFunc(slices.Clone(j.Flags), func(f cli.Flag) bool {
		name := f.Names()[0]
		about := func(g cli.Flag) bool { return g.Names()[0] == name }
		// Where the cluster is, and what only the environment can have said here.
		return local[name] != "" || name == "source-replay" || name == "allocate" ||
			slices.ContainsFunc(slices.Concat(submitFlags(), clusterFlags(), outputFlags()), about)
	})
}

// submit makes the record.
func (a *ask) submit(ctx context.Context, record *cluster.Job) error {
	limited, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	value := record.Encode()
	_, err := a.records.Create(limited, cluster.JobKey(record.ID), value)
	if errors.Is(err, cluster.ErrConflict) && !a.isThere(limited, record) {
		return fmt.Errorf("job %q is there already: delete it, or give another --id", record.ID)
	}
	if err != nil && !errors.Is(err, cluster.ErrConflict) {
		return fmt.Errorf("submit job: %w; see in job list whether %s is there nevertheless", err, record.ID)
	}
	return a.Print(submission{ID: record.ID})
}

// isThere says whether a record that was in the way is one's own: a write may be done although it seemed to fail, and was tried
// again.
func (a *ask) isThere(ctx context.Context, record *cluster.Job) bool {
	there, _, err := a.find(ctx, record.ID)
	return err == nil && there.Submitted.Equal(record.Submitted) && slices.Equal(there.Spec.Args, record.Spec.Args)
}

// submission is the report of job submit.
type submission struct {
	ID string `json:"id"`
}

// WriteText implements Report.
func (s submission) WriteText(w io.Writer) error {
	_, err := fmt.Fprintln(w, s.ID)
	return err
}

// WriteJSON implements Report.
func (s submission) WriteJSON(w io.Writer) error { return jsonReport(w, s) }

// await waits until a job has ended, and says how.
func (a *ask) await(ctx context.Context, id string) error {
	ended, err := a.untilEnded(ctx, id)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: job %s goes on, end it with: job cancel %s", id, id)
	case err != nil:
		return err
	case ended.State != cluster.Finished:
		return errors.New(strings.TrimSuffix(fmt.Sprintf("job %s has ended: it is %s: %s", id, ended.State, ended.Why), ": "))
	}
	fmt.Fprintf(a.screen, "job %s has finished in %s: job result %s\n", id, duration(ended.Ended.Sub(ended.Started).Seconds()), id)
	return nil
}

// untilEnded watches the record of a job.
func (m *members) untilEnded(ctx context.Context, id string) (ended *cluster.Job, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	key := cluster.JobKey(id)
	var told error
	err = m.records.Watch(watching, key, func(r cluster.Record) {
		if r.Key != key {
			return // of a job whose ID begins alike
		}
		if r.Value == nil {
			told = fmt.Errorf("job %s was deleted", id)
		} else if j, err := cluster.DecodeJob(r.Value); err != nil {
			told = err
		} else if j.State.Ended() {
			ended = j
		}
		if told != nil || ended != nil {
			stop()
		}
	}, func() {})
	return ended, errors.Join(told, err)
}
