package job

import (
	"math"

	"github.com/afstream/afstream/algorithms/logreg"
)

// plainLearner is online logistic regression as in the textbook: one model, a loop, and nothing that makes it fast. What
// a job with one learner yields must agree with it.
type plainLearner struct {
	o                logreg.Options
	rate             float64
	weights, squares []float64 // the last one is the bias
	steps            float64
	longest          float64
	quality          logreg.Prequential
}

func newPlainLearner(o logreg.Options) *plainLearner {
	l := &plainLearner{o: o, rate: o.Rate, weights: make([]float64, 1<<o.Bits+1), squares: make([]float64, 1<<o.Bits+1)}
	if l.rate == 0 {
		l.rate = logreg.DefaultRate
	}
	return l
}

func (l *plainLearner) learn(e *logreg.Example) {
	bias := len(l.weights) - 1
	z, length := l.weights[bias], 1.0
	for _, f := range e.Features {
		z += l.weights[f.Index] * float64(f.Value)
		length += float64(f.Value) * float64(f.Value)
	}
	l.longest = max(l.longest, math.Sqrt(length))
	p := 1 / (1 + math.Exp(-z))
	l.quality.Add(p, e.Positive)
	slope := p
	if e.Positive {
		slope = p - 1
	}
	l.steps++
	for _, f := range e.Features {
		l.step(int(f.Index), slope*float64(f.Value))
	}
	l.step(bias, slope)
}

// step moves weight i against its gradient g.
func (l *plainLearner) step(i int, g float64) {
	if g == 0 {
		return
	}
	if l.o.Method == logreg.SGD {
		l.weights[i] -= l.rate / math.Sqrt(l.steps) * g
		return
	}
	l.squares[i] += g * g
	l.weights[i] -= l.rate * g / math.Sqrt(l.squares[i])
}

// model returns the weights that are not 0, by index.
func (l *plainLearner) model() []logreg.Weight {
	var model []logreg.Weight
	for i, w := range l.weights {
		if w != 0 {
			model = append(model, logreg.Weight{Index: uint32(i), Value: w})
		}
	}
	return model
}
