package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/cluster"
)

func (s *shell) deleteCommand() *cli.Command {
	return s.command(asked{
		name: "delete", args: "ID", most: 1, usage: "delete a job that has ended: its record, its result, its log and what is left of its backups",
		run: deleteJob,
	})
}

func deleteJob(ctx context.Context, a *ask) error {
	id := a.Flags.Args().First()
	j, revision, err := a.find(ctx, id)
	if err != nil {
		return err
	}
	if !j.State.Ended() {
		return fmt.Errorf("job %s is %s: cancel it first", id, j.State)
	}
	if err := a.dropAll(ctx, j); err != nil {
		return fmt.Errorf("delete job %s: %w", id, err)
	}
	for _, wish := range []string{cluster.CancelKey(id), cluster.ScaleKey(id)} {
		if _, err := a.forget(ctx, wish); err != nil {
			return fmt.Errorf("delete job %s: %w", id, err)
		}
	}
	if err := a.forgetJob(ctx, id, revision); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return a.logs.Forget(ctx, id)
}

// dropAll deletes what backup servers have of a job.
func (a *ask) dropAll(ctx context.Context, j *cluster.Job) (err error) {
	if len(j.View) == 0 {
		return nil
	}
	b, err := a.openBackups(ctx, j)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	for _, name := range b.away {
		a.Log.Warn("a backup server does not answer: what it has of the job stays there", "server", name)
	}
	if err := b.forgo(); err != nil {
		return err
	}
	if !j.Cleared {
		if err := backup.DropJob(b, j.Spec.Name, j.ID); err != nil {
			return err
		}
	}
	return backup.DropResults(b, j.Spec.Name, j.ID)
}

// forgetJob deletes the record of a job that has ended: only the leading controller may still change it, to say that the
// backups are gone.
func (m *members) forgetJob(ctx context.Context, id string, revision uint64) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	for {
		err := m.records.Delete(ctx, cluster.JobKey(id), revision)
		if !errors.Is(err, cluster.ErrConflict) {
			return err
		}
		j, next, err := m.find(ctx, id)
		if err != nil {
			return err
		}
		if !j.State.Ended() || next == revision {
			return fmt.Errorf("delete job %s: somebody has submitted it again", id)
		}
		revision = next
	}
}
