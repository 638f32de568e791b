// Command feedback shows an operator that tells another one upstream what it has learned. It finds the largest of many
// numbers: whoever collects them tells the filters before it which numbers are too small, so that hardly any are sent.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"slices"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/state"
	"github.com/afstream/afstream/stream"
)

const (
	keep  = 5  // how many numbers are looked for
	often = 16 // the collector sends feedback for every so many numbers
	ahead = 64 // a filter sends about so many and then waits for feedback; more than often, or it would wait in vain
)

// least is the feedback: what is not above it need not be sent.
type least uint64

// filter passes on what may be among the largest. A limit that is out of date lets more pass and nothing get lost, so
// there is no state to save.
type filter struct {
	limit least
	sent  int // since the last feedback
}

func (f *filter) Process(number uint64, out *stream.Emitter[uint64]) error {
	if number > uint64(f.limit) {
		f.sent++
		out.Emit(number)
	}
	return nil
}

// Feedback makes filter a stream.FeedbackReceiver. A collector that has just recovered may know less than its
// predecessor, whose limits were right all the same.
func (f *filter) Feedback(_ int, limit least) error {
	f.limit, f.sent = max(f.limit, limit), 0
	return nil
}

// Pace makes filter a stream.Pacer: without it, all numbers might have been sent before the first feedback comes.
func (f *filter) Pace() int { return max(ahead-f.sent, 0) }

// largest collects the largest numbers.
type largest struct {
	state.Set[uint64]
	seen int // by this incarnation
	back *stream.Feedback[least]
}

// SetFeedback makes largest a stream.FeedbackSender.
func (l *largest) SetFeedback(back *stream.Feedback[least]) { l.back = back }

// limit returns the smallest number that is kept, 0 as long as there is room for any.
func (l *largest) limit() uint64 {
	if l.Len() < keep {
		return 0
	}
	return slices.Collect(l.All())[0]
}

func (l *largest) Process(number uint64, _ *stream.Emitter[uint64]) error {
	if limit := l.limit(); number > limit && l.Add(number) && limit > 0 {
		l.Delete(limit)
	}
	if l.seen%often == 0 { // also the first one, after a failure
		l.back.Broadcast(least(l.limit()))
	}
	l.seen++
	return nil
}

func (l *largest) CloseWindow(_ stream.Window, out *stream.Emitter[uint64]) error {
	for number := range l.All() {
		out.Emit(number)
	}
	return nil
}

func run(w io.Writer) error {
	numbers, random := make([]uint64, 100_000), rand.New(rand.NewPCG(1, 2))
	for i := range numbers {
		numbers[i] = random.Uint64N(1e9)
	}
	var out connector.Collector[uint64]
	t := stream.New("feedback")
	source := stream.From(t, "numbers", connector.Slice(numbers))
	filtered := stream.Then(source, "filter", func() *filter { return &filter{} }, stream.Workers(2))
	found := stream.Then(filtered, "largest", func() *largest { return &largest{} }, stream.EmitOnClose())
	stream.To(found, "out", connector.Collect(&out))
	stream.FeedbackTo[least](found, filtered)
	// So few numbers are left that all can be backed up: with Theta and L of 0, the failure of their collector costs none.
	result, err := controller.RunLocal(context.Background(), t, controller.Options{
		Params: errorbound.Params{Gamma: 1000},
		Faults: []controller.Fault{{Operator: "largest", Items: 100}},
	})
	if err != nil {
		return err
	}
	for _, number := range out.Items() {
		fmt.Fprintln(w, number)
	}
	_, err = fmt.Fprintf(w, "failures: %d, items sent: %d for %d numbers\n",
		len(result.Failures), result.Operators[1].Emitted, len(numbers))
	return err
}

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}
