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
	if err := a.drop(ctx, j); err != nil {
		return fmt.Errorf("delete job %s: %w", id, err)
	}
	if _, err := a.forget(ctx, cluster.CancelKey(id)); err != nil {
		return fmt.Errorf("delete job %s: %w", id, err)
	}
	if err := a.forgetJob(ctx, id, revision); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return a.logs.Forget(ctx, id)
}

// drop deletes what the backup server has of a job.
func (m *members) drop(ctx context.Context, j *cluster.Job) (err error) {
	if j.Spec.Backup == "" {
		return nil
	}
	store, err := m.store(ctx, j.Spec.Backup)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if !j.Cleared {
		if err := backup.DropJob(store, j.Spec.Name, j.ID); err != nil {
			return err
		}
	}
	return backup.DropResults(store, j.Spec.Name, j.ID)
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

// store opens a backup server, and does not wait for long.
func (m *members) store(ctx context.Context, server string) (backup.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	store, err := m.openStore(ctx, server)
	if err != nil {
		return nil, fmt.Errorf("backup server %q: %w", server, err)
	}
	return store, nil
}
