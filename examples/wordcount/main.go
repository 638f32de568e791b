// Command wordcount shows a whole job: it counts the words of a book, and fails twice on the way.
//
// The operator that counts embeds a ready state, and that is all it does for its fault tolerance. Each count ends up within
// a bound that is known before the job starts.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/state"
	"github.com/afstream/afstream/stream"
)

// row says how often a word came.
type row struct {
	Word string
	N    int64
}

// split cuts lines into words. It has no state, so there is nothing to save.
type split struct{}

func newSplit() split { return split{} }

func (split) Process(line string, out *stream.Emitter[string]) error {
	for word := range strings.FieldsFuncSeq(line, func(r rune) bool { return !unicode.IsLetter(r) }) {
		out.Emit(strings.ToLower(word))
	}
	return nil
}

// count counts the words of one partition. By embedding it has all that makes a Map fault tolerant.
type count struct{ state.Map[string, int64] }

func newCount() *count {
	c := &count{}
	// An item counts as 1, and Hash keeps all of a word in one partition, so that each partition may use all of Theta.
	c.Configure(state.Options{Combine: errorbound.Disjoint, Alpha: 1})
	return c
}

func (c *count) Process(word string, _ *stream.Emitter[row]) error {
	c.Add(word, 1)
	return nil
}

// CloseWindow emits the counts at the end of the text. All yields them in the order of the words: an operator built with
// EmitOnClose may have to emit them again, in the same order.
func (c *count) CloseWindow(_ stream.Window, out *stream.Emitter[row]) error {
	for word, n := range c.All() {
		out.Emit(row{Word: word, N: n})
	}
	return nil
}

// top is how many words are printed.
const top = 10

func run(w io.Writer) error {
	var counts connector.Collector[row]
	t := stream.New("wordcount")
	lines := stream.From(t, "lines", connector.Lines("builtin:opticks")) // or the path of a file, or "-"
	words := stream.Then(lines, "split", newSplit)
	counted := stream.Then(words, "count", newCount, stream.Hash(func(word string) string { return word }),
		stream.Workers(4), stream.EmitOnClose())
	stream.To(counted, "counts", connector.Collect(&counts))

	params := errorbound.Params{Theta: 100, L: 50, Gamma: 50}
	result, err := controller.RunLocal(context.Background(), t, controller.Options{
		Params: params,
		Faults: []controller.Fault{
			{Operator: "count", Worker: 1, Items: 2000},
			{Operator: "count", Worker: 2, Items: 4000},
		},
	})
	if err != nil {
		return err
	}

	rows := counts.Items()
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(b.N, a.N), strings.Compare(a.Word, b.Word)) })
	for _, r := range rows[:min(top, len(rows))] {
		fmt.Fprintf(w, "%6d  %s\n", r.N, r.Word)
	}
	for _, f := range result.Failures {
		fmt.Fprintf(w, "%s/%d failed at item %d, %g of at most %g behind its backup\n",
			f.Operator, f.Worker, f.AtItem, f.Divergence, f.DivergenceBudget)
	}
	// Were split to fail as well, Gamma words more could be lost and L lines be split twice.
	_, err = fmt.Fprintf(w, "however often count fails, no count is off by more than %g\n", params.StateBound(1))
	return err
}

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}
