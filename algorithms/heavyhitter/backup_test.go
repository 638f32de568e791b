package heavyhitter

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/algorithms/countmin"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

// crash runs items under the runtime's rule and returns the sketch as it is and as it is restored.
func crash(t *rapid.T, o Options, theta float64, items []connector.Keyed) (lost, restored *Sketch) {
	s := NewSketch(o)
	s.SetTheta(theta)
	store := statetest.NewStore(s)
	for _, i := range items {
		store.Room(t, theta, o.Alpha)
		require.NoError(t, s.Process(i, nil))
		store.Draw(t)
	}
	restored = NewSketch(o)
	require.NoError(t, restored.RestoreState(statetest.Reader(store.Durable()...)))
	return s, restored
}

// TestCrash: after a failure at any point every counter is within theta, and every key that was heavy in the partition
// is still a candidate, once theta is small against the bar.
func TestCrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{Rows: 2, Width: 16, Threshold: 0.1, Alpha: 2}
		theta := rapid.SampledFrom([]float64{2, 5, 12}).Draw(t, "theta")
		var items []connector.Keyed
		for range rapid.IntRange(0, 400).Draw(t, "items") {
			k := rapid.IntRange(0, 60).Draw(t, "key") % rapid.IntRange(1, 60).Draw(t, "skew")
			items = append(items, item(fmt.Sprint(k), rapid.SampledFrom([]float64{0, 1, 2}).Draw(t, "weight")))
		}
		s, r := crash(t, o, theta, items)
		before, after := s.Counts().AppendCells(nil, 0, 32), r.Counts().AppendCells(nil, 0, 32)
		for i := range before {
			require.LessOrEqual(t, before[i]-after[i], theta)
			require.GreaterOrEqual(t, before[i], after[i])
		}
		require.LessOrEqual(t, s.Counts().Total()-r.Counts().Total(), theta/o.Threshold)
		bar := o.Threshold * s.Counts().Total()
		if bar < 2*(theta+o.Alpha) {
			return
		}
		// True weights: a light key that only shares the counters of heavy ones may be forgotten, and should be.
		for _, h := range exactOf(t, items).HeavyHitters(o.Threshold) {
			require.Contains(t, r.Candidates(), Candidate{h.Key.Hash(), h.Key})
		}
	})
}

// TestWholeRoundTrip: a whole backup at any point restores the same sketch, to the last bit of what it emits.
func TestWholeRoundTrip(t *testing.T) {
	items := zipfItems(4, 20_000)
	for _, theta := range []float64{0, 100, math.Inf(1)} {
		s := NewSketch(options)
		s.SetTheta(theta)
		for from := 0; from < len(items); from += 4000 {
			require.NoError(t, s.ProcessBatch(items[from:from+4000], nil))
			r := NewSketch(options)
			require.NoError(t, r.RestoreState(statetest.Reader(statetest.Backup(t, s, true))))
			s.BackupDurable()
			require.Equal(t, slices.Collect(s.partials()), slices.Collect(r.partials()))
			r.SetTheta(theta)
			s = r // goes on as the restored one
		}
	}
}

// TestCandidateBackups: candidates are written once, deleted once, and come back after a backup that was lost.
func TestCandidateBackups(t *testing.T) {
	c := newCandidates(1)
	size := func() int { return len(statetest.Backup(t, backupFunc(c.backup), false)) }
	a, b := Candidate{1, item("a", 0).Key}, Candidate{2, item("b", 0).Key}
	c.add(a, fresh)
	require.NotZero(t, size())
	require.NotZero(t, size(), "the first may be lost")
	c.backupDurable()
	require.Zero(t, size())
	c.truncate(0)
	require.NotZero(t, size())
	c.add(b, fresh) // while the deletion is in flight
	c.truncate(0)   // and gone before it was ever written
	c.backupDurable()
	require.Zero(t, size())
	c.add(a, fresh)
	w := stream.NewStateWriter(nil, false)
	require.NoError(t, c.backup(w))
	c.truncate(0)
	c.add(a, fresh)
	c.backupDurable()
	keys := map[uint64]connector.Key{}
	for r := statetest.Reader(w.Bytes(), statetest.Backup(t, backupFunc(c.backup), false)); r.Next(); {
		require.NoError(t, restoreCandidate(r, keys))
	}
	require.Equal(t, []Candidate{a}, sortedCandidates(keys))
}

// TestCandidatesGoInFlight: candidates that go while a backup is in flight are deleted by the next, whether that backup
// holds them or an older one does.
func TestCandidatesGoInFlight(t *testing.T) {
	for _, older := range []bool{true, false} {
		c := newCandidates(1)
		c.add(Candidate{1, item("a", 0).Key}, fresh)
		var backups [][]byte
		for range map[bool]int{true: 2, false: 1}[older] {
			c.backupDurable()
			backups = append(backups, statetest.Backup(t, backupFunc(c.backup), false))
		}
		c.truncate(0)
		c.backupDurable()
		backups = append(backups, statetest.Backup(t, backupFunc(c.backup), false))
		keys := map[uint64]connector.Key{}
		for r := statetest.Reader(backups...); r.Next(); {
			require.NoError(t, restoreCandidate(r, keys))
		}
		require.Empty(t, keys, "older %v", older)
	}
}

