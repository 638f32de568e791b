// Package storetest holds what every backup.Store must do, as tests to run against an implementation.
package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/internal/thorough"
)

// entryBytes is what an entry counts beside its bytes; see backup.Batch.Size.
const entryBytes = 96

var errOfFn = errors.New("of fn")

// tests lists what a store must do, each on a store that is empty and is closed afterwards.
var tests = []struct {
	name string
	run  func(t *testing.T, s backup.Store)
}{
	{"keeps order and prefix", storeKeepsOrderAndPrefix},
	{"applies in the order of calls", storeAppliesInOrderOfCalls},
	{"applies atoms", storeAppliesAtoms},
	{"scans a snapshot", storeScanIsASnapshot},
	{"fences", storeFence},
	{"fences what is queued", storeFenceStopsQueuedWrites},
	{"refuses", storeRefuses},
	{"takes the largest batches", storeTakesTheLargestBatches},
	{"applies from done", storeApplyFromDone},
	{"freezes, reads and drops partitions", storeDropsPartitions},
	{"closes", storeClose},
}

// Run runs all tests on stores that open makes. What a store rests on is to be released by t.Cleanup.
func Run(t *testing.T, open func(t testing.TB) backup.Store) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := open(t)
			defer func() { require.NoError(t, s.Close()) }()
			test.run(t, s)
		})
	}
}

// applyWait applies a batch and waits for the outcome.
func applyWait(s backup.Store, b *backup.Batch) error {
	done := make(chan error, 1)
	s.Apply(b, func(err error) { done <- err })
	return <-done
}

// contents reads all keys with prefix as "key=value" in the order of the scan.
func contents(t testing.TB, s backup.Store, prefix string) []string {
	list := []string{}
	require.NoError(t, s.Scan([]byte(prefix), func(key, value []byte) error {
		list = append(list, fmt.Sprintf("%s=%s", key, value))
		return nil
	}))
	return list
}

// batch makes a batch of "key=value" puts and "-key" deletes.
func batch(owner string, epoch uint64, ops ...string) *backup.Batch {
	b := &backup.Batch{Owner: owner, Epoch: epoch}
	for _, op := range ops {
		if k, ok := strings.CutPrefix(op, "-"); ok {
			b.Deletes = append(b.Deletes, []byte(k))
			continue
		}
		k, v, _ := strings.Cut(op, "=")
		b.Puts = append(b.Puts, backup.Entry{Key: []byte(k), Value: []byte(v)})
	}
	return b
}

func storeKeepsOrderAndPrefix(t *testing.T, s backup.Store) {
	require.NoError(t, applyWait(s, batch("o", 1, "b=2", "a=1", "ab=3", "b\x00=4", "\xff=5", "!badger!=6", "\x00=7")))
	require.Equal(t, []string{"\x00=7", "!badger!=6", "a=1", "ab=3", "b=2", "b\x00=4", "\xff=5"}, contents(t, s, ""))
	require.Equal(t, []string{"a=1", "ab=3"}, contents(t, s, "a"))
	require.Equal(t, []string{"\xff=5"}, contents(t, s, "\xff"))
	require.Empty(t, contents(t, s, "c"))

	require.NoError(t, applyWait(s, batch("o", 1, "a=9", "-ab", "-never-there", "aa=8")))
	require.Equal(t, []string{"a=9", "aa=8"}, contents(t, s, "a"))
	require.NoError(t, applyWait(s, batch("o", 1, "ab=again", "x=y", "-x")), "deletes come after puts")
	require.Equal(t, []string{"ab=again"}, contents(t, s, "ab"))
	require.Empty(t, contents(t, s, "x"))
}

func storeAppliesInOrderOfCalls(t *testing.T, s backup.Store) {
	n := thorough.Number(500, 2000)
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		b := batch("o", 1, fmt.Sprintf("k=%d", i), fmt.Sprintf("n%d=x", i))
		if i > 0 {
			b.Deletes = append(b.Deletes, fmt.Appendf(nil, "n%d", i-1))
		}
		s.Apply(b, func(err error) {
			require.NoError(t, err)
			wg.Done()
		})
	}
	wg.Wait()
	require.Equal(t, []string{fmt.Sprintf("k=%d", n-1), fmt.Sprintf("n%d=x", n-1)}, contents(t, s, ""))
}

