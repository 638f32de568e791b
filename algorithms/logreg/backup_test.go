package logreg

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

// crash runs examples under the runtime's rule and returns the learner as it is and as a failure would leave it.
func crash(t *rapid.T, o Options, theta float64, examples []Example) (lost, restored *Learner) {
	l := NewLearner(o)
	l.SetTheta(theta)
	store := statetest.NewStore(l)
	for i := range examples {
		store.Room(t, theta, l.Measure().Alpha)
		require.NoError(t, l.learn(&examples[i], nil))
		store.Draw(t)
	}
	restored = NewLearner(o)
	require.NoError(t, restored.RestoreState(statetest.Reader(store.Durable()...)))
	return l, restored
}

// TestCrash: a failure at any moment takes at most theta from the steps of a learner, and from the roots of its sums of
// squares at most as much as BackupState proves.
func TestCrash(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := Options{Bits: 4, MaxFeatures: 16, Every: 1 << 30, Rate: 0.5, PathLength: rapid.Bool().Draw(rt, "path"),
			Method: rapid.SampledFrom([]Method{AdaGrad, SGD}).Draw(rt, "method")}
		theta := rapid.SampledFrom([]float64{2.5, 4, 9}).Draw(rt, "theta")
		l, r := crash(rt, o, theta, synthetic(rapid.Uint64().Draw(rt, "seed"), 4, rapid.IntRange(0, 300).Draw(rt, "n")))
		squares, roots := 0.0, 0.0
		for i := range l.width {
			d := l.own.At(i) - r.own.At(i)
			squares += d * d
			root := math.Sqrt(l.own.Beside(i).squares) - math.Sqrt(r.own.Beside(i).squares)
			require.GreaterOrEqual(rt, root, 0.0)
			roots += root * root
		}
		require.LessOrEqual(rt, math.Sqrt(squares), theta*(1+1e-9))
		if o.PathLength {
			require.LessOrEqual(rt, math.Sqrt(roots), theta/o.Rate*(1+1e-9))
		}
		require.LessOrEqual(rt, r.steps, l.steps)
	})
}

// TestWholeRoundTrip: a learner goes on from a whole backup as if nothing had happened.
func TestWholeRoundTrip(t *testing.T) {
	examples := synthetic(4, 6, 2000)
	for name, method := range methods {
		for _, theta := range []float64{5, math.Inf(1)} {
			o := Options{Bits: 6, Method: method, MaxFeatures: 64, Every: 1 << 30}
			l, other := NewLearner(o), NewLearner(o)
			l.SetTheta(theta)
			for i := range examples {
				require.NoError(t, l.learn(&examples[i], nil))
				require.NoError(t, other.learn(&examples[i], nil))
				if i%500 == 0 {
					r := NewLearner(o)
					require.NoError(t, r.RestoreState(statetest.Reader(statetest.Backup(t, l, true))))
					r.SetTheta(theta)
					require.Equal(t, other.clock, r.clock)
					l = r
				}
			}
			require.Equal(t, other.all(), l.all(), name)
		}
	}
}

// TestFailureOfLearner: what a learner has lost is taken from the model as well, not more, and the others keep theirs.
func TestFailureOfLearner(t *testing.T) {
	const theta = 3
	o := Options{Bits: 6, Every: 10, Learners: 2, Rate: 0.5, MaxFeatures: 64, Consistency: BulkSynchronous}
	c := newCluster(t, o)
	c.learner(0).SetTheta(theta)
	examples := synthetic(6, 6, 4000)
	s := statetest.NewStore(c.learner(0))
	var before []Weight
	for i, e := range examples {
		c.learn(i%2, e)
		c.deliver()
		s.Room(t, theta, c.learner(0).Measure().Alpha)
	}
	require.NotEmpty(t, s.Durable())
	for i := range c.model().width {
		if own := c.learner(0).own.At(i) + c.learner(1).own.At(i); own != 0 {
			before = append(before, Weight{uint32(i), own})
		}
	}
	*c.learner(0) = *NewLearner(o)
	s.Recover(t, c.learner(0))
	require.Positive(t, c.learner(0).Pace(), "it knows nothing of the others")
	after := c.close()
	require.LessOrEqual(t, Distance(before, after), theta*1.0)
	require.NotZero(t, Distance(before, after))
}

