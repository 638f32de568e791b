package controller_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/stream"
)

// split cuts lines into words.
type split struct{}

func (split) Process(line string, out *stream.Emitter[string]) error {
	for word := range strings.FieldsSeq(line) {
		out.Emit(strings.ToLower(word))
	}
	return nil
}

// Count says how often a word came.
type Count struct {
	Word string
	N    int
}

// tally counts words. Its state is lost by a failure: it has none of the abilities that would save it.
type tally struct{ counts map[string]int }

func newTally() *tally { return &tally{counts: map[string]int{}} }

func (t *tally) Process(word string, _ *stream.Emitter[Count]) error {
	t.counts[word]++
	return nil
}

func (t *tally) CloseWindow(_ stream.Window, out *stream.Emitter[Count]) error {
	for word, n := range t.counts {
		out.Emit(Count{Word: word, N: n})
	}
	return nil
}

// A topology of a source, two operators and a sink. Hash sends all occurrences of a word to the same of three workers.
func ExampleRunLocal() {
	t := stream.New("wordcount")
	lines := stream.From(t, "lines", connector.Slice([]string{
		"How much wood would a woodchuck chuck",
		"if a woodchuck could chuck wood",
	}))
	words := stream.Then(lines, "split", func() split { return split{} })
	counts := stream.Then(words, "count", newTally, stream.Hash(func(word string) string { return word }), stream.Workers(3))
	var out connector.Collector[Count]
	stream.To(counts, "out", connector.Collect(&out))

	if _, err := controller.RunLocal(context.Background(), t, controller.Options{}); err != nil {
		fmt.Println(err)
		return
	}
	items := out.Items()
	slices.SortFunc(items, func(a, b Count) int { return cmp.Or(b.N-a.N, strings.Compare(a.Word, b.Word)) })
	for _, c := range items[:5] {
		fmt.Println(c.N, c.Word)
	}
	// Output:
	// 2 a
	// 2 chuck
	// 2 wood
	// 2 woodchuck
	// 1 could
}

// mean keeps the mean of what it has seen, and makes that state fault tolerant by three methods.
type mean struct {
	n     uint64
	sum   float64
	saved float64 // sum at the last backup
}

func (m *mean) Process(x float64, _ *stream.Emitter[float64]) error {
	m.n++
	m.sum += x
	return nil
}

func (m *mean) CloseWindow(_ stream.Window, out *stream.Emitter[float64]) error {
	out.Emit(m.sum / float64(m.n))
	return nil
}

// StateDivergence is how far the sum has moved since the last backup: theta is in its unit.
func (m *mean) StateDivergence() float64 { return math.Abs(m.sum - m.saved) }

// The elements of the state, by index.
const (
	meanN = iota
	meanSum
)

func (m *mean) BackupState(w *stream.StateWriter) error {
	w.PutUint64(meanN, m.n)
	w.PutUint64(meanSum, math.Float64bits(m.sum))
	m.saved = m.sum
	return nil
}

func (m *mean) RestoreState(r *stream.StateReader) error {
	for r.Next() {
		index, value, err := r.Uint64()
		if err != nil {
			return err
		}
		switch index {
		case meanN:
			m.n = value
		case meanSum:
			m.sum = math.Float64frombits(value)
		default:
			return fmt.Errorf("%w: element %d", stream.ErrState, index)
		}
	}
	m.saved = m.sum
	return r.Err()
}

// A state of one's own, through two failures. The source can go back, so nothing is lost with the worker: what was
// processed after its last backup is processed again.
func ExampleRunLocal_ownState() {
	numbers := make([]float64, 1000)
	for i := range numbers {
		numbers[i] = float64(i + 1)
	}
	t := stream.New("mean")
	source := stream.From(t, "numbers", connector.Slice(numbers))
	means := stream.Then(source, "mean", func() *mean { return &mean{} }, stream.EmitOnClose())
	var out connector.Collector[float64]
	stream.To(means, "out", connector.Collect(&out))

	o := controller.Options{Faults: []controller.Fault{
		{Operator: "mean", Items: 300},
		{Operator: "mean", Items: 900},
	}}
	o.Theta, o.L, o.Gamma = 10_000, 100, 100
	result, err := controller.RunLocal(context.Background(), t, o)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d failures, mean %g\n", len(result.Failures), out.Items()[0])
	// Output: 2 failures, mean 500.5
}
