package job

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/algorithms/aggregate"
	"github.com/afstream/afstream/algorithms/distinct"
	"github.com/afstream/afstream/algorithms/heavyhitter"
	"github.com/afstream/afstream/algorithms/wordcount"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/jobtest"
	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// runScaled runs a topology while the number of workers of some operators changes, and returns how often it did.
func runScaled(t *testing.T, top *stream.Topology, o controller.Options, seed uint64, operators ...string) (int, *controller.Result) {
	stop := jobtest.Scales(&o, seed, operators...)
	r, err := controller.RunLocal(t.Context(), top, o)
	n := stop()
	require.NoError(t, err)
	t.Logf("seed %d, %v: %d changes, %d failures", seed, o.Guarantee, n, len(r.Failures))
	return n, r
}

// eachWay runs test under the guarantees, without failures and with them, until the number of workers has changed.
func eachWay(t *testing.T, operators []string, test func(t *testing.T, o controller.Options, seed uint64) int) {
	for _, g := range []worker.Guarantee{worker.Approximate, worker.ErrorFree} {
		for _, failures := range []int{0, 3} {
			t.Run(fmt.Sprintf("%v, %d failures", g, failures), func(t *testing.T) {
				changes := 0
				for seed := 1; seed <= thorough.Number(1, 2) || changes == 0 && seed <= 10; seed++ {
					o := controller.Options{Params: errorbound.Params{Theta: 400, L: 20, Gamma: 200}, Guarantee: g}
					if g == worker.ErrorFree {
						o.Params = errorbound.Params{Gamma: 1}
					}
					for i := range failures {
						o.Faults = append(o.Faults, controller.Fault{Operator: operators[i%len(operators)], Share: 0.2 + 0.25*float64(i)})
					}
					changes += test(t, o, uint64(seed))
				}
				require.NotZero(t, changes)
			})
		}
	}
}

// longTailed are keyed items of a long-tailed stream.
func longTailed(seed uint64, n int) []connector.Keyed {
	zipf := rand.NewZipf(rand.New(rand.NewPCG(seed, 0)), 1.2, 1, 5000)
	items := make([]connector.Keyed, n)
	for i := range items {
		items[i] = connector.MakeKeyed(fmt.Append(nil, "key", zipf.Uint64()), 1)
	}
	return items
}

func TestScaleHeavyHitter(t *testing.T) {
	eachWay(t, []string{"sketch"}, func(t *testing.T, o controller.Options, seed uint64) int {
		items := longTailed(seed, 20_000)
		exact := heavyhitter.NewExact()
		for _, item := range items {
			require.NoError(t, exact.Add(item))
		}
		h := heavyhitter.Options{Rows: 4, Width: 2000, Threshold: 0.01, Alpha: 1}
		top := stream.New("scaled")
		source := stream.From(top, "items", jobtest.Drip(connector.Slice(items)))
		sketches := stream.Then(source, "sketch", func() *heavyhitter.Sketch { return heavyhitter.NewSketch(h) },
			stream.Workers(2), stream.Compute(1+int(seed%2)), stream.EmitOnClose())
		merged := stream.Then(sketches, "merge", func() *heavyhitter.Merge { return heavyhitter.NewMerge(h) }, stream.EmitOnClose())
		var rows connector.Collector[heavyhitter.Row]
		stream.To(merged, "rows", connector.Collect(&rows))
		n, r := runScaled(t, top, o, seed, "sketch")
		theta := 0.0
		if len(r.Failures) > 0 {
			theta = o.Theta // the source can be read again
		}
		estimates := map[connector.Key]float64{}
		for _, row := range rows.Items() {
			estimates[row.Key] = row.Estimate
		}
		for _, key := range exact.HeavyHitters(h.Threshold) {
			if got, ok := estimates[key.Key]; ok {
				require.GreaterOrEqual(t, got, key.Estimate-theta, key.Key)
			} else {
				require.Less(t, key.Estimate, h.Threshold*exact.Total()+theta, "%v is missing", key.Key)
			}
		}
		if theta == 0 {
			require.Equal(t, 1.0, heavyhitter.Compare(rows.Items(), exact, h.Threshold).Recall)
			require.InDelta(t, exact.Total(), rows.Items()[0].Estimate/rows.Items()[0].Share, 1e-6, "every item counts once")
		}
		return n
	})
}

