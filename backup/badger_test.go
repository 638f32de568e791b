package backup

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/internal/thorough"
)

func TestBadgerKeepsEverythingAcrossOpenings(t *testing.T) {
	for _, sync := range []bool{false, true} {
		dir := t.TempDir()
		s := openTestBadger(t, dir, BadgerOptions{Sync: sync})
		require.NoError(t, s.Fence("o", 5))
		require.NoError(t, applyWait(s, batch("o", 5, "a=1", "b=2")))
		require.NoError(t, applyWait(s, batch("o", 5, "-a")))
		require.NoError(t, s.Close())
		s = openTestBadger(t, dir, BadgerOptions{Sync: sync})
		require.Equal(t, []string{"b=2"}, contents(t, s, ""))
		require.ErrorIs(t, s.Fence("o", 4), ErrFenced)
		require.ErrorIs(t, applyWait(s, batch("o", 4, "c=3")), ErrFenced)
		require.NoError(t, s.Close())
	}
}

func TestBadgerNamesTheFaultOfADirectory(t *testing.T) {
	dir := t.TempDir()
	s := openTestBadger(t, dir, BadgerOptions{})
	_, err := OpenBadger(filepath.Join(dir, "backup"), BadgerOptions{})
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, filepath.Join(dir, "backup"))
	require.ErrorContains(t, err, "--backup-dir")
	require.NotContains(t, err.Error(), "\n")
	require.NoError(t, s.Close())
	s = openTestBadger(t, dir, BadgerOptions{})
	require.NoError(t, s.Close())

	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, d := range []string{file, filepath.Join(file, "below")} {
		_, err = OpenBadger(d, BadgerOptions{})
		require.ErrorContains(t, err, "not a directory")
		require.ErrorContains(t, err, d)
	}

	foreign := filepath.Join(dir, "foreign")
	require.NoError(t, os.MkdirAll(foreign, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "MANIFEST"), []byte("something else entirely"), 0o600))
	_, err = OpenBadger(foreign, BadgerOptions{})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "\n")
}

func TestBadgerNeedsAWritableDirectory(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o500))
	_, err := OpenBadger(dir, BadgerOptions{})
	require.ErrorIs(t, err, os.ErrPermission)
}

// A nearly full disk stops writing, not reading, and writing goes on when there is room.
func TestBadgerStopsBeforeTheDiskIsFull(t *testing.T) {
	room := uint64(math.MaxUint64)
	disk := seam{commit: (*badger.Txn).Commit, room: func(string) (uint64, error) { return room, nil }}
	dir := t.TempDir()
	s, err := openBadger(dir, BadgerOptions{}, disk)
	require.NoError(t, err)
	p, _ := load(t, s, 1)
	require.NoError(t, commitWait(p, whole("a", 1)))
	room = reserveBytes - 1
	require.ErrorIs(t, commitWait(p, part("b", 2)), ErrDiskFull)
	require.ErrorIs(t, appendWait(p, entry(1, 1, 1, 1)), ErrDiskFull)
	require.ErrorIs(t, s.Fence("o", 1), ErrDiskFull)
	_, err = openBadger(t.TempDir(), BadgerOptions{}, disk)
	require.ErrorIs(t, err, ErrDiskFull)
	require.Len(t, contents(t, s, ""), 2)
	room = reserveBytes
	require.NoError(t, commitWait(p, part("c", 3)))
	_, r := load(t, s, 2)
	require.Equal(t, []string{"[a]", "c"}, elements(t, r))
	require.NoError(t, s.Close())
}

// What makes room is taken when nothing else is any more, and up to a point: jobs can be deleted.
func TestBadgerDeletesOnAFullDisk(t *testing.T) {
	room := uint64(math.MaxUint64)
	disk := seam{commit: (*badger.Txn).Commit, room: func(string) (uint64, error) { return room, nil }}
	dir := t.TempDir()
	s, err := openBadger(dir, BadgerOptions{}, disk)
	require.NoError(t, err)
	job := func(name string) string {
		incarnation, err := NewIncarnation(s, name)
		require.NoError(t, err)
		k := testKey
		k.Job, k.Incarnation = name, incarnation
		p := OpenPartition(s, k, 1)
		_, err = p.Load()
		require.NoError(t, err)
		require.NoError(t, commitWait(p, whole("a", 1)))
		require.NoError(t, SaveIncarnation(s, k.Owner(), WorkerRecord{Epoch: 1}))
		return incarnation
	}
	one, two := job("one"), job("two")
	room = leastBytes
	_, err = NewIncarnation(s, "three")
	require.ErrorIs(t, err, ErrDiskFull)
	require.ErrorContains(t, err, "16 MiB left")
	require.ErrorContains(t, err, "job delete")
	require.ErrorContains(t, err, dir)
	record := batch("one", 0, "v/one=1", "-x")
	require.NoError(t, applyWait(s, record), "as backup/copies does")
	require.ErrorIs(t, applyWait(s, batch("one", 0, "v/one=1", "y=1", "-x")), ErrDiskFull)
	require.NoError(t, DropJob(s, "one", one))
	for _, k := range contents(t, s, "") {
		require.NotContains(t, k, "/one/")
	}
	room = leastBytes - 1
	err = DropJob(s, "two", two)
	require.ErrorIs(t, err, ErrDiskFull)
	require.ErrorContains(t, err, "15 MiB left")
	require.NoError(t, s.Close())
}

