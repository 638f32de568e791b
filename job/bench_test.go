//go:build unix

package job

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/algorithms/grep"
	"github.com/afstream/afstream/algorithms/logreg"
	"github.com/afstream/afstream/algorithms/wordcount"
	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// Inputs of the benchmarks. Those that come with the program are small; `make data` fetches larger ones.
var (
	benchTextPath    = flag.String("bench.text", connector.Builtin+"opticks", "text that the benchmarks of wordcount and grep read")
	benchFlightsPath = flag.String("bench.flights", connector.Builtin+"flights", "flights that the benchmarks of join and logistic-regression read")
	benchSide        = flag.String("bench.side", "", "the only side to run, to be profiled: hand, none, approximate, errorfree")
	benchSize        = flag.Float64("bench.size", 1, "how much of the usual amount of input the benchmarks read")
)

// contest is one job beside the same work by hand.
type contest struct {
	items  int     // of the whole input
	bytes  float64 // of the whole input, 0 if that says nothing
	slow   int     // items that error-free gets: it waits for a backup with each
	params errorbound.Params
	// hand does the work in one loop, without an engine, and returns a figure that tells whether it is the same work.
	hand func() uint64
	// job builds the pipeline over the first items of the same input, and returns where to read that figure after it.
	job func(items int) (*stream.Topology, func() uint64)
}

// side is one way to do the work of a contest.
type side struct {
	name      string
	guarantee worker.Guarantee // of the pipeline
	hand      bool
}

var sides = []side{
	{name: "hand", hand: true}, {name: "none", guarantee: worker.None}, {name: "approximate", guarantee: worker.Approximate},
	{name: "errorfree", guarantee: worker.ErrorFree},
}

// cost is what one run took for each item.
type cost struct{ wall, cpu float64 } // ns

// BenchmarkJobs sets four jobs beside the same work by hand, on the same items in memory. One operation is a round: each
// side once, one after the other, so that whatever else the machine does meets all of them alike. It reports medians over the
// rounds of the time of each side for an item, and of the ratios within a round:
//
//	hand/none         by how much the pipeline is as fast as the loop by hand, per core (procs=2: both of them are used)
//	none/approximate  by how much the promise leaves of the speed
//
// each of the time that passed and, with the suffix cpu, of the processor time that the process used, all its goroutines,
// the collector of garbage and the writing of backups included. On a machine with other work to do only the latter tells much.
func BenchmarkJobs(b *testing.B) {
	run := func(name string, prepare func(*testing.B) contest) {
		b.Run(name, func(b *testing.B) {
			c := prepare(b)
			for _, procs := range []int{1, 2} {
				b.Run(fmt.Sprintf("procs=%d", procs), func(b *testing.B) {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
					c.rounds(b, float64(procs))
				})
			}
		})
	}
	run("wordcount", wordcountContest)
	run("grep", grepContest)
	run("join", func(b *testing.B) contest { return joinContest(b, joinParams) })
	run("join-wide", func(b *testing.B) contest { return joinContest(b, wideParams) })
	run("logistic-regression", logisticContest)
}

// rounds runs b.N rounds and reports on them. A pipeline on several cores is compared per core.
func (c *contest) rounds(b *testing.B, procs float64) {
	costs := make([][]cost, len(sides))
	for range b.N {
		want := uint64(0)
		for i, s := range sides {
			if *benchSide != "" && *benchSide != s.name {
				continue
			}
			took, got := c.run(b, s)
			costs[i] = append(costs[i], took)
			if s.hand {
				want = got
			}
			require.True(b, *benchSide != "" || got == want || s.guarantee == worker.ErrorFree && c.slow < c.items, "%s: %d, by hand %d", s.name, got, want)
		}
	}
	for i, s := range sides {
		if len(costs[i]) > 0 {
			b.ReportMetric(median(b.N, func(n int) float64 { return costs[i][n].wall }), s.name+"-ns/item")
		}
	}
	if *benchSide != "" {
		return
	}
	hand, none, approximate := costs[0], costs[1], costs[2]
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(b.N, func(n int) float64 { return hand[n].wall / (none[n].wall * procs) }), "hand/none")
	b.ReportMetric(median(b.N, func(n int) float64 { return none[n].wall / approximate[n].wall }), "none/approximate")
	b.ReportMetric(median(b.N, func(n int) float64 { return hand[n].cpu / none[n].cpu }), "hand/none-cpu")
	b.ReportMetric(median(b.N, func(n int) float64 { return none[n].cpu / approximate[n].cpu }), "none/approximate-cpu")
	if c.bytes > 0 {
		b.ReportMetric(c.bytes/float64(c.items)/median(b.N, func(n int) float64 { return approximate[n].wall * procs }), "approximate-GB/s/core")
	}
}

