package heavyhitter

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/algorithms/countmin"
	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

// Sketches that are merged are, in their counters, that of all items, and every key that is heavy in it is a candidate.
func TestMergeState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := Options{Rows: 2, Width: 50, Threshold: rapid.Float64Range(0.02, 1).Draw(rt, "threshold"), Alpha: 10}
		theta := rapid.SampledFrom([]float64{0, 3, 1000}).Draw(rt, "theta")
		fresh := func() *Sketch { return NewSketch(o) }
		a, b, both, exact := fresh(), fresh(), fresh(), NewExact()
		for _, s := range []*Sketch{a, b} {
			s.SetTheta(theta)
		}
		for range rapid.IntRange(0, 150).Draw(rt, "items") {
			i := item(fmt.Sprint(rapid.IntRange(0, 40).Draw(rt, "key")), float64(rapid.IntRange(0, 10).Draw(rt, "weight")))
			require.NoError(rt, exact.Add(i))
			to := a
			if rapid.Bool().Draw(rt, "to b") {
				to = b
			}
			require.NoError(rt, to.Process(i, nil))
			require.NoError(rt, both.Process(i, nil))
		}
		view := func(s *Sketch) any { return s.counts.AppendCells(nil, 0, o.Rows*o.Width) }
		merge := func(s *Sketch, r *stream.StateReader) error {
			err := s.MergeState(r)
			for _, row := range exact.HeavyHitters(o.Threshold) {
				require.True(rt, s.candidates.has(row.Key.Hash()), "%q of weight %v is no candidate", row.Key, row.Estimate)
			}
			return err
		}
		statetest.AddLaws(rt, fresh, merge, view, theta, a, b, both)
	})
	s := NewSketch(options)
	require.ErrorIs(t, s.MergeState(statetest.Reader(statetest.Element("abc", "x"))), stream.ErrState)
	other := options
	other.Width++
	require.ErrorIs(t, s.MergeState(statetest.Reader(statetest.Backup(t, NewSketch(other), true))), countmin.ErrShape)
}
