package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/experiments"
)

// toy is an experiment of two cases, whose error is measured against bound. before is called by each run.
func toy(name string, bound float64, before func()) experiments.Experiment {
	e := experiments.Experiment{
		Name: name, Title: "What " + name + " shows", Question: "Does it run?",
		Params:  []experiments.Column{{Name: "size"}},
		Figures: []experiments.Column{{Name: "rate"}},
		Errors:  []experiments.Column{{Name: "divergence"}},
	}
	e.Cases = func(experiments.Plan) []experiments.Case {
		var cases []experiments.Case
		for _, size := range []string{"1", "2"} {
			cases = append(cases, experiments.Case{Params: []string{size}, Run: func(context.Context, uint64) (experiments.Result, error) {
				before()
				return experiments.Result{Figures: []float64{42}, Errors: []experiments.Measured{{Value: 5, Bound: bound}}}, nil
			}})
		}
		return cases
	}
	return e
}

func nothing() {}

// experiment runs the command as Main does.
func experiment(ctx context.Context, all []experiments.Experiment, args ...string) (stdout string, err error) {
	var out bytes.Buffer
	app := newApp("afstream", &out, io.Discard, nil)
	app.Commands = []*cli.Command{experimentCommand(&out, io.Discard, all)}
	err = app.RunContext(ctx, append([]string{"afstream", "experiment"}, args...))
	return out.String(), err
}

func TestExperimentList(t *testing.T) {
	out, err := experiment(t.Context(), []experiments.Experiment{toy("one", 9, nothing), toy("two", 9, nothing)}, "list")
	require.NoError(t, err)
	require.Contains(t, out, "one   What one shows")
	require.Contains(t, out, "two   What two shows")
}

func TestExperimentRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	all := []experiments.Experiment{toy("one", 9, nothing), toy("two", 9, nothing)}
	out, err := experiment(t.Context(), all, "run", "one", "--out", dir, "--repeat", "2")
	require.NoError(t, err)
	require.Contains(t, out, "What one shows\n")
	require.Contains(t, out, "4 runs made, 0 kept from earlier, 0 broke a bound")
	require.Contains(t, out, "report: "+filepath.Join(dir, "report.html"))
	require.FileExists(t, filepath.Join(dir, "one.csv"))
	require.NoFileExists(t, filepath.Join(dir, "two.csv"))

	out, err = experiment(t.Context(), all, "all", "--out", dir, "--repeat", "2")
	require.NoError(t, err)
	require.Contains(t, out, "0 runs made, 4 kept from earlier")
	require.Contains(t, out, "What two shows\n")
	require.Contains(t, out, "4 runs made, 0 kept from earlier")
}

func TestExperimentJSON(t *testing.T) {
	out, err := experiment(t.Context(), []experiments.Experiment{toy("one", math.Inf(1), nothing)}, "run", "one", "--out", t.TempDir(), "--output", "json")
	require.NoError(t, err)
	var got []map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Equal(t, "one", got[0]["experiment"])
	require.Equal(t, map[string]any{
		"params": map[string]any{"size": "1"}, "runs": 1.0, "broken": 0.0, "figures": map[string]any{"rate": 42.0}, "ratio": nil,
		"errors": map[string]any{"divergence": map[string]any{"measured": 5.0, "bound": nil}},
	}, got[0]["cases"].([]any)[0])
}

func TestExperimentScaleDecidesRepeat(t *testing.T) {
	for scale, want := range map[string]string{"small": "2 runs made", "paper": "6 runs made"} {
		out, err := experiment(t.Context(), []experiments.Experiment{toy("one", 9, nothing)}, "all", "--out", t.TempDir(), "--scale", scale)
		require.NoError(t, err)
		require.Contains(t, out, want)
	}
}

// TestExperimentBreaksBound fails after it has written everything.
func TestExperimentBreaksBound(t *testing.T) {
	dir := t.TempDir()
	out, err := experiment(t.Context(), []experiments.Experiment{toy("one", 4, nothing), toy("two", 9, nothing)}, "all", "--out", dir)
	require.ErrorIs(t, err, experiments.ErrBroken)
	require.NotErrorIs(t, err, ErrUsage)
	require.Contains(t, out, "BROKEN in 1 of 1")
	require.Contains(t, out, "What two shows")
	report, err := os.ReadFile(filepath.Join(dir, "report.html"))
	require.NoError(t, err)
	require.Contains(t, string(report), "2 of 4 runs broke a bound")
}

func TestExperimentInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	out, err := experiment(ctx, []experiments.Experiment{toy("one", 9, cancel)}, "all", "--out", dir)
	require.ErrorIs(t, err, experiments.ErrInterrupted)
	require.NotErrorIs(t, err, ErrUsage)
	require.Contains(t, out, "no runs yet")
	out, err = experiment(t.Context(), []experiments.Experiment{toy("one", 9, nothing)}, "all", "--out", dir)
	require.NoError(t, err)
	require.Contains(t, out, "2 runs made")
}

func TestExperimentUsage(t *testing.T) {
	all := []experiments.Experiment{toy("one", 9, nothing), toy("two", 9, nothing)}
	for want, args := range map[string][]string{
		"run which experiment? There are: one, two": {"run"},
		"unknown command \"on\", did you mean":      {"run", "on"},
		"unknown command \"lists\", did you mean":   {"lists"},
		"scale \"huge\"":                            {"all", "--scale", "huge"},
		"0 runs of each case":                       {"all", "--repeat", "0"},
		"--out: the name is empty":                  {"all", "--out", " "},
		"unexpected argument \"one\"":               {"all", "one"},
		"list takes none":                           {"list", "one"},
		"unknown flag --sale, did you mean --scale": {"run", "one", "--sale", "small"},
	} {
		out, err := experiment(t.Context(), all, args...)
		require.ErrorIs(t, err, ErrUsage, want)
		require.ErrorContains(t, err, want)
		require.Empty(t, out)
	}
	require.NoDirExists(t, "results")
}

// TestExperimentResultsOfAnother leaves alone what is not its own.
func TestExperimentResultsOfAnother(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "one.csv"), []byte("mine,not,yours\n"), 0o600))
	_, err := experiment(t.Context(), []experiments.Experiment{toy("one", 9, nothing)}, "all", "--out", dir)
	require.ErrorIs(t, err, experiments.ErrResults)
	require.ErrorContains(t, err, "choose another directory")
}
