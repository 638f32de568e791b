package job

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/algorithms/reservoir"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/worker"
)

// TestSampleThroughFailures checks what the job says about itself, under every guarantee and in both ways to draw.
func TestSampleThroughFailures(t *testing.T) {
	for i, weighted := range []bool{false, true} {
		for j, pipe := range []bool{false, true} {
			for k, g := range allPromises() {
				if pipe && exact(g) { // refused
					continue
				}
				if !thorough.Tries(2, i, j, k) {
					continue
				}
				t.Run(fmt.Sprintf("weighted %v, pipe %v, %v", weighted, pipe, g), func(t *testing.T) {
					s := DefaultSample()
					s.Verify, s.PipeSources, s.Guarantee, s.Weighted, s.Size = true, pipe, g, weighted, 200
					s.Theta, s.L, s.Gamma = 40, 20, 20
					s.Input = connector.KeyedOptions{Path: builtinFlights, Key: "origin", Weight: "distance"}
					s.Faults = faults(t, "sample/0@1000", "sample/1@2000", "items/0@50%", "merge/0@1", "table/0@1")
					if g == worker.ErrorFree { // which takes its time
						s.Input = connector.KeyedOptions{}
						s.Generator = connector.ZipfOptions{Items: 3000, Keys: 100, S: 1}
						s.Faults = faults(t, "sample/0@200", "sample/1@500", "items/0@50%", "merge/0@1", "table/0@1")
					}
					r, err := s.Run(t.Context())
					require.NoError(t, err)
					v := r.Verify
					require.True(t, v.Kept)
					require.Zero(t, v.Foreign)
					require.Zero(t, v.CleanDivergence)
					require.Equal(t, g != worker.None && !pipe, r.Checks()[0].Promised())
					if g != worker.None { // with which items may be gone that a failure waits for
						require.NotEmpty(t, r.Failures)
						require.Equal(t, 200, r.Outcome.Drawn)
					}
					if exact(g) || g == worker.ErrorFree && !pipe {
						require.Zero(t, v.StateDivergence, "exact")
						require.Zero(t, v.Missing)
					}
				})
			}
		}
	}
}

const builtinFlights = connector.Builtin + "flights"

func TestSampleBounds(t *testing.T) {
	s := DefaultSample()
	s.Theta, s.L, s.Gamma, s.Size = 50, 10, 100, 1000
	inf := math.Inf(1)
	for _, c := range []struct {
		name                 string
		change               func(s *Sample)
		state, missing, lost float64
	}{
		{"replay", func(*Sample) {}, 50, 50 * 20, 0},
		{"pipe", func(s *Sample) { s.PipeSources = true }, inf, 50*20 + 110, 110},
		{"all are drawn", func(s *Sample) { s.Size = 100_000 }, 50, 50, 0},
		{"error-free", func(s *Sample) { s.Guarantee = worker.ErrorFree }, 0, 0, 0},
		{"mini-batch", func(s *Sample) { s.Guarantee = worker.MiniBatch }, 0, 0, 0},
		{"none", func(s *Sample) { s.Guarantee = worker.None }, inf, inf, inf},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := s
			c.change(&s)
			v := &SampleVerification{}
			s.bounds(v, 20_000, &controller.Result{Failures: []controller.Failure{{Operator: "items"}}})
			require.Equal(t, Number(c.state), v.StateDivergenceBound)
			require.Equal(t, Number(c.missing), v.MissingBound)
			require.Equal(t, Number(c.lost), v.LostItemsBound)
		})
	}
}

// TestSampleFindsBrokenBounds breaks each bound of a run that kept them.
func TestSampleFindsBrokenBounds(t *testing.T) {
	s := DefaultSample()
	s.Verify = true
	r, err := s.Run(t.Context())
	require.NoError(t, err)
	requireBroken(t, *r.Verify, map[string]func(v *SampleVerification){
		"entries that differ":      func(v *SampleVerification) { v.StateDivergence = 101 },
		"entries not of the input": func(v *SampleVerification) { v.Foreign = 1 },
		"items not counted":        func(v *SampleVerification) { v.Missing = v.MissingBound + 1 },
		"without failures":         func(v *SampleVerification) { v.CleanDivergence = 1 },
		"items lost":               func(v *SampleVerification) { v.LostItems = 1 },
	})
}

