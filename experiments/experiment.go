package experiments

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
)

var (
	// ErrBroken is wrapped by the error of Run if a recorded run broke a bound that was promised.
	ErrBroken = errors.New("bound broken")
	// ErrInterrupted is wrapped by the error of Run if its context ended first. What is recorded by then is kept.
	ErrInterrupted = errors.New("interrupted")
	// ErrExperiment is wrapped by errors about an Experiment, Plan or Options that cannot work.
	ErrExperiment = errors.New("invalid experiment")
	// ErrResults is wrapped by errors about a file of results that cannot be gone on with.
	ErrResults = errors.New("unusable results")
)

// Experiment is a question put to the engine: cases to run, and what to make of the figures.
type Experiment struct {
	// Name names its files and its command, [a-z0-9-]{1,64}.
	Name string
	// Title heads its part of the report; Question is what it asks and how, a paragraph.
	Title, Question string
	// Source is what the source material did and found, and what is different here; a paragraph.
	Source string
	// Params tell the cases apart, Figures are what a run measures, Errors are what has a bound. The names become columns of
	// the CSV file, an error also one named NAME_bound, so none may appear twice.
	Params, Figures, Errors []Column
	// Rate is the name of the figure by which a case is compared with its baseline; empty means none is.
	Rate string
	// Cases returns what to run, in this order, for each seed. No two have the same parameters.
	Cases func(Plan) []Case
	// Plots draws the results; may be nil.
	Plots func(Results) []Plot
	// Claims compares the results with the source; may be nil.
	Claims func(Results) []Claim
}

// Column describes a parameter, a figure or an error.
type Column struct {
	Name  string // [a-z0-9_]{1,64}
	Unit  string // "" for a plain number or a word
	About string // one line
}

// Case is one point of an experiment's grid.
type Case struct {
	// Params are the values of Experiment.Params, in that order.
	Params []string
	// Baseline are the Params of the case that its rate is compared with; nil means none.
	Baseline []string
	// Run makes one run. The seed selects input and failures. What it returns with an error is not recorded.
	Run func(ctx context.Context, seed uint64) (Result, error)
}

// against makes one of the cases the baseline of all.
func against(cases []Case, baseline int) []Case {
	for i := range cases {
		cases[i].Baseline = cases[baseline].Params
	}
	return cases
}

// Result is what a run has measured.
type Result struct {
	Figures []float64  // of Experiment.Figures, in that order; NaN where there is none
	Errors  []Measured // of Experiment.Errors, in that order
}

// Measured is an error beside its bound. A Bound of +Inf promises nothing.
type Measured struct{ Value, Bound float64 }

// Within says whether the bound is kept. NaN keeps none.
func (m Measured) Within() bool { return m.Value <= m.Bound }

// Claim is a figure of the source beside the one measured here.
type Claim struct {
	What         string
	Source, Here float64
	Unit         string // "%" multiplies both by 100
}

// Scale is how much work the runs of an experiment do.
type Scale string

const (
	// Small runs take a fraction of a second each: enough to check bounds, too short for rates that mean much.
	Small Scale = "small"
	// Paper runs process at least a second's worth of items: the scale for figures to quote.
	Paper Scale = "paper"
	// Large runs take ten times as long as those of Paper.
	Large Scale = "large"
)

// Scales returns all scales, ascending.
func Scales() []Scale { return []Scale{Small, Paper, Large} }

// Of returns the number of items for this scale: n at Paper, a tenth at Small, ten times as many at Large.
func (s Scale) Of(n uint64) uint64 {
	switch s {
	case Small:
		return n / 10
	case Large:
		return n * 10
	}
	return n
}

// Plan says how an experiment is run.
type Plan struct {
	Scale Scale
	// Seed is the seed of the first run of each case; the others follow it.
	Seed uint64
	// Repeat is how many runs, with a seed of its own each, a case gets, 1 to 1000.
	Repeat int
}

func (p Plan) validate() error {
	if !slices.Contains(Scales(), p.Scale) {
		return fmt.Errorf("%w: scale %q: there are %v", ErrExperiment, p.Scale, Scales())
	}
	if p.Repeat < 1 || p.Repeat > 1000 {
		return fmt.Errorf("%w: %d runs of each case: want 1 to 1000", ErrExperiment, p.Repeat)
	}
	return nil
}

var (
	experimentName = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
	columnName     = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)
)

// cases returns the checked cases of a plan.
func (e *Experiment) cases(p Plan) ([]Case, error) {
	fault := func(format string, args ...any) error {
		return fmt.Errorf("%w %q: %s", ErrExperiment, e.Name, fmt.Sprintf(format, args...))
	}
	if !experimentName.MatchString(e.Name) {
		return nil, fault("the name is not of the form %s", experimentName)
	}
	header := e.header()
	for i, name := range header {
		if !columnName.MatchString(name) {
			return nil, fault("column %q is not of the form %s", name, columnName)
		}
		if slices.Contains(header[:i], name) {
			return nil, fault("two columns are called %q", name)
		}
	}
	if e.Rate != "" && !hasColumn(e.Figures, e.Rate) {
		return nil, fault("the rate %q is no figure", e.Rate)
	}
	cases := e.Cases(p)
	known := make(map[string]bool, len(cases))
	for _, c := range cases {
		if len(c.Params) != len(e.Params) {
			return nil, fault("case %v has %d parameters, want %d", c.Params, len(c.Params), len(e.Params))
		}
		if known[joined(c.Params)] {
			return nil, fault("two cases have the parameters %v", c.Params)
		}
		known[joined(c.Params)] = true
	}
	for _, c := range cases {
		if c.Baseline != nil && !known[joined(c.Baseline)] {
			return nil, fault("case %v is compared with %v, which is no case", c.Params, c.Baseline)
		}
	}
	return cases, nil
}

// check says what is wrong with the shape of a result.
func (e *Experiment) check(r Result) error {
	if len(r.Figures) != len(e.Figures) || len(r.Errors) != len(e.Errors) {
		return fmt.Errorf("%w %q: a run has %d figures and %d errors, want %d and %d",
			ErrExperiment, e.Name, len(r.Figures), len(r.Errors), len(e.Figures), len(e.Errors))
	}
	return nil
}

func hasColumn(columns []Column, name string) bool { return columnIndex(columns, name) >= 0 }

func columnIndex(columns []Column, name string) int {
	return slices.IndexFunc(columns, func(c Column) bool { return c.Name == name })
}
