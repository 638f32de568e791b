package heavyhitter

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/algorithms/countmin"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

var options = Options{Rows: 4, Width: 2000, Threshold: 0.01, Alpha: 3}

// TestAgainstExact on Zipf data: every heavy hitter is found, none is undercounted, and few others are reported.
func TestAgainstExact(t *testing.T) {
	for seed := range uint64(5) {
		items := zipfItems(seed, 30_000)
		exact := exactOf(t, items)
		j := newJob(t, options, 1)
		j.feed(t, 0, items...)
		rows := j.close(t, last)
		q := Compare(rows, exact, options.Threshold)
		require.Equal(t, 1.0, q.Recall)
		require.GreaterOrEqual(t, q.Precision, 0.9)
		require.Less(t, q.MeanRelativeError, 0.05)
		require.Greater(t, q.True, 5)
		for i, r := range rows {
			require.Equal(t, i+1, r.Rank)
			require.GreaterOrEqual(t, r.Estimate, exact.Weight(r.Key))
			require.InDelta(t, r.Estimate/exact.Total(), r.Share, 1e-12)
			require.GreaterOrEqual(t, r.Share, options.Threshold)
			require.True(t, i == 0 || rows[i-1].Estimate >= r.Estimate)
		}
	}
}

// TestRecallOfAnyInput: whatever the order and skew, no heavy hitter is missed, however narrow the sketch, as long as
// the candidates suffice.
func TestRecallOfAnyInput(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := Options{Rows: 2, Width: 50, Threshold: rapid.Float64Range(0.02, 1).Draw(rt, "threshold")}
		parts := rapid.IntRange(1, 3).Draw(rt, "parts")
		j := newJob(t, o, parts)
		exact := NewExact()
		for range rapid.IntRange(0, 150).Draw(rt, "items") {
			i := item(fmt.Sprint(rapid.IntRange(0, 40).Draw(rt, "key")), rapid.Float64Range(0, 10).Draw(rt, "weight"))
			require.NoError(rt, exact.Add(i))
			j.feed(t, rapid.IntRange(0, parts-1).Draw(rt, "part"), i)
		}
		rows := j.close(t, last)
		// The sum of the sketches adds up in another order than the exact one.
		for _, r := range exact.HeavyHitters(o.Threshold * (1 + 1e-12)) {
			found := false
			for _, got := range rows {
				found = found || got.Key == r.Key && got.Estimate >= r.Estimate*(1-1e-12)
			}
			require.True(rt, found, "%v of %v is missed", r, exact.Total())
		}
	})
}

// TestSplit: the sum of local sketches answers as one sketch of the whole stream does.
func TestSplit(t *testing.T) {
	items := zipfItems(9, 20_000)
	one := newJob(t, options, 1)
	one.feed(t, 0, items...)
	want := one.close(t, last)
	for _, parts := range []int{2, 5} {
		o, merged := options, 0
		o.OnMerged = func(w stream.Window, s *countmin.Sketch) error {
			require.Equal(t, last, w)
			require.Equal(t, one.sketch(0).Counts().AppendCells(nil, 0, 8000), s.AppendCells(nil, 0, 8000))
			require.Equal(t, one.sketch(0).Counts().Total(), s.Total())
			merged++
			return nil
		}
		j := newJob(t, o, parts)
		for i, it := range items {
			j.feed(t, i*7%parts, it)
		}
		require.Equal(t, want, j.close(t, last))
		require.Equal(t, 1, merged)
	}
}

// TestWindows: each window is reported on its own.
func TestWindows(t *testing.T) {
	j := newJob(t, options, 2)
	j.feed(t, 0, item("a", 3))
	j.feed(t, 1, item("b", 1))
	rows := j.close(t, stream.Window{Number: 1})
	require.Equal(t, []Row{
		{Rank: 1, Key: item("a", 0).Key, Estimate: 3, Share: 0.75},
		{Rank: 2, Key: item("b", 0).Key, Estimate: 1, Share: 0.25},
	}, rows)
	require.Empty(t, j.close(t, stream.Window{Number: 2}))
	j.feed(t, 1, item("c", 2))
	require.Equal(t, []Row{{Rank: 1, Key: item("c", 0).Key, Estimate: 2, Share: 1}}, j.close(t, stream.Window{Number: 3, Last: true}))
}

