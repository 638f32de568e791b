package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/algorithms/logreg"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/worker"
)

// quick is the job on so few flights and weights that it is soon done.
func quick() LogisticRegression {
	l := DefaultLogisticRegression()
	l.Examples, l.Model.Bits, l.Model.Every, l.Verify = 2000, 10, 50, true
	return l
}

// TestLogisticRegressionThroughFailures checks what the job says about itself, whatever fails. With one learner by SGD
// everything has a bound.
func TestLogisticRegressionThroughFailures(t *testing.T) {
	// How far two learners get ahead of each other is up to the scheduler: they are mostly less than 5% apart from run to run.
	for workers, increase := range map[int]float64{1: 0.03, 2: 0.3} {
		model := "model/0@5"
		if workers == 1 {
			model = "model/0@1"
		}
		t.Run(fmt.Sprint("workers ", workers), func(t *testing.T) {
			throughFailures(t, part{3, workers}, allPromises(), map[string][]string{
				"learners": {"learn/0@300", "learn/0@700"},
				"source":   {"examples/0@20%", "examples/0@60%"},
				"model":    {model, "weights/0@300"},
			}, func(t *testing.T, c trial) {
				l := quick()
				l.Workers, l.Theta, l.L, l.Gamma, l.Model.Method = workers, 2, 50, 50, logreg.SGD
				if workers == 1 && (c.failing == "model" || thorough.Tests) {
					// It sends one update, at the end: of so many weights that it comes in pieces, between which the model fails.
					l.Model.Bits, l.Examples = 18, 6000
				}
				if workers == 1 && c.failing == "model" && c.pipe && c.promise == worker.Approximate {
					// The model may have taken in the first piece, which theta covers, and have answered for the second, which L
					// covers: then no weight comes of the learner's update.
					c.faults = c.faults[:1]
				}
				c.in(&l.Engine)
				r, err := l.Run(t.Context())
				v := survived(t, c, r, err)
				require.Equal(t, l.Examples, v.Clean.Examples)
				require.Equal(t, l.Examples, v.Plain.Examples)
				require.Less(t, v.Plain.LogLoss, v.Plain.BaseLoss, "something is learned")
				require.Equal(t, workers == 1 && c.promise != worker.None && c.failing != "model", r.Checks()[0].Promised())
				require.Equal(t, workers == 1, r.Checks()[1].Promised())
				if c.promise != worker.None {
					require.InDelta(t, 0, float64(v.LossIncrease), increase)
				}
			})
		})
	}
}

func TestLogisticRegressionBounds(t *testing.T) {
	l := DefaultLogisticRegression()
	l.Workers, l.Theta, l.L, l.Gamma, l.Model.Method, l.Model.MaxFeatures = 1, 2, 10, 100, logreg.SGD, 10
	inf := math.Inf(1)
	for _, c := range []struct {
		name                       string
		change                     func(l *LogisticRegression)
		failed                     string
		distance, clean, lost, two float64
	}{
		{"replay", func(*LogisticRegression) {}, "learn", 2, 0, 220, 10},
		{"pipe", func(l *LogisticRegression) { l.PipeSources = true }, "learn", 2 + 110*0.25, 0, 330, 10},
		{"error-free", func(l *LogisticRegression) { l.Guarantee = worker.ErrorFree }, "learn", 0, 0, 2, 0},
		{"model", func(*LogisticRegression) {}, "model", inf, 0, 220, 10},
		{"adagrad", func(l *LogisticRegression) { l.Model.Method = logreg.AdaGrad }, "learn", inf, 0, 220, 10},
		{"long steps", func(l *LogisticRegression) { l.Model.Rate = 1 }, "learn", inf, 0, 220, 10},
		{"two learners", func(l *LogisticRegression) { l.Workers = 2 }, "learn", inf, inf, 220, 10},
		{"none", func(l *LogisticRegression) { l.Guarantee = worker.None }, "learn", inf, 0, inf, inf},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := l
			c.change(&l)
			v := &LogisticRegressionVerification{Alpha: 0.25, Length: 3}
			l.bounds(v, &controller.Result{Failures: []controller.Failure{{Operator: c.failed}}})
			require.Equal(t, Number(c.distance), v.StateDivergenceBound)
			require.Equal(t, Number(c.clean), v.CleanDivergenceBound)
			require.Equal(t, Number(c.lost), v.LostItemsBound)
			require.Equal(t, Number(c.two), v.DuplicatedBound)
		})
	}
}

