// Command peers shows compute goroutines of one worker that hand values to one another. It counts flights by airport, of
// which a few have most: partitioned by airport, one goroutine would have most of the work. So the flights are dealt out
// evenly, and whoever has counted some of an airport hands them to the one goroutine that the airport belongs to. All
// share the work, every airport is in one table in the end, and nothing is left to be added up by an operator behind them.
package main

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"os"
	"slices"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/state"
	"github.com/afstream/afstream/stream"
)

// batch is how many flights are handed over at once. A failure may lose or repeat a few of such values, so this is also
// what each of them can cost.
const batch = 16

// some is what is handed over: flights from one airport, at most batch of them.
type some struct {
	airport string
	flights int64
}

// row is an airport with its flights.
type row struct {
	Airport string
	Flights int64
}

// counts holds the airports of one partition and, until there are enough to be handed over, flights from others. By
// embedding a Map it backs up both, and what goes from one partition to another counts as a change in each.
type counts struct {
	state.Map[string, int64]
	peers *stream.Peers[some]
}

func newCounts() *counts {
	c := &counts{}
	c.Configure(state.Options{Alpha: 1})
	return c
}

// SetPeers makes counts a stream.Colleague, together with Receive.
func (c *counts) SetPeers(peers *stream.Peers[some]) { c.peers = peers }

// owner returns the partition that an airport belongs to, the same after every failure.
func (c *counts) owner(airport string) int {
	h := fnv.New32a()
	io.WriteString(h, airport)
	return int(h.Sum32() % uint32(c.peers.Len()))
}

func (c *counts) Process(flight connector.Keyed, _ *stream.Emitter[row]) error {
	airport := flight.Key.String()
	if n := c.Add(airport, 1); n >= batch && c.owner(airport) != c.peers.Self() {
		c.handOver(airport, batch) // if it cannot, there are more the next time
	}
	return nil
}

// handOver hands so many flights of an airport to its owner. Only those that were taken are taken off.
func (c *counts) handOver(airport string, flights int64) bool {
	if !c.peers.Hand(c.owner(airport), some{airport, flights}) {
		return false
	}
	if c.Add(airport, -flights) == 0 {
		c.Delete(airport)
	}
	return true
}

// Receive takes flights of an airport that belongs here.
func (c *counts) Receive(_ int, s some) error {
	c.Add(s.airport, s.flights)
	return nil
}

// Finish makes counts a stream.Finisher: at the end it hands over the rest, for which there were too few before.
func (c *counts) Finish(stream.Window) (bool, error) {
	foreign := map[string]int64{}
	for airport, n := range c.All() {
		if c.owner(airport) != c.peers.Self() {
			foreign[airport] = n
		}
	}
	for airport, n := range foreign {
		for n > 0 && c.handOver(airport, min(n, batch)) {
			n -= min(n, batch)
		}
		if n > 0 {
			return false, nil
		}
	}
	return true, nil
}

// CloseWindow comes when all peers have finished: only airports that belong here are left.
func (c *counts) CloseWindow(_ stream.Window, out *stream.Emitter[row]) error {
	for airport, n := range c.All() {
		out.Emit(row{Airport: airport, Flights: n})
	}
	return nil
}

func run(w io.Writer) error {
	open, err := connector.OpenKeyed(connector.KeyedOptions{Path: "builtin:flights", Key: "origin"})
	if err != nil {
		return err
	}
	var out connector.Collector[row]
	t := stream.New("peers")
	flights := stream.From(t, "flights", open)
	counted := stream.Then(flights, "counts", newCounts, stream.Compute(4), stream.EmitOnClose(), stream.Colleagues[some]())
	stream.To(counted, "rows", connector.Collect(&out))
	params := errorbound.Params{Theta: 50, L: 40, Gamma: 80}
	result, err := controller.RunLocal(context.Background(), t, controller.Options{
		Params: params,
		Faults: []controller.Fault{{Operator: "counts", Items: 2000}, {Operator: "counts", Items: 6000}},
	})
	if err != nil {
		return err
	}
	rows := out.Items()
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.Flights, a.Flights), cmp.Compare(a.Airport, b.Airport))
	})
	for _, r := range rows[:min(5, len(rows))] {
		fmt.Fprintf(w, "%s %5d flights\n", r.Airport, r.Flights)
	}
	c := result.Operators[1]
	fmt.Fprintf(w, "airports: %d, failures: %d, handed over: %d, lost: at most %d, repeated: at most %d\n",
		len(rows), len(result.Failures), c.Handed, c.HandedLost, c.HandedTwice)
	// The flights themselves can be read again, so what is lost beside these values is only what backups lack.
	_, err = fmt.Fprintf(w, "so no airport is off by more than %v\n", params.Theta+float64(batch*(c.HandedLost+c.HandedTwice)))
	return err
}

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}
