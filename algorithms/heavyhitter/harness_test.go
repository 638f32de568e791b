package heavyhitter

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/stream"
)

// job is the topology of the package comment, driven by hand: no goroutines, slabs handed on as they are sent.
type job struct {
	sketches []stream.Task
	merge    stream.Task
	sink     stream.Task
	rows     []Row
}

// exit passes slabs to the next operator.
type exit struct{ next func() stream.Task }

func (e exit) Hurry()                  {}
func (e exit) Credit(int) int64        { return stream.Unlimited }
func (e exit) AwaitCredit(int64) int64 { return stream.Unlimited }

func (e exit) Send(_, _ int, s stream.Slab) {
	if err := e.next().Process(0, s, 0, s.Len()); err != nil {
		panic(err)
	}
	s.Release()
}

type collect struct{ rows *[]Row }

func (c collect) Write(rows []Row) error { *c.rows = append(*c.rows, rows...); return nil }
func (c collect) Close() error           { return nil }

func newJob(t testing.TB, o Options, parts int) *job {
	j := &job{}
	top := stream.New("job")
	items := stream.From(top, "items", connector.Slice[connector.Keyed](nil))
	sketches := stream.Then(items, "sketch", func() *Sketch { return NewSketch(o) }, stream.Workers(parts), stream.EmitOnClose())
	rows := stream.Then(sketches, "merge", func() *Merge { return NewMerge(o) }, stream.EmitOnClose())
	stream.To(rows, "rows", func(int, int) (stream.Sink[Row], error) { return collect{&j.rows}, nil })
	nodes, err := top.Build()
	require.NoError(t, err)
	task := func(node, part int, next func() stream.Task) stream.Task {
		task, err := nodes[node].NewTask(part, exit{next})
		require.NoError(t, err)
		task.Resume(make([]uint64, 1))
		return task
	}
	for p := range parts {
		j.sketches = append(j.sketches, task(1, p, func() stream.Task { return j.merge }))
	}
	j.merge = task(2, 0, func() stream.Task { return j.sink })
	j.sink = task(3, 0, nil)
	return j
}

func (j *job) sketch(part int) *Sketch { return j.sketches[part].Operator().(*Sketch) }

// feed gives items to partition part.
func (j *job) feed(t testing.TB, part int, items ...connector.Keyed) {
	require.NoError(t, j.sketch(part).ProcessBatch(items, nil))
}

// close ends a window and returns its rows.
func (j *job) close(t testing.TB, w stream.Window) []Row {
	j.rows = nil
	for _, task := range append(j.sketches, j.merge) {
		require.NoError(t, task.CloseWindow(w))
		task.Flush()
	}
	return j.rows
}

var last = stream.Window{Number: 1, Last: true}

func item(key string, weight float64) connector.Keyed {
	return connector.MakeKeyed([]byte(key), weight)
}

// zipfItems are n items of a long-tailed stream with weights from 1 to 3.
func zipfItems(seed uint64, n int) []connector.Keyed {
	r := rand.New(rand.NewPCG(seed, 0))
	zipf := rand.NewZipf(r, 1.2, 1, 20_000)
	items := make([]connector.Keyed, n)
	for i := range items {
		items[i] = item(fmt.Sprintf("seed%d-key%d", seed, zipf.Uint64()), float64(1+r.IntN(3)))
	}
	return items
}

func exactOf(t require.TestingT, items []connector.Keyed) *Exact {
	e := NewExact()
	for _, i := range items {
		require.NoError(t, e.Add(i))
	}
	return e
}
