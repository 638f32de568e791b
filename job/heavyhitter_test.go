package job

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/worker"
)

// generated is a job on made-up items.
func generated(items uint64) HeavyHitter {
	h := DefaultHeavyHitter()
	h.Input.Path = ""
	h.Generator.Items, h.Generator.Keys = items, 1000
	return h
}

// injected adds failures, written as on the command line.
func injected(t *testing.T, h HeavyHitter, texts ...string) HeavyHitter {
	t.Helper()
	h.Faults = append(h.Faults, faults(t, texts...)...)
	return h
}

// fromText is a job on lines of text.
func fromText(t *testing.T, content string) HeavyHitter {
	t.Helper()
	h := DefaultHeavyHitter()
	h.Input.Path = filepath.Join(t.TempDir(), "input.txt")
	require.NoError(t, os.WriteFile(h.Input.Path, []byte(content), 0o600))
	return h
}

// TestVerifiedThroughFailures runs the job through failures of every operator, and checks what it says about itself.
func TestVerifiedThroughFailures(t *testing.T) {
	for i, series := range []errorbound.Series{errorbound.Geometric, errorbound.Telescoping} {
		t.Run(series.String(), func(t *testing.T) {
			throughFailures(t, part{3, i}, []worker.Guarantee{worker.Approximate}, map[string][]string{
				"sketches":        {"sketch/0@30%", "sketch/1@50%", "sketch/0@80%"},
				"source":          {"trace/0@50%"},
				"merge and table": {"merge/0@1", "table/0@1"},
				"all at once":     {"trace/0@40%", "sketch/0@40%", "sketch/1@40%"},
				"first item":      {"sketch/0@1", "trace/0@1"},
			}, func(t *testing.T, c trial) {
				h := generated(150_000)
				c.in(&h.Engine)
				h.Series, h.Theta, h.L, h.Gamma = series, 1000, 300, 300
				r, err := h.Run(t.Context())
				v := survived(t, c, r, err)
				require.Empty(t, r.Unreached)
				require.Equal(t, h.Generator.Items, r.Items)
				require.Zero(t, v.DuplicatedItems)
				if c.pipe {
					require.Equal(t, Number(1000+600), v.StateDivergenceBound)
					require.Equal(t, Number(600), v.LostItemsBound)
				} else {
					require.Equal(t, Number(1000), v.StateDivergenceBound)
					require.Zero(t, v.LostItems)
				}
			})
		})
	}
}

func TestRandomFailuresAreReproducible(t *testing.T) {
	h := generated(100_000)
	h.RandomFaults, h.Verify = 5, true
	for seed := range uint64(thorough.Number(2, 5)) {
		h.Seed = seed
		in, err := h.openInput()
		require.NoError(t, err)
		nodes, err := h.topology(in.open, in.alpha, &merged{}).Build()
		require.NoError(t, err)
		require.Equal(t, controller.RandomFaults(nodes, 5, seed), controller.RandomFaults(nodes, 5, seed))
		require.NotEqual(t, controller.RandomFaults(nodes, 5, seed), controller.RandomFaults(nodes, 5, seed+1))
		r, err := h.Run(t.Context())
		require.NoError(t, err, "seed %d", seed)
		require.Equal(t, 5, len(r.Failures)+len(r.Unreached))
	}
}

// TestBoundThatIsBrokenIsFound runs without a guarantee, where failures lose far more than the default bounds allow, and
// judges that by the bounds of a job that promised them.
func TestBoundThatIsBrokenIsFound(t *testing.T) {
	h := injected(t, generated(400_000), "sketch/0@50%")
	h.Guarantee, h.Verify = worker.None, true
	r, err := h.Run(t.Context())
	require.NoError(t, err)
	require.True(t, r.Verify.Kept, "nothing was promised")
	require.Greater(t, r.Verify.StateDivergence, Number(1000), "the counts of a sketch are gone")
	r.Verify.LostItems++ // how many there are depends on the moment of the failure; there may be none

	promised := h
	promised.Guarantee, promised.Theta = worker.Approximate, 100
	promised.bounds(r.Verify, &controller.Result{})
	err = broken(r.Checks())
	require.ErrorIs(t, err, ErrBound)
	require.ErrorContains(t, err, "state divergence")
	require.ErrorContains(t, err, "items lost")

	r.Verify.Kept = false
	r.Guarantee = worker.Approximate.String()
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.Contains(t, text.String(), "broken")
}

