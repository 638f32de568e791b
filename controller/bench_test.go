package controller_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/algorithms/countmin"
	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// The shape of the source paper's experiment.
const benchRows, benchWidth = 4, 8000

// benchItems is how many lines the benchmarks read per operation.
const benchItems = 8_000_000

// lines writes a file of Zipf-distributed keys, one a line with weight 1, and returns its path.
func lines(b *testing.B) string {
	b.Helper()
	open, err := connector.Zipf(connector.ZipfOptions{Items: benchItems, Keys: 100_000, S: 1.1, Seed: 1})
	require.NoError(b, err)
	src, err := open(0, 1)
	require.NoError(b, err)
	var text bytes.Buffer
	items := make([]connector.Keyed, 1024)
	for {
		n, err := src.Read(items)
		for _, item := range items[:n] {
			fmt.Fprintf(&text, "%s 1\n", item.Key)
		}
		if err == io.EOF {
			break
		}
		require.NoError(b, err)
	}
	path := filepath.Join(b.TempDir(), "lines.txt")
	require.NoError(b, os.WriteFile(path, text.Bytes(), 0o600))
	return path
}

// sketch is count-min alone, so that the loop by hand can do the same.
type sketch struct{ *countmin.Sketch }

func newSketch() *sketch {
	s, err := countmin.New(countmin.Params{Rows: benchRows, Width: benchWidth, Alpha: 1, TotalSlack: 1000})
	if err != nil {
		panic(err)
	}
	return &sketch{s}
}

func (s *sketch) Process(in connector.Keyed, _ *stream.Emitter[float64]) error {
	s.Update(in.Hash, in.Weight)
	return nil
}

func (s *sketch) ProcessBatch(in []connector.Keyed, _ *stream.Emitter[float64]) error {
	for i := range in {
		s.Update(in[i].Hash, in[i].Weight)
	}
	return nil
}

func (s *sketch) CloseWindow(_ stream.Window, out *stream.Emitter[float64]) error {
	out.Emit(s.Total())
	return nil
}

// pipeline runs the job once and returns the total weight that arrived.
func pipeline(b *testing.B, path string, workers int, o controller.Options) float64 {
	open, err := connector.OpenKeyed(connector.KeyedOptions{Path: path, Format: connector.FormatText})
	require.NoError(b, err)
	var totals gather[float64]
	t := stream.New("bench")
	trace := stream.From(t, "trace", open)
	sketches := stream.Then(trace, "sketch", newSketch, stream.Workers(workers), stream.EmitOnClose())
	stream.To(sketches, "total", totals.sink)
	_, err = controller.RunLocal(context.Background(), t, o)
	require.NoError(b, err)
	sum := 0.0
	for _, v := range totals.all() {
		sum += v
	}
	return sum
}

func report(b *testing.B) {
	b.ReportMetric(float64(benchItems)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mitems/s")
	b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(benchItems)/float64(b.N), "ns/item")
}

func badger(b *testing.B) backup.Store {
	b.Helper()
	s, err := backup.OpenBadger(b.TempDir(), backup.BadgerOptions{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	return s
}

// BenchmarkPipeline compares the engine with the same work in one hand-written loop, and the guarantees with one
// another: text lines are parsed, hashed and counted in a 4x8000 count-min sketch with a divergence check per counter.
func BenchmarkPipeline(b *testing.B) {
	path := lines(b)
	params := errorbound.Params{Theta: 1e4, L: 1e3, Gamma: 1e3}
	b.Run("byhand", func(b *testing.B) {
		for b.Loop() {
			require.EqualValues(b, benchItems, byHand(b, path))
		}
		report(b)
	})
	run := func(name string, workers int, o func(b *testing.B) controller.Options, exact bool) {
		b.Run(name, func(b *testing.B) {
			options := o(b)
			b.ReportAllocs()
			for b.Loop() {
				sum := pipeline(b, path, workers, options)
				require.True(b, !exact || sum == benchItems)
			}
			report(b)
		})
	}
	none := func(*testing.B) controller.Options { return controller.Options{Guarantee: worker.None} }
	approximate := func(b *testing.B) controller.Options { return controller.Options{Params: params, Store: badger(b)} }
	atRisk := func(b *testing.B) controller.Options {
		return controller.Options{Params: params, Store: badger(b), PipeSources: true}
	}
	for _, workers := range []int{1, 2} {
		run(fmt.Sprintf("none/workers=%d", workers), workers, none, true)
		run(fmt.Sprintf("approximate/workers=%d", workers), workers, approximate, true)
		run(fmt.Sprintf("atrisk/workers=%d", workers), workers, atRisk, true)
	}
}

// BenchmarkPin shows what tying compute goroutines to cores does to the approximate jobs of BenchmarkPipeline.
func BenchmarkPin(b *testing.B) {
	path := lines(b)
	for _, workers := range []int{1, 2} {
		for _, pin := range []bool{false, true} {
			b.Run(fmt.Sprintf("pin=%v/workers=%d", pin, workers), func(b *testing.B) {
				o := controller.Options{Params: errorbound.Params{Theta: 1e4, L: 1e3, Gamma: 1e3}, Store: badger(b), Pin: pin}
				for b.Loop() {
					require.EqualValues(b, benchItems, pipeline(b, path, workers, o))
				}
				report(b)
			})
		}
	}
}

// byHand is what one would write without an engine: one loop over the lines of a file, with a count-min sketch that
// compares every counter with the limit at which it would have to be backed up.
func byHand(b *testing.B, path string) uint64 {
	f, err := os.Open(path)
	require.NoError(b, err)
	defer f.Close()
	type cell struct{ value, limit float64 }
	cells := make([]cell, benchRows*benchWidth)
	for i := range cells {
		cells[i].limit = 2500
	}
	factors := [benchRows]uint64{0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb, 0xd6e8feb86659fd93}
	buf, kept, due, items := make([]byte, 256<<10), 0, 0, uint64(0)
	for {
		n, err := f.Read(buf[kept:])
		data := buf[:kept+n]
		for {
			end := bytes.IndexByte(data, '\n')
			if end < 0 {
				break
			}
			line := data[:end]
			data = data[end+1:]
			space := bytes.IndexByte(line, ' ')
			weight := 0
			for _, c := range line[space+1:] {
				weight = weight*10 + int(c-'0')
			}
			hash := xxhash.Sum64(line[:space])
			for row, factor := range factors {
				c := &cells[row*benchWidth+int(hash*factor>>32*benchWidth>>32)]
				if c.value += float64(weight); c.value >= c.limit {
					c.limit += 2500
					due++
				}
			}
			items += uint64(weight)
		}
		kept = copy(buf, data)
		if err == io.EOF {
			break
		}
		require.NoError(b, err)
	}
	require.Positive(b, due)
	require.False(b, math.IsNaN(cells[0].value))
	return items
}
