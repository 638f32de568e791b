package spacesaving

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/algorithms/heavyhitter"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

var options = Options{Capacity: 8, Threshold: 0.2, Alpha: 3}

func item(key string, weight float64) connector.Keyed {
	return connector.MakeKeyed([]byte(key), weight)
}

// drawItem is one of few keys, of which some are more frequent.
func drawItem(t *rapid.T) connector.Keyed {
	k := rapid.IntRange(0, 30).Draw(t, "key") % rapid.IntRange(1, 31).Draw(t, "skew")
	return item(fmt.Sprint(k), float64(rapid.IntRange(0, 3).Draw(t, "weight")))
}

// checkEstimates checks the guarantee of the package comment for every key.
func checkEstimates(t require.TestingT, s *summary, exact *heavyhitter.Exact) {
	require.Equal(t, exact.Total(), s.total)
	require.LessOrEqual(t, s.least()*float64(s.capacity), s.total)
	known := map[connector.Key]bool{}
	for _, c := range s.counters {
		known[c.Key] = true
		require.GreaterOrEqual(t, c.Weight, exact.Weight(c.Key))
		require.LessOrEqual(t, c.Weight-c.Over, exact.Weight(c.Key))
		require.LessOrEqual(t, c.Over*float64(s.capacity), s.total)
	}
	for _, row := range exact.Top(1000) {
		require.True(t, known[row.Key] || row.Estimate <= s.least())
	}
}

// TestAgainstExact also checks the invariants of the summary.
func TestAgainstExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, exact := NewCount(options), heavyhitter.NewExact()
		for range rapid.IntRange(0, 150).Draw(t, "items") {
			it := drawItem(t)
			require.NoError(t, exact.Add(it))
			require.NoError(t, c.Process(it, nil))
		}
		checkEstimates(t, &c.summary, exact)
		s := &c.summary
		require.Len(t, s.index, len(s.counters))
		for place, i := range s.heap {
			require.EqualValues(t, place, s.places[i])
			require.Equal(t, i, s.index[s.hashes[i]])
			if place > 0 {
				require.LessOrEqual(t, s.weightAt(uint32(place-1)/2), s.weightAt(uint32(place)))
			}
		}
	})
}

// TestMerge: merged summaries keep the guarantee for the whole stream, and no heavy hitter is missed.
func TestMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, exact := NewMerge(options), heavyhitter.NewExact()
		for range 3 {
			c := NewCount(options)
			for range rapid.IntRange(0, 80).Draw(t, "items") {
				it := drawItem(t)
				require.NoError(t, exact.Add(it))
				require.NoError(t, c.Process(it, nil))
			}
			for p := range c.summary.partials() {
				require.NoError(t, m.Process(p, nil))
			}
		}
		again := NewMerge(options)
		require.NoError(t, again.RestoreState(statetest.Reader(statetest.Backup(t, m, false))))
		require.Equal(t, m.Rows(), again.Rows())
		rows := m.Rows()
		q := heavyhitter.Compare(rows, exact, options.Threshold)
		require.Equal(t, 1.0, q.Recall)
		for i, r := range rows {
			require.Equal(t, i+1, r.Rank)
			require.GreaterOrEqual(t, r.Estimate, exact.Weight(r.Key))
			require.LessOrEqual(t, r.Estimate, exact.Weight(r.Key)+exact.Total()/float64(options.Capacity)+1e-9)
			require.InDelta(t, r.Estimate/exact.Total(), r.Share, 1e-12)
		}
	})
}

