// Command source shows a source of one's own that can go back after a failure, windows of so many items, and a partitioner
// of one's own. It finds the highest temperature of each of some sensors in each window.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"slices"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/state"
	"github.com/afstream/afstream/stream"
)

const (
	sensors  = 4
	readings = 8000 // of each partition of the source
	window   = 2000
	theta    = 0.5 // degrees
)

// reading is one item.
type reading struct {
	Sensor  int
	Degrees float64
}

// thermometers is one partition of the source. It implements stream.Source and stream.Replayable.
type thermometers struct {
	part uint64
	next uint64 // reading
}

func open(part, _ int) (stream.Source[reading], error) { return &thermometers{part: uint64(part)}, nil }

// Read fills dst like io.Reader does. What it yields depends on its position alone, as the promise to go back requires.
func (s *thermometers) Read(dst []reading) (int, error) {
	n := min(len(dst), readings-int(s.next))
	if n == 0 {
		return 0, io.EOF
	}
	for i := range dst[:n] {
		sensor := int((s.next + s.part) % sensors)
		dst[i] = reading{Sensor: sensor, Degrees: float64(10+10*sensor) + 5*math.Sin(float64(s.next)/1000)}
		s.next++
	}
	return n, nil
}

func (s *thermometers) Close() error { return nil }

// Position says where the source stands. A file would add the offset of the next byte.
func (s *thermometers) Position() stream.Position { return stream.Position{Item: s.next} }

func (s *thermometers) Seek(p stream.Position) error {
	if p.Item > readings {
		return fmt.Errorf("%w: reading %d of %d", connector.ErrBadPosition, p.Item, readings)
	}
	s.next = p.Item
	return nil
}

// byRange gives each partition sensors that are neighbours. It must not depend on anything but the item.
func byRange(r reading, n int) int { return r.Sensor * n / sensors }

// row is the highest temperature of a sensor in a window.
type row struct {
	Window  uint64
	Sensor  int
	Highest float64
}

// highest is off by at most Theta degrees after a failure: a Map measures by the largest difference of any of its values.
type highest struct{ state.Map[int, float64] }

func (h *highest) Process(r reading, _ *stream.Emitter[row]) error {
	if before, ok := h.Lookup(r.Sensor); !ok || r.Degrees > before {
		h.Put(r.Sensor, r.Degrees)
	}
	return nil
}

// CloseWindow is called when all partitions of the source have ended the window. The next one starts afresh.
func (h *highest) CloseWindow(w stream.Window, out *stream.Emitter[row]) error {
	for sensor, degrees := range h.All() {
		out.Emit(row{Window: w.Number, Sensor: sensor, Highest: degrees})
	}
	h.Reset()
	return nil
}

func run(w io.Writer) error {
	var out connector.Collector[row]
	t := stream.New("source")
	source := stream.From(t, "thermometers", open, stream.Workers(2), stream.WindowItems(window))
	rows := stream.Then(source, "highest", func() *highest { return &highest{} }, stream.Custom(byRange), stream.Workers(2),
		stream.EmitOnClose(), stream.Forget(1)) // a failure does not matter any more once its window is closed
	stream.To(rows, "rows", connector.Collect(&out))
	result, err := controller.RunLocal(context.Background(), t, controller.Options{
		Params: errorbound.Params{Theta: theta, L: 100, Gamma: 100},
		Faults: []controller.Fault{{Operator: "highest", Worker: 1, Items: 3000}, {Operator: "thermometers", Items: 5000}},
	})
	if err != nil {
		return err
	}
	items := out.Items()
	slices.SortFunc(items, func(a, b row) int { return cmp.Or(cmp.Compare(a.Window, b.Window), a.Sensor-b.Sensor) })
	for _, r := range items {
		fmt.Fprintf(w, "window %d sensor %d: %4.1f\n", r.Window, r.Sensor, r.Highest)
	}
	_, err = fmt.Fprintf(w, "failures: %d, no temperature is off by more than %g\n", len(result.Failures), theta)
	return err
}

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}
