package experiments

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/afstream/afstream/algorithms/logreg"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// learning is a run of distributed logistic regression whose loss is followed.
type learning struct {
	consistency logreg.Consistency
	staleness   uint64
	learners    int
	failures    int // evenly spread over the input and over the learners
	examples    uint64
	params      errorbound.Params
}

// lossShares are the shares of the input, in percent, at which the loss is recorded.
func lossShares() []int { return []int{1, 2, 5, 10, 20, 40, 60, 80, 100} }

// looks is how often the loss is looked at, to find when it has converged.
const looks = 100

// convergedShare is what may be left of the excess of the loss over the least possible one for the model to count as
// converged.
const convergedShare = 0.05

// learned is what became of it.
type learned struct {
	result *controller.Result
	curve  curve
	// loss is that of the final model on held-out examples, least that of the model that made the examples.
	loss, least float64
}

// curve is the loss of the first learner's view of the model, as it learns.
type curve struct {
	mu     sync.Mutex // the learner may be replaced after a failure
	start  time.Time
	seen   uint64 // examples that the learner has taken, those that it takes again included
	points []lossPoint
}

type lossPoint struct {
	share, seconds, loss float64
}

// follower is a learner that measures its loss from time to time.
type follower struct {
	*logreg.Learner
	curve *curve // nil for all but the first partition
	every uint64
	total uint64
	test  []logreg.Example
}

// Open implements stream.Opener.
func (f *follower) Open(ctx context.Context, p stream.Placement) error {
	if p.Partition != 0 {
		f.curve = nil
	}
	return f.Learner.Open(ctx, p)
}

// ProcessBatch implements stream.BatchOperator.
func (f *follower) ProcessBatch(in []logreg.Example, out *stream.Emitter[logreg.Update]) error {
	if err := f.Learner.ProcessBatch(in, out); err != nil {
		return err
	}
	if c := f.curve; c != nil {
		c.follow(uint64(len(in)), f)
	}
	return nil
}

func (c *curve) follow(n uint64, f *follower) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.seen
	c.seen += n
	if before/f.every == c.seen/f.every {
		return
	}
	c.points = append(c.points, lossPoint{
		share: float64(c.seen) / float64(f.total), seconds: time.Since(c.start).Seconds(), loss: meanLoss(f.test, f.Predict),
	})
}

// run runs the job.
func (l learning) run(ctx context.Context, seed uint64) (*learned, error) {
	m := newTruth(seed)
	test, least := m.test()
	o := logreg.Options{
		Bits: weightBits, Learners: l.learners, Consistency: l.consistency, Staleness: l.staleness, MaxFeatures: groups, Every: 100,
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	out := &learned{least: least}
	share := l.examples / uint64(l.learners)
	newFollower := func() *follower {
		return &follower{Learner: logreg.NewLearner(o), curve: &out.curve, every: max(share/looks, 1), total: share, test: test}
	}
	var weights connector.Collector[logreg.Weight]
	t := stream.New("learning")
	examples := stream.From(t, "examples", m.open(l.examples))
	updates := stream.Then(examples, "learn", newFollower, stream.Workers(l.learners))
	model := stream.Then(updates, "model", func() *logreg.Global { return logreg.NewGlobal(o) }, stream.EmitOnClose())
	stream.FeedbackTo[logreg.Model](model, updates)
	stream.To(model, "weights", connector.Collect(&weights))
	faults := evenly("learn", l.failures)
	for i := range faults {
		faults[i].Worker = i % l.learners
	}
	out.curve.start = time.Now()
	var err error
	if out.result, err = runStored(ctx, t, controller.Options{Params: l.params, Faults: faults}); err != nil {
		return nil, err
	}
	if out.result.Interrupted {
		return nil, errors.New("the job was interrupted")
	}
	out.loss, err = modelLoss(weights.Items(), test)
	return out, err
}

// modelLoss returns the loss of a model on examples.
func modelLoss(weights []logreg.Weight, test []logreg.Example) (float64, error) {
	final := make([]float64, 1<<weightBits+1)
	for _, w := range weights {
		if int(w.Index) >= len(final) {
			return 0, fmt.Errorf("%w: weight %d", logreg.ErrMessage, w.Index)
		}
		final[w.Index] = w.Value
	}
	return meanLoss(test, func(e *logreg.Example) float64 {
		z := final[1<<weightBits]
		for _, f := range e.Features {
			z += final[f.Index]
		}
		return sigmoid(z)
	}), nil
}

// converged returns after how many seconds, and which share of the input, the loss had come near the least possible and
// stayed there; NaN if it never did.
func (l *learned) converged() (seconds, share float64) {
	limit := l.least + convergedShare*(math.Ln2-l.least) // a model of zeros gives both labels the probability 1/2
	seconds, share = math.NaN(), math.NaN()
	for _, p := range l.curve.points {
		switch {
		case p.loss > limit:
			seconds, share = math.NaN(), math.NaN()
		case math.IsNaN(seconds):
			seconds, share = p.seconds, p.share
		}
	}
	return seconds, share
}

// at returns the loss when the learner had taken a share of its examples: that of the nearest look, NaN if there is none
// within the time between two looks.
func (l *learned) at(share float64) float64 {
	loss, nearest := math.NaN(), 1.0/looks
	for _, p := range l.curve.points {
		if d := math.Abs(p.share - share); d <= nearest {
			loss, nearest = p.loss, d
		}
	}
	return loss
}

var (
	learnersColumn = Column{Name: "learners", About: "workers that learn"}
	secondsColumn  = Column{Name: "seconds_to_converge", Unit: "s", About: "until 95% of the excess loss was gone for good"}
	excessColumn   = Column{Name: "excess_loss", About: "log-loss of the final model on held-out examples, above the least that can be expected"}
)

// learningColumns are the figures of learned.figures.
func learningColumns() []Column {
	columns := []Column{
		rateColumn, struckColumn,
		secondsColumn, {Name: "share_to_converge", About: "of the input that was learned from until then"}, excessColumn,
	}
	for _, share := range lossShares() {
		columns = append(columns, Column{Name: fmt.Sprintf("loss_%d", share), About: fmt.Sprintf("log-loss after %d%% of the input", share)})
	}
	return columns
}

func (l *learned) figures() []float64 {
	seconds, share := l.converged()
	figures := []float64{
		float64(l.result.Items) / l.result.Seconds, float64(len(l.result.Failures)), seconds, share, l.loss - l.least,
	}
	for _, share := range lossShares() {
		figures = append(figures, l.at(float64(share)/100))
	}
	return figures
}

// lost returns how many items were lost, with its bound: those that failures of the model's receiving side and of the
// learners may cost. The examples themselves can be had again.
func (l *learned) lost(of learning) Measured {
	m := Measured{Bound: of.params.LossBound(1) + float64(of.params.Overdraft(of.learners, uint64(len(l.result.Failures))))}
	for _, o := range l.result.Operators {
		m.Value += float64(o.Lost)
	}
	return m
}

// lossPlot is a plot for lossCurves.
func lossPlot() Plot {
	return Plot{
		Name: "loss", Title: "Loss over the part of the input learned from",
		X: Axis{Label: "% of the input", Log: true}, Y: Axis{Label: "log-loss, held out", Fit: true},
	}
}

// lossCurve returns the loss over the share of the input, of the only summary there is.
func (r Results) lossCurve(name string) Line {
	l := Line{Name: name}
	for _, share := range lossShares() {
		l.X, l.Y = append(l.X, float64(share)), append(l.Y, r.Value(fmt.Sprintf("loss_%d", share)))
	}
	return l
}
