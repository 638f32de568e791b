package job

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/worker"
)

// wanted is a job on made-up items with a target, verified.
func wanted(items uint64) HeavyHitter {
	h := generated(items)
	h.Target = Accuracy{Error: 0.002, Confidence: 0.99, Failures: 3}
	h.Verify = true
	return h
}

// TestPlannedJobKeepsItsTarget runs planned jobs through failures at random places and asks for every key.
func TestPlannedJobKeepsItsTarget(t *testing.T) {
	for i, c := range []struct {
		name   string
		change func(h *HeavyHitter)
	}{
		{"replay", func(*HeavyHitter) {}},
		{"pipe", func(h *HeavyHitter) { h.PipeSources = true }},
		{"compensated", func(h *HeavyHitter) { h.Compensate = true }},
		{"three workers", func(h *HeavyHitter) { h.Workers, h.Compute = 3, 2 }},
		{"pipe, one value", func(h *HeavyHitter) { h.PipeSources, h.Compensate, h.Generator.Keys = true, true, 1 }},
	} {
		if !thorough.Tries(4, i) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(thorough.Number(1, 3)) {
				h := wanted(80_000)
				c.change(&h)
				h.Seed, h.Generator.Seed, h.RandomFaults = seed, seed, 5
				r, err := h.Run(t.Context())
				require.NoError(t, err, "seed %d", seed)
				require.True(t, r.Verify.Kept)
				require.Equal(t, uint64(5), r.Plan.Failures, "injected failures are expected")
				require.Equal(t, r.Plan.Theta, r.Theta)
				require.Equal(t, r.Plan.L, r.L)
				require.LessOrEqual(t, r.Plan.ErrorBound, r.Plan.Error*(1+1e-9))

				v := r.Verify.Target
				require.Equal(t, Number(160), v.ErrorBound, "0.2%% of the items")
				require.LessOrEqual(t, v.Undercount, v.UndercountBound)
				require.LessOrEqual(t, v.UndercountBound, v.ErrorBound*(1+1e-9))
				require.LessOrEqual(t, v.KeysBeyond, v.KeysAllowed)
				for _, key := range r.Outcome.HeavyHitters {
					off := math.Abs(float64(key.Estimate) - r.Verify.exact.Weight(key.Key))
					require.LessOrEqual(t, off, float64(max(v.Undercount, v.Overcount)), "all keys were asked for")
				}
			}
		})
	}
}

// TestPredictedCommits holds the prediction against a run.
func TestPredictedCommits(t *testing.T) {
	h := wanted(400_000)
	h.Verify, h.Target.Error, h.Target.Failures = false, 0.0005, 0
	r, err := h.Run(t.Context())
	require.NoError(t, err)
	c := r.Plan.Cost
	perItem := float64(c.CommitsPerSecond) / (errorbound.DefaultCosts().ItemsPerSecond * (1 - float64(c.Slowdown)))
	predicted := perItem * 400_000
	const others = 16 // the first, at the end, of the operators without divergence
	require.Greater(t, predicted, 1000.0)
	require.LessOrEqual(t, float64(r.Backups.StateCommits), predicted+others)
	require.GreaterOrEqual(t, float64(r.Backups.StateCommits), predicted/20)
}

// TestTargetOfAnInputThatIsRead measures weights before it plans.
func TestTargetOfAnInputThatIsRead(t *testing.T) {
	thorough.Only(t)
	var b strings.Builder
	total := 0.0
	for i := range 30_000 {
		weight := 0.1 * float64(1+i%9)
		total += weight
		fmt.Fprintf(&b, "k%d %v\n", i%97, weight)
	}
	h := fromText(t, b.String())
	h.Target = Accuracy{Error: 0.005, Confidence: 0.9, Failures: 2, Series: []errorbound.Series{errorbound.Telescoping}}
	h.Verify, h.RandomFaults = true, 2
	var phases []Phase
	h.OnProgress = func(p Phase, _, _ int64) {
		if len(phases) == 0 {
			phases = append(phases, p)
		}
	}
	r, err := h.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, []Phase{PhaseMeasure}, phases)
	require.InDelta(t, total, float64(r.Plan.Total), 1e-6)
	require.InDelta(t, 0.9, float64(r.Plan.Alpha), 1e-12, "the largest weight that was read")
	require.Equal(t, "telescoping", r.Series)
	require.InDelta(t, 0.005*total, float64(r.Theta), 1)

	h.PipeSources, h.Target.Total = true, total
	_, err = h.Run(t.Context())
	require.ErrorIs(t, err, ErrSettings, "with the total given nothing is read before, and alpha is unknown")
	require.ErrorContains(t, err, "give the most that one item weighs")
	h.Alpha = 1
	r, err = h.Run(t.Context())
	require.NoError(t, err)
	require.Positive(t, r.L)
	require.NotEmpty(t, r.Plan.Items)
}

