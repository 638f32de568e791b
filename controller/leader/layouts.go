package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/backup/copies"
	"github.com/afstream/afstream/backup/remote"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/controller/machine"
)

// This file holds what a leader does to the partitions of a job that is scaled. It does so in an epoch of its own, that of
// its term: what an earlier leader may still be about to do is refused from then on.

// freezeTime and dropTime are how long it is tried before it is begun anew, with the backup servers that count by then.
const (
	freezeTime = 10 * time.Second
	dropTime   = 5 * time.Minute
)

// layouts begins what is to be done, for each job one at a time.
func (r *reign) layouts() {
	if r.c.o.OpenBackups == nil {
		return
	}
	for _, task := range r.c.m.Layouts() {
		id := task.Job.ID
		if r.dividing[id] {
			continue
		}
		r.dividing[id] = true
		epoch := backup.Frozen + r.lease.leader.Term
		r.workers.Go(func() {
			suspects, err := r.c.divide(r.ctx, task, epoch)
			if err != nil {
				r.c.o.Log.Warn("partitions of a job that is scaled cannot be reached; tried again", "job", id, "err", err)
				sleep(r.ctx, time.Second)
			}
			post(r.ctx, r.events, func(time.Time) {
				delete(r.dividing, id)
				if err != nil {
					r.c.m.LayoutFailed(task, suspects)
				} else {
					r.c.m.LayoutDone(task)
				}
			})
		})
	}
}

// divide does one thing, and says which backup servers fail it.
func (c *controller) divide(ctx context.Context, task machine.LayoutTask, epoch uint64) (suspects []cluster.Suspect, err error) {
	j, most := task.Job, freezeTime
	if task.Drop {
		most = dropTime
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	store, err := c.o.OpenBackups(ctx, j)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { abandon(store) })
	err = ofPartitions(store, task, epoch)
	if s, ok := store.(interface{ Suspicions() []copies.Suspicion }); ok && err != nil {
		for _, x := range s.Suspicions() {
			suspects = append(suspects, cluster.Suspect{Job: j.ID, Server: x.Name, Why: x.Err.Error(), Lost: errors.Is(x.Err, remote.ErrReplaced)})
		}
	}
	if stop() {
		err = errors.Join(err, store.Close())
	}
	return suspects, err
}

// abandon closes a store so that what waits for its server waits no more, if it can.
func abandon(store backup.Store) {
	if s, ok := store.(interface{ Abandon() error }); ok {
		_ = s.Abandon()
		return
	}
	_ = store.Close()
}

// ofPartitions freezes those of the job's layout, or drops those of the one before.
func ofPartitions(store backup.Store, task machine.LayoutTask, epoch uint64) error {
	j := task.Job
	for i := range j.Spec.Operators {
		o := &j.Spec.Operators[i]
		key := backup.PartitionKey{Job: j.Spec.Name, Incarnation: j.ID, Operator: o.Name, Layout: max(j.Layout, 1)}
		do, workers := backup.Freeze, o.Workers
		if task.Drop {
			key.Layout--
			do, workers = backup.Drop, j.FormerWorkers(o)
		}
		for key.Partition = range workers * o.Compute {
			if err := do(store, key, epoch); err != nil {
				return fmt.Errorf("layout %d: %w", key.Layout, err)
			}
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