// TestMergeLaws: neither the order of the partitions matters, nor those without items. That the parts are the whole holds
// as a bound only: the estimate of the merge and that of one summary of everything are each above the truth by at most
// total/Capacity. There is no associativity to check, since what is merged is not merged again.
func TestMergeLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := options
		o.Threshold = 1 / float64(o.Capacity) // every key that is certain to have a counter
		whole, parts := NewCount(o), []*Count{NewCount(o), NewCount(o), NewCount(o)}
		for _, part := range parts {
			for range rapid.IntRange(0, 60).Draw(t, "items") {
				it := drawItem(t)
				require.NoError(t, whole.Process(it, nil))
				require.NoError(t, part.Process(it, nil))
			}
		}
		merged := func(parts ...*Count) []heavyhitter.Row {
			m := NewMerge(o)
			for _, part := range parts {
				for p := range part.summary.partials() {
					require.NoError(t, m.Process(p, nil))
				}
			}
			return m.Rows()
		}
		rows := merged(parts...)
		require.Equal(t, rows, merged(parts[2], parts[0], parts[1]))
		require.Equal(t, rows, merged(parts[1], parts[0], parts[2]))
		require.Equal(t, rows, merged(NewCount(o), parts[0], parts[1], NewCount(o), parts[2]))
		estimates := map[connector.Key]float64{}
		for _, row := range merged(whole) {
			estimates[row.Key] = row.Estimate
		}
		for _, row := range rows {
			if e, ok := estimates[row.Key]; ok {
				require.InDelta(t, e, row.Estimate, whole.summary.total/float64(o.Capacity))
			}
		}
	})
}

// TestMergeOfAKeyThatAPartitionForgot: it counts what it may have had there.
func TestMergeOfAKeyThatAPartitionForgot(t *testing.T) {
	o := Options{Capacity: 2, Threshold: 0.5}
	m := NewMerge(o)
	for _, items := range [][]connector.Keyed{{item("x", 10)}, {item("x", 1), item("y", 2), item("z", 3)}} {
		c := NewCount(o)
		require.NoError(t, c.ProcessBatch(items, nil))
		for p := range c.summary.partials() {
			require.NoError(t, m.Process(p, nil))
		}
	}
	require.Equal(t, []heavyhitter.Row{{Rank: 1, Key: item("x", 0).Key, Estimate: 12, Share: 0.75}}, m.Rows())
}

func TestManyPieces(t *testing.T) {
	o := Options{Capacity: 2000, Threshold: 0.01, Alpha: 1}
	c, m := NewCount(o), NewMerge(o)
	for i := range 5000 {
		require.NoError(t, c.Process(item(fmt.Sprint(i), 1), nil))
		require.NoError(t, c.Process(item("heavy", 1), nil))
	}
	pieces := 0
	for p := range c.summary.partials() {
		require.NoError(t, m.Process(p, nil))
		pieces++
	}
	require.Equal(t, 4, pieces)
	require.Equal(t, 10_000.0, m.total)
	require.Equal(t, []heavyhitter.Row{{Rank: 1, Key: item("heavy", 0).Key, Estimate: 5000, Share: 0.5}}, m.Rows())
}

func TestWeights(t *testing.T) {
	for _, w := range []float64{-1, 3.5, math.NaN(), math.Inf(1)} {
		require.ErrorIs(t, NewCount(options).Process(item("a", w), nil), ErrWeight)
	}
	o := options
	o.Alpha = 0
	c := NewCount(o)
	c.SetTheta(1)
	for range 2 {
		require.NoError(t, c.Process(item("a", math.MaxFloat64), nil))
	}
	require.Equal(t, math.Inf(1), c.StateDivergence())
	require.ErrorIs(t, c.BackupState(stream.NewStateWriter(nil, true)), ErrWeight)
}

func TestValidate(t *testing.T) {
	for _, o := range []Options{
		{}, {Capacity: MaxCapacity + 1, Threshold: 1}, {Capacity: 10, Threshold: 0.09}, {Capacity: 10, Threshold: 1.1},
		{Capacity: 10, Threshold: math.NaN()}, {Capacity: 10, Threshold: 1, Alpha: -1},
	} {
		require.ErrorIs(t, o.Validate(), ErrOptions)
		require.Panics(t, func() { NewCount(o) })
		require.Panics(t, func() { NewMerge(o) })
	}
}