// A batch is all there or not at all, whenever one looks.
func storeAppliesAtoms(t *testing.T, s backup.Store) {
	const writers = 4
	rounds := thorough.Number(50, 200)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range rounds {
				b := batch("o", 1, fmt.Sprintf("%d/a=%d", w, i), fmt.Sprintf("%d/b=%d", w, i), fmt.Sprintf("%d/c=%d", w, i))
				require.NoError(t, applyWait(s, b))
			}
		})
	}
	finished := make(chan struct{})
	go func() { wg.Wait(); close(finished) }()
	for running := true; running; {
		select {
		case <-finished:
			running = false
		default:
		}
		for w := range writers {
			seen := map[string]bool{}
			require.NoError(t, s.Scan(fmt.Appendf(nil, "%d/", w), func(_, value []byte) error {
				seen[string(value)] = true
				return nil
			}))
			require.LessOrEqual(t, len(seen), 1, "values of two batches at once: %v", seen)
		}
	}
	require.Len(t, contents(t, s, ""), 3*writers)
}

func storeScanIsASnapshot(t *testing.T, s backup.Store) {
	require.NoError(t, applyWait(s, batch("o", 1, "a=1", "b=1", "c=1")))
	var seen []string
	require.NoError(t, s.Scan(nil, func(key, value []byte) error {
		seen = append(seen, string(key)+string(value))
		require.NoError(t, s.Fence("o", uint64(len(seen))))
		return applyWait(s, batch("o", 9, "a=2", "b=2", "-c", "d=2"))
	}))
	require.Equal(t, []string{"a1", "b1", "c1"}, seen)
	require.Equal(t, []string{"a=2", "b=2", "d=2"}, contents(t, s, ""))

	err := s.Scan(nil, func([]byte, []byte) error { return errOfFn })
	require.Equal(t, errOfFn, err, "the error of fn is returned as it is")
	require.Panics(t, func() { _ = s.Scan(nil, func([]byte, []byte) error { panic("of fn") }) })
}

func storeFence(t *testing.T, s backup.Store) {
	require.NoError(t, s.Fence("job/a", 3))
	require.NoError(t, s.Fence("job/a", 3), "repeating is fine")
	require.ErrorIs(t, s.Fence("job/a", 2), backup.ErrFenced)
	require.ErrorIs(t, applyWait(s, batch("job/a", 2, "k=old")), backup.ErrFenced)
	require.NoError(t, applyWait(s, batch("job/a", 3, "k=new")))
	require.NoError(t, applyWait(s, batch("job/a", 7, "l=newer")), "a newer epoch needs no fence to write")
	require.NoError(t, applyWait(s, batch("job/b", 0, "m=other")), "owners do not affect each other")
	require.Equal(t, []string{"k=new", "l=newer", "m=other"}, contents(t, s, ""), "fences are no keys")
}

// What was queued before Fence returns is either visible then or never.
func storeFenceStopsQueuedWrites(t *testing.T, s backup.Store) {
	for round := range 30 {
		old, owner := uint64(1), fmt.Sprintf("o-%d", round)
		var wg sync.WaitGroup
		var mu sync.Mutex
		acked := 0
		for i := range 300 {
			wg.Add(1)
			s.Apply(batch(owner, old, fmt.Sprintf("%s/%03d=x", owner, i)), func(err error) {
				if err == nil {
					mu.Lock()
					acked++
					mu.Unlock()
				} else {
					require.ErrorIs(t, err, backup.ErrFenced)
				}
				wg.Done()
			})
		}
		require.NoError(t, s.Fence(owner, old+1))
		visible := contents(t, s, owner+"/")
		wg.Wait()
		require.Equal(t, visible, contents(t, s, owner+"/"), "nothing may appear after Fence")
		require.Len(t, visible, acked)
	}
}

