package logreg

import (
	"bytes"
	"compress/gzip"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/data"
	"github.com/afstream/afstream/stream"
)

// cluster is the topology of Train, driven by hand: no goroutines, and models are delivered when the test says so.
type cluster struct {
	t        testing.TB
	learners []stream.Task
	global   stream.Task
	sink     stream.Task
	boxes    []*Model // the last model for each learner, not delivered yet
	drop     bool     // updates are lost
	weights  []Weight
}

// exit passes slabs to the next operator.
type exit func(s stream.Slab)

func (e exit) Hurry()                       {}
func (e exit) Credit(int) int64             { return stream.Unlimited }
func (e exit) AwaitCredit(int64) int64      { return stream.Unlimited }
func (e exit) Send(_, _ int, s stream.Slab) { e(s); s.Release() }

type collect struct{ c *cluster }

// all returns the weights that l predicts by.
func (l *Learner) all() []float64 {
	w := make([]float64, l.width)
	for i := range w {
		w[i] = l.weight(i)
	}
	return w
}

func (s collect) Write(w []Weight) error { s.c.weights = append(s.c.weights, w...); return nil }
func (s collect) Close() error           { return nil }

// Send makes a cluster the way back.
func (c *cluster) Send(to int, m Model) { c.boxes[to] = &m }

func newCluster(t testing.TB, o Options) *cluster {
	c := &cluster{t: t, boxes: make([]*Model, max(o.Learners, 1))}
	top := stream.New("job")
	examples := stream.From(top, "examples", connector.Slice[Example](nil))
	stream.To(Train(examples, o), "weights", func(int, int) (stream.Sink[Weight], error) { return collect{c}, nil })
	nodes, err := top.Build()
	require.NoError(t, err)
	task := func(node, part int, next func(stream.Slab)) stream.Task {
		task, err := nodes[node].NewTask(part, exit(next))
		require.NoError(t, err)
		task.Resume(make([]uint64, 1))
		if o, ok := task.Operator().(stream.Opener); ok {
			require.NoError(t, o.Open(t.Context(), stream.Placement{Partition: part, Partitions: nodes[node].Partitions(), Epoch: 1}))
		}
		return task
	}
	pass := func(to *stream.Task) func(stream.Slab) {
		return func(s stream.Slab) {
			if !c.drop {
				require.NoError(t, (*to).Process(0, s, 0, s.Len()))
			}
		}
	}
	for p := range c.boxes {
		c.learners = append(c.learners, task(1, p, pass(&c.global)))
	}
	c.global = task(2, 0, pass(&c.sink))
	c.sink = task(3, 0, nil)
	c.model().back = c
	return c
}

func (c *cluster) learner(i int) *Learner { return c.learners[i].Operator().(*Learner) }
func (c *cluster) model() *Global         { return c.global.Operator().(*Global) }

// learn gives examples to learner i, and its updates to Global.
func (c *cluster) learn(i int, examples ...Example) {
	for k := range examples {
		require.NoError(c.t, feed(c.learners[i], examples[k:k+1]))
		c.learners[i].Flush()
	}
}

// feed hands examples to a task, as a slab of its own.
func feed(task stream.Task, examples []Example) error {
	top := stream.New("feed")
	s := stream.From(top, "s", connector.Slice(examples))
	stream.To(s, "t", connector.Discard[Example]())
	nodes, err := top.Build()
	if err != nil {
		return err
	}
	var failed error
	src, err := nodes[0].NewSource(0, exit(func(s stream.Slab) { failed = task.Process(0, s, 0, s.Len()) }), nil)
	if err != nil {
		return err
	}
	src.Resume(make([]uint64, 1))
	for err == nil {
		_, err = src.Fill(stream.SlabItems)
	}
	src.Flush()
	return failed
}

// deliver hands every learner the model that waits for it.
func (c *cluster) deliver() {
	for i, m := range c.boxes {
		if m != nil {
			c.boxes[i] = nil
			require.NoError(c.t, c.learner(i).Feedback(0, *m))
		}
	}
}

// close ends the stream and returns the model.
func (c *cluster) close() []Weight {
	c.drop = false
	for _, task := range append(c.learners, c.global) {
		require.NoError(c.t, task.CloseWindow(stream.Window{Number: 1, Last: true}))
		task.Flush()
	}
	return c.weights
}

// reference is online logistic regression as in the textbook: dense, no streams, no sparse tricks.
type reference struct {
	o       Options
	t       int
	weights []float64
	squares []float64
	own     []float64
	loss    float64
}

func newReference(o Options) *reference {
	n := 1<<o.Bits + 1
	return &reference{o: o.filled(), weights: make([]float64, n), squares: make([]float64, n), own: make([]float64, n)}
}

func (r *reference) learn(e Example) {
	x := make([]float64, len(r.weights))
	x[len(x)-1] = 1
	for _, f := range e.Features {
		x[f.Index] = float64(f.Value)
	}
	z, y := 0.0, 0.0
	for i := range x {
		z += x[i] * r.weights[i]
	}
	if e.Positive {
		y = 1
	}
	p := 1 / (1 + math.Exp(-z))
	r.loss -= y*math.Log(p) + (1-y)*math.Log(1-p)
	r.t++
	for i := range x {
		g := (p - y) * x[i]
		step := r.o.Rate / math.Sqrt(float64(r.o.Learners)) * g
		r.squares[i] += g * g
		switch {
		case g == 0:
			continue
		case r.o.Method == SGD:
			step /= math.Sqrt(float64(r.t))
		default:
			step /= math.Sqrt(r.squares[i])
		}
		r.weights[i] -= step
		r.own[i] -= step
	}
}

// synthetic are examples of 2^bits features with a true model behind them.
func synthetic(seed uint64, bits, n int) []Example {
	r := rand.New(rand.NewPCG(seed, 7))
	width := 1 << bits
	truth := make([]float64, width)
	for i := range truth {
		truth[i] = r.NormFloat64() * 2
	}
	examples := make([]Example, n)
	for k := range examples {
		z, e := 0.0, Example{}
		for i := range truth {
			if r.IntN(width) < 5 {
				v := float32(r.Float64()*2 - 1)
				e.Features = append(e.Features, Feature{uint32(i), v})
				z += truth[i] * float64(v)
			}
		}
		e.Positive = r.Float64() < 1/(1+math.Exp(-z))
		examples[k] = e
	}
	return examples
}

// flights are the examples of the flights that come with the program.
func flights(t testing.TB, bits int) []Example {
	f, ok := data.Lookup("flights")
	require.True(t, ok)
	z, err := gzip.NewReader(strings.NewReader(f.Content))
	require.NoError(t, err)
	text, err := io.ReadAll(z)
	require.NoError(t, err)
	p := ParseFlights(bits, FailOnBad)
	var examples []Example
	for line := range bytes.Lines(text) {
		e, ok, err := p.parse(string(line))
		require.NoError(t, err)
		if ok {
			examples = append(examples, e)
		}
	}
	return examples
}
