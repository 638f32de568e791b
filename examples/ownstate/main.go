// Command ownstate shows a state of one's own, made fault tolerant by three methods: StateDivergence, BackupState and
// RestoreState. It finds the airports with the longest flights.
package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"maps"
	"math"
	"os"
	"slices"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// total is what is known of one airport.
type total struct {
	flights uint64
	miles   float64
	changed bool // since the last backup
}

// row is an airport with the mean length of its flights.
type row struct {
	Airport string
	Mean    float64
}

// means is the state of one partition, which fails and recovers on its own.
type means struct {
	totals map[connector.Key]total
	since  float64 // miles since the last backup
}

func newMeans() *means { return &means{totals: map[connector.Key]total{}} }

func (m *means) Process(flight connector.Keyed, _ *stream.Emitter[row]) error {
	t := m.totals[flight.Key]
	t.flights++
	t.miles += flight.Weight
	t.changed = true
	m.totals[flight.Key] = t
	m.since += flight.Weight
	return nil
}

// CloseWindow emits in an order that does not depend on the run, as stream.EmitOnClose requires.
func (m *means) CloseWindow(_ stream.Window, out *stream.Emitter[row]) error {
	byName := func(a, b connector.Key) int { return cmp.Compare(a.String(), b.String()) }
	for _, airport := range slices.SortedFunc(maps.Keys(m.totals), byName) {
		t := m.totals[airport]
		out.Emit(row{Airport: airport.String(), Mean: t.miles / float64(t.flights)})
	}
	return nil
}

// StateDivergence is how many miles the last backup lacks: Theta is in its unit. It is asked all the time, so it is a
// number that Process keeps up to date.
func (m *means) StateDivergence() float64 { return m.since }

// BackupState writes the airports that have changed, or all of them. Nothing is left out that would still count, so the
// divergence is 0 from now on.
func (m *means) BackupState(w *stream.StateWriter) error {
	var value []byte
	for airport, t := range m.totals {
		if !t.changed && !w.Whole() {
			continue
		}
		value = binary.LittleEndian.AppendUint64(value[:0], t.flights)
		value = binary.LittleEndian.AppendUint64(value, math.Float64bits(t.miles))
		w.Put([]byte(airport.String()), value)
		t.changed = false
		m.totals[airport] = t
	}
	m.since = 0
	return nil
}

// RestoreState reads what BackupState wrote into a fresh operator. An airport may come several times, the newest last.
func (m *means) RestoreState(r *stream.StateReader) error {
	for r.Next() {
		value := r.Value()
		if len(value) != 16 {
			return fmt.Errorf("%w: %d bytes for airport %q", stream.ErrState, len(value), r.Key())
		}
		m.totals[connector.MakeKey(r.Key())] = total{
			flights: binary.LittleEndian.Uint64(value[:8]),
			miles:   math.Float64frombits(binary.LittleEndian.Uint64(value[8:])),
		}
	}
	return r.Err()
}

func run(w io.Writer) error {
	open, err := connector.OpenKeyed(connector.KeyedOptions{Path: "builtin:flights", Key: "origin", Weight: "distance"})
	if err != nil {
		return err
	}
	var out connector.Collector[row]
	t := stream.New("ownstate")
	flights := stream.From(t, "flights", open)
	hash := stream.HashUint64(func(f connector.Keyed) uint64 { return f.Hash })
	found := stream.Then(flights, "means", newMeans, hash, stream.Workers(2), stream.EmitOnClose())
	stream.To(found, "rows", connector.Collect(&out))
	// A backup that leaves nothing out and a source that can go back to it make the result exact: Theta says how far back.
	result, err := controller.RunLocal(context.Background(), t, controller.Options{
		Params: errorbound.Params{Theta: 1e6, L: 100, Gamma: 100},
		Faults: []controller.Fault{{Operator: "means", Worker: 0, Items: 3000}, {Operator: "means", Worker: 1, Items: 6000}},
	})
	if err != nil {
		return err
	}
	rows := out.Items()
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(b.Mean, a.Mean) })
	for _, r := range rows[:min(5, len(rows))] {
		fmt.Fprintf(w, "%s %5.0f miles\n", r.Airport, r.Mean)
	}
	_, err = fmt.Fprintf(w, "airports: %d, failures: %d\n", len(rows), len(result.Failures))
	return err
}

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}
