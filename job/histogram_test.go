package job

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/algorithms/histogram"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/worker"
)

// TestHistogramThroughFailures checks what the job says about itself, under every guarantee and with both layouts.
func TestHistogramThroughFailures(t *testing.T) {
	for i, layout := range []Layout{EquiWidth, Quantile} {
		for j, pipe := range []bool{false, true} {
			for k, g := range allPromises() {
				if pipe && exact(g) { // refused
					continue
				}
				if !thorough.Tries(2, i, j, k) {
					continue
				}
				t.Run(fmt.Sprintf("%s, pipe %v, %v", layout, pipe, g), func(t *testing.T) {
					h := DefaultHistogram()
					h.Verify, h.PipeSources, h.Guarantee, h.Layout = true, pipe, g, layout
					h.Theta, h.L, h.Gamma = 60, 20, 20
					h.Faults = faults(t, "histogram/0@1000", "histogram/1@2000", "numbers/0@50%", "merge/0@1", "table/0@1")
					if g == worker.ErrorFree { // which takes its time
						h.Input = connector.KeyedOptions{}
						h.Generator = connector.ZipfOptions{Items: 3000, Keys: 100, S: 1}
						h.Faults = faults(t, "histogram/0@200", "histogram/1@500", "numbers/0@50%", "merge/0@1", "table/0@1")
					}
					r, err := h.Run(t.Context())
					require.NoError(t, err)
					if g != worker.None { // with which items may be gone that a failure waits for
						require.NotEmpty(t, r.Failures)
					}
					v := r.Verify
					require.True(t, v.Kept)
					require.Zero(t, v.CleanDivergence)
					require.Zero(t, v.Inaccurate)
					require.Len(t, v.Quantiles, len(h.Quantiles))
					require.Equal(t, g != worker.None, r.Checks()[0].Promised())
					if exact(g) || g == worker.ErrorFree && !pipe {
						require.Zero(t, v.StateDivergence, "exact")
						require.Zero(t, v.RankError)
					}
				})
			}
		}
	}
}

func TestHistogramBounds(t *testing.T) {
	h := DefaultHistogram()
	h.Theta, h.L, h.Gamma = 50, 10, 100
	for _, c := range []struct {
		name        string
		change      func(h *Histogram)
		state, lost float64
	}{
		{"replay", func(*Histogram) {}, 50, 0},
		{"pipe", func(h *Histogram) { h.PipeSources = true }, 160, 110},
		{"error-free", func(h *Histogram) { h.Guarantee = worker.ErrorFree }, 0, 0},
		{"mini-batch", func(h *Histogram) { h.Guarantee = worker.MiniBatch }, 0, 0},
		{"none", func(h *Histogram) { h.Guarantee = worker.None }, math.Inf(1), math.Inf(1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := h
			c.change(&h)
			v := &HistogramVerification{}
			h.bounds(v, &controller.Result{Failures: []controller.Failure{{Operator: "numbers"}}})
			require.Equal(t, Number(c.state), v.StateDivergenceBound)
			require.Equal(t, Number(c.state), v.RankErrorBound)
			require.Equal(t, Number(c.lost), v.LostItemsBound)
		})
	}
}

// TestHistogramFindsBrokenBounds breaks each bound of a run that kept them.
func TestHistogramFindsBrokenBounds(t *testing.T) {
	h := DefaultHistogram()
	h.Verify = true
	r, err := h.Run(t.Context())
	require.NoError(t, err)
	requireBroken(t, *r.Verify, map[string]func(v *HistogramVerification){
		"numbers missing":        func(v *HistogramVerification) { v.StateDivergence = 101 },
		"rank error":             func(v *HistogramVerification) { v.RankError = 101 },
		"quantiles out of range": func(v *HistogramVerification) { v.OutOfRange = 1 },
		"without failures":       func(v *HistogramVerification) { v.CleanDivergence = 1 },
		"inaccurate quantiles":   func(v *HistogramVerification) { v.Inaccurate = 1 },
		"items lost":             func(v *HistogramVerification) { v.LostItems = 1 },
	})
}

