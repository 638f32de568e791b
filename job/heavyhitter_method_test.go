package job

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/algorithms/spacesaving"
	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/worker"
)

// TestSpaceSavingThroughFailures checks what the job says about itself under every guarantee.
func TestSpaceSavingThroughFailures(t *testing.T) {
	for i, pipe := range []bool{false, true} {
		for j, g := range []worker.Guarantee{worker.Approximate, worker.None, worker.ErrorFree, worker.MiniBatch} {
			if g == worker.MiniBatch && pipe { // refused
				continue
			}
			if !thorough.Tries(2, i, j) {
				continue
			}
			t.Run(fmt.Sprintf("pipe %v, %v", pipe, g), func(t *testing.T) {
				h := injected(t, generated(8000), "sketch/0@1000", "sketch/1@2000", "trace/0@50%", "merge/0@1", "table/0@1")
				h.Method, h.Verify, h.PipeSources, h.Guarantee, h.Capacity = SpaceSaving, true, pipe, g, 200
				h.Theta, h.L, h.Gamma = 300, 20, 20
				r, err := h.Run(t.Context())
				require.NoError(t, err)
				v := r.Verify
				require.True(t, v.Kept)
				require.Equal(t, g != worker.None, r.Checks()[0].Promised())
				require.Zero(t, v.Summary.CleanDivergence)
				require.Equal(t, Number(8000.0/200), v.Summary.OvercountBound)
				if g == worker.MiniBatch || g == worker.ErrorFree && !pipe {
					require.Zero(t, v.StateDivergence, "exact")
					require.Equal(t, 1.0, v.Recall)
				}
				if g != worker.None { // with which items may be gone that a failure waits for
					require.NotEmpty(t, r.Failures)
					require.Positive(t, v.Summary.Overcount, "there are more keys than counters")
				}
			})
		}
	}
}

// TestSpaceSavingFindsBrokenBounds breaks each bound of a run that kept them.
func TestSpaceSavingFindsBrokenBounds(t *testing.T) {
	h := generated(20_000)
	h.Method, h.Verify, h.Theta = SpaceSaving, true, 100
	r, err := h.Run(t.Context())
	require.NoError(t, err)
	summary := *r.Verify.Summary
	change := func(f func(*SummaryCheck)) func(*HeavyHitterVerification) {
		return func(v *HeavyHitterVerification) {
			changed := summary
			f(&changed)
			v.Summary = &changed
		}
	}
	requireBroken(t, *r.Verify, map[string]func(*HeavyHitterVerification){
		"state divergence":  func(v *HeavyHitterVerification) { v.StateDivergence = 101 },
		"total divergence":  func(v *HeavyHitterVerification) { v.TotalDivergence = 101 },
		"items lost":        func(v *HeavyHitterVerification) { v.LostItems = 1 },
		"estimate too high": change(func(s *SummaryCheck) { s.Overcount = s.OvercountBound + 1 }),
		"without failures":  change(func(s *SummaryCheck) { s.CleanDivergence = 1 }),
	})
}

// TestSpaceSavingWithoutResult judges a run that came to no result as one that lost everything.
func TestSpaceSavingWithoutResult(t *testing.T) {
	h := generated(1000)
	h.Method, h.Verify = SpaceSaving, true
	r, err := h.Run(t.Context())
	require.NoError(t, err)
	under, over := offBy(spacesaving.Estimates{}, r.Verify.exact)
	require.Equal(t, r.Verify.exact.HeavyHitters(0)[0].Estimate, under)
	require.Zero(t, over)
}

func TestSpaceSavingAnswers(t *testing.T) {
	h := fromText(t, "a 1\nb 5\na 2\n")
	h.Method, h.Threshold, h.Verify = SpaceSaving, 0.3, true
	r, err := h.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, SpaceSaving, r.Outcome.Method)
	require.Len(t, r.Outcome.HeavyHitters, 2)
	require.Equal(t, Number(5), r.Outcome.HeavyHitters[0].Estimate)
	require.Equal(t, Number(8), r.Outcome.Total)
	require.Equal(t, 34, r.Verify.Summary.Capacity)
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.Contains(t, text.String(), "estimate too high")
	require.Contains(t, text.String(), "+0.000%")

	h = fromText(t, "a 1\nb 5\n")
	h.Method, h.Alpha = SpaceSaving, 2
	_, err = h.Run(t.Context())
	require.ErrorIs(t, err, spacesaving.ErrWeight)
	require.ErrorContains(t, err, "give a larger one")
}

func TestMethodSettings(t *testing.T) {
	base := func() HeavyHitter {
		h := DefaultHeavyHitter()
		h.Method = SpaceSaving
		return h
	}
	requireRefused(t, base, func(h *HeavyHitter) *Engine { return &h.Engine }, HeavyHitter.Run, map[string]func(h *HeavyHitter){
		"unknown":       func(h *HeavyHitter) { h.Method = "lossy-counting" },
		"capacity":      func(h *HeavyHitter) { h.Capacity = 99 },
		"no capacity":   func(h *HeavyHitter) { h.Capacity = -1 },
		"threshold":     func(h *HeavyHitter) { h.Threshold = 0 },
		"NaN":           func(h *HeavyHitter) { h.Threshold = math.NaN() },
		"compensate":    func(h *HeavyHitter) { h.Compensate = true },
		"target":        func(h *HeavyHitter) { h.Target.Error = 0.1 },
		"other method":  func(h *HeavyHitter) { h.Method, h.Capacity = CountMin, 1000 },
		"no method":     func(h *HeavyHitter) { h.Method, h.Capacity = "", 1000 },
		"small and low": func(h *HeavyHitter) { h.Threshold, h.Capacity = 1e-6, 1000 },
	})
	h := base()
	h.Threshold = 1e-6
	require.Equal(t, spacesaving.MaxCapacity, h.summaryOptions(0, nil).Capacity)
}