// TestCandidatesSurvive watches a key become heavy: at no moment may a failure forget it once it is.
func TestCandidatesSurvive(t *testing.T) {
	const theta = 20
	o := Options{Rows: 2, Width: 256, Threshold: 0.1, Alpha: 1}
	s := NewSketch(o)
	s.SetTheta(theta)
	var durable [][]byte
	exact, heavy := NewExact(), 0
	for i := range 1500 {
		key := fmt.Sprint("noise", i%200)
		if i > 800 && i%3 == 0 {
			key = "heavy"
		}
		if d := s.StateDivergence(); d > theta*3/4 || d+o.Alpha > theta {
			durable = append(durable, statetest.Backup(t, s, false))
			s.BackupDurable()
		}
		require.NoError(t, s.Process(item(key, 1), nil))
		require.NoError(t, exact.Add(item(key, 1)))
		if exact.Weight(item("heavy", 0).Key) < o.Threshold*exact.Total() {
			continue
		}
		heavy++
		r := NewSketch(o)
		require.NoError(t, r.RestoreState(statetest.Reader(durable...)))
		require.Contains(t, r.Candidates(), Candidate{item("heavy", 0).Hash, item("heavy", 0).Key}, "after item %d", i)
	}
	require.Greater(t, heavy, 100)
}

type backupFunc func(w *stream.StateWriter) error

func (f backupFunc) BackupState(w *stream.StateWriter) error { return f(w) }

// TestCandidatesStayBounded: a sketch of one column takes every key for heavy.
func TestCandidatesStayBounded(t *testing.T) {
	s := NewSketch(Options{Rows: 1, Width: 1, Threshold: 0.5})
	for i := range 10_000 {
		require.NoError(t, s.Process(item(fmt.Sprint(i), 1), nil))
		require.LessOrEqual(t, len(s.candidates.list), s.candidates.limit)
	}
	for _, c := range s.candidates.list {
		require.True(t, s.candidates.has(c.Hash))
	}
}

// TestCandidatesModel checks the hash table against a Go map, with colliding and zero hashes.
func TestCandidatesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, model := newCandidates(1), map[uint64]bool{}
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			h := rapid.SampledFrom([]uint64{0, 2, 3, 1 << 63, math.MaxUint64}).Draw(t, "base") ^
				rapid.Uint64Range(0, 40).Draw(t, "low")*4
			require.Equal(t, model[h], c.has(h))
			if model[h] {
				continue
			}
			if c.full() {
				c.prune(1<<62, func(h uint64) float64 { return float64(h) })
				clear(model)
				for _, k := range c.list {
					model[k.Hash] = true
				}
			}
			c.add(Candidate{Hash: h}, fresh)
			model[h] = true
		}
	})
}

func TestCompensate(t *testing.T) {
	for _, on := range []bool{false, true} {
		o := options
		o.Compensate = on
		s := NewSketch(o)
		s.Compensate(5, 2)
		require.Equal(t, map[bool]float64{true: 11}[on], s.Counts().Estimate(1))
	}
}

// TestRestoreSmallerThreshold: more candidates than this job keeps are pruned, not refused.
func TestRestoreSmallerThreshold(t *testing.T) {
	o := Options{Rows: 4, Width: 2000, Threshold: 0.001}
	s := NewSketch(o)
	for i := range 1000 {
		require.NoError(t, s.Process(item(fmt.Sprint(i), 1), nil))
	}
	require.NoError(t, s.Process(item("heavy", 5000), nil))
	o.Threshold = 0.5
	r := NewSketch(o)
	require.NoError(t, r.RestoreState(statetest.Reader(statetest.Backup(t, s, true))))
	require.Contains(t, r.Candidates(), Candidate{item("heavy", 0).Hash, item("heavy", 0).Key})
	require.LessOrEqual(t, len(r.Candidates()), r.candidates.limit)
}

func FuzzRestoreState(f *testing.F) {
	o := Options{Rows: 2, Width: 3, Threshold: 0.5}
	s := NewSketch(o)
	require.NoError(f, s.ProcessBatch([]connector.Keyed{item("a", 1), item("b", 2)}, nil))
	statetest.Restore[*Sketch]{
		Fresh: func() *Sketch { return NewSketch(o) },
		View:  func(s *Sketch) any { return slices.Collect(s.partials()) },
		Check: func(t *testing.T, s *Sketch) {
			m := NewMerge(o)
			require.NoError(t, m.RestoreState(statetest.Reader(statetest.Backup(t, s, true))))
			require.Equal(t, s.Counts().Total(), m.counts.Total())
		},
		Refusals: []error{countmin.ErrShape},
	}.Fuzz(f, s)
}

func FuzzRestoreMerge(f *testing.F) {
	o := Options{Rows: 2, Width: 3, Threshold: 0.5}
	m, s := NewMerge(o), NewSketch(o)
	require.NoError(f, s.ProcessBatch([]connector.Keyed{item("a", 1), item("b", 2)}, nil))
	for p := range s.partials() {
		require.NoError(f, m.Process(p, nil))
	}
	statetest.Restore[*Merge]{
		Fresh: func() *Merge { return NewMerge(o) }, View: func(m *Merge) any { return m.Rows() }, Refusals: []error{countmin.ErrShape},
	}.Fuzz(f, m)
}

// A Merge that waits for the end of its window takes no memory for it.
func TestMergeTakesItsCountersWhenTheyAreNeeded(t *testing.T) {
	m := NewMerge(Options{Rows: 4, Width: 8192, Threshold: 0.1})
	require.Nil(t, m.counts)
	require.Panics(t, func() { NewMerge(Options{}) })
	require.NoError(t, m.Process(Partial{Rows: 4, Width: 8192, Cells: []float64{3}, Total: 3}, nil))
	require.Equal(t, 3.0, m.counts.Total())
}
