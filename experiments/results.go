package experiments

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Results are the runs of an experiment, summed up by case.
type Results struct {
	Summaries []Summary // in the order of the cases; those without runs are left out

	experiment *Experiment
}

// Summary is what the runs of one case have in common.
type Summary struct {
	Params []string
	Runs   int
	// Figures are medians over the runs, Low and High the extremes. Runs without the figure do not count; NaN if all are.
	Figures, Low, High []float64
	// Errors are, for each error, that of the run which came nearest to its bound or broke it worst.
	Errors []Measured
	// Ratio is the median over the seeds of the rate by that of the baseline with the same seed; NaN without a baseline.
	Ratio float64
	// Broken is how many runs broke a bound.
	Broken int
}

// ratioName is what a plot calls Summary.Ratio.
const ratioName = "ratio"

// summarise keeps the rows that the plan asks for. Rows of other plans and machines are not mixed in.
func (e *Experiment) summarise(cases []Case, rows []row, p Plan, m Machine) Results {
	byKey := make(map[string]*row, len(rows))
	for i := range rows {
		byKey[rows[i].key()] = &rows[i]
	}
	at := func(params []string, seed uint64) *row {
		r := row{scale: p.Scale, seed: seed, machine: m, params: params}
		return byKey[r.key()]
	}
	results := Results{experiment: e}
	for _, c := range cases {
		var runs []*row
		var ratios []float64
		for i := range p.Repeat {
			seed := p.Seed + uint64(i)
			r := at(c.Params, seed)
			if r == nil {
				continue
			}
			runs = append(runs, r)
			if base := at(c.Baseline, seed); c.Baseline != nil && base != nil && e.Rate != "" {
				rate := columnIndex(e.Figures, e.Rate)
				if ratio := r.Figures[rate] / base.Figures[rate]; !math.IsNaN(ratio) {
					ratios = append(ratios, ratio)
				}
			}
		}
		if len(runs) > 0 {
			s := e.sum(runs)
			s.Params, s.Ratio = c.Params, median(ratios)
			results.Summaries = append(results.Summaries, s)
		}
	}
	return results
}

// sum sums up the runs of a case, of which there is at least one.
func (e *Experiment) sum(runs []*row) Summary {
	s := Summary{Runs: len(runs)}
	for i := range e.Figures {
		var values []float64
		for _, r := range runs {
			if !math.IsNaN(r.Figures[i]) {
				values = append(values, r.Figures[i])
			}
		}
		low, high := math.NaN(), math.NaN()
		if len(values) > 0 {
			low, high = slices.Min(values), slices.Max(values)
		}
		s.Figures, s.Low, s.High = append(s.Figures, median(values)), append(s.Low, low), append(s.High, high)
	}
	for i := range e.Errors {
		worst := slices.MaxFunc(runs, func(a, b *row) int { return compareErrors(a.Errors[i], b.Errors[i]) })
		s.Errors = append(s.Errors, worst.Errors[i])
	}
	for _, r := range runs {
		if r.within() == "false" {
			s.Broken++
		}
	}
	return s
}

// compareErrors orders by how much of the bound is used up; broken ones last.
func compareErrors(a, b Measured) int {
	if a.Within() != b.Within() {
		if a.Within() {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.used(), b.used()), cmp.Compare(a.Value, b.Value))
}

// used is the error as a share of its bound, 0 if there is no error.
func (m Measured) used() float64 {
	if m.Value == 0 {
		return 0
	}
	return m.Value / m.Bound
}

// median returns NaN if there are no values. It sorts them.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// Where keeps the summaries whose parameter has one of the values. It panics if there is no such parameter.
func (r Results) Where(param string, values ...string) Results {
	i := columnIndex(r.experiment.Params, param)
	if i < 0 {
		panic(fmt.Sprintf("experiments: %s has no parameter %q", r.experiment.Name, param))
	}
	kept := Results{experiment: r.experiment}
	for _, s := range r.Summaries {
		if slices.Contains(values, s.Params[i]) {
			kept.Summaries = append(kept.Summaries, s)
		}
	}
	return kept
}

// Value returns a column of the only summary there is: a figure, an error, the bound of an error (NAME_bound), a
// parameter that is a number, or "ratio". It is NaN if there is no summary, or more than one. It panics if there is no
// such column.
func (r Results) Value(column string) float64 {
	get := r.column(column)
	if len(r.Summaries) != 1 {
		return math.NaN()
	}
	return get(&r.Summaries[0])
}

// Line returns column y over column x, as a line of a plot. See Value for the columns.
func (r Results) Line(name, x, y string) Line {
	xOf, yOf := r.column(x), r.column(y)
	l := Line{Name: name}
	for i := range r.Summaries {
		l.X, l.Y = append(l.X, xOf(&r.Summaries[i])), append(l.Y, yOf(&r.Summaries[i]))
	}
	return l
}

// column returns how to read a column off a summary.
func (r Results) column(name string) func(*Summary) float64 {
	if name == ratioName {
		return func(s *Summary) float64 { return s.Ratio }
	}
	if i := columnIndex(r.experiment.Figures, name); i >= 0 {
		return func(s *Summary) float64 { return s.Figures[i] }
	}
	if i := columnIndex(r.experiment.Params, name); i >= 0 {
		return func(s *Summary) float64 {
			f, err := strconv.ParseFloat(s.Params[i], 64)
			if err != nil {
				return math.NaN()
			}
			return f
		}
	}
	for i, c := range r.experiment.Errors {
		switch name {
		case c.Name:
			return func(s *Summary) float64 { return s.Errors[i].Value }
		case c.Name + "_bound":
			return func(s *Summary) float64 { return s.Errors[i].Bound }
		}
	}
	panic(fmt.Sprintf("experiments: %s has no column %q", r.experiment.Name, name))
}
