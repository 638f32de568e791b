package logreg

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/state"
	"github.com/afstream/afstream/stream"
)

// Learner learns from the examples of one partition and sends what it has learned to Global: an Update after every
// Options.Every examples, if there are other learners, and at the end of each window, and a last one, with all its weights, at
// the end of the stream. What the others have learned it gets back through Feedback. It predicts each example before it
// learns from it.
//
// A weight is the sum of the learner's own steps and of what Global says that the others have made of it. Its own steps
// are its state; the others' part is lost in a failure, and comes back with the first Model after it.
type Learner struct {
	options Options
	rate    float64
	width   int
	own     *state.ArrayWith[float64, cell] // sum of this learner's steps, by weight
	others  []float64                       // the rest of each weight; nil if there is no other learner
	weights []float64                       // own + others; nil if there is no other learner

	steps, clock uint64
	since        int      // examples since the last update
	touched      []uint32 // weights changed since the last update
	stamp        uint32
	at           []uint32 // scratch of one step
	step         []float64

	partition int
	quality   *Prequential
	epoch     uint64 // of the last Model
	version   uint64
	slowest   uint64
	restored  uint64 // the clock that a backup held, never if there was none
}

// cell is what a step needs beside the weight.
type cell struct {
	squares float64 // sum of the squared gradients
	stamp   uint32  // of the update that the weight is to be part of
}

// never is no clock.
const never = math.MaxUint64

// NewLearner returns a Learner that has learned nothing. It panics if o is not valid; see Options.Validate.
func NewLearner(o Options) *Learner {
	o = o.filled()
	width := int(o.bias()) + 1
	l := &Learner{options: o, rate: o.rate(), width: width, stamp: 1, restored: never,
		quality: &Prequential{}}
	l.own = state.NewArrayWith[float64, cell](width, state.Options{
		Norm: errorbound.L2, Combine: errorbound.Added, Alpha: o.Alpha(), PathLength: o.PathLength, Clear: o.Clear,
	})
	if o.Learners > 1 {
		l.others, l.weights = make([]float64, width), make([]float64, width)
	}
	return l
}

// Open implements stream.Opener.
func (l *Learner) Open(_ context.Context, p stream.Placement) error {
	if p.Partitions != l.options.Learners {
		return fmt.Errorf("%w: %d learners, but the operator has %d partitions", ErrOptions, l.options.Learners, p.Partitions)
	}
	l.partition = p.Partition
	if l.options.Quality != nil {
		l.quality = l.options.Quality(p.Partition)
	}
	return nil
}

// Quality returns the counts of the predictions, to be read while nothing is processed.
func (l *Learner) Quality() *Prequential { return l.quality }

// Predict returns the probability that e is positive, NaN if e is no example that the learner would take.
func (l *Learner) Predict(e *Example) float64 {
	z, ok := l.evaluate(e)
	if !ok {
		return math.NaN()
	}
	return 1 / (1 + math.Exp(-z))
}

// Process implements stream.Operator. The error wraps ErrExample.
func (l *Learner) Process(e Example, out *stream.Emitter[Update]) error {
	return l.learn(&e, out)
}

// ProcessBatch implements stream.BatchOperator. The error wraps ErrExample; the examples before the faulty one have then
// been learned from.
func (l *Learner) ProcessBatch(in []Example, out *stream.Emitter[Update]) error {
	for i := range in {
		if err := l.learn(&in[i], out); err != nil {
			return err
		}
	}
	return nil
}

func (l *Learner) learn(e *Example, out *stream.Emitter[Update]) error {
	z, ok := l.evaluate(e)
	if m := l.options.MaxFeatures; !ok || m > 0 && len(e.Features) > m {
		return l.complain(e)
	}
	p := 1 / (1 + math.Exp(-z))
	l.quality.Add(p, e.Positive)
	l.steps++
	l.descend(e, p)
	if l.since++; l.since == l.options.Every && l.others != nil { // who is alone has nobody to tell before the window ends
		l.send(out.Emit, false)
		out.Flush() // the others wait for it, and it may be long until there are enough for a slab
	}
	return nil
}

// evaluate returns the log-odds of e being positive. It returns false for what Example.check reports: checking on the way
// costs nothing, a pass of its own a tenth of all.
func (l *Learner) evaluate(e *Example) (z float64, ok bool) {
	last, largest := uint32(l.width-2), float32(l.options.MaxValue)
	z = l.weight(l.width - 1)
	next := uint32(0)
	for _, f := range e.Features {
		if f.Index < next || f.Index > last || !(f.Value <= largest && f.Value >= -largest) {
			return 0, false
		}
		z += l.weight(int(f.Index)) * float64(f.Value)
		next = f.Index + 1
	}
	return z, true
}

func (l *Learner) weight(i int) float64 {
	if l.weights != nil {
		return l.weights[i]
	}
	return l.own.At(i)
}

// alone makes the weights those of a learner that knows of no other.
func (l *Learner) alone() {
	for i := range l.weights {
		l.weights[i] = l.own.At(i)
	}
}

// complain says what is wrong with an example.
func (l *Learner) complain(e *Example) error {
	if err := e.check(uint32(l.width-2), float32(l.options.MaxValue)); err != nil {
		return err
	}
	return fmt.Errorf("%w: %d features, want at most %d", ErrExample, len(e.Features), l.options.MaxFeatures)
}

