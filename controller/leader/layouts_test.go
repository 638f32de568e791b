package leader

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/backup/copies"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/controller/machine"
)

// kept is a store that stays when it is closed.
type kept struct{ backup.Store }

func (kept) Close() error { return nil }

func scaledJob(phase cluster.ScalePhase, layout uint64) *cluster.Job {
	j := cluster.NewJob("j", cluster.Spec{Name: "p", Version: "1", Backups: []string{"x"}, Operators: []cluster.Operator{
		{Name: "read", Workers: 1, Compute: 1, Source: true}, {Name: "count", Workers: 2, Compute: 2}, {Name: "write", Workers: 1, Compute: 1, Sink: true},
	}}, time.Unix(0, 0))
	j.Layout = layout
	j.Scaling = &cluster.Scaling{ScaleWish: cluster.ScaleWish{ID: "w", Operator: "count", Workers: 2}, Phase: phase, Former: 3, Round: 1}
	return j
}

// commit saves something in a partition, as a worker of that epoch.
func commit(t *testing.T, s backup.Store, operator string, part int, layout, epoch uint64) error {
	t.Helper()
	p := backup.OpenPartition(s, backup.PartitionKey{Job: "p", Incarnation: "j", Operator: operator, Partition: part, Layout: layout}, epoch)
	if _, err := p.Load(); err != nil {
		return err
	}
	done := make(chan error, 1)
	p.Commit(&backup.Commit{Whole: true, Elements: []byte("x")}, func(err error) { done <- err })
	return <-done
}

// Each partition of the layout is frozen, and each of the one before it dropped, whatever number of workers that had.
func TestLayoutsAreFrozenAndDropped(t *testing.T) {
	store := backup.NewMemory()
	defer store.Close()
	c := &controller{o: Options{OpenBackups: func(context.Context, *cluster.Job) (backup.Store, error) { return kept{store}, nil }}}
	parts := map[string]int{"read": 1, "count": 6, "write": 1}
	for operator, n := range parts {
		for part := range n {
			require.NoError(t, commit(t, store, operator, part, 1, 9))
		}
	}
	parts["count"] = 4
	for operator, n := range parts {
		for part := range n {
			require.NoError(t, commit(t, store, operator, part, 2, 9))
		}
	}
	freeze := machine.LayoutTask{Job: scaledJob(cluster.ScaleFreeze, 2)}
	for _, epoch := range []uint64{backup.Frozen + 2, backup.Frozen + 2, backup.Frozen + 3} {
		_, err := c.divide(t.Context(), freeze, epoch)
		require.NoError(t, err)
	}
	_, err := c.divide(t.Context(), freeze, backup.Frozen+2)
	require.ErrorIs(t, err, backup.ErrFenced, "a later leader was here")
	for operator, n := range parts {
		for part := range n {
			require.ErrorIs(t, commit(t, store, operator, part, 2, 10), backup.ErrFenced)
		}
	}
	keys := func() (n int) {
		require.NoError(t, store.Scan([]byte("s/p/j/"), func([]byte, []byte) error { n++; return nil }))
		return n
	}
	all := keys()
	_, err = c.divide(t.Context(), machine.LayoutTask{Job: scaledJob(cluster.ScaleDrop, 2), Drop: true}, backup.Frozen+3)
	require.NoError(t, err)
	left := keys()
	require.Less(t, left, all)
	_, err = c.divide(t.Context(), machine.LayoutTask{Job: scaledJob(cluster.ScaleDrop, 3), Drop: true}, backup.Frozen+3)
	require.NoError(t, err)
	require.Zero(t, keys(), "all of layout 2 was left, and is gone now")
	require.Positive(t, left)
}

// silent is a store that does not answer until it is closed, and says so.
type silent struct {
	backup.Store
	closed chan struct{}
	once   *sync.Once
}

func (s silent) Fence(string, uint64) error { <-s.closed; return backup.ErrClosed }
func (s silent) Close() error               { s.once.Do(func() { close(s.closed) }); return nil }
func (s silent) Suspicions() []copies.Suspicion {
	return []copies.Suspicion{{Name: "y", Err: errors.New("no answer")}}
}

// A backup server that does not answer is given up after a while, and named.
func TestLayoutsWithASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &controller{o: Options{OpenBackups: func(context.Context, *cluster.Job) (backup.Store, error) {
			return silent{closed: make(chan struct{}), once: &sync.Once{}}, nil
		}}}
		began := time.Now()
		suspects, err := c.divide(t.Context(), machine.LayoutTask{Job: scaledJob(cluster.ScaleFreeze, 1)}, backup.Frozen+1)
		require.ErrorIs(t, err, backup.ErrClosed)
		require.Equal(t, freezeTime, time.Since(began))
		require.Equal(t, []cluster.Suspect{{Job: "j", Server: "y", Why: "no answer"}}, suspects)
	})
}
