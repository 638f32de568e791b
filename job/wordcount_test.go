package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/algorithms/wordcount"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/worker"
)

// TestWordCountThroughFailures checks what the job says about itself under every guarantee, in both shapes, whatever
// fails.
func TestWordCountThroughFailures(t *testing.T) {
	for i, norm := range []errorbound.Norm{errorbound.Max, errorbound.L1} {
		check := func(t *testing.T, c trial, w WordCount) {
			c.in(&w.Engine)
			w.Words.Norm, w.Theta, w.L, w.Gamma = norm, 600, 20, 20
			r, err := w.Run(t.Context())
			v := survived(t, c, r, err)
			require.Zero(t, v.CleanDivergence)
			require.Zero(t, v.Extra, "no word is made up")
			require.Greater(t, v.Alpha, Number(10))
			require.LessOrEqual(t, float64(v.Alpha), w.Words.Alpha())
			require.Equal(t, c.promise != worker.None, r.Checks()[0].Promised())
			if c.exact() && !w.Split {
				require.Zero(t, v.SumError, "exact")
			}
		}
		t.Run(fmt.Sprint("one stage, ", norm), func(t *testing.T) {
			throughFailures(t, part{3, i}, allPromises(), map[string][]string{
				"all": {"count/0@100", "count/1@200", "text/0@50%", "merge/0@1", "table/0@1"},
			}, func(t *testing.T, c trial) { check(t, c, DefaultWordCount()) })
		})
		short := textFile(t, string(opticks(t)[:40_000])) // what is backed up word by word takes its time
		t.Run(fmt.Sprint("split, ", norm), func(t *testing.T) {
			throughFailures(t, part{3, i + 1}, allPromises(), map[string][]string{
				"all": {"split/0@10", "tally/1@500", "text/0@50%", "tally/0@1000", "merge/0@1"},
			}, func(t *testing.T, c trial) {
				w := DefaultWordCount()
				w.Split, w.Input = true, short
				check(t, c, w)
			})
		})
	}
}

func TestWordCountBounds(t *testing.T) {
	w := DefaultWordCount()
	w.Theta, w.L, w.Gamma = 500, 10, 100
	result := &controller.Result{Failures: []controller.Failure{{Operator: "text"}, {Operator: "split"}, {Operator: "count"}}}
	inf := math.Inf(1)
	for _, c := range []struct {
		name                string
		change              func(w *WordCount)
		state, lost, double float64
	}{
		{"replay", func(*WordCount) {}, 500, 0, 0},
		{"pipe", func(w *WordCount) { w.PipeSources = true }, 500 + 110*50, 110, 0},
		{"split", func(w *WordCount) { w.Split = true }, 500 + 110 + 10*50, 110, 10},
		{"split pipe", func(w *WordCount) { w.Split, w.PipeSources = true, true }, 500 + 110 + 110*50, 220, 10},
		{"error-free", func(w *WordCount) { w.Guarantee = worker.ErrorFree }, 0, 0, 0},
		{"error-free pipe", func(w *WordCount) { w.Guarantee, w.PipeSources = worker.ErrorFree, true }, 50, 1, 0},
		{"mini-batch", func(w *WordCount) { w.Guarantee = worker.MiniBatch }, 0, 0, 0},
		{"mini-batch split", func(w *WordCount) { w.Guarantee, w.Split, w.Batch = worker.MiniBatch, true, 20 }, 20 * 50, 0, 20},
		{"upstream backup split", func(w *WordCount) { w.Guarantee, w.Split, w.Batch = worker.UpstreamBackup, true, 20 }, 40 * 50, 0, 40},
		{"none", func(w *WordCount) { w.Guarantee = worker.None }, inf, inf, inf},
		{"split none", func(w *WordCount) { w.Guarantee, w.Split = worker.None, true }, inf, inf, inf},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := w
			c.change(&w)
			v := &WordCountVerification{Alpha: 50}
			w.bounds(v, result)
			require.Equal(t, Number(c.state), v.StateDivergenceBound)
			require.Equal(t, Number(c.lost), v.LostItemsBound)
			require.Equal(t, Number(c.double), v.DuplicatedBound)
		})
	}
}