// TestDivergence: at any moment what a restore finds is a summary of the items up to some point, and the weight of those
// after it is at most the divergence.
func TestDivergence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := NewCount(options)
		c.SetTheta(10)
		s, stale := statetest.NewStore(c), false
		var items []connector.Keyed // of this window
		check := func(backups [][]byte) {
			r, exact := NewCount(options), heavyhitter.NewExact()
			require.NoError(t, r.RestoreState(statetest.Reader(backups...)))
			for _, it := range items {
				if exact.Total() < r.summary.total {
					require.NoError(t, exact.Add(it))
				}
			}
			checkEstimates(t, &r.summary, exact)
			require.LessOrEqual(t, c.summary.total-exact.Total(), c.StateDivergence())
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			if rapid.IntRange(0, 60).Draw(t, "reset") == 0 {
				s.LandUnheard() // it may have become durable
				c.reset()
				stale, items = c.saved, nil
			}
			for range rapid.IntRange(0, 9).Draw(t, "items") {
				it := drawItem(t)
				items = append(items, it)
				require.NoError(t, c.Process(it, nil))
			}
			s.Draw(t)
			stale = stale && math.IsInf(c.StateDivergence(), 1)
			if !stale {
				check(s.Durable())
				check(s.Landed())
			}
		}
		s.Land()
		s.Save(t, false)
		require.Zero(t, c.StateDivergence())
		check(s.Durable())
	})
}

func TestRestoreRefuses(t *testing.T) {
	o := options
	o.Capacity = 9
	require.ErrorIs(t, NewCount(o).RestoreState(statetest.Reader(statetest.Backup(t, NewCount(options), true))), ErrOptions)
	c := NewCount(options)
	require.NoError(t, c.Process(item("a", 1), nil))
	value := string(statetest.Backup(t, c, true))
	for _, chunk := range [][]byte{statetest.Element("total", "x"), statetest.Element("\x00\x00\x00\x01", value), statetest.Element("\x00\x00\x00\x00", "12345678"), statetest.Element("k", "12345678"), statetest.Element("summary", "1")} {
		require.ErrorIs(t, NewCount(options).RestoreState(statetest.Reader(chunk)), stream.ErrState)
		require.ErrorIs(t, NewMerge(options).RestoreState(statetest.Reader(chunk)), stream.ErrState)
	}
}

func FuzzPartial(f *testing.F) {
	c := NewCount(options)
	require.NoError(f, c.ProcessBatch([]connector.Keyed{item("a", 1), item("b", 2)}, nil))
	statetest.FuzzBinary(f, ErrPartial, func(t *testing.T, p Partial, wire, again []byte) {
		require.Equal(t, wire, again)
		require.NoError(t, NewMerge(options).Process(p, nil))
	}, slices.Collect(c.summary.partials())...)
}

func FuzzRestoreState(f *testing.F) {
	c := NewCount(options)
	require.NoError(f, c.ProcessBatch([]connector.Keyed{item("a", 1), item("b", 2)}, nil))
	statetest.Restore[*Count]{
		Fresh:    func() *Count { return NewCount(options) },
		View:     func(c *Count) any { return c.Counters() },
		Refusals: []error{ErrOptions},
	}.Fuzz(f, c)
}

func FuzzRestoreMerge(f *testing.F) {
	c, m := NewCount(options), NewMerge(options)
	require.NoError(f, c.ProcessBatch([]connector.Keyed{item("a", 1), item("b", 2)}, nil))
	for p := range c.summary.partials() {
		require.NoError(f, m.Process(p, nil))
	}
	statetest.Restore[*Merge]{
		Fresh: func() *Merge { return NewMerge(options) }, View: func(m *Merge) any { return m.keys },
	}.Fuzz(f, m)
}

func benchItems() []connector.Keyed {
	r := rand.New(rand.NewPCG(1, 0))
	zipf := rand.NewZipf(r, 1.1, 2, 100_000)
	items := make([]connector.Keyed, 1<<16)
	for i := range items {
		items[i] = item(fmt.Sprint("key", zipf.Uint64()), 1)
	}
	return items
}

func TestProcessBatchDoesNotAllocate(t *testing.T) {
	items := benchItems()
	c := NewCount(Options{Capacity: 100, Threshold: 0.1, Alpha: 1})
	require.NoError(t, c.ProcessBatch(items, nil))
	require.Zero(t, testing.AllocsPerRun(3, func() {
		if err := c.ProcessBatch(items, nil); err != nil {
			t.Error(err)
		}
	}))
}