// TestHistogramFindsWrongHistograms hands the verification a histogram of other numbers.
func TestHistogramFindsWrongHistograms(t *testing.T) {
	for _, layout := range []Layout{EquiWidth, Quantile} {
		h := DefaultHistogram()
		h.Layout, h.From, h.To, h.Theta = layout, 1, 1001, 3
		h.Input = connector.KeyedOptions{Path: textFile(t, "1\n10\n100\n1000\n").Path}
		in, err := h.openNumbers()
		require.NoError(t, err)
		l, err := h.layout()
		require.NoError(t, err)
		of := func(numbers ...float64) []histogram.Histogram {
			c := histogram.New(l)
			require.NoError(t, c.ProcessBatch(numbers, nil))
			return []histogram.Histogram{c.Histogram()}
		}
		right := of(1, 10, 100, 1000)
		v, items, err := h.verify(t.Context(), in, right, right, &controller.Result{})
		require.NoError(t, err)
		require.EqualValues(t, 4, items)
		require.True(t, v.Kept)
		v, _, err = h.verify(t.Context(), in, of(1, 1000), right, &controller.Result{})
		require.NoError(t, err)
		require.True(t, v.Kept, "two may be missing")
		require.Equal(t, Number(2), v.StateDivergence)
		h.Theta = 1
		v, _, err = h.verify(t.Context(), in, of(900, 900, 900, 900), right, &controller.Result{})
		require.NoError(t, err)
		require.False(t, v.Kept)
		require.Positive(t, v.OutOfRange)
		require.Equal(t, Number(3), v.RankError)
		v, _, err = h.verify(t.Context(), in, right, of(1, 10, 100, 900), &controller.Result{})
		require.NoError(t, err)
		require.Positive(t, v.CleanDivergence)
		_, _, err = h.verify(t.Context(), in, nil, right, &controller.Result{})
		require.ErrorContains(t, err, "made 0 and 1 histograms")
	}
}

func TestHistogramAnswers(t *testing.T) {
	h := DefaultHistogram()
	h.Input, h.Verify = connector.KeyedOptions{Path: textFile(t, "-5\n3\n# a remark\n17.5\n3\n").Path}, true
	h.Input.OnBad, h.Bins, h.Quantiles = connector.SkipBad, 3, []float64{0, 0.5, 1}
	r, err := h.Run(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 4, r.Items)
	require.Equal(t, []Bin{{-10, 0, 1}, {0, 10, 2}, {10, 20, 1}}, r.Outcome.Bins)
	require.Len(t, r.Outcome.Quantiles, 3)
	require.Equal(t, Number(3), r.Verify.Quantiles[1].Exact)
	var text, raw bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.Regexp(t, `(?m)^ *0 +10 +2 +50\.00% +2$`, text.String())
	require.NoError(t, r.WriteJSON(&raw))
	require.NotContains(t, strings.ToLower(raw.String()), "nan")

	h.From, h.To, h.Bins = 0, 10, 2 // numbers on either side are counted together
	r, err = h.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, []Bin{{Number(math.Inf(-1)), 0, 1}, {0, 5, 2}, {5, 10, 0}, {10, Number(math.Inf(1)), 1}}, r.Outcome.Bins)
	require.True(t, r.Outcome.Quantiles[0].Beyond)
	text.Reset()
	require.NoError(t, r.WriteText(&text))
	require.Regexp(t, `(?m)^ *0 +beyond 0 +-5 +0 +0$`, text.String())

	h = DefaultHistogram()
	h.Input, h.Verify = connector.KeyedOptions{Path: textFile(t, "").Path}, true
	r, err = h.Run(t.Context())
	require.NoError(t, err)
	text.Reset()
	require.NoError(t, r.WriteText(&text))
	require.Contains(t, text.String(), "no numbers")
	require.NoError(t, r.WriteJSON(&raw))
	require.NotContains(t, strings.ToLower(raw.String()), "nan")
}

// TestNumbers reads numbers from all that may hold some, and what is none.
func TestNumbers(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	read := func(k KeyedItems) (numbers []float64, err error) {
		in, err := k.openNumbers()
		if err != nil {
			return nil, err
		}
		_, err = readAgain(t.Context(), in.counted, nil, func(slab []float64) error {
			numbers = append(numbers, slab...)
			return nil
		})
		return numbers, err
	}
	for _, c := range []struct {
		in   connector.KeyedOptions
		want []float64
	}{
		{connector.KeyedOptions{Path: file("a.csv", "n,m\n-1.5,2\n1e3,4\n"), Key: "n"}, []float64{-1.5, 1000}},
		{connector.KeyedOptions{Path: file("b.csv", "-1.5,8\n1e3,4\n"), Key: "2"}, []float64{8, 4}},
		{connector.KeyedOptions{Path: file("a.jsonl", `{"n":-7}`+"\n"+`{"n":"0.5"}`+"\n"), Key: "n"}, []float64{-7, 0.5}},
		{connector.KeyedOptions{Path: file("a.txt", "5\n-6 2\n"), Key: ""}, []float64{5, -6}},
	} {
		got, err := read(KeyedItems{Input: c.in})
		require.NoError(t, err, c.in.Path)
		require.Equal(t, c.want, got)
	}
	packets, err := read(KeyedItems{Input: connector.KeyedOptions{Path: connector.Builtin + "cip.pcap"}})
	require.NoError(t, err)
	require.Len(t, packets, 26_068)
	_, err = read(KeyedItems{Input: connector.KeyedOptions{Path: connector.Builtin + "cip.pcap", Key: "src"}})
	require.ErrorIs(t, err, ErrSettings)
	ranks, err := read(KeyedItems{Generator: connector.ZipfOptions{Items: 1000, Keys: 10}})
	require.NoError(t, err)
	for _, x := range ranks {
		require.Contains(t, []float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, x)
	}
	for _, bad := range []string{"x", "NaN", "inf", "1e999", strings.Repeat("1", 50)} {
		_, err := read(KeyedItems{Input: connector.KeyedOptions{Path: file("bad.txt", "1\n"+bad+"\n")}})
		require.ErrorContains(t, err, "row 2", bad)
		require.ErrorContains(t, err, "is not a finite number", bad)
	}
}

