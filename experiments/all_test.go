//go:build invariants

package experiments

import (
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/algorithms/logreg"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// TestExperimentsHoldTogether makes up results of every case at every scale: each plot and claim must find its columns
// and cases.
func TestExperimentsHoldTogether(t *testing.T) {
	for _, scale := range Scales() {
		for _, e := range All() {
			p := Plan{Scale: scale, Seed: 1, Repeat: 1}
			cases, err := e.cases(p)
			require.NoError(t, err)
			require.NotEmpty(t, cases)
			for _, text := range []string{e.Title, e.Question, e.Source} {
				require.NotEmpty(t, text, e.Name)
			}
			var rows []row
			for _, c := range cases {
				r := row{scale: scale, seed: 1, machine: testMachine, params: c.Params}
				for i := range e.Figures {
					r.Figures = append(r.Figures, float64(i+1))
				}
				for range e.Errors {
					r.Errors = append(r.Errors, Measured{Value: 1, Bound: 2})
				}
				rows = append(rows, r)
			}
			results := e.summarise(cases, rows, p, testMachine)
			require.Len(t, results.Summaries, len(cases))
			if e.Claims != nil {
				for _, c := range e.Claims(results) {
					require.False(t, math.IsNaN(c.Here), "%s: %q finds no case", e.Name, c.What)
				}
			}
			for _, plot := range results.plots() {
				require.Regexp(t, experimentName, plot.Name)
				shapes(t, plot)
				for _, l := range plot.Lines {
					require.NotEmpty(t, l.Y, "%s %s %s", e.Name, plot.Name, l.Name)
					for i := range l.Y {
						require.False(t, math.IsNaN(l.X[i]), "%s %s %s", e.Name, plot.Name, l.Name)
					}
				}
			}
			// There may be nothing yet, too.
			none := e.summarise(cases, nil, p, testMachine)
			require.Empty(t, none.plots())
			if e.Claims != nil {
				e.Claims(none)
			}
		}
	}
}

// runCase makes one run and checks its shape and bounds. It returns the figures by name.
func runCase(t *testing.T, e Experiment, c Case) map[string]float64 {
	t.Helper()
	require.Len(t, c.Params, len(e.Params))
	r, err := c.Run(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, e.check(r))
	got := make(map[string]float64)
	for i, f := range e.Figures {
		got[f.Name] = r.Figures[i]
	}
	for i, m := range r.Errors {
		require.True(t, m.Within(), "%s: %v", e.Errors[i].Name, m)
		got[e.Errors[i].Name] = m.Value
		got[e.Errors[i].Name+"_bound"] = m.Bound
	}
	return got
}

// TestTinyHeavyHitter runs a real job through the framework, up to the report.
func TestTinyHeavyHitter(t *testing.T) {
	e := HeavyHitter()
	tiny := heavyHitterCase(worker.Approximate, budget{theta: 1000, l: 100, gamma: 100}, 2, 50_000)
	e.Cases = func(Plan) []Case { return []Case{tiny} }
	e.Plots, e.Claims = nil, nil
	dir := t.TempDir()
	outcomes, err := Run(t.Context(), []Experiment{e}, options(dir))
	require.NoError(t, err)
	r := outcomes[0].Results
	require.Equal(t, 3, r.Summaries[0].Runs)
	require.Equal(t, 2.0, r.Value(struckColumn.Name))
	require.Equal(t, 1200.0, r.Value("state_divergence_bound"))
	require.Greater(t, r.Value("recall"), 0.5)
	require.Contains(t, read(t, dir, "heavy-hitter.csv"), ",true\n")
}

func TestTinySeries(t *testing.T) {
	got := runCase(t, Series(), seriesCase(errorbound.Telescoping, 3, 1000, 20_000))
	require.Equal(t, 3.0, got[struckColumn.Name])
	require.InDelta(t, 1000.0/20, got["theta_left"], 1e-9)
}

// TestTinyPartialBackup must show what the experiment is about.
func TestTinyPartialBackup(t *testing.T) {
	z := connector.ZipfOptions{Items: 100_000, Keys: 1000, S: 1.1}
	whole := runCase(t, PartialBackup(), partialBackupCase("whole", z, 500, newWholeCounts))
	partial := runCase(t, PartialBackup(), partialBackupCase("partial", z, 500, newPartialCounts))
	require.Equal(t, 4.0, whole[struckColumn.Name])
	require.Less(t, partial[backedUpColumn.Name], whole[backedUpColumn.Name]/2)
}

func TestTinyApproaches(t *testing.T) {
	for _, j := range textJobs() {
		for _, a := range approaches() {
			r, err := runApproach(t.Context(), j, a, 1, uint64(thorough.Number(8000, 20_000)), 1)
			require.NoError(t, err, "%s %s", j.name, a.name)
			for _, m := range r.Errors {
				require.True(t, m.Within(), "%s %s: %v", j.name, a.name, m)
			}
		}
	}
}

// TestTinyAllocation runs the real thing: what moves depends on the time that it takes, the bounds do not.
func TestTinyAllocation(t *testing.T) {
	e := Allocation()
	loads := []float64{64, 16, 4, 1}
	equal := runCase(t, e, allocationCase(loads, controller.Equal, 4, 1000, 200_000))
	byCost := runCase(t, e, allocationCase(loads, controller.ByCost, 4, 1000, 200_000))
	require.Equal(t, 1.0, equal["predicted_ratio"])
	require.Less(t, byCost["predicted_ratio"], 0.8)
	require.Zero(t, equal["shares_moved"])
	require.Positive(t, equal[commitsColumn.Name])
	require.Positive(t, byCost[commitsColumn.Name])
	require.Equal(t, 4.0, byCost[struckColumn.Name])
}

// TestDealer deals in proportion, and the same again.
func TestDealer(t *testing.T) {
	open, err := newDealer(connector.ZipfOptions{Items: 100_000, Keys: 100, S: 1, Seed: 3}, []float64{6, 3, 1})
	require.NoError(t, err)
	source, err := open(0, 1)
	require.NoError(t, err)
	defer source.Close()
	slab := make([]dealtItem, stream.SlabItems)
	var dealt [3]float64
	read := func() (items []dealtItem) {
		for {
			n, err := source.Read(slab)
			items = append(items, slab[:n]...)
			if err != nil {
				require.Equal(t, io.EOF, err)
				return items
			}
		}
	}
	all := read()
	for _, item := range all {
		dealt[item.Worker]++
	}
	require.InDeltaSlice(t, []float64{60_000, 30_000, 10_000}, dealt[:], 1500)
	require.NoError(t, source.(stream.Replayable).Seek(stream.Position{Item: 77_777}))
	require.Equal(t, all[77_777:], read())
}

// TestInterruptedJob must not be recorded.
func TestInterruptedJob(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []Case{
		heavyHitterCase(worker.Approximate, budget{}, 0, 1_000_000_000),
		partialBackupCase("partial", connector.ZipfOptions{Items: 1_000_000_000, Keys: 10}, 500, newPartialCounts),
		allocationCase([]float64{1, 1}, controller.ByCost, 0, 1000, 1_000_000_000),
	} {
		_, err := c.Run(ctx, 1)
		require.Error(t, err)
	}
}

func TestWithText(t *testing.T) {
	text, err := corpus()
	require.NoError(t, err)
	var kept string
	err = withText(uint64(3*len(text)+1000), 5, func(path string) error {
		kept = path
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.InDelta(t, 3*len(text)+1000, len(got), 1000)
		lines := strings.SplitAfter(string(text), "\n")
		require.True(t, strings.HasPrefix(string(got), lines[5]), "it starts with another line")
		require.True(t, strings.HasSuffix(string(got), "\n"), "lines are whole")
		return nil
	})
	require.NoError(t, err)
	require.NoDirExists(t, filepath.Dir(kept))
}

func TestTinyJoin(t *testing.T) {
	got := runCase(t, Join(), joinCase(worker.Approximate, budget{theta: 1000, l: 100, gamma: 100}, 1, 2000))
	require.Equal(t, 1.0, got[struckColumn.Name])
	require.Greater(t, got["completeness"], 0.5)
	clean := runCase(t, Join(), joinCase(worker.None, budget{}, 0, 2000))
	require.Equal(t, 1.0, clean["completeness"])
	require.Positive(t, clean["pairs"])
}

func TestTinyLogisticRegression(t *testing.T) {
	b := budget{theta: 10, l: 100, gamma: 100}
	two := runCase(t, LogisticRegression(), logisticCase(logisticRun{2, logreg.AdaGrad, worker.Approximate, b, 2, 5000}))
	require.Less(t, two["log_loss"], math.Ln2, "it learns")
	require.True(t, math.IsInf(two["state_divergence_bound"], 1))
	one := runCase(t, LogisticRegression(), logisticCase(logisticRun{1, logreg.SGD, worker.Approximate, b, 2, 5000}))
	require.False(t, math.IsInf(one["state_divergence_bound"], 1), "a single learner is bounded")
}

// TestWithFlights reads back what was written: flights in order, of the number asked for.
func TestWithFlights(t *testing.T) {
	shipped, err := shippedFlights()
	require.NoError(t, err)
	n := uint64(len(shipped)) + 100
	require.NoError(t, withFlights(n, 7, func(path string) error {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		require.Len(t, lines, int(n)+1)
		require.Equal(t, logreg.FlightsHeader, lines[0])
		require.True(t, strings.HasSuffix(lines[1], shipped[7].rest))
		before := int64(math.MinInt64)
		for _, line := range lines[1:] {
			date, _, _ := strings.Cut(line, ",")
			micros, err := strconv.ParseInt(date, 10, 64)
			require.NoError(t, err)
			require.GreaterOrEqual(t, micros, before, "in the order of departure")
			before = micros
		}
		return nil
	}))
}

// TestWithExamples reads back what was written.
func TestWithExamples(t *testing.T) {
	m := newTruth(3)
	require.NoError(t, withExamples(50, 3, func(path string) error {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		require.Len(t, lines, 50)
		var parse logreg.Libsvm
		for i, line := range lines {
			got, ok, err := parse.Parse([]byte(line))
			require.NoError(t, err)
			require.True(t, ok)
			want, _ := m.example(uint64(i), nil)
			require.Equal(t, want, got)
		}
		return nil
	}))
}