func median(n int, of func(int) float64) float64 {
	var all []float64
	for i := range n {
		all = append(all, of(i))
	}
	slices.Sort(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}

// run does the work once, and measures the run alone: stores are opened, and topologies built, before.
func (c *contest) run(b *testing.B, s side) (cost, uint64) {
	items, work := c.items, c.hand
	if !s.hand {
		if s.guarantee == worker.ErrorFree {
			items = c.slow
		}
		o := controller.Options{Params: c.params, Guarantee: s.guarantee}
		if s.guarantee != worker.None {
			store, err := backup.OpenBadger(b.TempDir(), backup.BadgerOptions{})
			require.NoError(b, err)
			defer func() { require.NoError(b, store.Close()) }()
			o.Store = store
		}
		topology, figure := c.job(items)
		work = func() uint64 {
			_, err := controller.RunLocal(context.Background(), topology, o)
			require.NoError(b, err)
			return figure()
		}
	}
	runtime.GC()
	before, start := cpuTime(b), time.Now()
	figure := work()
	wall, cpu := time.Since(start), cpuTime(b)-before
	return cost{float64(wall) / float64(items), float64(cpu) / float64(items)}, figure
}

// cpuTime returns the processor time that the process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// sized returns how many of n items to use.
func sized(n int) int { return max(1, int(float64(n)**benchSize)) }

// readBench reads an input into memory.
func readBench[T any](b *testing.B, open stream.NewSource[T]) (all []T) {
	source, err := open(0, 1)
	require.NoError(b, err)
	buffer := make([]T, 1024)
	for {
		n, err := source.Read(buffer)
		all = append(all, buffer[:n]...)
		if err == io.EOF {
			break
		}
		require.NoError(b, err)
	}
	require.NoError(b, source.Close())
	return all
}

// benchBlocks cuts a text of size bytes, the input as often as needed, into blocks.
func benchBlocks(b *testing.B, size int, o connector.BlockOptions) []connector.Block {
	o.Path = *benchTextPath
	var blocks []connector.Block
	for total := 0; total < size; {
		for _, block := range readBench(b, connector.Blocks(o)) { // each time in memory of its own
			if blocks = append(blocks, block); total < size {
				total += len(block.Text)
			}
		}
	}
	return blocks
}

func textSize(blocks []connector.Block) (n float64) {
	for _, block := range blocks {
		n += float64(len(block.Text))
	}
	return n
}

// The parameters of the source paper's experiments.
var (
	textParams  = errorbound.Params{Theta: 1e4, L: 1e3, Gamma: 1e3}
	joinParams  = errorbound.Params{Theta: 1e3, L: 1e3, Gamma: 1e3}
	wideParams  = errorbound.Params{Theta: 1e3, L: 1e4, Gamma: 1e4} // the pairs of as many rows, about: a row has nine
	learnParams = errorbound.Params{Theta: 10, L: 1e3, Gamma: 1e3}
)

// wordcountContest: blocks of 256 bytes are cut into runs of ASCII letters and digits, which are counted; all words are
// ranked at the end.
func wordcountContest(b *testing.B) contest {
	w := DefaultWordCount()
	w.Workers, w.Words.Boundaries = 1, wordcount.Alnum
	blocks := benchBlocks(b, sized(32<<20), wordcount.Blocks("", w.Words))
	return contest{
		items: len(blocks), bytes: textSize(blocks), slow: min(len(blocks), 5000), params: textParams,
		hand: func() uint64 { return figureOfWords(wordsByHand(blocks)) },
		job: func(items int) (*stream.Topology, func() uint64) {
			var rows connector.Collector[wordcount.Row]
			return w.topology(connector.Slice(blocks[:items]), &rows), func() uint64 { return figureOfWords(rows.Items()) }
		},
	}
}

// grepContest: blocks of 64 KiB are searched for a word; the lines that have it are kept, with their numbers and places.
func grepContest(b *testing.B) contest {
	g := DefaultGrep()
	g.Workers, g.Find.Strings = 1, []string{"Crystalline"}
	text := benchBlocks(b, 64<<20, grep.Blocks("", g.Find))
	var blocks []connector.Block
	for len(blocks) == 0 || textSize(blocks) < float64(sized(1<<30)) {
		blocks = append(blocks, text...)
	}
	return contest{
		items: len(blocks), bytes: textSize(blocks), slow: min(len(blocks), 2000), params: textParams,
		hand: func() uint64 { return figureOfMatches(matchesByHand(blocks, g.Find.Strings[0])) },
		job: func(items int) (*stream.Topology, func() uint64) {
			var matches connector.Collector[grep.Match]
			return g.topology(connector.Slice(blocks[:items]), &matches), func() uint64 { return figureOfMatches(matches.Items()) }
		},
	}
}

// benchFlights returns n flights in the order of departure: those of the input again and again, each time so much later
// that the days go on.
func benchFlights(b *testing.B, n int) []logreg.Flight {
	const day = 24 * 60 * microsOfMinute
	all := readBench(b, openFlights(*benchFlightsPath, false, 0, func() (func(*logreg.Flight) (logreg.Flight, error), func(logreg.Flight)) {
		return func(f *logreg.Flight) (logreg.Flight, error) { return *f, nil }, nil
	}))
	span := (all[len(all)-1].Micros-all[0].Micros)/day*day + day
	for i := 0; len(all) < n; i++ {
		f := all[i]
		f.Micros += span
		all = append(all, f)
	}
	return all[:n]
}

// joinContest: flights that arrive are joined with those that leave the same airport within half an hour; the pairs are
// kept. An item is a row of either input; what params limit is pairs.
func joinContest(b *testing.B, params errorbound.Params) contest {
	j := DefaultJoin()
	j.Workers = 1
	var left, right []JoinRow
	for i, f := range benchFlights(b, sized(100_000)) {
		a, err := arrival(&f)
		require.NoError(b, err)
		d, err := departure(&f)
		require.NoError(b, err)
		a.Number, d.Number = uint64(i+1), uint64(i+1)
		left, right = append(left, a), append(right, d)
	}
	return contest{
		items: 2 * len(left), slow: min(2*len(left), 5000), params: params,
		hand: func() uint64 { return uint64(len(pairsByHand(left, right, j.Window, j.Slack))) },
		job: func(items int) (*stream.Topology, func() uint64) {
			var pairs connector.Collector[pair]
			in := &joinInput{left: connector.Slice(left[:items/2]), right: connector.Slice(right[:items/2])}
			return j.topology(in, &pairs), func() uint64 { return uint64(pairs.Len()) }
		},
	}
}

// logisticContest: flights become examples by hashing, from which a model of 2^18 weights learns by AdaGrad, predicting each
// first; the model is sent on and kept at the end, since there is one learner.
func logisticContest(b *testing.B) contest {
	l := DefaultLogisticRegression()
	l.Workers = 1
	flights := benchFlights(b, sized(500_000))
	return contest{
		items: len(flights), slow: min(len(flights), 5000), params: learnParams,
		hand: func() uint64 { return math.Float64bits(modelByHand(flights, l.Model)) },
		job: func(items int) (*stream.Topology, func() uint64) {
			into := &learned{}
			hasher := logreg.NewHasher(l.Model.Bits)
			open := translation[logreg.Flight, logreg.Example]{over: hasher.Reuse, convert: func(f logreg.Flight) (logreg.Example, bool, error) {
				return hasher.Flight(&f), true, nil
			}}.open(connector.Slice(flights[:items]))
			return l.topology(open, into), func() uint64 { return math.Float64bits(norm(into.weights.Items())) }
		},
	}
}
