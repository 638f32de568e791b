package logreg

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/stream"
)

var methods = map[string]Method{"adagrad": AdaGrad, "sgd": SGD}

// TestAgainstReference: one learner is the textbook algorithm, to rounding.
func TestAgainstReference(t *testing.T) {
	for name, method := range methods {
		t.Run(name, func(t *testing.T) {
			o := Options{Bits: 6, Method: method, Rate: 0.5, Every: 37, MaxFeatures: 64}
			c, r := newCluster(t, o), newReference(o)
			for _, e := range synthetic(1, 6, 3000) {
				c.learn(0, e)
				c.deliver()
				r.learn(e)
			}
			q := c.learner(0).Quality().Quality()
			require.InDelta(t, r.loss/3000, q.LogLoss, 1e-9)
			require.Less(t, q.LogLoss, 0.9*q.BaseLoss, "it learns")
			for i, w := range r.weights {
				require.InDelta(t, w, c.learner(0).weight(i), 1e-9)
			}
			got := make([]float64, len(r.weights))
			for _, w := range c.close() {
				got[w.Index] = w.Value
			}
			require.InDeltaSlice(t, r.weights, got, 1e-9)
		})
	}
}

// TestBulkSynchronous: several learners that wait for each other take, round by round, the same model as their base, and
// their steps are added up.
func TestBulkSynchronous(t *testing.T) {
	const n, every, rounds = 3, 20, 30
	for name, method := range methods {
		t.Run(name, func(t *testing.T) {
			o := Options{Bits: 5, Method: method, Rate: 0.5, Every: every, Learners: n, Consistency: BulkSynchronous}
			c := newCluster(t, o)
			var refs [n]*reference
			for l := range refs {
				refs[l] = newReference(o)
			}
			examples := synthetic(2, 5, n*every*rounds)
			for range rounds {
				for l, r := range refs {
					for _, e := range examples[:every] {
						require.Positive(t, c.learner(l).Pace())
						c.learn(l, e)
						r.learn(e)
					}
					examples = examples[every:]
					require.Zero(t, c.learner(l).Pace(), "an update was sent, and the others' models are not there")
				}
				c.deliver()
				model := make([]float64, len(refs[0].weights))
				for _, r := range refs {
					for i, w := range r.own {
						model[i] += w
					}
				}
				for l, r := range refs {
					copy(r.weights, model)
					require.InDeltaSlice(t, model, c.learner(l).all(), 1e-9)
				}
			}
			for _, w := range c.close() {
				require.InDelta(t, refs[0].weights[w.Index], w.Value, 1e-9)
			}
		})
	}
}

// TestOneLearnerHasNobodyToTell: without others its updates would only be replaced by later ones, so it sends none but at the
// ends of windows, when the model is emitted.
func TestOneLearnerHasNobodyToTell(t *testing.T) {
	examples := synthetic(2, 4, 60)
	for _, n := range []int{1, 2} {
		c := newCluster(t, Options{Bits: 4, Every: 3, Learners: n, Consistency: BulkSynchronous})
		c.learn(0, examples[:20]...)
		require.Equal(t, n > 1, c.model().peers[0].clock > 0)
		if n > 1 {
			continue
		}
		for number := range uint64(2) {
			require.NoError(t, c.learners[0].CloseWindow(stream.Window{Number: number + 1}))
			c.learners[0].Flush()
			for i := range c.learner(0).width {
				require.Equal(t, c.learner(0).own.At(i), c.model().Weight(uint32(i)))
			}
			c.deliver()
			require.Positive(t, c.learner(0).Pace())
			c.learn(0, examples[20*(number+1):20*(number+2)]...)
			require.NotEqual(t, c.learner(0).own.At(16), c.model().Weight(16))
		}
	}
}

// TestMessagesMayBeLost: whatever updates are lost, and whatever models are replaced by later ones, a later message
// makes it good, and the final model is the sum of what the learners have.
func TestMessagesMayBeLost(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(rt, "learners")
		c := newCluster(t, Options{Bits: 4, Every: 3, Learners: n, Rate: 0.5})
		for _, e := range synthetic(rapid.Uint64().Draw(rt, "seed"), 4, rapid.IntRange(0, 150).Draw(rt, "examples")) {
			c.drop = rapid.IntRange(0, 3).Draw(rt, "drop") == 0
			c.learn(rapid.IntRange(0, n-1).Draw(rt, "learner"), e)
			if rapid.IntRange(0, 3).Draw(rt, "deliver") == 0 {
				c.deliver()
			}
		}
		model := map[uint32]float64{}
		for _, w := range c.close() {
			model[w.Index] = w.Value
		}
		c.deliver()
		for i := range c.learner(0).width {
			sum := 0.0
			for l := range n {
				sum += c.learner(l).own.At(i)
			}
			require.InDelta(rt, sum, model[uint32(i)], 1e-12)
		}
		// All updates are in; once each has been answered, every learner has the model.
		for l := range n {
			require.NoError(rt, c.learner(l).Feedback(0, c.model().model(l)))
			for i, w := range c.learner(l).all() {
				require.InDelta(rt, model[uint32(i)], w, 1e-12)
			}
		}
	})
}

