package storetest

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
)

// storeDropsPartitions takes a partition from one layout of a job to the next.
func storeDropsPartitions(t *testing.T, s backup.Store) {
	old := backup.PartitionKey{Job: "j", Incarnation: "1", Operator: "count", Partition: 3, Layout: 2}
	p := backup.OpenPartition(s, old, 5)
	_, err := p.Load()
	require.NoError(t, err)
	commit := func(p *backup.Partition, state string) error {
		done := make(chan error, 1)
		p.Commit(&backup.Commit{Whole: true, Elements: []byte(state), Inputs: []backup.Input{{Channel: 1}}}, func(err error) { done <- err })
		return <-done
	}
	require.NoError(t, commit(p, "state"))
	_, err = p.Mark([]backup.Input{{Channel: 1, Position: backup.Position{Seq: 4}}})
	require.NoError(t, err)
	for _, epoch := range []uint64{backup.Frozen + 1, backup.Frozen + 1, backup.Frozen + 2} {
		require.NoError(t, backup.Freeze(s, old, epoch))
	}
	require.ErrorIs(t, backup.Freeze(s, old, backup.Frozen+1), backup.ErrFenced, "somebody later has it")
	require.Error(t, backup.Freeze(s, old, 6), "an epoch that a worker may have")
	require.ErrorIs(t, commit(p, "late"), backup.ErrFenced)
	for range 2 {
		r, err := backup.Read(s, old)
		require.NoError(t, err)
		require.True(t, r.Found)
		c, err := r.Chunks()
		require.NoError(t, err)
		require.Equal(t, "state", string(c.Data))
		require.True(t, c.Whole)
		_, err = r.Chunks()
		require.ErrorIs(t, err, io.EOF)
	}
	for range 2 {
		require.NoError(t, backup.Drop(s, old, backup.Frozen+3))
		r, err := backup.Read(s, old)
		require.NoError(t, err)
		require.False(t, r.Found)
		require.Empty(t, contents(t, s, "s/"))
	}
	require.ErrorIs(t, commit(p, "late"), backup.ErrFenced)
}
