package cli

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/backup/copies"
	"github.com/afstream/afstream/cluster"
)

// backups are the open backup servers of a job that has ended.
type backups struct {
	backup.Store
	copies *copies.Store // the same, if it is of several servers
	away   []string      // those of the view that do not answer
	stop   func() bool
}

// openBackups opens the servers of a job's view, of which one has to answer before long. When ctx ends nothing waits for the
// others any more.
func (m *members) openBackups(ctx context.Context, j *cluster.Job) (*backups, error) {
	limited, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	switch len(j.Spec.Backups) {
	case 0:
		return nil, fmt.Errorf("job %s has no backup server, and so no result", j.ID)
	case 1: // as the nodes have written it
		store, err := m.openStore(limited, j.View[0])
		if err != nil {
			return nil, fmt.Errorf("backup server %q: %w", j.View[0], err)
		}
		return &backups{Store: store, stop: func() bool { return true }}, nil
	}
	s, err := copies.Open(limited, j.View, m.openStore, copies.Options{})
	if err != nil {
		return nil, fmt.Errorf("backup servers %q: %w", j.View, err)
	}
	b := &backups{Store: s, copies: s, stop: context.AfterFunc(ctx, func() { _ = s.Close() })}
	for _, x := range s.Suspicions() {
		b.away = append(b.away, x.Name)
	}
	return b, nil
}

// Suspicions returns the servers that fail.
func (b *backups) Suspicions() []copies.Suspicion {
	if b.copies == nil {
		return nil
	}
	return b.copies.Suspicions()
}

// Close closes what was opened.
func (b *backups) Close() error {
	b.stop()
	return b.Store.Close()
}

// Abandon closes what was opened without waiting for servers that do not answer.
func (b *backups) Abandon() error {
	b.stop()
	if s, ok := b.Store.(interface{ Abandon() error }); ok {
		return s.Abandon()
	}
	return b.Store.Close()
}

// forgo goes on without the servers that do not answer. Others have to be told nothing of it: it is for reading, and deleting.
func (b *backups) forgo() error {
	for _, name := range b.away {
		if err := b.copies.Drop(name); err != nil {
			return err
		}
	}
	return nil
}

// settle makes the results of a job that has finished the same on all servers that answer, the latest of them: one may have been
// started again with less, and no client was there that would remember.
func (b *backups) settle(j *cluster.Job) error {
	if b.copies == nil {
		return nil
	}
	for _, o := range j.Spec.Operators {
		for part := range o.Workers * o.Compute {
			if !o.Sink {
				continue
			}
			k := backup.PartitionKey{Job: j.Spec.Name, Incarnation: j.ID, Operator: o.Name, Partition: part}
			if err := b.copies.Fence(k.ResultsOwner(), math.MaxUint64); err != nil && !errors.Is(err, backup.ErrFenced) {
				return err
			}
		}
	}
	return nil
}
