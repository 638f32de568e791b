package experiments

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/afstream/afstream/connector"
)

// heading is a column of a table of summaries.
type heading struct {
	Title  string
	About  string
	Number bool
	cell   func(*Summary) string
}

// Value returns the cell of a summary.
func (h heading) Value(s Summary) string { return h.cell(&s) }

// headings returns the columns of a table of r: parameters, medians, the ratio, errors with their bounds, the verdict.
func (r Results) headings() []heading {
	e := r.experiment
	var all []heading
	add := func(title, about string, number bool, cell func(*Summary) string) {
		all = append(all, heading{Title: title, About: about, Number: number, cell: cell})
	}
	for i, c := range e.Params {
		add(spaced(c.Name), c.About, r.numeric(i), func(s *Summary) string { return s.Params[i] })
	}
	add("runs", "how many runs the figures are medians of", true, func(s *Summary) string { return strconv.Itoa(s.Runs) })
	for i, c := range e.Figures {
		title := spaced(c.Name)
		if c.Unit != "" {
			title += " (" + c.Unit + ")"
		}
		add(title, c.About, true, func(s *Summary) string { return figure(s.Figures[i]) })
		if c.Name == e.Rate {
			add("from - to", "the lowest and the highest of the runs", true, func(s *Summary) string {
				return figure(s.Low[i]) + " - " + figure(s.High[i])
			})
			add("ratio", "the rate by that of the baseline with the same seed, the median over the seeds", true,
				func(s *Summary) string { return figure(s.Ratio) })
		}
	}
	for i, c := range e.Errors {
		add(spaced(c.Name), c.About+" (the run nearest to its bound)", true, func(s *Summary) string { return figure(s.Errors[i].Value) })
		add("bound", "what was promised for "+spaced(c.Name), true, func(s *Summary) string { return figure(s.Errors[i].Bound) })
	}
	add("within", "whether every run kept every bound", false, verdict)
	return all
}

// numeric says whether a parameter is a number in every case.
func (r Results) numeric(param int) bool {
	return !slices.ContainsFunc(r.Summaries, func(s Summary) bool {
		_, err := strconv.ParseFloat(s.Params[param], 64)
		return err != nil
	})
}

func verdict(s *Summary) string {
	promised := slices.ContainsFunc(s.Errors, func(m Measured) bool { return !math.IsInf(m.Bound, 1) })
	switch {
	case s.Broken > 0:
		return fmt.Sprintf("BROKEN in %d of %d", s.Broken, s.Runs)
	case promised:
		return "yes"
	}
	return "not promised"
}

// WriteText writes the summaries as a table for people.
func (r Results) WriteText(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintln(&b, r.experiment.Title)
	if len(r.Summaries) == 0 {
		fmt.Fprintln(&b, "no runs yet")
	} else {
		var columns []connector.Column[Summary]
		for _, h := range r.headings() {
			columns = append(columns, connector.Column[Summary]{Title: h.Title, Number: h.Number, Value: h.Value})
		}
		table, err := connector.Table(&b, columns...)(0, 1)
		if err != nil {
			return err
		}
		if err := table.Write(r.Summaries); err != nil {
			return err
		}
		if err := table.Close(); err != nil {
			return err
		}
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// spaced returns the name of a column as words.
func spaced(name string) string { return strings.ReplaceAll(name, "_", " ") }

// figure returns a number with three digits that count, or all of a whole number below 100,000.
func figure(f float64) string {
	abs := math.Abs(f)
	switch {
	case math.IsNaN(f):
		return "-"
	case math.IsInf(f, 1):
		return "none"
	case f == math.Trunc(f) && abs < 1e5:
		return strconv.FormatFloat(f, 'f', 0, 64)
	case abs >= 1e12:
		return strconv.FormatFloat(f, 'g', 3, 64)
	}
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if abs >= unit.size {
			return strconv.FormatFloat(f/unit.size, 'g', 3, 64) + unit.name
		}
	}
	return strconv.FormatFloat(f, 'g', 3, 64)
}
