//go:build invariants

package experiments

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/internal/thorough"
)

// fake is an experiment whose runs cost nothing: 3 cases, of which the first is the baseline. before is called by each
// run; bound is what every error is measured against.
func fake(before func() error, bound float64) Experiment {
	e := Experiment{
		Name: "fake", Title: "A <fake> & more", Question: "Does it work?", Source: "None.",
		Params:  []Column{{Name: "theta", About: "the budget"}},
		Figures: []Column{{Name: "rate", Unit: "items/s", About: "how fast"}, {Name: "recall", About: "found"}},
		Errors:  []Column{{Name: "divergence", About: "how far off"}},
		Rate:    "rate",
		Plots: func(r Results) []Plot {
			return []Plot{{
				Name: "rates", Title: "Rates of <fakes>", X: Axis{Label: "theta", Log: true}, Y: Axis{Label: "items/s"},
				Lines: []Line{r.Line("measured & shown", "theta", "rate"), r.Line("ratio", "theta", "ratio")},
			}}
		},
		Claims: func(r Results) []Claim {
			return []Claim{{What: "theta 10 against 1", Source: 0.5, Here: r.Where("theta", "10").Value("ratio"), Unit: "%"}}
		},
	}
	e.Cases = func(Plan) []Case {
		var cases []Case
		for _, theta := range []string{"1", "10", "+Inf"} {
			cases = append(cases, Case{
				Params: []string{theta}, Baseline: []string{"1"},
				Run: func(_ context.Context, seed uint64) (Result, error) {
					if err := before(); err != nil {
						return Result{}, err
					}
					f, err := strconv.ParseFloat(theta, 64)
					if err != nil {
						return Result{}, err
					}
					if math.IsInf(f, 1) {
						return Result{Figures: []float64{100, math.NaN()}, Errors: []Measured{{Value: 1, Bound: f}}}, nil
					}
					return Result{Figures: []float64{100 * f * float64(seed), 0.5}, Errors: []Measured{{Value: f * float64(seed), Bound: bound}}}, nil
				},
			})
		}
		return cases
	}
	return e
}

func always() error { return nil }

var testMachine = Machine{Cores: 2, Go: "go1.26", OS: "plan9", Arch: "mips"}

func options(dir string) Options {
	return Options{Plan: Plan{Scale: Small, Seed: 1, Repeat: 3}, Dir: dir, Machine: testMachine}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return string(text)
}

// whole is the file of an experiment that was never interrupted.
func whole(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	_, err := Run(t.Context(), []Experiment{fake(always, 30)}, options(dir))
	require.NoError(t, err)
	return read(t, dir, "fake.csv")
}

func TestResultsAreCSV(t *testing.T) {
	records, err := csv.NewReader(bytes.NewReader([]byte(whole(t)))).ReadAll()
	require.NoError(t, err)
	require.Len(t, records, 1+9)
	require.Equal(t, []string{"scale", "seed", "cores", "go", "os", "arch", "theta", "rate", "recall", "divergence",
		"divergence_bound", "within_bound"}, records[0])
	require.Equal(t, []string{"small", "1", "2", "go1.26", "plan9", "mips", "1", "100", "0.5", "1", "30", "true"}, records[1])
	require.Equal(t, []string{"small", "1", "2", "go1.26", "plan9", "mips", "+Inf", "100", "NaN", "1", "+Inf", "unbounded"}, records[3])
	require.Equal(t, "2", records[4][1], "seeds are the outer loop")
}

// TestGoesOnAfterInterruption interrupts in each run once; the end is always the same file.
func TestGoesOnAfterInterruption(t *testing.T) {
	want := whole(t)
	for at := 1; at <= 10; at++ { // one of the runs is there to warm up
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		before := func() error {
			if calls++; calls == at {
				cancel()
			}
			return nil
		}
		outcomes, err := Run(ctx, []Experiment{fake(before, 30), fake(always, 30)}, options(dir))
		cancel()
		require.ErrorIs(t, err, ErrInterrupted)
		require.Len(t, outcomes, 1)
		require.Equal(t, max(at-2, 0), outcomes[0].Made, "the run that was interrupted does not count")
		require.Contains(t, read(t, dir, "report.html"), "Experiments")

		outcomes, err = Run(t.Context(), []Experiment{fake(always, 30)}, options(dir))
		require.NoError(t, err)
		require.Equal(t, max(at-2, 0), outcomes[0].Kept)
		require.Equal(t, want, read(t, dir, "fake.csv"))
	}
}