// TestStaleness: a learner stops exactly when it is more than the allowed number of updates ahead, and goes on when the
// slowest moves or ends.
func TestStaleness(t *testing.T) {
	examples := synthetic(3, 4, 100)
	for consistency, ahead := range map[Consistency]int{BulkSynchronous: 0, StaleSynchronous: 2, Asynchronous: 9} {
		c := newCluster(t, Options{Bits: 4, Every: 1, Learners: 2, Consistency: consistency, Staleness: 2})
		for i := range 9 {
			require.Equal(t, i <= ahead, c.learner(0).Pace() > 0, "%v after %d", consistency, i)
			c.learn(0, examples[i])
			c.deliver()
		}
		c.learn(1, examples[:9]...)
		c.deliver()
		require.Positive(t, c.learner(0).Pace())
		c.learn(0, examples[9:20]...)
		require.NoError(t, c.learners[1].CloseWindow(stream.Window{Number: 1, Last: true}))
		c.learners[1].Flush()
		c.deliver()
		require.Positive(t, c.learner(0).Pace(), "the other is done")
	}
}

// TestWaitEndsForAWholeUpdate: when the runtime lets a learner go on although the answer is missing, it does not wait again
// before its next update, whose answer tells how things stand.
func TestWaitEndsForAWholeUpdate(t *testing.T) {
	examples := synthetic(3, 4, 40)
	c := newCluster(t, Options{Bits: 4, Every: 10, Learners: 2, Consistency: BulkSynchronous})
	c.drop = true // what a failure of Global may do
	c.learn(0, examples[:10]...)
	c.learn(1, examples[10:20]...)
	c.drop = false
	for i := range 10 {
		for l := range 2 {
			require.Equal(t, []int{0, 9, 8, 7, 6, 5, 4, 3, 2, 1}[i], c.learner(l).Pace())
			c.learn(l, examples[20+10*l+i])
		}
	}
	c.deliver()
	require.Positive(t, c.learner(0).Pace())
	require.Positive(t, c.learner(1).Pace())
}

// TestLargeUpdates come in pieces, whose sizes their wire form allows.
func TestLargeUpdates(t *testing.T) {
	c := newCluster(t, Options{Bits: 14, Every: 1})
	e := Example{Positive: true}
	for i := range uint32(10_000) {
		e.Features = append(e.Features, Feature{i, 1})
	}
	var updates []Update
	l := c.learner(0)
	l.descend(&e, 0.5)
	l.send(func(u Update) { updates = append(updates, u) }, true)
	require.Len(t, updates, 3)
	total := 0
	for i, u := range updates {
		require.Equal(t, i < 2, u.More)
		require.Equal(t, i == 2, u.Done)
		require.Equal(t, uint64(1), u.Clock)
		total += len(u.Index)
		wire, err := u.AppendBinary(nil)
		require.NoError(t, err)
		var v Update
		require.NoError(t, v.UnmarshalBinary(wire))
		require.Equal(t, u, v)
	}
	require.Equal(t, 10_001, total)
	require.Equal(t, 5.0, l.Measure().Beta)
}

func TestBadExamples(t *testing.T) {
	o := Options{Bits: 4, MaxFeatures: 2}
	for name, features := range map[string][]Feature{
		"too many":   {{1, 1}, {2, 1}, {3, 1}},
		"too far":    {{16, 1}},
		"descending": {{2, 1}, {1, 1}},
		"twice":      {{2, 1}, {2, 1}},
		"too large":  {{2, 1.5}},
		"NaN":        {{2, float32(math.NaN())}},
	} {
		l := NewLearner(o)
		require.ErrorIs(t, l.Process(Example{Features: features}, nil), ErrExample, name)
		require.Zero(t, l.steps, name)
		require.Zero(t, l.Quality().Quality().Examples, name)
	}
}

