package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/controller/leader"
)

func (s *shell) controllerCommand() *cli.Command {
	return &cli.Command{
		Name:  "controller",
		Usage: "decide where the workers of a cluster run, and what becomes of failures",
		Description: "Of any number of controllers one leads, and another takes over within seconds when it is gone. Jobs go on meanwhile.\n" +
			"It runs until it is interrupted.",
		Flags: slices.Concat([]cli.Flag{
			nameFlag("controller", "of this machine"),
			&cli.IntFlag{
				Name: "replicas", Value: 1, Category: categoryCluster, EnvVars: env("replicas"),
				Usage: "copies of the records of the cluster, each on a NATS server of its own; counts when the first process of the cluster starts",
			},
		}, clusterFlags(), []cli.Flag{logFlag()}),
		HideHelpCommand: true,
		OnUsageError:    usageError,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("%w: unexpected argument %q: controller takes flags only, see %s --help", ErrUsage, c.Args().First(), c.Command.HelpName)
			}
			replicas := c.Int("replicas")
			if replicas < 1 || replicas > 5 {
				return fmt.Errorf("%w: --replicas %d: want 1 to 5", ErrUsage, replicas)
			}
			return s.process(c, "afstream controller", func(ctx context.Context, p *process) error {
				fmt.Fprintf(s.stderr, "controller %q of cluster %q is ready to lead\n", p.name, p.at.Cluster)
				return p.controller(ctx, p.name, replicas)
			})
		},
	}
}

// controller runs a controller until ctx ends.
func (p *process) controller(ctx context.Context, name string, replicas int) error {
	m, err := join(ctx, p.nc, p.at, replicas)
	if err != nil {
		return err
	}
	return leader.Run(ctx, leader.Options{
		Name: name, Cluster: p.at.Cluster, Records: m.records, Messages: m.messages, Log: p.log,
		Drop: func(ctx context.Context, j *cluster.Job) error { return m.dropBackups(ctx, j) },
		OpenBackups: func(ctx context.Context, j *cluster.Job) (backup.Store, error) {
			b, err := m.openBackups(ctx, j)
			if err != nil {
				return nil, err // and no nil store that is not nil
			}
			return b, nil
		},
	})
}

// dropBackups deletes the backups of a job that has ended, and leaves its results.
func (m *members) dropBackups(ctx context.Context, j *cluster.Job) error {
	if len(j.View) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dropTime)
	defer cancel()
	b, err := m.openBackups(ctx, j)
	if err != nil {
		return err
	}
	if len(b.away) > 0 { // it may be back soon
		return errors.Join(fmt.Errorf("backup servers %q do not answer: start them, or delete the job: job delete %s", b.away, j.ID), b.Close())
	}
	return errors.Join(backup.DropJob(b, j.Spec.Name, j.ID), b.Close())
}

// dropTime is how long deleting backups may take before it is left for another time.
const dropTime = 5 * time.Minute