// TestTies are broken by key, so that the order does not depend on a Go map.
func TestTies(t *testing.T) {
	j := newJob(t, options, 1)
	for _, k := range []string{"d", "a", "c", "b"} {
		j.feed(t, 0, item(k, 1))
	}
	var keys []string
	for _, r := range j.close(t, last) {
		keys = append(keys, r.Key.String())
	}
	require.Equal(t, []string{"a", "b", "c", "d"}, keys)
}

func TestWeights(t *testing.T) {
	for _, w := range []float64{-1, math.NaN(), math.Inf(1), 3.5} {
		require.ErrorIs(t, NewSketch(options).Process(item("k", w), nil), ErrWeight, "weight %v", w)
		require.Equal(t, w == 3.5, NewExact().Add(item("k", w)) == nil)
	}
	unknown := options
	unknown.Alpha = 0
	require.NoError(t, NewSketch(unknown).Process(item("k", math.MaxFloat64), nil))
	require.NoError(t, NewSketch(options).Process(item("k", 0), nil))
}

func TestOptions(t *testing.T) {
	err := Options{Threshold: math.NaN(), Alpha: -1}.Validate()
	require.ErrorIs(t, err, ErrOptions)
	require.ErrorIs(t, err, countmin.ErrParams)
	for _, threshold := range []float64{0, -1, 1.5, 1e-7, math.Inf(1)} {
		bad := options
		bad.Threshold = threshold
		require.ErrorIs(t, bad.Validate(), ErrOptions, "threshold %v", threshold)
		require.Panics(t, func() { NewSketch(bad) })
		require.Panics(t, func() { NewMerge(bad) })
	}
	require.NoError(t, options.Validate())
}

// TestMergeIsExact: the runtime must find no divergence on it, or it would not replay its inputs.
func TestMergeIsExact(t *testing.T) {
	var m any = NewMerge(options)
	_, diverges := m.(stream.StateDivergence)
	require.False(t, diverges)
	_, restores := m.(stream.RestoreState)
	require.True(t, restores)
	var s any = NewSketch(options)
	for _, ability := range []bool{
		is[stream.StateDivergence](s), is[stream.BackupState](s), is[stream.RestoreState](s), is[stream.BackupDurable](s),
		is[stream.Thresholder](s), is[stream.Measurer](s), is[stream.Compensator](s),
		is[stream.BatchOperator[connector.Keyed, Partial]](s), is[stream.WindowCloser[Partial]](s),
	} {
		require.True(t, ability)
	}
}

func is[T any](v any) bool { _, ok := v.(T); return ok }

// TestMergeBackup: a merge restored between two pieces ends with the same rows.
func TestMergeBackup(t *testing.T) {
	s := NewSketch(options)
	require.NoError(t, s.ProcessBatch(zipfItems(3, 5000), nil))
	whole, restored := NewMerge(options), NewMerge(options)
	for p := range s.partials() {
		require.NoError(t, whole.Process(p, nil))
		require.NoError(t, restored.Process(p, nil))
		next := NewMerge(options)
		require.NoError(t, next.RestoreState(statetest.Reader(statetest.Backup(t, restored, true))))
		restored = next
	}
	require.Equal(t, whole.Rows(), restored.Rows())
	require.NotEmpty(t, whole.Rows())
}

func TestMergeRejects(t *testing.T) {
	for name, p := range map[string]Partial{
		"empty":          {},
		"other shape":    {Rows: 2, Width: 4000},
		"beyond the end": {Rows: 4, Width: 2000, First: 8000, Cells: []float64{1}},
		"NaN":            {Rows: 4, Width: 2000, Cells: []float64{math.NaN()}},
		"negative total": {Rows: 4, Width: 2000, Total: -1},
	} {
		require.ErrorIs(t, NewMerge(options).Process(p, nil), ErrPartial, name)
	}
}
