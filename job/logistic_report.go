package job

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/afstream/afstream/algorithms/logreg"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
)

// LogisticRegressionReport is what the job logistic-regression has done.
type LogisticRegressionReport = Report[Model, LogisticRegressionVerification]

// Model is what the job logistic-regression learned.
type Model struct {
	// Quality is how good the predictions were that were made on the way. What was predicted again after a failure counts
	// again.
	logreg.Quality
	Weights int    `json:"weights"` // that are not 0
	Norm    Number `json:"norm"`    // Euclidean length of the model
}

// model returns the weights by index. Those that came twice after a failure are the same.
func (r *learned) model() []logreg.Weight {
	weights := r.weights.Items()
	slices.SortStableFunc(weights, func(a, b logreg.Weight) int { return cmp.Compare(a.Index, b.Index) })
	return slices.CompactFunc(weights, func(a, b logreg.Weight) bool { return a.Index == b.Index })
}

func (l *LogisticRegression) answer(from *learned) Model {
	weights := from.model()
	return Model{Quality: from.total(), Weights: len(weights), Norm: Number(norm(weights))}
}

// score is a line of the comparison of models.
type score struct {
	what string
	of   [3]string
}

// write implements answer. A verified job has the same figures of its run without failures and of one learner alone.
func (m Model) write(b *bytes.Buffer, v *LogisticRegressionVerification) error {
	if m.Examples == 0 {
		fmt.Fprintln(b, "nothing learned: there was no example")
		return nil
	}
	qualities := [3]logreg.Quality{m.Quality}
	if v != nil {
		qualities[1], qualities[2] = v.Clean, v.Plain
	}
	lines := []score{{what: "log-loss"}, {what: "without learning"}, {what: "accuracy"}, {what: "area under the curve"}}
	for i, q := range qualities {
		for k, text := range []string{decimals(q.LogLoss), decimals(q.BaseLoss), percent(q.Accuracy), decimals(q.AUC)} {
			lines[k].of[i] = text
		}
	}
	columns := []connector.Column[score]{{Title: "predictions", Value: func(s score) string { return s.what }}}
	titles := []string{"here", "without failures", "one learner alone"}
	if v == nil {
		titles = titles[:1]
	}
	for i, title := range titles {
		columns = append(columns, connector.Column[score]{Title: title, Number: true, Value: func(s score) string { return s.of[i] }})
	}
	if err := writeTable(b, lines, columns); err != nil {
		return err
	}
	fmt.Fprintf(b, "\n%s, %s positive; %s of length %v", plural(m.Examples, "prediction", "predictions"),
		percent(float64(m.Positive)/float64(m.Examples)), plural(uint64(m.Weights), "weight", "weights"), m.Norm)
	return nil
}

func decimals(f float64) string { return fmt.Sprintf("%.4f", f) }

// LogisticRegressionVerification is the job beside its failure-free run, and beside one learner that is written out
// plainly and learns from all examples.
type LogisticRegressionVerification struct {
	// StateDivergence is the Euclidean distance of the model from that of the failure-free run. It has a bound only where
	// nothing but failures can make the two differ: see the package comment.
	StateDivergence      Number `json:"state_divergence"`
	StateDivergenceBound Number `json:"state_divergence_bound"`
	// CleanDivergence is the distance of the failure-free run from the plain learner. It must be 0, up to rounding, if there
	// is one learner, and has no bound if there are several.
	CleanDivergence      Number `json:"clean_divergence"`
	CleanDivergenceBound Number `json:"clean_divergence_bound"`
	Verification
	Alpha  Number         `json:"alpha"`  // the most by which an example changes the model, 0 if not known
	Length Number         `json:"length"` // the longest example, with its bias
	Clean  logreg.Quality `json:"clean"`  // predictions without failures
	Plain  logreg.Quality `json:"plain"`  // predictions of the plain learner
	// LossIncrease is by how much the log-loss is above that without failures, as a share of it; negative if below.
	LossIncrease Number `json:"loss_increase"`

	slack float64
}

func (l *LogisticRegression) verify(ctx context.Context, in *exampleInput, got, clean *learned, result *controller.Result) (
	*LogisticRegressionVerification, uint64, error,
) {
	o := l.options(nil)
	alone := newPlainLearner(o)
	items, err := readAgain(ctx, in.open, l.progress(PhaseExact), func(examples []logreg.Example) error {
		for i := range examples {
			alone.learn(&examples[i])
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	model, reference := alone.model(), clean.model()
	v := &LogisticRegressionVerification{
		StateDivergence: Number(logreg.Distance(got.model(), reference)), CleanDivergence: Number(logreg.Distance(reference, model)),
		Alpha: Number(o.Alpha()), Length: Number(alone.longest), Clean: clean.total(), Plain: alone.quality.Quality(),
		slack: roundingShare * (1 + norm(model)),
	}
	if v.Clean.LogLoss > 0 {
		v.LossIncrease = Number(got.total().LogLoss/v.Clean.LogLoss - 1)
	}
	v.losses(result)
	l.bounds(v, result)
	v.Kept = allKept(v.Checks())
	return v, items, nil
}

// bounds fills in what the package comment derives.
func (l *LogisticRegression) bounds(v *LogisticRegressionVerification, result *controller.Result) {
	p, parts := l.promised(result), l.Workers*l.Compute
	examples := p.fromSource("examples")
	v.StateDivergenceBound, v.CleanDivergenceBound = Number(math.Inf(1)), Number(math.Inf(1))
	if parts == 1 {
		v.CleanDivergenceBound = 0
		// Steps of SGD that are not too long bring any two models no further apart.
		steady := l.Model.Method == logreg.SGD && l.rate()*float64(v.Length*v.Length) < 8
		if steady && v.Alpha > 0 && p.failures["model"]+p.failures["weights"] == 0 {
			v.StateDivergenceBound = Number(p.Theta + costs(examples, float64(v.Alpha)))
		}
	}
	updates := float64(p.L) + p.fromOperator("learn", parts) // on their way to the model
	weights := float64(p.Gamma) + p.inSink("weights")
	v.LostItemsBound = Number(examples + updates + weights)
	v.DuplicatedBound = Number(p.again("model", 1)) // what learners emit may come twice, see logreg.Learner
}

// rate is the size of the first step.
func (l *LogisticRegression) rate() float64 {
	if l.Model.Rate == 0 {
		return logreg.DefaultRate
	}
	return l.Model.Rate
}

// Checks returns each figure that has a bound.
func (v LogisticRegressionVerification) Checks() []Check {
	return append([]Check{
		{What: "model distance", Measured: v.StateDivergence, Bound: v.StateDivergenceBound, slack: v.slack},
		{What: "without failures", Measured: v.CleanDivergence, Bound: v.CleanDivergenceBound, slack: v.slack},
	}, v.items()...)
}

func (v LogisticRegressionVerification) figures() []figure {
	return []figure{{what: "log-loss", measured: fmt.Sprintf("%+.3f%%", 100*float64(v.LossIncrease)), verdict: "against that without failures"}}
}