// TestTenFailures measures what failures cost on real data: the flights that come with the program, with and without ten
// failures of the learner at theta = 1 each.
func TestTenFailures(t *testing.T) {
	const theta = 1
	examples := flights(t, 18)
	run := func(failures int) Quality {
		q := &Prequential{}
		o := Options{Bits: 18, MaxFeatures: 10, Every: 1 << 30, Quality: func(int) *Prequential { return q }}
		fresh := func() *Learner {
			l := NewLearner(o)
			require.NoError(t, l.Open(t.Context(), stream.Placement{Partitions: 1}))
			return l
		}
		l := fresh()
		l.SetTheta(theta)
		s := statetest.NewStore(l)
		for i := range examples {
			s.Room(t, theta, l.Measure().Alpha)
			require.NoError(t, l.learn(&examples[i], nil))
			if failures > 0 && (i+1)%(len(examples)/(failures+1)) == 0 && i+1 < len(examples) {
				l = fresh()
				s.Recover(t, l)
				l.SetTheta(theta)
			}
		}
		t.Logf("%d failures: %+v, %d partial backups of %d bytes", failures, q.Quality(), len(s.Durable()), len(slices.Concat(s.Durable()...)))
		return q.Quality()
	}
	without, with := run(0), run(10)
	require.InEpsilon(t, without.LogLoss, with.LogLoss, 0.01)
	require.NotEqual(t, without.LogLoss, with.LogLoss)
}

// TestFailureOfGlobal: what the global model has lost comes back with the next updates.
func TestFailureOfGlobal(t *testing.T) {
	o := Options{Bits: 6, Every: 10, Learners: 2, Rate: 0.5}
	c := newCluster(t, o)
	g := c.model()
	g.SetTheta(1)
	examples := synthetic(6, 6, 2000)
	s := statetest.NewStore(g)
	for i, e := range examples {
		c.learn(i%2, e)
		c.deliver()
		s.Settle(t, 1)
	}
	r := NewGlobal(o)
	require.NoError(t, r.Open(t.Context(), stream.Placement{Partitions: 1, Epoch: 2}))
	s.Recover(t, r)
	squares, lost := 0.0, 0
	for i := range g.width {
		d := g.Weight(uint32(i)) - r.Weight(uint32(i))
		squares += d * d
		if d != 0 {
			lost++
		}
	}
	require.LessOrEqual(t, math.Sqrt(squares), 1.0)
	require.Positive(t, lost)
	require.LessOrEqual(t, r.peers[0].clock, g.peers[0].clock)
	require.Positive(t, r.peers[0].clock)
	r.back = c
	*g = *r
	c.learn(0, examples[:10]...)
	require.True(t, c.boxes[0].Whole, "the learner's model is of an incarnation that is gone")
	c.deliver()
	model := map[uint32]float64{}
	for _, w := range c.close() {
		model[w.Index] = w.Value
	}
	for i := range g.width {
		require.InDelta(t, c.learner(0).own.At(i)+c.learner(1).own.At(i), model[uint32(i)], 1e-12)
	}
}

func TestRestoreRejects(t *testing.T) {
	key := make([]byte, 8)
	for name, write := range map[string]func(w *stream.StateWriter){
		"unknown":      func(w *stream.StateWriter) { w.Put([]byte("x"), nil) },
		"progress":     func(w *stream.StateWriter) { w.Put([]byte(progressKey), nil) },
		"short value":  func(w *stream.StateWriter) { w.Put(key, make([]byte, 8)) },
		"deleted":      func(w *stream.StateWriter) { w.Delete(key) },
		"beyond":       func(w *stream.StateWriter) { w.Put([]byte{200, 0, 0, 0, 0, 0, 0, 0}, make([]byte, 16)) },
		"negative sum": func(w *stream.StateWriter) { w.Put(key, append(make([]byte, 15), 0x80|0x3f)) },
	} {
		w := stream.NewStateWriter(nil, true)
		write(w)
		require.ErrorIs(t, NewLearner(Options{Bits: 4}).RestoreState(statetest.Reader(w.Bytes())), stream.ErrState, name)
	}
	two := statetest.Backup(t, NewGlobal(Options{Bits: 4, Learners: 2}), true)
	require.ErrorIs(t, NewGlobal(Options{Bits: 4, Learners: 3}).RestoreState(statetest.Reader(two)), stream.ErrState)
}

func FuzzLearnerRestore(f *testing.F) {
	o := Options{Bits: 2}
	l := NewLearner(o)
	for _, e := range synthetic(1, 2, 50) {
		require.NoError(f, l.learn(&e, nil))
	}
	statetest.Restore[*Learner]{
		Fresh: func() *Learner { return NewLearner(o) },
		View:  func(l *Learner) any { return []any{l.all(), l.clock} },
	}.Fuzz(f, l)
}

func FuzzGlobalRestore(f *testing.F) {
	o := Options{Bits: 2, Learners: 2}
	g := NewGlobal(o)
	require.NoError(f, g.Process(Update{Learner: 1, Clock: 3, Index: []uint32{1, 4}, Sum: []float64{0.5, -2}}, nil))
	statetest.Restore[*Global]{
		Fresh: func() *Global { return NewGlobal(o) },
		View:  func(g *Global) any { return []any{g.sums.Values(), fmt.Sprint(g.peers)} },
	}.Fuzz(f, g)
}
