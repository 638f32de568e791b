package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/cluster"
)

func (s *shell) cancelCommand() *cli.Command {
	return s.command(asked{
		name: "cancel", args: "ID", most: 1, usage: "end a job before its input does; it then has no result",
		run: cancelJob,
	})
}

// wish is the value of a wish: that there is one says all.
var wish = []byte("{}")

func cancelJob(ctx context.Context, a *ask) error {
	id := a.Flags.Args().First()
	j, _, err := a.find(ctx, id)
	if err != nil {
		return err
	}
	if j.State.Ended() {
		return fmt.Errorf("job %s has ended: it is %s", id, j.State)
	}
	if err := a.wishFor(ctx, cluster.CancelKey(id)); err != nil {
		return fmt.Errorf("cancel job %s: %w", id, err)
	}
	fmt.Fprintf(a.screen, "job %s will be cancelled by the leading controller\n", id)
	return nil
}

// wishFor makes a wish that may have been made before.
func (m *members) wishFor(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if _, err := m.records.Create(ctx, key, wish); err != nil && !errors.Is(err, cluster.ErrConflict) {
		return err
	}
	return nil
}

// forget deletes a record, whatever it is, and says whether there was one.
func (m *members) forget(ctx context.Context, key string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	for {
		r, err := m.records.Get(ctx, key)
		if errors.Is(err, cluster.ErrNoRecord) {
			return false, nil
		}
		if err == nil {
			err = m.records.Delete(ctx, key, r.Revision)
		}
		if !errors.Is(err, cluster.ErrConflict) {
			return err == nil, err
		}
	}
}
