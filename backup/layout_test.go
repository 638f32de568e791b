package backup

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// state returns what a partition's newest commit holds, as text.
func stateOf(t *testing.T, r *Restored) string {
	var all []byte
	for {
		c, err := r.Chunks()
		if err == io.EOF {
			return string(all)
		}
		require.NoError(t, err)
		all = append(all, c.Data...)
	}
}

// A frozen partition is read any number of times and written by nobody; one of another layout is another partition.
func TestLayouts(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		inc, err := NewIncarnation(s, "j")
		require.NoError(t, err)
		old := PartitionKey{Job: "j", Incarnation: inc, Operator: "count", Partition: 1}
		p := OpenPartition(s, old, 7)
		_, err = p.Load()
		require.NoError(t, err)
		require.NoError(t, commitWait(p, &Commit{Whole: true, Elements: []byte("old"), Inputs: []Input{{Channel: 3}}}))
		_, err = p.Mark([]Input{{Channel: 3, Position: Position{Seq: 9}}})
		require.NoError(t, err)

		later := old
		later.Layout = 2
		q := OpenPartition(s, later, 3)
		r, err := q.Load()
		require.NoError(t, err)
		require.False(t, r.Found, "a partition of another layout")
		require.NoError(t, commitWait(q, &Commit{Whole: true, Elements: []byte("new")}))

		require.NoError(t, Freeze(s, old, Frozen))
		require.NoError(t, Freeze(s, old, Frozen))
		require.ErrorIs(t, commitWait(p, &Commit{Elements: []byte("late")}), ErrFenced)
		for range 2 {
			r, err = Read(s, old)
			require.NoError(t, err)
			require.True(t, r.Found)
			require.EqualValues(t, 7, r.Epoch)
			require.Equal(t, "old", stateOf(t, r))
		}

		require.NoError(t, Drop(s, old, Frozen))
		require.NoError(t, Drop(s, old, Frozen))
		r, err = Read(s, old)
		require.NoError(t, err)
		require.False(t, r.Found)
		r, err = Read(s, later)
		require.NoError(t, err)
		require.Equal(t, "new", stateOf(t, r))

		require.NoError(t, DropJob(s, "j", inc))
		r, err = Read(s, later)
		require.NoError(t, err)
		require.False(t, r.Found, "a run is deleted in all its layouts")
		require.ErrorIs(t, commitWait(q, &Commit{Elements: []byte("late")}), ErrFenced)
		_, err = Read(s, PartitionKey{Job: "j", Incarnation: inc, Operator: "count.2"})
		require.ErrorIs(t, err, ErrName)
		require.ErrorIs(t, Freeze(s, PartitionKey{Job: "j"}, Frozen), ErrName)
	})
}