// TestSampleFindsWrongSamples hands the verification samples that no run may have drawn.
func TestSampleFindsWrongSamples(t *testing.T) {
	s := DefaultSample()
	s.Input = connector.KeyedOptions{Path: textFile(t, "a 1\nb 2\nb 2\nc 0\n").Path}
	s.Size = 2
	in, err := s.openInput()
	require.NoError(t, err)
	entry := func(key string, weight, priority float64) drawnItem {
		return drawnItem{Item: connector.MakeKeyed([]byte(key), weight), Priority: priority}
	}
	right := []drawnItem{entry("b", 2, 0.1), entry("b", 2, 0.2)}
	right[0].Seen, right[0].Weight = 4, 4
	check := func(change func(sample []drawnItem) []drawnItem) *SampleVerification {
		sample := change(append([]drawnItem(nil), right...))
		v, items, err := s.verify(t.Context(), in, sample, sample, &controller.Result{})
		require.NoError(t, err)
		require.EqualValues(t, 4, items)
		return v
	}
	v := check(func(s []drawnItem) []drawnItem { return s })
	require.True(t, v.Kept)
	require.Equal(t, Number(1.25), v.ExactMean)
	for name, change := range map[string]func(s []drawnItem) []drawnItem{
		"too small": func(s []drawnItem) []drawnItem { return s[:1] },
		"too many of a": func(s []drawnItem) []drawnItem {
			s[0].Item, s[1].Item = entry("a", 1, 0).Item, entry("a", 1, 0).Item
			return s
		},
		"other weight": func(s []drawnItem) []drawnItem { s[1].Item.Weight = 3; return s },
		"not seen":     func(s []drawnItem) []drawnItem { s[0].Seen = 3; return s },
		"not weighed":  func(s []drawnItem) []drawnItem { s[0].Weight = 5; return s },
	} {
		v := check(change)
		require.Positive(t, v.CleanDivergence, name)
		require.False(t, v.Kept, name)
	}
	require.Equal(t, 2, differing(right, []drawnItem{right[0], entry("b", 2, 0.3)}), "items that look the same")
	require.Equal(t, 2, differing(right, nil))
	require.Zero(t, differing(right, right))
}

// TestMeanWeight draws 400 samples of fixed seeds: the estimates have no bias, and scatter as much as they say. Of
// estimates that do, the mean of their errors in standard errors has a standard deviation of 1/20, the mean of the
// squares about 1/14.
func TestMeanWeight(t *testing.T) {
	items, total := make([]connector.Keyed, 2000), 0.0
	for i := range items {
		items[i] = connector.MakeKeyed(fmt.Append(nil, i), float64(1+i%17))
		total += items[i].Weight
	}
	exact := total / float64(len(items))
	for _, weighted := range []bool{false, true} {
		sum, squares := 0.0, 0.0
		for seed := range uint64(400) {
			s := DefaultSample()
			s.Size, s.Weighted, s.Seed = 200, weighted, seed
			drawn := reservoir.NewSample(s.options())
			require.NoError(t, drawn.ProcessBatch(items, nil))
			entries, err := drawn.Entries()
			require.NoError(t, err)
			mean, deviation := s.meanWeight(entries)
			off := (mean - exact) / deviation
			sum += off
			squares += off * off
		}
		require.InDelta(t, 0, sum/400, 0.2, "weighted %v", weighted)
		require.InDelta(t, 1, squares/400, 0.3, "weighted %v", weighted)
	}
}

func TestSampleAnswers(t *testing.T) {
	for _, c := range []struct {
		content, want string
		weighted      bool
	}{
		{"a 1\nb 5\na 3\n", "3 of 3 items drawn; mean weight about 3, standard error 0\n", false},
		{"a 1\nb 5\nc 0\n", "2 of 3 items drawn; mean weight about 3, standard error 0\n", true},
		{"", "nothing to draw from\n", false},
		{"a 0\n", "nothing to draw from\n", true},
	} {
		s := DefaultSample()
		s.Input, s.Verify, s.Weighted = connector.KeyedOptions{Path: textFile(t, c.content).Path}, true, c.weighted
		r, err := s.Run(t.Context())
		require.NoError(t, err)
		var text, raw bytes.Buffer
		require.NoError(t, r.WriteText(&text))
		require.Contains(t, text.String(), c.want)
		require.NoError(t, r.WriteJSON(&raw))
		require.NotContains(t, strings.ToLower(raw.String()), "nan")
	}
	s := DefaultSample()
	s.Show = 3
	a, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Len(t, a.Outcome.Entries, 3)
	require.Equal(t, 1000, a.Outcome.Drawn)
	b, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, a.Outcome, b.Outcome, "the seed selects the sample")
	s.Seed = 7
	b, err = s.Run(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, a.Outcome.MeanWeight, b.Outcome.MeanWeight)
}

func TestSampleSettings(t *testing.T) {
	requireRefused(t, DefaultSample, func(s *Sample) *Engine { return &s.Engine }, Sample.Run, map[string]func(s *Sample){
		"engine": func(s *Sample) { s.Workers = 0 },
		"items":  func(s *Sample) { s.Input.Path, s.Generator.Items = "", 0 },
		"size":   func(s *Sample) { s.Size = 0 },
		"large":  func(s *Sample) { s.Size = reservoir.MaxSize + 1 },
		"show":   func(s *Sample) { s.Show = -1 },
		"stdin":  func(s *Sample) { s.Input.Path, s.Verify = connector.Stdin, true },
	})
}