func TestBounds(t *testing.T) {
	h := DefaultHeavyHitter()
	h.Threshold = 0.01
	result := &controller.Result{Failures: []controller.Failure{{Operator: "trace"}, {Operator: "sketch"}}}
	for _, c := range []struct {
		name                 string
		change               func(h *HeavyHitter)
		state, total, losses float64
	}{
		{"replay", func(*HeavyHitter) {}, 10_000, 1e6, 0},
		{"pipe", func(h *HeavyHitter) { h.PipeSources = true }, 10_000 + 2000*1500, 1e6 + 2000*1500, 2000},
		{"pipe, gamma spent", func(h *HeavyHitter) { h.PipeSources, h.Gamma = true, 0 }, 10_000 + 1001*1500, 1e6 + 1001*1500, 1001},
		{"compensated", func(h *HeavyHitter) { h.Compensate = true }, 10_000 + 1000*1500, 1e6, 0},
		{"compensated pipe", func(h *HeavyHitter) { h.Compensate, h.PipeSources = true, true }, 10_000 + 2000*1500, 1e6 + 2000*1500, 2000},
		{"none", func(h *HeavyHitter) { h.Guarantee = worker.None }, math.Inf(1), math.Inf(1), math.Inf(1)},
		{"infinite theta", func(h *HeavyHitter) { h.Theta = math.Inf(1) }, math.Inf(1), math.Inf(1), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := h
			c.change(&h)
			v := &HeavyHitterVerification{Alpha: 1500}
			h.bounds(v, result)
			require.Equal(t, Number(c.state), v.StateDivergenceBound)
			require.Equal(t, Number(c.total), v.TotalDivergenceBound)
			require.Equal(t, Number(c.losses), v.LostItemsBound)
		})
	}
}

func TestDistance(t *testing.T) {
	require.Equal(t, 3.0, distance([]float64{1, 5, 2}, []float64{2, 2, 2}))
	require.Equal(t, 0.0, distance([]float64{1}, []float64{1}))
	require.True(t, math.IsInf(distance(nil, nil), 1), "a sketch that was never merged cannot be compared")
	require.True(t, math.IsInf(distance([]float64{1}, []float64{1, 2}), 1))
	require.True(t, math.IsNaN(distance([]float64{math.NaN(), 1}, []float64{0, 0})))
	v := HeavyHitterVerification{StateDivergence: Number(math.NaN()), StateDivergenceBound: 5}
	require.ErrorIs(t, broken(v.Checks()), ErrBound, "NaN must not count as kept")
}

func TestSettings(t *testing.T) {
	requireRefused(t, DefaultHeavyHitter, func(h *HeavyHitter) *Engine { return &h.Engine }, HeavyHitter.Run, map[string]func(h *HeavyHitter){
		"theta":     func(h *HeavyHitter) { h.Theta = math.NaN() },
		"theta -":   func(h *HeavyHitter) { h.Theta = -1 },
		"workers":   func(h *HeavyHitter) { h.Workers = 0 },
		"compute":   func(h *HeavyHitter) { h.Compute = 0 },
		"too many":  func(h *HeavyHitter) { h.Workers, h.Compute = 100, 100 },
		"threshold": func(h *HeavyHitter) { h.Threshold = math.NaN() },
		"rows":      func(h *HeavyHitter) { h.Rows = 0 },
		"width":     func(h *HeavyHitter) { h.Width = math.MaxInt },
		"alpha":     func(h *HeavyHitter) { h.Alpha = math.Inf(1) },
		"format":    func(h *HeavyHitter) { h.Input.Format = "xml" },
		"policy":    func(h *HeavyHitter) { h.Input.OnBad = "ignore" },
		"operator":  func(h *HeavyHitter) { h.Faults = []controller.Fault{{Operator: "sketsh", Items: 1}} },
		"worker":    func(h *HeavyHitter) { h.Faults = []controller.Fault{{Operator: "sketch", Worker: 2, Items: 1}} },
		"failures":  func(h *HeavyHitter) { h.RandomFaults = -1 },
		"series":    func(h *HeavyHitter) { h.Series = 9 },
		"items":     func(h *HeavyHitter) { h.Input.Path, h.Generator.Items = "", 0 },
		"zipf":      func(h *HeavyHitter) { h.Input.Path, h.Generator.S = "", math.NaN() },
		"none":      func(h *HeavyHitter) { h.Guarantee, h.Compensate = worker.None, true },
		"none dir":  func(h *HeavyHitter) { h.Guarantee = worker.None },
		"stdin":     func(h *HeavyHitter) { h.Input.Path, h.Verify = connector.Stdin, true },
		"share":     func(h *HeavyHitter) { h.Input.Path, h.RandomFaults = connector.Stdin, 1 },
	})
}