// TestBadNumbersAreCountedOnceThroughFailuresOfTheSource: also those that are bad rows for the connector already.
func TestBadNumbersAreCountedOnceThroughFailuresOfTheSource(t *testing.T) {
	var b strings.Builder
	for i := range 20_000 {
		switch i % 10 {
		case 8:
			b.WriteString("7 bad\n") // no weight
		case 9:
			b.WriteString("bad\n") // no number
		default:
			fmt.Fprintf(&b, "%d\n", i%7)
		}
	}
	for _, pipe := range []bool{false, true} {
		h := DefaultHistogram()
		h.Input = connector.KeyedOptions{Path: textFile(t, b.String()).Path, OnBad: connector.SkipBad}
		h.PipeSources, h.Verify = pipe, true
		h.Faults = faults(t, "numbers/0@3000", "numbers/0@9000", "histogram/0@2000")
		r, err := h.Run(t.Context())
		require.NoError(t, err)
		require.Len(t, r.Failures, 3)
		require.EqualValues(t, 16_000, r.Items)
		require.EqualValues(t, 4000, r.SkippedRows, "pipe %v", pipe)
	}
}

// TestRoundRange: the bins hold the range, are no more than asked for, and are not many fewer.
func TestRoundRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Float64Range(-1e6, 1e6)
		least, most, bins := number.Draw(t, "least"), number.Draw(t, "most"), rapid.IntRange(1, 100).Draw(t, "bins")
		least, most = min(least, most), max(least, most)
		from, to, n := roundRange(least, most, bins)
		require.LessOrEqual(t, from, least)
		require.Greater(t, to, most)
		require.GreaterOrEqual(t, n, 1)
		require.LessOrEqual(t, n, bins)
	})
	for _, c := range []struct {
		least, most float64
		bins        int
		from, to    float64
		n           int
	}{
		{-97, 1155, 20, -100, 1200, 13}, {0, 9, 10, 0, 10, 10}, {0, 10, 10, 0, 12, 6}, {1, 2, 5, 1, 2.5, 3},
	} {
		from, to, n := roundRange(c.least, c.most, c.bins)
		require.InDelta(t, c.from, from, 1e-9)
		require.InDelta(t, c.to, to, 1e-9)
		require.Equal(t, c.n, n)
	}
}

func TestHistogramInterruptedWhileItMeasures(t *testing.T) {
	h := DefaultHistogram()
	h.Input = connector.KeyedOptions{}
	h.Generator.Items = 1 << 40
	ctx, cancel := context.WithCancel(t.Context())
	h.OnProgress = func(p Phase, done, _ int64) {
		require.Equal(t, PhaseMeasure, p)
		if done > 50_000 {
			cancel()
		}
	}
	r, err := h.Run(ctx)
	require.ErrorIs(t, err, ErrInterrupted)
	require.True(t, r.Interrupted)
	require.Empty(t, r.Outcome.Bins)
}

func TestHistogramSettings(t *testing.T) {
	requireRefused(t, DefaultHistogram, func(h *Histogram) *Engine { return &h.Engine }, Histogram.Run, map[string]func(h *Histogram){
		"engine":       func(h *Histogram) { h.Workers = 0 },
		"items":        func(h *Histogram) { h.Input.Path, h.Generator.Items = "", 0 },
		"layout":       func(h *Histogram) { h.Layout = "" },
		"no bins":      func(h *Histogram) { h.Bins = 0 },
		"many bins":    func(h *Histogram) { h.Bins = histogram.MaxBins },
		"no range":     func(h *Histogram) { h.From, h.To = 5, 5 },
		"NaN":          func(h *Histogram) { h.From, h.To = math.NaN(), 5 },
		"accuracy":     func(h *Histogram) { h.Layout, h.Accuracy = Quantile, 1 },
		"sizes":        func(h *Histogram) { h.Layout, h.From, h.To = Quantile, -1, 5 },
		"quantile":     func(h *Histogram) { h.Quantiles = []float64{1.1} },
		"NaN quantile": func(h *Histogram) { h.Quantiles = []float64{math.NaN()} },
		"quantiles":    func(h *Histogram) { h.Quantiles = make([]float64, maxQuantiles+1) },
		"stdin":        func(h *Histogram) { h.Input.Path, h.Verify = connector.Stdin, true },
		"pipe": func(h *Histogram) {
			h.Input.Path, h.Input.Reader, h.Input.Format = "", strings.NewReader("1\n"), connector.FormatText
			h.Input.Path = connector.Stdin
		},
		"value": func(h *Histogram) { h.Input.Path, h.Input.Key = connector.Builtin+"cip.pcap", "dst" },
	})
}
