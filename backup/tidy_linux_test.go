package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/internal/thorough"
)

// diskMiB is what a directory takes on disk: files have holes.
func diskMiB(t *testing.T, dir string) (n int64) {
	require.NoError(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a table that is compacted away
		}
		if err != nil {
			return err
		}
		n += info.Sys().(*syscall.Stat_t).Blocks * 512
		return nil
	}))
	return n >> 20
}

// saveJob commits a state of so many MiB.
func saveJob(t *testing.T, s Store, job string, mib int) (incarnation string, key PartitionKey) {
	incarnation, err := NewIncarnation(s, job)
	require.NoError(t, err)
	key = PartitionKey{Job: job, Incarnation: incarnation, Operator: "count"}
	p := OpenPartition(s, key, 1)
	_, err = p.Load()
	require.NoError(t, err)
	require.NoError(t, commitWait(p, whole(strings.Repeat(job[:1], mib<<20), 1)))
	return incarnation, key
}

func recovered(t *testing.T, s Store, key PartitionKey, epoch uint64) string {
	r, err := OpenPartition(s, key, epoch).Load()
	require.NoError(t, err)
	require.Empty(t, r.Damaged)
	return strings.Join(elements(t, r), "")
}

// The room of a job that was dropped is given back soon, although nothing else is written; others' states stay, also in the next
// process.
func TestBadgerGivesBackRoom(t *testing.T) {
	thorough.Only(t)
	dir := t.TempDir()
	s, err := openBadger(dir, BadgerOptions{}, seam{commit: (*badger.Txn).Commit, room: freeBytes})
	require.NoError(t, err)
	one, keyOne := saveJob(t, s, "one", 40)
	_, keyTwo := saveJob(t, s, "two", 9)
	require.NoError(t, DropJob(s, "one", one))
	require.GreaterOrEqual(t, diskMiB(t, dir), int64(40))

	s.tidy(time.Now()) // too soon after the last write
	require.GreaterOrEqual(t, diskMiB(t, dir), int64(40))
	s.tidy(time.Now().Add(tidyQuiet))
	require.Eventually(t, func() bool { return diskMiB(t, dir) < 30 }, 20*time.Second, 50*time.Millisecond, "%d MiB", diskMiB(t, dir))
	want := "[" + strings.Repeat("t", 9<<20) + "]"
	require.True(t, want == recovered(t, s, keyTwo, 2))
	_, err = OpenPartition(s, keyOne, 5).Load()
	require.ErrorIs(t, err, ErrFenced, "for good")
	require.Empty(t, s.dropped)
	require.NoError(t, s.Close())

	again := openTestBadgerAt(t, dir)
	require.True(t, want == recovered(t, again, keyTwo, 3))
	for _, k := range contents(t, again, "s/") {
		require.True(t, strings.HasPrefix(k, "s/two/"), k[:20])
	}
	require.NoError(t, again.Close())
}

func openTestBadgerAt(t *testing.T, dir string) Store {
	s, err := OpenBadger(dir, BadgerOptions{})
	require.NoError(t, err)
	return s
}

// On a full disk, which takes no writes that would have tables compacted, it does not wait.
func TestBadgerGivesBackRoomOfAFullDisk(t *testing.T) {
	thorough.Only(t)
	room := uint64(math.MaxUint64)
	dir := t.TempDir()
	s, err := openBadger(dir, BadgerOptions{}, seam{commit: (*badger.Txn).Commit, room: func(string) (uint64, error) { return room, nil }})
	require.NoError(t, err)
	one, _ := saveJob(t, s, "one", 40)
	room = reserveBytes - 1
	require.NoError(t, DropJob(s, "one", one))
	room = leastBytes - 1
	s.tidy(time.Now())
	require.GreaterOrEqual(t, diskMiB(t, dir), int64(40), "it takes some room itself")
	room = reserveBytes - 1
	s.tidy(time.Now())
	require.Eventually(t, func() bool { return diskMiB(t, dir) < 25 }, 20*time.Second, 50*time.Millisecond, "%d MiB", diskMiB(t, dir))
	require.NoError(t, s.Close())
}

// What was deleted in part only is left alone.
func TestBadgerKeepsWhatIsLeft(t *testing.T) {
	s, err := openBadger(t.TempDir(), BadgerOptions{}, seam{commit: (*badger.Txn).Commit, room: freeBytes})
	require.NoError(t, err)
	_, key := saveJob(t, s, "one", 1)
	other := key
	other.Operator = "other"
	p := OpenPartition(s, other, 1)
	_, err = p.Load()
	require.NoError(t, err)
	require.NoError(t, commitWait(p, whole("o", 1)))
	require.NoError(t, Drop(s, other, Frozen)) // another layout of the job goes on
	require.Len(t, s.dropped, 1)
	s.tidy(time.Now().Add(tidyQuiet))
	require.Len(t, recovered(t, s, key, 2), 1<<20+2)
	require.NoError(t, s.Close())
}

// Readers and writers notice nothing of it.
func TestBadgerGivesBackRoomMeanwhile(t *testing.T) {
	thorough.Only(t)
	s, err := openBadger(t.TempDir(), BadgerOptions{}, seam{commit: (*badger.Txn).Commit, room: freeBytes})
	require.NoError(t, err)
	_, key := saveJob(t, s, "steady", 3)
	stop := make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() { // a job that goes on
		p := OpenPartition(s, PartitionKey{Job: "busy", Incarnation: "1", Operator: "count"}, 1)
		if _, err := p.Load(); err != nil {
			t.Error(err)
			return
		}
		for n := uint64(1); ; n++ {
			select {
			case <-stop:
				r, err := OpenPartition(s, p.key, 2).Load()
				if err != nil || r.Inputs[0].Seq != n-1 {
					t.Error(err, r, n)
				}
				return
			default:
			}
			if err := commitWait(p, part(fmt.Sprint(n), n)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	busy.Go(func() { // one that recovers again and again
		for epoch := uint64(2); ; epoch++ {
			select {
			case <-stop:
				return
			default:
			}
			r, err := OpenPartition(s, key, epoch).Load()
			if err != nil {
				t.Error(err)
				return
			}
			size := 0
			for {
				c, err := r.Chunks()
				if err != nil {
					break
				}
				size += len(c.Data)
			}
			if size != 3<<20 || len(r.Damaged) > 0 {
				t.Error("recovered", size, r.Damaged)
			}
		}
	})
	for range 5 {
		one, _ := saveJob(t, s, "one", 10)
		require.NoError(t, DropJob(s, "one", one))
		s.tidy(time.Now().Add(time.Hour)) // as if all were quiet
	}
	close(stop)
	busy.Wait()
	require.NoError(t, s.Close())
}