// TestWordCountFindsBrokenBounds judges a run without a guarantee by bounds that it did not promise.
func TestWordCountFindsBrokenBounds(t *testing.T) {
	w := DefaultWordCount()
	w.Guarantee, w.Verify, w.Faults = worker.None, true, faults(t, "count/0@200")
	r, err := w.Run(t.Context())
	require.NoError(t, err)
	w.Guarantee, w.Theta = worker.Approximate, 10
	w.bounds(r.Verify, &controller.Result{})
	require.ErrorContains(t, broken(r.Checks()), "state divergence")

	r.Verify.StateDivergence, r.Verify.CleanDivergence = 0, 1
	require.ErrorContains(t, broken(r.Checks()), "without failures")
}

func TestWordCountAnswers(t *testing.T) {
	w := DefaultWordCount()
	w.Input = textFile(t, "b a, b.\nA c c c\n")
	w.Words.Top, w.Words.Fold, w.Verify = 2, true, true
	r, err := w.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, WordTable{Words: []wordcount.Row{{Rank: 1, Word: "c", Count: 3}, {Rank: 2, Word: "a", Count: 2}}, Different: 3, Total: 7}, r.Outcome)
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.Contains(t, text.String(), "   1  c         3  42.86%      3      0\n")
	require.Contains(t, text.String(), "7 words, 3 different ones\n")

	w.Words.Top = 0
	r, err = w.Run(t.Context())
	require.NoError(t, err)
	require.Len(t, r.Outcome.Words, 3)
}

func TestWordCountOfNothing(t *testing.T) {
	for _, content := range []string{"", " \n. ,\n"} {
		w := DefaultWordCount()
		w.Input, w.Verify = textFile(t, content), true
		r, err := w.Run(t.Context())
		require.NoError(t, err)
		var text, raw bytes.Buffer
		require.NoError(t, r.WriteText(&text))
		require.Contains(t, text.String(), "no words\n")
		require.NoError(t, r.WriteJSON(&raw))
		require.Contains(t, raw.String(), `"words": []`)
		require.True(t, json.Valid(raw.Bytes()))
	}
}

func TestWordCountSettings(t *testing.T) {
	requireRefused(t, DefaultWordCount, func(w *WordCount) *Engine { return &w.Engine }, WordCount.Run, map[string]func(w *WordCount){
		"engine":      func(w *WordCount) { w.Workers = 0 },
		"compute":     func(w *WordCount) { w.Workers, w.Compute = 100, 100 },
		"boundaries":  func(w *WordCount) { w.Words.Boundaries = "words" },
		"block":       func(w *WordCount) { w.Words.BlockSize = 1 },
		"norm":        func(w *WordCount) { w.Words.Norm = errorbound.L2 },
		"top":         func(w *WordCount) { w.Words.Top = -1 },
		"no input":    func(w *WordCount) { w.Input = Text{} },
		"stdin":       func(w *WordCount) { w.Input, w.Verify = Text{Path: connector.Stdin}, true },
		"reader":      func(w *WordCount) { w.Input, w.Verify = Text{Reader: strings.NewReader("a")}, true },
		"batch":       func(w *WordCount) { w.Batch = 5 },
		"batch pipe":  func(w *WordCount) { w.Guarantee, w.PipeSources = worker.MiniBatch, true },
		"batch stdin": func(w *WordCount) { w.Guarantee, w.Input = worker.MiniBatch, Text{Reader: strings.NewReader("a")} },
		"operator":    func(w *WordCount) { w.Faults = []controller.Fault{{Operator: "split", Items: 1}} },
	})
}

// TestWordCountFromReader reads what can be read only once: what is on its way to the worker that fails is lost, here
// 20 of some 740 blocks at most.
func TestWordCountFromReader(t *testing.T) {
	w := DefaultWordCount()
	w.L = 20
	w.Input = Text{Path: "pipe", Reader: strings.NewReader(strings.Repeat("to be or not to be\n", 10_000))}
	w.Faults = faults(t, "count/0@3")
	r, err := w.Run(t.Context())
	require.NoError(t, err)
	require.False(t, r.SourceReplay)
	require.Len(t, r.Failures, 1)
	require.Equal(t, "pipe", r.Input)
	require.LessOrEqual(t, r.Failures[0].Lost, uint64(20))
	require.Equal(t, 4, r.Outcome.Different)
}