func TestTargetsThatCannotBe(t *testing.T) {
	for want, change := range map[string]func(h *HeavyHitter){
		"guarantee none has no thresholds": func(h *HeavyHitter) { h.Guarantee, h.Verify = worker.None, false },
		"total -1":                         func(h *HeavyHitter) { h.Target.Total = -1 },
		"error -1: want a share":           func(h *HeavyHitter) { h.Target.Error = -1 },
		"confidence 0":                     func(h *HeavyHitter) { h.Target.Confidence = 0 },
		"above the threshold":              func(h *HeavyHitter) { h.Target.Error = 0.5 },
		"memory":                           func(h *HeavyHitter) { h.Target.Memory = 100 },
		"too large: want a larger error": func(h *HeavyHitter) {
			h.Target.Error, h.Target.Memory = 1e-9, 1e18
		},
		"can be read only once": func(h *HeavyHitter) {
			h.Input = connector.KeyedOptions{Path: connector.Stdin, Reader: strings.NewReader("a\n"), Format: connector.FormatText}
			h.Verify = false
		},
	} {
		h := wanted(1000)
		change(&h)
		r, err := h.Run(t.Context())
		require.ErrorIs(t, err, ErrSettings, want)
		require.ErrorContains(t, err, want)
		require.Nil(t, r)
	}
}

func TestTargetOfNothing(t *testing.T) {
	h := fromText(t, "")
	h.Target, h.Verify = Accuracy{Error: 0.001, Confidence: 0.9}, true
	r, err := h.Run(t.Context())
	require.NoError(t, err)
	require.True(t, r.Verify.Kept)
}

func TestInterruptedWhileItMeasures(t *testing.T) {
	h := fromText(t, strings.Repeat("a\n", 20_000))
	h.Target = Accuracy{Error: 0.001, Confidence: 0.9}
	ctx, cancel := context.WithCancel(t.Context())
	h.OnProgress = func(Phase, int64, int64) { cancel() }
	r, err := h.Run(ctx)
	require.ErrorIs(t, err, ErrInterrupted)
	require.True(t, r.Interrupted)
	require.NoError(t, r.WriteText(&bytes.Buffer{}))
}

// TestBrokenTargetIsFound judges a run by a plan that promised more.
func TestBrokenTargetIsFound(t *testing.T) {
	h := wanted(50_000)
	r, err := h.Run(t.Context())
	require.NoError(t, err)
	cells := make([]float64, r.Plan.Rows*r.Plan.Width) // a sketch that has lost everything
	check, err := checkTarget(r.Plan, cells, r.Verify.exact)
	require.NoError(t, err)
	require.Equal(t, Number(r.Verify.exact.Top(1)[0].Estimate), check.Undercount)
	r.Verify.Target, r.Verify.Kept = check, false
	err = broken(r.Checks())
	require.ErrorIs(t, err, ErrBound)
	require.ErrorContains(t, err, "too low")
	require.ErrorContains(t, err, "keys beyond target")
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.Contains(t, text.String(), "broken")
	_, err = checkTarget(r.Plan, append(cells, 1), r.Verify.exact)
	require.Error(t, err, "a sketch of another shape")
}

func TestPlanReports(t *testing.T) {
	target := errorbound.HeavyHitterTarget{
		Workload: errorbound.Workload{Items: 1e9, Alpha: 1, Workers: 4, Failures: 10}, Error: 0.001, Confidence: 0.99, Threshold: 0.01,
	}
	p, err := PlanHeavyHitter(target)
	require.NoError(t, err)
	require.Equal(t, strings.Fields("afstream run heavy-hitter --items 1000000000 --workers 4 --compute 1 --threshold 0.01"+
		" --rows 2 --width 10000 --theta 1000000 --l 0 --gamma 0 --series geometric --alpha 1"), p.Command)
	var text, raw bytes.Buffer
	require.NoError(t, p.WriteText(&text))
	for _, part := range []string{"theta               1,000,000", "2 x 10,000", "reported for sure        1.1%", "telescoping"} {
		require.Contains(t, text.String(), part)
	}
	require.NoError(t, p.WriteJSON(&raw))
	var back Plan
	require.NoError(t, json.Unmarshal(raw.Bytes(), &back))
	require.Equal(t, *p, back)
	require.ErrorIs(t, p.WriteText(fullDisk{}), errFullDisk)
	require.ErrorIs(t, p.WriteJSON(fullDisk{}), errFullDisk)

	target.Weight, target.Alpha, target.Pipe, target.Compensated, target.Error = 400, 1500, true, true, 0.009
	p, err = PlanHeavyHitter(target)
	require.NoError(t, err)
	command := strings.Join(p.Command, " ")
	for _, part := range []string{"--input FILE --weight COLUMN", "--source-replay=false", "--compensate", "--alpha 1500"} {
		require.Contains(t, command, part)
	}
	text.Reset()
	require.NoError(t, p.WriteText(&text))
	require.Contains(t, text.String(), "too large for the threshold to say more")
}
