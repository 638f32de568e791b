// Command twostates shows an operator with two states: flights by airport and flights by distance, as one state.Group with
// one divergence and one backup.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/state"
	"github.com/afstream/afstream/stream"
)

// Distances are counted in bands of so many miles, the last of which has no end.
const (
	bandMiles = 500
	bands     = 6
)

// busy is how many flights an airport must have to be listed.
const busy = 600

// bandsWeight is how much further the bands may be off than an airport: they take the same flights, but all of them.
const bandsWeight = 10

// row is one line of the answer.
type row struct {
	N  int64
	Of string
}

// survey is what is kept: its ways to be saved and restored are those of the Group.
type survey struct {
	*state.Group
	airports state.Map[string, int64]
	bands    *state.Array[int64]
}

func newSurvey() *survey {
	s := &survey{
		Group: state.NewGroup(state.Largest),
		bands: state.NewArray[int64](bands, state.Options{Norm: errorbound.L1, Alpha: 1}),
	}
	s.airports.Configure(state.Options{Alpha: 1})
	// The names are part of every backup. The weights say what Theta stands for:
	s.Add("airports", 1, &s.airports)    // each airport is off by at most Theta
	s.Add("bands", bandsWeight, s.bands) // all bands together by at most bandsWeight times Theta
	return s
}

func (s *survey) Process(flight connector.Keyed, _ *stream.Emitter[row]) error {
	s.airports.Add(flight.Key.String(), 1)
	s.bands.Add(min(int(flight.Weight)/bandMiles, bands-1), 1)
	return nil
}

func (s *survey) CloseWindow(_ stream.Window, out *stream.Emitter[row]) error {
	for airport, n := range s.airports.All() {
		if n >= busy {
			out.Emit(row{N: n, Of: "from " + airport})
		}
	}
	for i, n := range s.bands.All() {
		out.Emit(row{N: n, Of: fmt.Sprintf("of %d miles or more", i*bandMiles)})
	}
	return nil
}

func run(w io.Writer) error {
	open, err := connector.OpenKeyed(connector.KeyedOptions{Path: "builtin:flights", Key: "origin", Weight: "distance"})
	if err != nil {
		return err
	}
	var out connector.Collector[row]
	t := stream.New("twostates")
	flights := stream.From(t, "flights", open)
	rows := stream.Then(flights, "survey", newSurvey, stream.EmitOnClose())
	stream.To(rows, "rows", connector.Collect(&out))
	params := errorbound.Params{Theta: 50, L: 100, Gamma: 100}
	result, err := controller.RunLocal(context.Background(), t, controller.Options{
		Params: params,
		Faults: []controller.Fault{{Operator: "survey", Items: 5000}, {Operator: "survey", Items: 15_000}},
	})
	if err != nil {
		return err
	}
	for _, r := range out.Items() {
		fmt.Fprintf(w, "%5d %s\n", r.N, r.Of)
	}
	for _, f := range result.Failures {
		fmt.Fprintf(w, "failed at %g of at most %g behind the backup\n", f.Divergence, f.DivergenceBudget)
	}
	// The source can go back, so that no flight is lost: only Theta counts.
	_, err = fmt.Fprintf(w, "no airport is off by more than %g, all bands together by no more than %g\n",
		params.Theta, bandsWeight*params.Theta)
	return err
}

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}