func TestAllFaultsOfSettingsAtOnce(t *testing.T) {
	h := DefaultHeavyHitter()
	h.Workers, h.Theta, h.Threshold = 0, -1, 2
	_, err := h.Run(t.Context())
	for _, part := range []string{"0 workers", "theta -1", "threshold 2"} {
		require.ErrorContains(t, err, part)
	}
}

func TestAlphaOfInputs(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	csv := write("t.csv", "src,bytes\na,70000\n")
	text := write("t.txt", "a 3\n")
	for _, c := range []struct {
		o    connector.KeyedOptions
		want float64
	}{
		{connector.KeyedOptions{Path: "builtin:cip.pcap"}, 1},
		{connector.KeyedOptions{Path: "builtin:cip.pcap", Weight: "packets"}, 1},
		{connector.KeyedOptions{Path: "builtin:cip.pcap", Weight: "bytes"}, maxPacketBytes},
		{connector.KeyedOptions{Path: "builtin:flights", Key: "origin"}, 1},
		{connector.KeyedOptions{Path: "builtin:flights", Key: "origin", Weight: "distance"}, 0},
		{connector.KeyedOptions{Path: csv, Key: "src", Weight: "bytes"}, 0}, // a column that is called as packets' weight
		{connector.KeyedOptions{Path: csv, Key: "src"}, 1},
		{connector.KeyedOptions{Path: text}, 0},
		{connector.KeyedOptions{Path: text, OnBad: connector.SkipBad}, 0},
		{connector.KeyedOptions{Path: connector.Stdin}, 0},
		{connector.KeyedOptions{Path: connector.Stdin, Format: connector.FormatPcap, Weight: "bytes"}, maxPacketBytes},
		{connector.KeyedOptions{Path: connector.Stdin, Format: connector.FormatJSONL, Key: "k"}, 1},
	} {
		require.Equal(t, c.want, likelyAlpha(c.o), "%+v", c.o)
	}
}

func TestWeightAboveAlphaNamesTheRemedy(t *testing.T) {
	h := fromText(t, "a 1\nb 5\n")
	h.Alpha = 2
	_, err := h.Run(t.Context())
	require.ErrorContains(t, err, "5 of key \"b\"")
	require.ErrorContains(t, err, "give a larger one")
}

func TestFractionsKeepTheirBounds(t *testing.T) {
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, "k%d %v\n", i%17, 0.1*float64(i%7))
	}
	h := injected(t, fromText(t, b.String()), "sketch/0@3000", "sketch/1@4000")
	h.Workers, h.Theta, h.Verify = 3, 5, true
	r, err := h.Run(t.Context())
	require.NoError(t, err)
	require.InDelta(t, 0.6, float64(r.Verify.Alpha), 1e-12)
}

func TestBadRowsAreCountedOnceThroughFailuresOfTheSource(t *testing.T) {
	var b strings.Builder
	for i := range 50_000 {
		if i%10 == 9 {
			b.WriteString("bad row\n")
			continue
		}
		fmt.Fprintf(&b, "k%d\n", i%7)
	}
	h := injected(t, fromText(t, b.String()), "trace/0@9000", "trace/0@30000", "sketch/0@5000")
	h.Input.OnBad = connector.SkipBad
	for _, pipe := range []bool{false, true} {
		h.PipeSources = pipe
		r, err := h.Run(t.Context())
		require.NoError(t, err)
		require.Len(t, r.Failures, 3)
		require.EqualValues(t, 5000, r.SkippedRows, "pipe %v", pipe)
		require.EqualValues(t, 45_000, r.Items)
	}
}

func TestEmptyInput(t *testing.T) {
	h := fromText(t, "")
	h.Verify = true
	r, err := h.Run(t.Context())
	require.NoError(t, err)
	require.Empty(t, r.Outcome.HeavyHitters)
	var text, raw bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.Contains(t, text.String(), "no heavy hitters")
	require.NoError(t, r.WriteJSON(&raw))
	require.True(t, json.Valid(raw.Bytes()))
}