// TestLogisticRegressionFindsBrokenBounds breaks each bound of a run that kept them.
func TestLogisticRegressionFindsBrokenBounds(t *testing.T) {
	l := quick()
	l.Workers, l.Model.Method = 1, logreg.SGD
	r, err := l.Run(t.Context())
	require.NoError(t, err)
	require.Zero(t, r.Verify.LossIncrease)
	requireBroken(t, *r.Verify, map[string]func(v *LogisticRegressionVerification){
		"model distance":   func(v *LogisticRegressionVerification) { v.StateDivergence = 5.1 },
		"without failures": func(v *LogisticRegressionVerification) { v.CleanDivergence = 0.01 },
		"items lost":       func(v *LogisticRegressionVerification) { v.LostItems = 1e6 },
		"items repeated":   func(v *LogisticRegressionVerification) { v.DuplicatedItems = 1e6 },
	})
}

// TestPlainLearnerAgrees compares a job with one learner with the textbook, for both methods.
func TestPlainLearnerAgrees(t *testing.T) {
	for _, method := range []logreg.Method{logreg.AdaGrad, logreg.SGD} {
		l := quick()
		l.Workers, l.Model.Method = 1, method
		r, err := l.Run(t.Context())
		require.NoError(t, err)
		require.Less(t, float64(r.Verify.CleanDivergence), 1e-9)
		require.InDelta(t, r.Verify.Plain.LogLoss, r.Outcome.LogLoss, 1e-12)
	}
}

// TestLogisticRegressionOfLibsvm learns which of two features decides.
func TestLogisticRegressionOfLibsvm(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for range 3000 {
		x, y := random.IntN(2), random.IntN(2)
		fmt.Fprintf(&b, "%d 1:%d 2:%d\n", x, x, y)
	}
	b.WriteString("bad line\n")
	l := quick()
	l.Path, l.Examples, l.Model.Bits = textFile(t, b.String()).Path, 0, 4
	_, err := l.Run(t.Context())
	require.ErrorContains(t, err, "line 3001")

	l.OnBad = connector.SkipBad
	l.Faults = faults(t, "examples/0@2000")
	r, err := l.Run(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, r.SkippedRows)
	require.EqualValues(t, 3000, r.Items)
	require.Greater(t, r.Outcome.Accuracy, 0.95)

	var text, raw bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.Regexp(t, `\nlog-loss +0\.\d{4} +0\.\d{4} +0\.\d{4}\n`, text.String())
	require.NoError(t, r.WriteJSON(&raw))
	require.True(t, json.Valid(raw.Bytes()))
	require.Contains(t, raw.String(), `"auc":`)
}

func TestLogisticRegressionOfNothing(t *testing.T) {
	l := quick()
	l.Path = textFile(t, "# nothing\n").Path
	r, err := l.Run(t.Context())
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.Contains(t, text.String(), "nothing learned")
}

func TestLogisticRegressionFormats(t *testing.T) {
	for path, want := range map[string]ExampleFormat{
		"builtin:flights": FormatFlights, "a.csv": FormatFlights, "a.csv.gz": FormatFlights, "a.parquet": FormatFlights,
		"agaricus.train": FormatLibsvm, "-": FormatLibsvm, "a.gz": FormatLibsvm,
	} {
		require.Equal(t, want, (&LogisticRegression{Path: path}).format(), path)
		require.Equal(t, FormatLibsvm, (&LogisticRegression{Path: path, Format: FormatLibsvm}).format())
	}
}

func TestLogisticRegressionSettings(t *testing.T) {
	requireRefused(t, quick, func(l *LogisticRegression) *Engine { return &l.Engine }, LogisticRegression.Run, map[string]func(l *LogisticRegression){
		"engine":     func(l *LogisticRegression) { l.Theta = -1 },
		"path":       func(l *LogisticRegression) { l.Path = "" },
		"format":     func(l *LogisticRegression) { l.Format = "arff" },
		"first":      func(l *LogisticRegression) { l.First = 2 },
		"policy":     func(l *LogisticRegression) { l.OnBad = "ignore" },
		"bits":       func(l *LogisticRegression) { l.Model.Bits = 0 },
		"rate":       func(l *LogisticRegression) { l.Model.Rate = math.NaN() },
		"every":      func(l *LogisticRegression) { l.Model.Every = -1 },
		"batch pipe": func(l *LogisticRegression) { l.Guarantee, l.PipeSources = worker.MiniBatch, true },
		"stdin":      func(l *LogisticRegression) { l.Path = connector.Stdin },
		"operator":   func(l *LogisticRegression) { l.Faults = []controller.Fault{{Operator: "sketch", Items: 1}} },
	})
}
