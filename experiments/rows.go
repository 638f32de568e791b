package experiments

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// row is one recorded run.
type row struct {
	scale   Scale
	seed    uint64
	machine Machine
	params  []string
	Result
}

// key identifies the run.
func (r *row) key() string {
	return joined(append([]string{
		string(r.scale), strconv.FormatUint(r.seed, 10), strconv.Itoa(r.machine.Cores), r.machine.Go, r.machine.OS, r.machine.Arch,
	}, r.params...))
}

// joined makes one comparable value of several; no cell contains the separator.
func joined(cells []string) string { return strings.Join(cells, "\x00") }

// within returns what the column within_bound holds: true, false, or unbounded if nothing was promised.
func (r *row) within() string {
	verdict := "unbounded"
	for _, m := range r.Errors {
		if !m.Within() {
			return "false"
		}
		if !math.IsInf(m.Bound, 1) {
			verdict = "true"
		}
	}
	return verdict
}

// Columns that every file begins with, and the one that it ends with.
var runColumns = [...]string{"scale", "seed", "cores", "go", "os", "arch"}

const withinColumn = "within_bound"

func (e *Experiment) header() []string {
	header := slices.Clone(runColumns[:])
	for _, c := range e.Params {
		header = append(header, c.Name)
	}
	for _, c := range e.Figures {
		header = append(header, c.Name)
	}
	for _, c := range e.Errors {
		header = append(header, c.Name, c.Name+"_bound")
	}
	return append(header, withinColumn)
}

func (r *row) cells() []string {
	cells := append([]string{
		string(r.scale), strconv.FormatUint(r.seed, 10), strconv.Itoa(r.machine.Cores), r.machine.Go, r.machine.OS, r.machine.Arch,
	}, r.params...)
	for _, f := range r.Figures {
		cells = append(cells, formatFloat(f))
	}
	for _, m := range r.Errors {
		cells = append(cells, formatFloat(m.Value), formatFloat(m.Bound))
	}
	return append(cells, r.within())
}

func formatFloat(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// parseRow is the inverse of cells. The verdict is worked out anew.
func (e *Experiment) parseRow(cells []string) (row, error) {
	var faults []error
	number := func(cell string) float64 {
		f, err := strconv.ParseFloat(cell, 64)
		faults = append(faults, err)
		return f
	}
	r := row{scale: Scale(cells[0]), machine: Machine{Go: cells[3], OS: cells[4], Arch: cells[5]}}
	var err error
	r.seed, err = strconv.ParseUint(cells[1], 10, 64)
	faults = append(faults, err)
	r.machine.Cores, err = strconv.Atoi(cells[2])
	faults = append(faults, err)
	cells = cells[len(runColumns):]
	r.params, cells = cells[:len(e.Params):len(e.Params)], cells[len(e.Params):]
	for range e.Figures {
		r.Figures = append(r.Figures, number(cells[0]))
		cells = cells[1:]
	}
	for range e.Errors {
		r.Errors = append(r.Errors, Measured{Value: number(cells[0]), Bound: number(cells[1])})
		cells = cells[2:]
	}
	return r, errors.Join(faults...)
}

// file is the recorded runs of an experiment, opened for appending.
type file struct {
	f    *os.File
	path string
	rows []row
}

// open reads what is recorded and repairs a torn end. The file is made if it is missing.
func (e *Experiment) open(path string) (_ *file, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open results: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read results %q: %w", path, err)
	}
	// A line without its end may lack digits of its last figure even if it can be read.
	if whole := bytes.LastIndexByte(text, '\n') + 1; whole < len(text) {
		text = text[:whole]
		if err := f.Truncate(int64(whole)); err != nil {
			return nil, fmt.Errorf("remove a torn line from results %q: %w", path, err)
		}
	}
	rows, err := e.parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w %q: %w: move it away or choose another directory", ErrResults, path, err)
	}
	r := &file{f: f, path: path, rows: rows}
	if len(text) == 0 {
		if err := r.write(e.header()); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// parse reads whole lines, the first of which is the header. Of several rows of the same run the first counts.
func (e *Experiment) parse(text []byte) ([]row, error) {
	if len(text) == 0 {
		return nil, nil
	}
	records := csv.NewReader(bytes.NewReader(text))
	header, err := records.Read()
	if err != nil {
		return nil, err
	}
	if !slices.Equal(header, e.header()) {
		return nil, errors.New("its columns are those of another version")
	}
	var rows []row
	known := make(map[string]bool)
	for {
		cells, err := records.Read()
		if err == io.EOF {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		r, err := e.parseRow(cells)
		if err != nil {
			line, _ := records.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if !known[r.key()] {
			known[r.key()] = true
			rows = append(rows, r)
		}
	}
}

// add records a run.
func (f *file) add(r row) error {
	if err := f.write(r.cells()); err != nil {
		return err
	}
	f.rows = append(f.rows, r)
	return nil
}

// write appends a line in one call, so that no reader ever sees half of it unless the machine fails.
func (f *file) write(cells []string) error {
	for _, c := range cells {
		if strings.ContainsAny(c, "\n\r\x00") {
			return fmt.Errorf("%w: cell %q of results %q is not one line", ErrExperiment, c, f.path)
		}
	}
	var line bytes.Buffer
	w := csv.NewWriter(&line)
	err := w.Write(cells)
	w.Flush()
	if err = errors.Join(err, w.Error()); err == nil {
		_, err = f.f.Write(line.Bytes())
	}
	if err != nil {
		return fmt.Errorf("record run in %q: %w", f.path, err)
	}
	return nil
}

func (f *file) close() error { return f.f.Close() }