// After a failed write nothing more is written, since nobody knows what that write left; the last good backup is there
// when the store is opened again.
// TestBadgerClosesWithoutItsDirectory: Badger would try for ever to write what it still has in memory.
func TestBadgerClosesWithoutItsDirectory(t *testing.T) {
	thorough.Only(t)
	dir := filepath.Join(t.TempDir(), "gone")
	s, err := openBadger(dir, BadgerOptions{}, seam{commit: (*badger.Txn).Commit, room: freeBytes, closeTime: 300 * time.Millisecond})
	require.NoError(t, err)
	p, _ := load(t, s, 1)
	require.NoError(t, commitWait(p, whole("a", 1)))
	require.NoError(t, os.RemoveAll(dir))
	err = s.Close()
	require.ErrorContains(t, err, dir)
	require.ErrorContains(t, err, "is the directory still there")
	require.NoError(t, os.Mkdir(dir, 0o700))
	<-s.down
}

func TestBadgerStopsAfterAFailedWrite(t *testing.T) {
	var broken error
	disk := seam{room: freeBytes, commit: func(txn *badger.Txn) error {
		if broken != nil {
			return broken
		}
		return txn.Commit()
	}}
	dir := t.TempDir()
	var out bytes.Buffer
	s, err := openBadger(dir, BadgerOptions{Logger: slog.New(slog.NewTextHandler(&out, nil))}, disk)
	require.NoError(t, err)
	p, _ := load(t, s, 1)
	require.NoError(t, commitWait(p, whole("a", 1)))
	broken = errors.New("While writing: no space left on device")
	err = commitWait(p, part("b", 2))
	require.ErrorIs(t, err, ErrDiskFull)
	require.ErrorContains(t, err, dir)
	broken = nil
	require.ErrorIs(t, commitWait(p, part("c", 3)), ErrDiskFull)
	require.ErrorIs(t, s.Fence("o", 1), ErrDiskFull)
	require.Len(t, contents(t, s, ""), 2, "reading goes on")
	require.NoError(t, s.Close())
	require.Equal(t, 1, strings.Count(out.String(), "backup write failed"))

	again, err := OpenBadger(dir, BadgerOptions{})
	require.NoError(t, err)
	p, r := load(t, again, 2)
	require.Equal(t, []string{"[a]"}, elements(t, r))
	require.NoError(t, commitWait(p, part("d", 4)))
	require.NoError(t, again.Close())
}

// Damage inside the database's own files is an error or is found by the records' checksums; it never ends the process.
func TestBadgerWithDamagedTables(t *testing.T) {
	thorough.Only(t)
	for _, harm := range []string{"flip", "cut"} {
		const steps = 12
		for step := range steps {
			dir := t.TempDir()
			s, err := OpenBadger(dir, BadgerOptions{})
			require.NoError(t, err)
			twoGenerations(t, s)
			require.NoError(t, s.Close()) // which makes tables of everything
			tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
			require.NoError(t, err)
			require.NotEmpty(t, tables)
			b, err := os.ReadFile(tables[0])
			require.NoError(t, err)
			if harm == "flip" {
				b[len(b)*step/steps] ^= 0x10
			} else {
				b = b[:len(b)*step/steps]
			}
			require.NoError(t, os.WriteFile(tables[0], b, 0o600))

			s, err = OpenBadger(dir, BadgerOptions{})
			if err != nil {
				continue
			}
			p := OpenPartition(s, testKey, 2)
			if r, err := p.Load(); err == nil && r.Found {
				for err == nil {
					_, err = r.Chunks()
				}
			}
			_ = s.Close()
		}
	}
}

// A process that is killed while it writes a table leaves a part of it that nothing refers to.
func TestBadgerWithUnfinishedTable(t *testing.T) {
	dir := t.TempDir()
	s := openTestBadger(t, dir, BadgerOptions{})
	p, _ := load(t, s, 1)
	require.NoError(t, commitWait(p, whole("a", 1)))
	require.NoError(t, s.Close())
	unfinished := filepath.Join(dir, "backup", "000099.sst")
	require.NoError(t, os.WriteFile(unfinished, make([]byte, 3), 0o600))

	again := openTestBadger(t, dir, BadgerOptions{})
	_, r := load(t, again, 2)
	require.Equal(t, []string{"[a]"}, elements(t, r))
	require.NoError(t, again.Close())
	require.NoFileExists(t, unfinished)
}

func TestBadgerLogsThroughSlog(t *testing.T) {
	var out bytes.Buffer
	s := openTestBadger(t, t.TempDir(), BadgerOptions{
		Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	require.NoError(t, s.Close())
	require.Contains(t, out.String(), "level=DEBUG msg=badger text=")
	require.NotContains(t, out.String(), "level=INFO")
}

func TestBadgerCollectsTheValueLog(t *testing.T) {
	s, err := openBadger(t.TempDir(), BadgerOptions{}, seam{commit: (*badger.Txn).Commit, room: freeBytes})
	require.NoError(t, err)
	s.collect() // ends by itself with nothing to collect
	require.NoError(t, s.Close())
	s.collect() // and after the end
}