// TestGoesOnAfterTear cuts the file wherever it can be cut: whole lines stay, and the next run makes up for the rest.
func TestGoesOnAfterTear(t *testing.T) {
	want := whole(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "fake.csv")
	header := strings.Index(want, "\n") + 1
	e := fake(always, 30)
	for cut := 0; cut < len(want); cut += thorough.Number(7, 1) {
		require.NoError(t, os.WriteFile(path, []byte(want[:cut]), 0o600))
		f, err := e.open(path)
		require.NoError(t, err, "cut at %d", cut)
		require.NoError(t, f.close())
		lines := max(strings.LastIndex(want[:cut], "\n")+1, header)
		require.Equal(t, want[:lines], read(t, dir, "fake.csv"), "cut at %d", cut)
		require.Len(t, f.rows, max(strings.Count(want[:lines], "\n")-1, 0))
	}
	for _, cut := range []int{header / 2, header + 5, len(want) - 1} {
		require.NoError(t, os.WriteFile(path, []byte(want[:cut]), 0o600))
		_, err := Run(t.Context(), []Experiment{e}, options(dir))
		require.NoError(t, err)
		require.Equal(t, want, read(t, dir, "fake.csv"), "cut at %d", cut)
	}
}

func TestNothingIsRunTwice(t *testing.T) {
	dir := t.TempDir()
	_, err := Run(t.Context(), []Experiment{fake(always, 30)}, options(dir))
	require.NoError(t, err)
	never := func() error { return errors.New("was run again") }
	outcomes, err := Run(t.Context(), []Experiment{fake(never, 30)}, options(dir))
	require.NoError(t, err)
	require.Equal(t, 9, outcomes[0].Kept)
	require.Zero(t, outcomes[0].Made)

	// What differs in anything that identifies a run is another run.
	for _, change := range []func(*Options){
		func(o *Options) { o.Scale = Paper },
		func(o *Options) { o.Repeat = 4 },
		func(o *Options) { o.Seed = 2 },
		func(o *Options) { o.Machine.Cores = 4 },
		func(o *Options) { o.Machine.Go = "go1.27" },
	} {
		o := options(dir)
		change(&o)
		_, err := Run(t.Context(), []Experiment{fake(never, 30)}, o)
		require.ErrorContains(t, err, "was run again")
	}
}

// TestOtherMachinesAreNotMixedIn has rows of another machine in the same file.
func TestOtherMachinesAreNotMixedIn(t *testing.T) {
	dir := t.TempDir()
	other := options(dir)
	other.Machine.Cores = 64
	_, err := Run(t.Context(), []Experiment{fake(always, 1)}, other) // breaks its bound
	require.ErrorIs(t, err, ErrBroken)
	outcomes, err := Run(t.Context(), []Experiment{fake(always, 30)}, options(dir))
	require.NoError(t, err)
	require.Equal(t, 3, outcomes[0].Summaries[0].Runs)
}

func TestBrokenBound(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // it stays broken although nothing is run any more
		outcomes, err := Run(t.Context(), []Experiment{fake(always, 20), fake2()}, options(dir))
		require.ErrorIs(t, err, ErrBroken)
		require.ErrorContains(t, err, "1 runs of fake")
		require.Len(t, outcomes, 2, "what comes after it is run")
		require.Equal(t, 1, outcomes[0].Broken)
		require.Contains(t, read(t, dir, "fake.csv"), ",30,20,false\n")
		require.Contains(t, read(t, dir, "report.html"), "BROKEN in 1 of 3")
		require.Contains(t, read(t, dir, "report.html"), "1 of 18 runs broke a bound")
		var table bytes.Buffer
		require.NoError(t, outcomes[0].WriteText(&table))
		require.Contains(t, table.String(), "BROKEN in 1 of 3")
	}
}

// fake2 is fake under another name.
func fake2() Experiment {
	e := fake(always, 30)
	e.Name, e.Title = "fake-2", "Another"
	return e
}

// TestNaNKeepsNoBound looks at what is not a number, too.
func TestNaNKeepsNoBound(t *testing.T) {
	for m, want := range map[Measured]bool{
		{0, 0}: true, {1, 1}: true, {1, math.Inf(1)}: true, {math.Inf(1), math.Inf(1)}: true, {2, 1}: false,
		{math.NaN(), 1}: false, {math.NaN(), math.Inf(1)}: false, {1, math.NaN()}: false,
	} {
		require.Equal(t, want, m.Within(), "%v", m)
	}
}

// TestFailureStopsOnlyItsExperiment fails one run.
func TestFailureStopsOnlyItsExperiment(t *testing.T) {
	dir := t.TempDir()
	calls := 0
	boom := errors.New("boom")
	outcomes, err := Run(t.Context(), []Experiment{fake(func() error {
		if calls++; calls == 4 {
			return boom
		}
		return nil
	}, 30), fake2()}, options(dir))
	require.ErrorIs(t, err, boom)
	require.ErrorContains(t, err, "experiment fake, case +Inf, seed 1: boom")
	require.Len(t, outcomes, 2)
	require.Equal(t, 2, outcomes[0].Made)
	require.Equal(t, 9, outcomes[1].Made)
}

