package backup

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/stream"
)

// keyed notes which keys were written as which owner.
type keyed struct {
	Store
	t testing.TB
	n int
}

func (k *keyed) Apply(b *Batch, done func(error)) {
	ranges := OwnedKeys(b.Owner)
	check := func(key []byte) {
		k.n++
		require.True(k.t, slices.ContainsFunc(ranges, func(r KeyRange) bool { return r.Has(key) }), "%q writes %q", b.Owner, key)
	}
	for _, e := range b.Puts {
		check(e.Key)
	}
	for _, key := range b.Deletes {
		check(key)
	}
	k.Store.Apply(b, done)
}

func TestOwnersWriteNothingButWhatTheyOwn(t *testing.T) {
	s := &keyed{Store: NewMemory(), t: t}
	for range 2 {
		_, err := NewIncarnation(s, "job")
		require.NoError(t, err)
	}
	for failures := range uint64(3) {
		require.NoError(t, SaveIncarnation(s, "job/run/count/0", WorkerRecord{Epoch: failures + 1, Failures: failures}))
	}
	require.NoError(t, SaveGrants(s, "job/run/count", []byte("grants")))
	key := PartitionKey{Job: "job", Incarnation: "run", Operator: "count", Partition: 7}
	for epoch := range uint64(3) {
		key.Layout = epoch
		p := OpenPartition(s, key, epoch)
		_, err := p.Load()
		require.NoError(t, err)
		for n := range uint64(5) {
			require.NoError(t, appendWait(p, LogEntry{Channel: 1, First: n, Count: 1, Items: []byte("x")}))
			elements := bytes.Repeat([]byte("e"), pieceBytes+1)
			require.NoError(t, commitWait(p, &Commit{Whole: n%2 == 0, Elements: elements, Inputs: []Input{{1, Position{Seq: n}}}}))
		}
	}
	results := ResultsOf(s, key.Job, key.Incarnation)
	place := stream.Placement{Operator: key.Operator, Partition: key.Partition, Epoch: 3}
	require.NoError(t, results.Open(place))
	for n := range uint64(3) {
		require.NoError(t, results.Save(place, n, []byte("found")))
	}
	require.NoError(t, results.Drop(place, 1))
	require.Greater(t, s.n, 65)
}

func TestOwnedKeysOfDifferentOwnersAreApart(t *testing.T) {
	owners := []string{
		"a", "aa", "a/b", "a/b/c", "a/b/c/1", "a/b/c/10", "a/b/c/01", "a/b/c/x", "a/b/c/d/1",
		"a/b/c/r/1", "a/b/c/r/10", "a/b/c/l2/1", "a/b/c/l2/10", "a/b/c/l20/1", "a/b/c/l1/1", "a/b/c/l02/1", "a/b/c/l/1", "a/b/r/1", "a/b/l2/1",
		PartitionKey{Job: "a", Incarnation: "b", Operator: "c", Partition: math.MaxInt32}.Owner(),
	}
	for _, x := range owners {
		for _, y := range owners {
			for _, r := range OwnedKeys(x) {
				for _, q := range OwnedKeys(y) {
					require.False(t, x != y && r.Has(q.Prefix), "%q and %q share %q", x, y, q.Prefix)
				}
			}
		}
	}
}
