package experiments

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/afstream/afstream/algorithms/logreg"
	"github.com/afstream/afstream/data"
	"github.com/afstream/afstream/stream"
)

// each gives all items of an input to take.
func each[T any](ctx context.Context, open stream.NewSource[T], take func(T)) (err error) {
	source, err := open(0, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	slab := make([]T, stream.SlabItems)
	for end := error(nil); end == nil; {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var n int
		n, end = source.Read(slab)
		for _, item := range slab[:n] {
			take(item)
		}
		if end != nil && end != io.EOF {
			return end
		}
	}
	return nil
}

// withFlights calls use with the path of a temporary CSV file of n flights: those that come with the program, again and
// again, each time so much later that the days go on. The first time begins with the flight of the number seed.
func withFlights(n, seed uint64, use func(path string) error) error {
	flights, err := shippedFlights()
	if err != nil {
		return err
	}
	return withFile("flights.csv", func(w *bufio.Writer) error {
		first, last := flights[0].micros, flights[len(flights)-1].micros
		const day = 24 * 60 * 60 * 1_000_000
		span := (last-first)/day*day + day
		fmt.Fprintln(w, logreg.FlightsHeader) // errors stay with w
		for i := seed % uint64(len(flights)); n > 0; i, n = i+1, n-1 {
			f := flights[i%uint64(len(flights))]
			fmt.Fprintf(w, "%d,%s\n", f.micros+int64(i/uint64(len(flights)))*span, f.rest)
		}
		return nil
	}, use)
}

// shippedFlight is a row of the input "flights": when it departs, and the rest as it is.
type shippedFlight struct {
	micros int64
	rest   string
}

func shippedFlights() ([]shippedFlight, error) {
	file, ok := data.Lookup("flights")
	if !ok {
		return nil, fmt.Errorf("%w: the program comes without flights", ErrExperiment)
	}
	text, err := gzip.NewReader(strings.NewReader(file.Content))
	if err != nil {
		return nil, fmt.Errorf("read flights: %w", err)
	}
	rows, err := csv.NewReader(text).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read flights: %w", err)
	}
	var flights []shippedFlight
	for _, row := range rows[1:] {
		micros, err := strconv.ParseInt(row[0], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read flights: %w", err)
		}
		flights = append(flights, shippedFlight{micros: micros, rest: strings.Join(row[1:], ",")})
	}
	return flights, nil
}

// withExamples calls use with the path of a temporary file of the first n examples of a truth, in libsvm format.
func withExamples(n, seed uint64, use func(path string) error) error {
	m := newTruth(seed)
	return withFile("examples", func(w *bufio.Writer) error {
		var room []logreg.Feature
		var line []byte
		for i := range n {
			var e logreg.Example
			e, room = m.example(i, room[:0])
			line = append(line[:0], '0')
			if e.Positive {
				line[0] = '1'
			}
			for _, f := range e.Features {
				line = strconv.AppendUint(append(line, ' '), uint64(f.Index), 10)
				line = append(line, ":1"...)
			}
			if _, err := w.Write(append(line, '\n')); err != nil {
				return err
			}
		}
		return nil
	}, use)
}

// withFile calls use with the path of a temporary file that write has filled.
func withFile(name string, write func(*bufio.Writer) error, use func(path string) error) (err error) {
	dir, err := os.MkdirTemp("", "afstream-")
	if err != nil {
		return fmt.Errorf("make temporary directory for an input: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, name)
	if err := writeFile(path, write); err != nil {
		return fmt.Errorf("write input: %w", err)
	}
	return use(path)
}

func writeFile(path string, write func(*bufio.Writer) error) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(io.Writer(f), 1<<16)
	if err := write(w); err != nil {
		return err
	}
	return w.Flush()
}