// descend makes one step against the gradient of the loss at e, whose prediction was p.
func (l *Learner) descend(e *Example, p float64) {
	slope := p
	if e.Positive {
		slope = p - 1
	}
	n := len(e.Features)
	if n >= len(l.at) {
		l.at, l.step = make([]uint32, n+1), make([]float64, n+1)
	}
	at, step := l.at[:n+1], l.step[:n+1]
	at[0], step[0] = uint32(l.width-1), slope // first, as the next prediction begins with it
	for k, f := range e.Features {
		at[k+1], step[k+1] = f.Index, slope*float64(f.Value)
	}
	if l.options.Method == SGD {
		l.decay(at, step)
	} else {
		l.adapt(at, step)
	}
	l.own.AddAt(at, step)
	if l.others != nil {
		for k, i := range at {
			l.weights[i] += step[k]
		}
	}
}

// decay makes steps of gradients, as SGD does.
func (l *Learner) decay(at []uint32, gradient []float64) {
	rate := -l.rate / math.Sqrt(float64(l.steps))
	for k, i := range at {
		gradient[k] *= rate
		l.touch(i, l.own.Beside(int(i)))
	}
}

// adapt makes steps of gradients, as AdaGrad does.
func (l *Learner) adapt(at []uint32, gradient []float64) {
	stamp, rate := l.stamp, -l.rate
	for k, i := range at {
		g := gradient[k]
		if g == 0 { // and so may the sum be
			continue
		}
		c := l.own.Beside(int(i))
		c.squares += g * g
		gradient[k] = rate * g / math.Sqrt(c.squares)
		if c.stamp != stamp {
			l.touch(i, c)
		}
	}
}

// touch makes weight i part of the next update.
func (l *Learner) touch(i uint32, c *cell) {
	if c.stamp != l.stamp {
		c.stamp = l.stamp
		l.touched = append(l.touched, i)
	}
}

// send emits an update of the weights that were touched, in pieces.
func (l *Learner) send(emit func(Update), done bool) {
	l.clock++
	for more := true; more; {
		n := min(len(l.touched), maxPiece)
		more = n < len(l.touched)
		u := Update{Learner: l.partition, Clock: l.clock, More: more, Done: done && !more,
			KnownEpoch: l.epoch, Known: l.version, Index: slices.Clone(l.touched[:n]), Sum: make([]float64, n)}
		for i, at := range u.Index {
			u.Sum[i] = l.own.At(int(at))
		}
		emit(u)
		l.touched = append(l.touched[:0], l.touched[n:]...)
	}
	l.since = 0
	if l.stamp++; l.stamp == 0 { // 0 is what fresh cells have
		l.stamp = 1
		for i := range l.width {
			l.own.Beside(i).stamp = 0
		}
	}
}

// CloseWindow implements stream.WindowCloser. The model goes on from window to window. At the end of the stream the update
// holds every weight, which makes good all that was lost on the way to Global.
func (l *Learner) CloseWindow(w stream.Window, out *stream.Emitter[Update]) error {
	if w.Last {
		l.touchAll()
		if l.options.OnEnd != nil {
			if err := l.options.OnEnd(l.partition, l.quality); err != nil {
				return err
			}
		}
	}
	l.send(out.Emit, w.Last)
	return nil
}

// touchAll makes every weight part of the next update.
func (l *Learner) touchAll() {
	l.touched = l.touched[:0]
	for i := range l.width {
		if c := l.own.Beside(i); c.squares != 0 || l.own.At(i) != 0 {
			c.stamp = l.stamp
			l.touched = append(l.touched, uint32(i))
		}
	}
}

// Idempotent implements stream.Idempotent: updates hold sums since the beginning.
func (l *Learner) Idempotent() {}

// Feedback implements stream.FeedbackReceiver. The error wraps ErrMessage; nothing of the model has then been taken.
func (l *Learner) Feedback(_ int, m Model) error {
	if len(m.Index) != len(m.Others) {
		return fmt.Errorf("%w: model of %d indices and %d weights", ErrMessage, len(m.Index), len(m.Others))
	}
	for _, i := range m.Index {
		if int(i) >= l.width {
			return fmt.Errorf("%w: model with weight %d of %d", ErrMessage, i, l.width)
		}
	}
	l.slowest, l.clock = max(l.slowest, m.Slowest), max(l.clock, m.Yours)
	if m.Epoch < l.epoch { // on its way since before a failure
		return nil
	}
	l.epoch, l.version = m.Epoch, m.Version
	if l.others == nil {
		return nil
	}
	if m.Whole {
		clear(l.others)
		l.alone()
	}
	for k, i := range m.Index {
		l.others[i] = m.Others[k]
		l.weights[i] = m.Others[k] + l.own.At(int(i))
	}
	return nil
}

// Pace implements stream.Pacer. A learner takes as many examples as are left before its next update, and after an update none
// while, under Options.Consistency, it is more than the allowed number of updates ahead of the slowest. A learner that was
// restored knows nothing of the others and does not wait until it has sent an update.
//
// It waits right after an update only. If Global fails, the answer that a learner waits for may be lost; the runtime ends
// such a wait after a time, and the learner then takes all examples to the next update, which sets things right. If it
// waited again after each example it would hardly get there.
func (l *Learner) Pace() int {
	if l.options.Consistency == Asynchronous || l.others == nil {
		return math.MaxInt
	}
	ahead := uint64(0)
	if l.options.Consistency == StaleSynchronous {
		ahead = l.options.Staleness
	}
	if l.since == 0 && l.clock > l.slowest && l.clock-l.slowest > ahead && l.clock != l.restored {
		return 0
	}
	return l.options.Every - l.since
}
