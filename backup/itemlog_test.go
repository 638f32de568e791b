package backup

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// logged lists the log as "channel/epoch:first+count kind items".
func logged(t testing.TB, p *Partition) []string {
	list := []string{}
	require.NoError(t, p.ScanLog(func(e LogEntry) error {
		list = append(list, fmt.Sprintf("%d/%d:%d+%d %d %s", e.Channel, e.Epoch, e.First, e.Count, e.Kind, e.Items))
		return nil
	}))
	return list
}

func entry(channel, epoch, first uint64, count int) LogEntry {
	return LogEntry{Channel: channel, Epoch: epoch, First: first, Count: count, Kind: 2, Items: fmt.Appendf(nil, "i%d", first)}
}

func at(channel, epoch, seq uint64) Input { return Input{channel, Position{epoch, seq}} }

func TestItemLogKeepsOrderAndTruncates(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		p, _ := load(t, s, 1)
		require.NoError(t, appendWait(p, entry(7, 1, 0, 10), entry(8, 1, 0, 5)))
		require.NoError(t, appendWait(p))
		require.NoError(t, appendWait(p, entry(7, 1, 10, 10), entry(8, 2, 0, 5)))
		all := []string{"7/1:0+10 2 i0", "8/1:0+5 2 i0", "7/1:10+10 2 i10", "8/2:0+5 2 i0"}
		require.Equal(t, all, logged(t, p))

		require.NoError(t, commitWait(p, &Commit{Inputs: []Input{at(7, 1, 9)}}))
		require.Equal(t, all, logged(t, p), "one item of the first entry is above the position")
		require.NoError(t, commitWait(p, &Commit{Inputs: []Input{at(7, 1, 10), at(8, 1, 5)}}))
		require.Equal(t, all[2:], logged(t, p))
		p, _ = load(t, s, 2)
		require.Equal(t, all[2:], logged(t, p), "after a restart")

		require.NoError(t, appendWait(p, entry(9, 1, 0, 1)))
		require.NoError(t, commitWait(p, &Commit{Inputs: []Input{at(7, 2, 0), at(8, 2, 4)}}))
		require.Equal(t, []string{all[3], "9/1:0+1 2 i0"}, logged(t, p), "a later epoch covers all of an earlier one")

		require.NoError(t, commitWait(p, &Commit{Inputs: []Input{at(7, 2, 0), at(8, 2, 5), at(9, 1, 1)}}))
		require.NoError(t, commitWait(p, &Commit{Inputs: []Input{at(7, 2, 0), at(8, 2, 5), at(9, 1, 1)}}))
		require.Empty(t, logged(t, p))
		require.Zero(t, countKinds(t, s)['l'], "covered entries are deleted with the commit that follows")
	})
}

// A channel that stands still must not keep the entries of others.
func TestItemLogTruncatesBehindAStalledChannel(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		p, _ := load(t, s, 1)
		require.NoError(t, appendWait(p, entry(1, 1, 0, 1)))
		for i := range uint64(1000) {
			require.NoError(t, appendWait(p, entry(2, 1, i, 1)))
			require.NoError(t, commitWait(p, &Commit{Inputs: []Input{at(2, 1, i+1)}}))
		}
		require.Less(t, countKinds(t, s)['l'], 4*minSweep)
		require.Equal(t, []string{"1/1:0+1 2 i0"}, logged(t, p))
	})
}

func TestItemLogSurvivesAFailedCommit(t *testing.T) {
	f := &flakyStore{Store: NewMemory()}
	p, _ := load(t, f, 1)
	require.NoError(t, appendWait(p, entry(7, 1, 0, 10)))
	f.refuse = func(*Batch) bool { return true }
	for range 3 {
		require.ErrorIs(t, commitWait(p, &Commit{Inputs: []Input{at(7, 1, 10)}}), errInjected)
	}
	require.ErrorIs(t, appendWait(p, entry(7, 1, 10, 10)), errInjected)
	f.refuse = nil
	require.NoError(t, commitWait(p, &Commit{Inputs: []Input{at(7, 1, 5)}}))
	require.Equal(t, []string{"7/1:0+10 2 i0"}, logged(t, p), "only a durable commit covers")
	require.Equal(t, 1, countKinds(t, f)['l'])
}

func TestItemLogSplitsLargeAppends(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		p, _ := load(t, s, 1)
		var entries []LogEntry
		for i := range uint64(20) {
			entries = append(entries, LogEntry{Channel: 1, Epoch: 1, First: i, Count: 1, Items: make([]byte, MaxLogItems/3)})
		}
		require.NoError(t, appendWait(p, entries...))
		n := uint64(0)
		require.NoError(t, p.ScanLog(func(e LogEntry) error {
			require.Equal(t, n, e.First)
			require.Len(t, e.Items, MaxLogItems/3)
			n++
			return nil
		}))
		require.EqualValues(t, 20, n)
	})
}

func TestItemLogTakesConcurrentAppends(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		p, _ := load(t, s, 1)
		const writers, rounds = 4, 100
		var wg sync.WaitGroup
		for w := range uint64(writers) {
			wg.Go(func() {
				for i := range uint64(rounds) {
					require.NoError(t, appendWait(p, entry(w, 1, i, 1), entry(w+writers, 1, i, 1)))
				}
			})
		}
		wg.Go(func() {
			for i := range uint64(rounds) {
				require.NoError(t, commitWait(p, &Commit{Inputs: []Input{at(0, 1, i)}}))
			}
		})
		wg.Wait()
		p, _ = load(t, s, 2)
		next := map[uint64]uint64{0: rounds - 1}
		require.NoError(t, p.ScanLog(func(e LogEntry) error {
			require.Equal(t, next[e.Channel], e.First, "order of channel %d", e.Channel)
			next[e.Channel]++
			return nil
		}))
		for w := range uint64(2 * writers) {
			require.EqualValues(t, rounds, next[w], "channel %d", w)
		}
	})
}

func TestItemLogReportsDamage(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		p, _ := load(t, s, 1)
		require.NoError(t, appendWait(p, entry(1, 1, 0, 1), entry(1, 1, 1, 1), entry(1, 1, 2, 1)))
		flip(t, s, appendKey(nil, p.prefix, kindLog, 1))
		n := 0
		require.ErrorIs(t, p.ScanLog(func(LogEntry) error { n++; return nil }), ErrDamaged)
		require.Equal(t, 2, n, "the others are delivered")
		require.Equal(t, errInjected, p.ScanLog(func(LogEntry) error { return errInjected }))

		p, r := load(t, s, 2)
		require.Len(t, r.Damaged, 1)
		require.ErrorIs(t, r.Damaged[0], ErrDamaged)
		require.NoError(t, commitWait(p, &Commit{}))
		require.Equal(t, []string{"1/1:0+1 2 i0", "1/1:2+1 2 i2"}, logged(t, p), "Load has named it, then it is gone")
	})
}