func TestReportNeedsNoNetwork(t *testing.T) {
	dir := t.TempDir()
	o := options(dir)
	_, err := Run(t.Context(), []Experiment{fake2()}, o)
	require.NoError(t, err)
	o.Also = []Experiment{fake2(), fake(always, 30)}
	_, err = Run(t.Context(), []Experiment{fake(always, 30)}, o)
	require.NoError(t, err)
	html := read(t, dir, "report.html")
	require.NotRegexp(t, regexp.MustCompile(`(?i)(src|href|action)\s*=\s*["']?[^"'#]|https?:|//[a-z]|url\(|@import|<script|<link|<iframe`), html)
	require.Contains(t, html, "A &lt;fake&gt; &amp; more")
	require.Contains(t, html, "Rates of &lt;fakes&gt;")
	require.Contains(t, html, `id="fake-2"`, "what was run before is reported, too")
	require.Contains(t, html, "2 cores, go1.26, plan9/mips")
	require.Contains(t, html, "Each of 18 runs kept every bound")
	require.Contains(t, html, "1000.0%", "the claim")
	require.Contains(t, read(t, dir, "fake-rates.svg"), "<svg xmlns=")
}

func TestUnusableResults(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"some,other,file\n1,2,3\n": "columns are those of another version",
		whole(t) + "small,1\n":     "wrong number of fields",
		whole(t) + "small,1,2,go1.26,plan9,mips,1,fast,0.5,1,30,true\n": "line 11",
		whole(t) + "small,-1,2,go1.26,plan9,mips,1,1,0.5,1,30,true\n":   "line 11",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "fake.csv"), []byte(text), 0o600))
		_, err := Run(t.Context(), []Experiment{fake(always, 30)}, options(dir))
		require.ErrorIs(t, err, ErrResults)
		require.ErrorContains(t, err, want)
		require.Equal(t, text, read(t, dir, "fake.csv"), "nothing is changed")
	}
}

func TestSettings(t *testing.T) {
	for want, change := range map[string]func(*Options, *Experiment){
		"scale \"huge\"":           func(o *Options, _ *Experiment) { o.Scale = "huge" },
		"0 runs of each case":      func(o *Options, _ *Experiment) { o.Repeat = 0 },
		"the name is not":          func(_ *Options, e *Experiment) { e.Name = "../x" },
		"column \"A b\"":           func(_ *Options, e *Experiment) { e.Params[0].Name = "A b" },
		"two columns are":          func(_ *Options, e *Experiment) { e.Params[0].Name = "divergence_bound" },
		"the rate \"speed\" is no": func(_ *Options, e *Experiment) { e.Rate = "speed" },
		"has 1 parameters, want 0": func(_ *Options, e *Experiment) { e.Params = nil },
	} {
		o, e := options(filepath.Join(t.TempDir(), "new")), fake(always, 30)
		change(&o, &e)
		_, err := Run(t.Context(), []Experiment{e}, o)
		require.ErrorIs(t, err, ErrExperiment, want)
		require.ErrorContains(t, err, want)
		require.NoDirExists(t, o.Dir, "nothing is written")
	}
	e := fake(always, 30)
	cases := e.Cases(Plan{})
	for want, changed := range map[string][]Case{
		"two cases have": append(cases, cases[0]),
		"is no case":     cases[1:],
	} {
		e.Cases = func(Plan) []Case { return changed }
		_, err := Run(t.Context(), []Experiment{e}, options(t.TempDir()))
		require.ErrorContains(t, err, want)
	}
	e.Cases = func(Plan) []Case {
		return []Case{{Params: []string{"1"}, Run: func(context.Context, uint64) (Result, error) { return Result{}, nil }}}
	}
	_, err := Run(t.Context(), []Experiment{e}, options(t.TempDir()))
	require.ErrorContains(t, err, "a run has 0 figures")
}

func TestProgressCountsRuns(t *testing.T) {
	var seen []Progress
	o := options(t.TempDir())
	o.OnProgress = func(p Progress) { seen = append(seen, p) }
	_, err := Run(t.Context(), []Experiment{fake(always, 30)}, o)
	require.NoError(t, err)
	require.Len(t, seen, 10)
	require.Equal(t, Progress{Experiment: "fake", Done: 0, Total: 9}, seen[0])
	require.Equal(t, Progress{Experiment: "fake", Done: 9, Total: 9}, seen[9])
}