func TestInterruptedJobTellsWhatItHas(t *testing.T) {
	dir := t.TempDir()
	h := generated(1 << 40)
	h.BackupDir, h.Verify = dir, true
	ctx, cancel := context.WithCancel(t.Context())
	h.OnProgress = func(_ Phase, done, _ int64) {
		if done > 500_000 {
			cancel()
		}
	}
	started := time.Now()
	r, err := h.Run(ctx)
	require.ErrorIs(t, err, ErrInterrupted)
	require.True(t, r.Interrupted)
	require.Nil(t, r.Verify)
	require.Greater(t, r.Items, uint64(500_000))
	require.NotEmpty(t, r.Outcome.HeavyHitters)
	require.Less(t, time.Since(started), time.Minute, "it would run for days")
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.Contains(t, text.String(), "result so far")

	store, err := backup.OpenBadger(dir, backup.BadgerOptions{})
	require.NoError(t, err, "the directory opens again")
	require.NoError(t, store.Close())
}

// TestInterruptedRightAfterARecovery ends a job while the new sketch has yet to be given again what the old one had.
func TestInterruptedRightAfterARecovery(t *testing.T) {
	for _, operator := range []string{"sketch/0@100000", "trace/0@100000"} {
		h := injected(t, generated(1<<40), operator)
		ctx, cancel := context.WithCancel(t.Context())
		h.OnEvent = func(e controller.Event) {
			if e.Recovered {
				cancel()
			}
		}
		r, err := h.Run(ctx)
		require.ErrorIs(t, err, ErrInterrupted)
		require.EqualError(t, err, "interrupted after "+group(r.Items)+" items")
		require.NotEmpty(t, r.Outcome.HeavyHitters)
		require.InDelta(t, float64(r.Items), float64(r.Outcome.Total), h.Theta/h.Threshold)
	}
}

func TestInterruptedWhileItVerifies(t *testing.T) {
	for _, in := range []Phase{PhaseRepeat, PhaseExact} {
		h := generated(150_000)
		h.Verify = true
		ctx, cancel := context.WithCancel(t.Context())
		h.OnProgress = func(p Phase, done, _ int64) {
			if p == in && done > 50_000 {
				cancel()
			}
		}
		r, err := h.Run(ctx)
		require.ErrorIs(t, err, ErrInterrupted)
		require.True(t, r.Interrupted)
		require.Nil(t, r.Verify)
		require.EqualValues(t, 150_000, r.Items)
	}
}

func TestBackupDirDoesNotGrow(t *testing.T) {
	h := generated(10_000)
	h.BackupDir, h.Theta = t.TempDir(), 10
	elements := func() int {
		store, err := backup.OpenBadger(h.BackupDir, backup.BadgerOptions{})
		require.NoError(t, err)
		defer store.Close()
		n := 0
		require.NoError(t, store.Scan(nil, func(_, _ []byte) error { n++; return nil }))
		return n
	}
	_, err := h.Run(t.Context())
	require.NoError(t, err)
	first := elements()
	require.Positive(t, first)
	for range 3 {
		_, err := h.Run(t.Context())
		require.NoError(t, err)
	}
	require.Less(t, elements(), 2*first)
}

func TestInputThatChangesMeanwhile(t *testing.T) {
	h := fromText(t, strings.Repeat("a\n", 1000))
	h.Verify = true
	h.OnProgress = func(p Phase, _, _ int64) {
		if p == PhaseRepeat {
			require.NoError(t, os.WriteFile(h.Input.Path, []byte(strings.Repeat("a\n", 2000)), 0o600))
		}
	}
	_, err := h.Run(t.Context())
	require.ErrorContains(t, err, "the input changed")
}

func TestReportErrorsOfItsWriter(t *testing.T) {
	h := generated(1000)
	r, err := h.Run(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, r.WriteText(fullDisk{}), errFullDisk)
	require.ErrorIs(t, r.WriteJSON(fullDisk{}), errFullDisk)
}

var errFullDisk = errors.New("disk is full")

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errFullDisk }

func TestEventLines(t *testing.T) {
	e := controller.Event{Failure: controller.Failure{Operator: "sketch", Worker: 1, AtItem: 1234, Epoch: 2, RecoverySeconds: 0.0021}}
	require.Equal(t, "failed     sketch/1  after 1,234 items (incarnation 2)", EventLine(e))
	e.Recovered = true
	require.Equal(t, "recovered  sketch/1  in 2.1 ms", EventLine(e))
}