func storeRefuses(t *testing.T, s backup.Store) {
	long := strings.Repeat("k", backup.MaxKeyBytes)
	require.NoError(t, applyWait(s, batch("o", 1, long+"=v")))
	require.NoError(t, applyWait(s, &backup.Batch{Owner: "o"}), "an empty batch")
	for name, c := range map[string]struct {
		batch *backup.Batch
		want  error
	}{
		"empty key":      {&backup.Batch{Owner: "o", Puts: []backup.Entry{{}}}, backup.ErrKey},
		"empty delete":   {&backup.Batch{Owner: "o", Deletes: [][]byte{{}}}, backup.ErrKey},
		"long key":       {batch("o", 1, long+"k=v"), backup.ErrKey},
		"no owner":       {batch("", 1, "k=v"), backup.ErrName},
		"owner of dots":  {batch("../o", 1, "k=v"), backup.ErrName},
		"owner ends":     {batch("o/", 1, "k=v"), backup.ErrName},
		"owner too deep": {batch("1/2/3/4/5/6/7/8/9", 1, "k=v"), backup.ErrName},
		"owner too long": {batch(strings.Repeat("o", 65), 1, "k=v"), backup.ErrName},
		"too large":      {&backup.Batch{Owner: "o", Puts: []backup.Entry{{Key: []byte("k"), Value: make([]byte, backup.MaxBatchBytes)}}}, backup.ErrTooLarge},
	} {
		require.ErrorIs(t, applyWait(s, c.batch), c.want, name)
	}
	require.ErrorIs(t, s.Fence("a b", 1), backup.ErrName)
	require.Len(t, contents(t, s, ""), 1)
}

// The largest batches allowed, in bytes and in entries, are atoms too.
func storeTakesTheLargestBatches(t *testing.T, s backup.Store) {
	value := make([]byte, backup.MaxBatchBytes-entryBytes-1)
	require.NoError(t, applyWait(s, &backup.Batch{Owner: "o", Puts: []backup.Entry{{Key: []byte("v"), Value: value}}}))

	b := &backup.Batch{Owner: "o"}
	for i := 0; b.Size()+entryBytes+5 <= backup.MaxBatchBytes; i++ {
		b.Puts = append(b.Puts, backup.Entry{Key: fmt.Appendf(nil, "%05d", i)})
	}
	require.NoError(t, applyWait(s, b))
	require.Len(t, contents(t, s, ""), 1+len(b.Puts))

	d := &backup.Batch{Owner: "o"}
	for i := range b.Puts {
		d.Deletes = append(d.Deletes, b.Puts[i].Key)
	}
	require.NoError(t, applyWait(s, d))
	require.NoError(t, s.Scan(nil, func(k, v []byte) error {
		require.Equal(t, "v", string(k))
		require.True(t, bytes.Equal(value, v))
		return nil
	}))
}

func storeClose(t *testing.T, s backup.Store) {
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Add(1)
		s.Apply(batch("o", 1, fmt.Sprintf("k%d=v", i)), func(err error) {
			require.NoError(t, err, "Close waits for writes under way")
			wg.Done()
		})
	}
	require.NoError(t, s.Close())
	wg.Wait()
	require.NoError(t, s.Close())
	require.ErrorIs(t, applyWait(s, batch("o", 1, "k=v")), backup.ErrClosed)
	require.ErrorIs(t, s.Fence("o", 1), backup.ErrClosed)
	require.ErrorIs(t, s.Scan(nil, func([]byte, []byte) error { return nil }), backup.ErrClosed)
}

// Applying from done is how the layer above chains batches.
func storeApplyFromDone(t *testing.T, s backup.Store) {
	finished := make(chan error)
	n := 0
	var next func(error)
	next = func(err error) {
		if n++; err != nil || n > 100 {
			go func() { finished <- err }()
			return
		}
		s.Apply(batch("o", 1, fmt.Sprintf("%03d=v", n)), next)
	}
	next(nil)
	require.NoError(t, <-finished)
	require.Len(t, contents(t, s, ""), 100)
}