func TestBadMessages(t *testing.T) {
	o := Options{Bits: 4, Learners: 2}
	nan := math.NaN()
	for name, u := range map[string]Update{
		"learner": {Learner: 2}, "negative": {Learner: -1}, "index": {Index: []uint32{17}, Sum: []float64{1}},
		"not finite": {Index: []uint32{1}, Sum: []float64{nan}}, "lengths": {Index: []uint32{1}},
	} {
		require.ErrorIs(t, NewGlobal(o).Process(u, nil), ErrMessage, name)
	}
	for name, m := range map[string]Model{"index": {Index: []uint32{17}, Others: []float64{1}}, "lengths": {Index: []uint32{1}}} {
		require.ErrorIs(t, NewLearner(o).Feedback(0, m), ErrMessage, name)
	}
	require.ErrorIs(t, NewLearner(o).Open(t.Context(), stream.Placement{Partitions: 1}), ErrOptions)
	require.ErrorIs(t, NewGlobal(o).Open(t.Context(), stream.Placement{Partitions: 2}), ErrOptions)
}

// TestAlpha: no step is longer than what Measure says, and some steps are nearly as long.
func TestAlpha(t *testing.T) {
	for name, method := range methods {
		o := Options{Bits: 6, Method: method, MaxFeatures: 64, MaxValue: 3, Rate: 0.7, Learners: 4}
		l := NewLearner(o)
		alpha, longest := l.Measure().Alpha, 0.0
		for _, e := range synthetic(5, 6, 500) {
			p := l.Predict(&e)
			l.steps++
			l.descend(&e, p)
			squares := 0.0
			for _, s := range l.step[:len(e.Features)+1] {
				squares += s * s
			}
			longest = max(longest, math.Sqrt(squares))
		}
		require.LessOrEqual(t, longest, alpha, name)
		require.Greater(t, longest, alpha/50, name)
	}
	require.Zero(t, NewLearner(Options{Bits: 6}).Measure().Alpha)
}

func TestOptions(t *testing.T) {
	bad := Options{Bits: 29, Learners: -1, Method: 9, Rate: math.NaN(), Every: -1, Consistency: 9, MaxFeatures: -1,
		MaxValue: math.Inf(1), Clear: 2}
	err := bad.Validate()
	require.ErrorIs(t, err, ErrOptions)
	for _, part := range []string{"bits", "learners", "method", "rate", "every", "consistency", "features", "values", "clear"} {
		require.ErrorContains(t, err, part)
	}
	require.Panics(t, func() { NewLearner(bad) })
	require.Panics(t, func() { NewGlobal(bad) })
	require.Panics(t, func() { NewHasher(0) })
	q := &Prequential{}
	l := NewLearner(Options{Bits: 1, Quality: func(int) *Prequential { return q }})
	require.NoError(t, l.Open(t.Context(), stream.Placement{Partitions: 1}))
	require.Same(t, q, l.Quality())
}

// TestChanges checks what Global remembers against all changes ever made.
func TestChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const width = 6
		c := newChanges(width)
		c.limit = 20
		var versions [][]entry // versions[i] are the changes of version i+1
		for range rapid.IntRange(0, 60).Draw(t, "updates") {
			var u []entry
			for range rapid.IntRange(0, 4).Draw(t, "changes") {
				e := entry{rapid.Uint32Range(0, width-1).Draw(t, "weight"), rapid.Int32Range(0, 2).Draw(t, "learner")}
				u = append(u, e)
				c.add(e.weight, int(e.learner))
			}
			c.commit()
			if len(u) > 0 {
				versions = append(versions, u)
			}
			require.Equal(t, uint64(len(versions)), c.version)
			known := rapid.IntRange(0, len(versions)+1).Draw(t, "known")
			want, got := map[uint32]bool{}, map[uint32]bool{}
			ok := c.since(uint64(known), 1, func(w uint32) {
				require.False(t, got[w], "twice")
				got[w] = true
			})
			if !ok {
				require.Empty(t, got)
				// Half of the limit, less what one version may hold beyond the cut, is always remembered.
				require.True(t, known > len(versions) || len(slices.Concat(versions[known:]...)) > 20/2-3, "forgot too much")
				continue
			}
			for _, u := range versions[known:] {
				for _, e := range u {
					if e.learner != 1 {
						want[e.weight] = true
					}
				}
			}
			require.Equal(t, want, got)
		}
		require.LessOrEqual(t, len(c.entries), 24)
	})
}
