package backup

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/internal/thorough"
)

// crashDirVariable makes the test binary a process that commits until it is killed; see TestMain.
const crashDirVariable = "BACKUP_CRASH_DIR"

// crashCommit is the n-th commit: everything about it follows from n, so that a torn one can be told.
func crashCommit(n uint64, isWhole bool) *Commit {
	rng := rand.New(rand.NewPCG(n, 1))
	size := 100 + rng.IntN(6000)
	if isWhole && n%3 == 0 {
		size = 3*pieceBytes + rng.IntN(1000) // several batches
	}
	e := make([]byte, size)
	for i := range e {
		e[i] = byte(n) + byte(i)
	}
	binary.LittleEndian.PutUint64(e, n)
	return &Commit{Whole: isWhole, Elements: e, Inputs: []Input{at(7, 1, n)}}
}

// runCommits commits from first on until stop or an error; wholes are frequent, so that generations change often.
func runCommits(p *Partition, first uint64, attempted, acked func(n uint64) (stop bool)) error {
	for n := first; ; n++ {
		if attempted(n) {
			return nil
		}
		if err := commitWait(p, crashCommit(n, p.NeedWhole() || n%97 == 0)); err != nil {
			return err
		}
		if acked(n) {
			return nil
		}
	}
}

// checkCrashed loads the partition and returns the number of its newest commit, after it has made sure that the state is
// a base and all commits up to that one, each of them whole.
func checkCrashed(t *testing.T, p *Partition) uint64 {
	r, err := p.Load()
	require.NoError(t, err)
	require.Empty(t, r.Damaged)
	if !r.Found {
		return 0
	}
	newest := r.Inputs[0].Seq
	var buf []byte
	var n uint64
	for {
		c, err := r.Chunks()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		if buf = append(buf, c.Data...); !c.End {
			continue
		}
		got := binary.LittleEndian.Uint64(buf)
		if !c.Whole {
			require.Equal(t, n+1, got, "commits follow each other")
		}
		n = got
		want := crashCommit(n, c.Whole)
		require.True(t, bytes.Equal(want.Elements, buf), "commit %d is torn", n)
		buf = buf[:0]
	}
	require.Equal(t, newest, n)
	return n
}

// crashWriter is the process to be killed. It goes on after what it finds, and prints each commit when it is durable.
func crashWriter(dir string) error {
	epoch, err := strconv.ParseUint(os.Getenv("BACKUP_CRASH_EPOCH"), 10, 64)
	if err != nil {
		return err
	}
	s, err := OpenBadger(dir, BadgerOptions{Sync: os.Getenv("BACKUP_CRASH_SYNC") != ""})
	if err != nil {
		return err
	}
	p := OpenPartition(s, testKey, epoch)
	r, err := p.Load()
	if err != nil {
		return err
	}
	first := uint64(1)
	if r.Found {
		first = r.Inputs[0].Seq + 1
	}
	return runCommits(p, first, func(uint64) bool { return false }, func(n uint64) bool {
		fmt.Println(n)
		return false
	})
}

// A process is killed at random moments, again and again on the same directory: each time all that was acknowledged is
// there, and at most the one commit more that was in flight.
func TestKilledProcess(t *testing.T) {
	t.Parallel() // it waits more than it works
	for _, sync := range []string{"", "1"} {
		t.Run("sync="+sync, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 2))
			for round := range thorough.Number(2, 6) {
				acked := killWriter(t, dir, sync, 2*round+1, 1+rng.IntN(thorough.Number(300, 1200)))
				s, err := OpenBadger(dir, BadgerOptions{})
				require.NoError(t, err)
				n := checkCrashed(t, OpenPartition(s, testKey, uint64(2*round+2)))
				require.NoError(t, s.Close())
				require.GreaterOrEqual(t, n, acked, "an acknowledged commit is lost")
				require.LessOrEqual(t, n, acked+1)
			}
		})
	}
}

// killWriter starts a writer, kills it once it has acknowledged some commits, and returns the last one it acknowledged.
func killWriter(t *testing.T, dir, sync string, epoch, commits int) (acked uint64) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(),
		crashDirVariable+"="+dir, "BACKUP_CRASH_SYNC="+sync, fmt.Sprintf("BACKUP_CRASH_EPOCH=%d", epoch))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for n := 1; lines.Scan(); n++ {
		acked, err = strconv.ParseUint(lines.Text(), 10, 64)
		require.NoError(t, err)
		if n == commits {
			require.NoError(t, cmd.Process.Kill())
		}
	}
	require.Error(t, cmd.Wait(), "it was killed")
	return acked
}

// The directory is copied at random moments while a worker commits. A copy that was taken while no file came or went is
// what a kill would have left at some moment during the copying, with the end of the log torn in any way.
func TestCopiedDirectory(t *testing.T) {
	t.Parallel() // it waits more than it works
	dir, seed := t.TempDir(), rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	s, err := OpenBadger(dir, BadgerOptions{})
	require.NoError(t, err)
	p := OpenPartition(s, testKey, 1)
	require.Zero(t, checkCrashed(t, p))

	next, checked := uint64(1), 0
	run := func(commits int) error { // that many more commits
		end := next + uint64(commits)
		return runCommits(p, next, func(n uint64) bool { return n == end }, func(n uint64) bool { next = n + 1; return false })
	}
	for i := range thorough.Number(4, 12) {
		require.NoError(t, run(rng.IntN(150)))
		acked, during := next-1, rng.IntN(60)
		finished := make(chan error, 1)
		go func() { finished <- run(during) }()
		target := filepath.Join(t.TempDir(), strconv.Itoa(i))
		stable := copyDir(t, dir, target)
		require.NoError(t, <-finished)
		if !stable {
			continue
		}
		checked++
		c, err := OpenBadger(target, BadgerOptions{})
		require.NoError(t, err)
		n := checkCrashed(t, OpenPartition(c, testKey, 2))
		require.NoError(t, c.Close())
		require.GreaterOrEqual(t, n, acked, "an acknowledged commit is lost")
		require.Less(t, n, next)
	}
	require.Positive(t, checked, "no copy was usable")
	require.NoError(t, s.Close())
}

// copyDir copies the files of a database and reports whether the set of files was the same before and after.
func copyDir(t *testing.T, from, to string) (stable bool) {
	names := func() (list []string) {
		entries, err := os.ReadDir(from)
		require.NoError(t, err)
		for _, e := range entries {
			list = append(list, e.Name())
		}
		return list
	}
	manifest := func() []byte {
		b, err := os.ReadFile(filepath.Join(from, "MANIFEST"))
		require.NoError(t, err)
		return b
	}
	require.NoError(t, os.MkdirAll(to, 0o700))
	list, description := names(), manifest()
	for _, name := range list {
		b, err := os.ReadFile(filepath.Join(from, name))
		if os.IsNotExist(err) {
			return false
		}
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, name), b, 0o600))
	}
	return fmt.Sprint(list) == fmt.Sprint(names()) && bytes.Equal(description, manifest())
}