// blocks are the items of a text that is cut into short pieces.
func blocks(seed uint64, n int) ([]connector.Block, *wordcount.Exact, wordcount.Options) {
	o := wordcount.Options{BlockSize: 32}
	exact := wordcount.NewExact(o)
	zipf := rand.NewZipf(rand.New(rand.NewPCG(seed, 0)), 1.1, 2, 3000)
	items := make([]connector.Block, n)
	for i := range items {
		items[i].Text = fmt.Append(nil, "w", zipf.Uint64(), " w", zipf.Uint64(), " w", zipf.Uint64())
		exact.Add(items[i].Text)
	}
	return items, exact, o
}

func TestScaleWordCount(t *testing.T) {
	thorough.Only(t)
	for _, split := range []bool{false, true} {
		operators := []string{"count", "merge"}
		if split {
			operators = []string{"split", "tally", "merge"}
		}
		t.Run(fmt.Sprintf("split=%v", split), func(t *testing.T) {
			eachWay(t, operators, func(t *testing.T, o controller.Options, seed uint64) int {
				items, exact, w := blocks(seed, 6000)
				top := stream.New("scaled")
				source := stream.From(top, "text", jobtest.Drip(connector.Slice(items)))
				assemble, bound := wordcount.Assemble, o.Theta
				if split {
					assemble, bound = wordcount.AssembleSplit, wordcount.BoundSplit(o.Params, w)
				}
				var rows connector.Collector[wordcount.Row]
				stream.To(assemble(source, w, wordcount.Workers{Split: 2, Count: 2, Merge: 2}), "rows", connector.Collect(&rows))
				n, r := runScaled(t, top, o, seed, operators...)
				q := wordcount.Compare(rows.Items(), exact)
				switch {
				case len(r.Failures) == 0:
					require.Zero(t, q.SumError)
					require.Equal(t, q.Words, q.Reported, "each word is reported once")
				case split: // see BoundSplit for the overdraft
					bound += float64(len(r.Failures)) * 8 * (1 + w.Alpha())
				}
				require.LessOrEqual(t, float64(q.MaxError), bound)
				return n
			})
		})
	}
}

func TestScaleAggregate(t *testing.T) {
	eachWay(t, []string{"aggregate"}, func(t *testing.T, o controller.Options, seed uint64) int {
		items := longTailed(seed, 20_000)
		a := aggregate.Options[connector.Keyed]{Key: func(item *connector.Keyed) connector.Key { return item.Key }}
		counts := map[connector.Key]uint64{}
		for _, item := range items {
			counts[item.Key]++
		}
		top := stream.New("scaled")
		var rows connector.Collector[aggregate.Row]
		stream.To(aggregate.Assemble(stream.From(top, "items", jobtest.Drip(connector.Slice(items))), a, 2), "rows", connector.Collect(&rows))
		n, r := runScaled(t, top, o, seed, "aggregate")
		got := map[connector.Key]uint64{}
		for _, row := range rows.Items() {
			_, twice := got[row.Key]
			require.False(t, twice, "%v: a key is in one partition", row.Key)
			got[row.Key] = row.Count
		}
		for key, want := range counts {
			require.LessOrEqual(t, got[key], want)
			if len(r.Failures) == 0 {
				require.Equal(t, want, got[key], key)
			}
			require.LessOrEqual(t, float64(want-got[key]), o.Theta, key)
		}
		return n
	})
}

func TestScaleDistinct(t *testing.T) {
	eachWay(t, []string{"distinct"}, func(t *testing.T, o controller.Options, seed uint64) int {
		items := longTailed(seed, 10_000)
		exact := distinct.NewExact(10)
		for _, item := range items {
			exact.Add(item)
		}
		top := stream.New("scaled")
		var rows connector.Collector[distinct.Sketch]
		stream.To(distinct.Assemble(stream.From(top, "items", jobtest.Drip(connector.Slice(items))), 10, 2), "rows", connector.Collect(&rows))
		n, r := runScaled(t, top, o, seed, "distinct")
		require.Len(t, rows.Items(), 1)
		q := distinct.Compare(rows.Items()[0], exact)
		require.Zero(t, q.HighRegisters)
		if len(r.Failures) == 0 {
			require.Zero(t, q.LowRegisters)
		}
		require.LessOrEqual(t, float64(q.LowRegisters), o.Theta)
		return n
	})
}