// BenchmarkByHand is what the other is measured against: Space-Saving on a Go map of pointers into a heap, without any
// fault tolerance. One operation is one item.
func BenchmarkByHand(b *testing.B) {
	items := benchItems()
	type counter struct {
		key    connector.Key
		hash   uint64
		weight float64
		place  int
	}
	counters, heap := map[uint64]*counter{}, []*counter{}
	down := func(at int) {
		for {
			child := 2*at + 1
			if child >= len(heap) {
				return
			}
			if child+1 < len(heap) && heap[child+1].weight < heap[child].weight {
				child++
			}
			if heap[at].weight <= heap[child].weight {
				return
			}
			heap[at], heap[child] = heap[child], heap[at]
			heap[at].place, heap[child].place = at, child
			at = child
		}
	}
	b.ResetTimer()
	for n := range b.N {
		it := &items[n&(1<<16-1)]
		c, ok := counters[it.Hash]
		switch {
		case ok:
			c.weight += it.Weight
		case len(heap) < 1000:
			c = &counter{key: it.Key, hash: it.Hash, place: len(heap)} // no weight: it may stay where it is
			counters[it.Hash] = c
			heap = append(heap, c)
			for at := c.place; at > 0 && heap[(at-1)/2].weight > heap[at].weight; at = (at - 1) / 2 {
				parent := (at - 1) / 2
				heap[at], heap[parent] = heap[parent], heap[at]
				heap[at].place, heap[parent].place = at, parent
			}
			c.weight = it.Weight
		default:
			c = heap[0]
			delete(counters, c.hash)
			counters[it.Hash] = c
			c.key, c.hash = it.Key, it.Hash
			c.weight += it.Weight
		}
		down(c.place)
	}
}

// BenchmarkProcessBatch takes backups when they are asked for.
func BenchmarkProcessBatch(b *testing.B) {
	items := benchItems()
	for _, theta := range []float64{math.Inf(1), 100_000} {
		b.Run(fmt.Sprint("theta=", theta), func(b *testing.B) {
			c := NewCount(Options{Capacity: 1000, Threshold: 0.01, Alpha: 1})
			c.SetTheta(theta)
			w := stream.NewStateWriter(nil, false)
			b.ResetTimer()
			for n := 0; n < b.N; n += 256 {
				at := n & (1<<16 - 1)
				if err := c.ProcessBatch(items[at:at+256], nil); err != nil {
					b.Fatal(err)
				}
				if c.StateDivergence() > theta*3/4 {
					w.Reset(false)
					if err := c.BackupState(w); err != nil {
						b.Fatal(err)
					}
					c.BackupDurable()
				}
			}
		})
	}
}

// TestEstimates: what is told of the merged summaries holds for every key, and does not change with what comes later.
func TestEstimates(t *testing.T) {
	var told []Estimates
	o := Options{Capacity: 2, Threshold: 0.9, OnMerged: func(_ stream.Window, e Estimates) error {
		told = append(told, e)
		return nil
	}}
	m := NewMerge(o)
	require.Zero(t, m.Estimates().Total())
	count := func(keys string) {
		c := NewCount(o)
		for _, k := range keys {
			require.NoError(t, c.Process(connector.MakeKeyed([]byte(string(k)), 1), nil))
		}
		for p := range c.summary.partials() {
			require.NoError(t, m.Process(p, nil))
		}
	}
	count("aaab")
	count("aacc")
	require.NoError(t, m.CloseWindow(stream.Window{Last: true}, nil), "no key is that heavy")
	count("aaaa")
	require.Len(t, told, 1)
	e := told[0]
	require.Equal(t, 8.0, e.Total())
	require.Equal(t, 5.0, e.Of(connector.MakeKey([]byte("a"))))
	require.Equal(t, 1.0+2, e.Of(connector.MakeKey([]byte("b"))), "the second summary may have as many as its least")
	require.Equal(t, 2.0+1, e.Of(connector.MakeKey([]byte("c"))))
	require.Equal(t, 3.0, e.Of(connector.MakeKey([]byte("never"))), "the least of both")
	require.Zero(t, Estimates{}.Of(connector.MakeKey([]byte("a"))))
}
