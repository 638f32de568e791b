package job

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/parquet-go/parquet-go"

	"github.com/afstream/afstream/algorithms/logreg"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/stream"
)

// openFlights returns a source of what a function builds of the flights of a file, in CSV as logreg.FlightsHeader has it or in
// Parquet with columns of the same names, for one partition: the first most of them, all if that is 0. Each source calls
// newBuild for functions of its own, of which over may be nil, see translation. The sources of a CSV leave bad rows out if skip is true.
func openFlights[T any](path string, skip bool, most uint64, newBuild func() (build func(f *logreg.Flight) (T, error), over func(old T)),
) stream.NewSource[T] {
	return func(part, parts int) (stream.Source[T], error) {
		build, over := newBuild()
		if strings.HasSuffix(path, ".parquet") {
			t := translation[flightRow, T]{name: path, most: most, over: over, convert: func(r flightRow) (T, bool, error) {
				f := r.flight()
				item, err := build(&f)
				return item, err == nil, err
			}}
			return t.open(func(part, parts int) (stream.Source[flightRow], error) {
				return openFlightTable(path, part, parts)
			})(part, parts)
		}
		t := translation[string, T]{name: path, skip: skip, most: most, over: over, convert: func(line string) (item T, ok bool, err error) {
			f, ok, err := parseFlight(line)
			if !ok || err != nil {
				return item, false, err
			}
			item, err = build(&f)
			return item, err == nil, err
		}}
		return t.open(connector.Lines(path))(part, parts)
	}
}

// parseFlight reads a line of CSV. The header and blank lines have no flight in them.
func parseFlight(line string) (f logreg.Flight, ok bool, err error) {
	line = strings.TrimSuffix(strings.TrimPrefix(line, "\ufeff"), "\r")
	if line == "" || line == logreg.FlightsHeader {
		return f, false, nil
	}
	fields := strings.Split(line, ",")
	if len(fields) != 5 {
		return f, false, fmt.Errorf("%d of 5 fields, want %s", len(fields), logreg.FlightsHeader)
	}
	var errs [3]error
	f.Micros, errs[0] = strconv.ParseInt(fields[0], 10, 64)
	f.Delay, errs[1] = strconv.Atoi(fields[1])
	f.Distance, errs[2] = strconv.Atoi(fields[2])
	f.Origin, f.Destination = fields[3], fields[4]
	if err := errors.Join(errs[:]...); err != nil {
		return f, false, err
	}
	return f, true, nil
}

// flightRow is a row of a Parquet file.
type flightRow struct {
	Date        int64  `parquet:"date"`
	Delay       int16  `parquet:"delay"`
	Distance    int16  `parquet:"distance"`
	Origin      string `parquet:"origin"`
	Destination string `parquet:"destination"`
}

func (r flightRow) flight() logreg.Flight {
	return logreg.Flight{
		Micros: r.Date, Delay: int(r.Delay), Distance: int(r.Distance), Origin: r.Origin, Destination: r.Destination,
	}
}

// flightTable reads flights from a Parquet file. It implements stream.Replayable and stream.Progresser.
type flightTable struct {
	file *os.File
	rows *parquet.GenericReader[flightRow]
	next atomic.Int64
	size int64
}

func openFlightTable(path string, part, parts int) (stream.Source[flightRow], error) {
	if part != 0 || parts != 1 {
		return nil, fmt.Errorf("open %s: an input is read by one partition, not %d", path, parts)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open flights: %w", err)
	}
	t := &flightTable{file: file}
	err = t.guard(func() error {
		info, err := file.Stat()
		if err != nil {
			return err
		}
		f, err := parquet.OpenFile(file, info.Size())
		if err != nil {
			return err
		}
		for _, name := range strings.Split(logreg.FlightsHeader, ",") {
			if _, ok := f.Schema().Lookup(name); !ok {
				return fmt.Errorf("there is no column %q", name)
			}
		}
		t.rows, t.size = parquet.NewGenericReader[flightRow](f), f.NumRows()
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return t, nil
}

// guard makes an error of a panic, with which the library answers some damaged files, and names the file.
func (t *flightTable) guard(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("damaged: %v", r)
		}
		if err != nil && err != io.EOF {
			err = fmt.Errorf("read %s row %d: %w", t.file.Name(), t.next.Load()+1, err)
		}
	}()
	return f()
}

// Read implements stream.Source.
func (t *flightTable) Read(dst []flightRow) (n int, err error) {
	err = t.guard(func() (err error) {
		n, err = t.rows.Read(dst)
		return err
	})
	t.next.Add(int64(n))
	return n, err
}

// Close implements stream.Source.
func (t *flightTable) Close() error { return errors.Join(t.rows.Close(), t.file.Close()) }

// Position implements stream.Replayable.
func (t *flightTable) Position() stream.Position {
	n := uint64(t.next.Load())
	return stream.Position{Item: n, Line: n}
}

// Seek implements stream.Replayable.
func (t *flightTable) Seek(p stream.Position) error {
	if err := t.guard(func() error { return t.rows.SeekToRow(int64(p.Item)) }); err != nil {
		return err
	}
	t.next.Store(int64(p.Item))
	return nil
}

// Progress implements stream.Progresser.
func (t *flightTable) Progress() (done, total int64) { return t.next.Load(), t.size }
