package backup

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIncarnationNeverGoesBack(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		const owner = "job/1/count/w0"
		_, found, err := LoadIncarnation(s, owner)
		require.NoError(t, err)
		require.False(t, found)
		for _, r := range []WorkerRecord{{0, 0}, {1, 1}, {1, 1}, {2, 2}, {5, 2}} {
			require.NoError(t, SaveIncarnation(s, owner, r))
			got, found, err := LoadIncarnation(s, owner)
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, r, got)
		}
		require.ErrorIs(t, SaveIncarnation(s, owner, WorkerRecord{6, 1}), ErrStale)
		require.ErrorIs(t, SaveIncarnation(s, owner, WorkerRecord{4, 9}), ErrFenced)
		got, _, err := LoadIncarnation(s, owner)
		require.NoError(t, err)
		require.Equal(t, WorkerRecord{5, 2}, got)
		require.ErrorIs(t, applyWait(s, batch(owner, 5, "k=v")), ErrFenced, "the fence of the refused record stays up")

		require.NoError(t, SaveIncarnation(s, "job/1/count", WorkerRecord{1, 1}))
		got, _, err = LoadIncarnation(s, owner)
		require.NoError(t, err)
		require.Equal(t, WorkerRecord{5, 2}, got, "an owner is not affected by the one above it")
		require.Len(t, contents(t, s, "w/job/1/count/w0\x00"), 1, "older records are deleted")
		require.ErrorIs(t, SaveIncarnation(s, "a b", WorkerRecord{}), ErrName)
	})
}

// Whoever races, the highest failure count that anybody was told is durable stays.
func TestIncarnationUnderRaces(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var most uint64
		for i := range uint64(8) {
			wg.Go(func() {
				for k := range uint64(20) {
					r := WorkerRecord{Epoch: k / 2, Failures: k*8 + i}
					if SaveIncarnation(s, "o", r) == nil {
						got, _, err := LoadIncarnation(s, "o")
						require.NoError(t, err)
						mu.Lock()
						most = max(most, r.Failures)
						require.GreaterOrEqual(t, got.Failures, r.Failures)
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		got, _, err := LoadIncarnation(s, "o")
		require.NoError(t, err)
		require.Equal(t, most, got.Failures)
	})
}

func TestIncarnationDamageIsAnError(t *testing.T) {
	s := NewMemory()
	require.NoError(t, SaveIncarnation(s, "o", WorkerRecord{3, 3}))
	var key []byte
	require.NoError(t, s.Scan([]byte("w/"), func(k, _ []byte) error { key = append(key, k...); return nil }))
	flip(t, s, key)
	_, _, err := LoadIncarnation(s, "o")
	require.ErrorIs(t, err, ErrDamaged)
	require.ErrorIs(t, SaveIncarnation(s, "o", WorkerRecord{4, 4}), ErrDamaged)
}

func TestDroppedJobIsNeverFound(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		_, found, err := LatestIncarnation(s, "job")
		require.NoError(t, err)
		require.False(t, found)

		names := []string{}
		for range 3 {
			name, err := NewIncarnation(s, "job")
			require.NoError(t, err)
			require.NotContains(t, names, name)
			names = append(names, name)
		}
		other, err := NewIncarnation(s, "job2") // whose name starts alike
		require.NoError(t, err)
		partitions := map[string]*Partition{}
		for _, name := range append(names, other) {
			job := "job"
			if name == other {
				job = "job2"
			}
			for i := range 3 {
				p := OpenPartition(s, PartitionKey{job, name, "count", i, uint64(i)}, 1)
				_, err := p.Load()
				require.NoError(t, err)
				require.NoError(t, commitWait(p, whole("state", 1)))
				require.NoError(t, appendWait(p, entry(1, 1, 1, 1)))
				partitions[fmt.Sprint(name, i)] = p
			}
			require.NoError(t, SaveIncarnation(s, job+"/"+name+"/count/w0", WorkerRecord{1, 1}))
		}
		total := len(contents(t, s, ""))

		require.NoError(t, DropJob(s, "job", names[2]))
		latest, found, err := LatestIncarnation(s, "job")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, names[1], latest)
		require.Equal(t, total-(3*3+1+1), len(contents(t, s, "")), "3 records for each partition, worker, name")
		require.ErrorIs(t, commitWait(partitions[names[2]+"0"], part("zombie", 2)), ErrFenced)
		require.ErrorIs(t, SaveIncarnation(s, "job/"+names[2]+"/count/w0", WorkerRecord{9, 9}), ErrFenced)
		require.NoError(t, commitWait(partitions[names[1]+"0"], part("alive", 2)))
		require.NoError(t, commitWait(partitions[other+"0"], part("alive", 2)))

		require.NoError(t, DropJob(s, "job", names[2]), "again is fine")
		require.NoError(t, DropJob(s, "job", names[0]))
		require.NoError(t, DropJob(s, "job", names[1]))
		_, found, err = LatestIncarnation(s, "job")
		require.NoError(t, err)
		require.False(t, found)
		again, err := NewIncarnation(s, "job")
		require.NoError(t, err)
		require.Greater(t, again, names[2], "names go on after a drop")
		latest, _, err = LatestIncarnation(s, "job2")
		require.NoError(t, err)
		require.Equal(t, other, latest)
		require.ErrorIs(t, DropJob(s, "job", "../x"), ErrName)
	})
}
