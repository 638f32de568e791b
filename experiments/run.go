package experiments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Options say what to run and where to keep it.
type Options struct {
	Plan
	// Dir takes the results; it is made if missing. Two processes must not use it at once.
	Dir string
	// Machine is what is recorded with the runs; the zero value means ThisMachine.
	Machine Machine
	// Also are experiments that are not run, and reported if Dir holds runs of them that the plan asks for.
	Also []Experiment
	// OnProgress is told before each run, and when an experiment is over; may be nil.
	OnProgress func(Progress)
	// Log is told of each run that is over; nil discards it.
	Log *slog.Logger
}

// Progress is how far an experiment is.
type Progress struct {
	Experiment  string
	Done, Total int // runs, those recorded earlier included
}

// Outcome is what an experiment has come to.
type Outcome struct {
	Results
	Name string
	// Made and Kept count the runs that were made now and those that had been recorded earlier.
	Made, Kept int
	// Broken counts the runs among them that broke a bound.
	Broken int
}

// Run runs experiments one after the other and writes their results, plots and the report. Runs that are recorded in
// o.Dir are not made again. A run that breaks a bound does not stop the others, one that fails only those of its
// experiment.
//
// The error wraps ErrBroken if a bound was broken, ErrInterrupted if ctx ended, ErrExperiment if nothing could be run,
// ErrResults if what o.Dir holds is of no use. What was finished is returned, recorded and reported in any case.
func Run(ctx context.Context, list []Experiment, o Options) ([]Outcome, error) {
	l := &lab{Options: o}
	if l.Machine == (Machine{}) {
		l.Machine = ThisMachine()
	}
	if l.Log == nil {
		l.Log = slog.New(slog.DiscardHandler)
	}
	if err := l.prepare(list); err != nil {
		return nil, err
	}
	var outcomes []Outcome
	var errs []error
	for i := range list {
		outcome, err := l.run(ctx, &list[i])
		if outcome != nil {
			outcomes = append(outcomes, *outcome)
		}
		errs = append(errs, err)
		if outcome != nil && outcome.Broken > 0 {
			errs = append(errs, fmt.Errorf("%w: %d runs of %s", ErrBroken, outcome.Broken, outcome.Name))
		}
		if ctx.Err() != nil {
			break
		}
	}
	errs = append(errs, l.report(list, outcomes))
	return outcomes, errors.Join(errs...)
}

// lab is Run at work.
type lab struct{ Options }

// prepare finds the faults of the settings before anything is run.
func (l *lab) prepare(list []Experiment) error {
	if err := l.Plan.validate(); err != nil {
		return err
	}
	var faults []error
	for i := range list {
		_, err := list[i].cases(l.Plan)
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	if err := os.MkdirAll(l.Dir, 0o755); err != nil {
		return fmt.Errorf("make directory for results: %w", err)
	}
	return nil
}

func (l *lab) path(e *Experiment) string { return filepath.Join(l.Dir, e.Name+".csv") }

// run makes the runs of one experiment that are not recorded yet.
func (l *lab) run(ctx context.Context, e *Experiment) (_ *Outcome, err error) {
	cases, err := e.cases(l.Plan)
	if err != nil {
		return nil, err
	}
	f, err := e.open(l.path(e))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	outcome := &Outcome{Name: e.Name}
	err = l.runCases(ctx, e, cases, f, outcome)
	outcome.Results = e.summarise(cases, f.rows, l.Plan, l.Machine)
	for _, s := range outcome.Summaries {
		outcome.Broken += s.Broken
	}
	return outcome, err
}

func (l *lab) runCases(ctx context.Context, e *Experiment, cases []Case, f *file, outcome *Outcome) error {
	recorded := make(map[string]bool, len(f.rows))
	for i := range f.rows {
		recorded[f.rows[i].key()] = true
	}
	total, warm := len(cases)*l.Repeat, e.Rate == ""
	for i := range l.Repeat {
		for _, c := range cases {
			r := row{scale: l.Scale, seed: l.Seed + uint64(i), machine: l.Machine, params: c.Params}
			if recorded[r.key()] {
				outcome.Kept++
				continue
			}
			l.tell(e, outcome, total)
			if !warm { // the first run of a process pays for memory and caches that later ones find ready
				if _, err := l.once(ctx, e, c, r.seed); err != nil {
					return err
				}
				warm = true
			}
			var err error
			if r.Result, err = l.once(ctx, e, c, r.seed); err != nil {
				return err
			}
			if err := f.add(r); err != nil {
				return err
			}
			outcome.Made++
			l.Log.Info("run over", "experiment", e.Name, "seed", r.seed, "case", strings.Join(c.Params, " "), "within", r.within())
		}
	}
	l.tell(e, outcome, total)
	return nil
}

// once makes one run.
func (l *lab) once(ctx context.Context, e *Experiment, c Case, seed uint64) (Result, error) {
	if ctx.Err() != nil {
		return Result{}, fmt.Errorf("%w: run the same again to go on", ErrInterrupted)
	}
	runtime.GC() // what the run before it has left behind is not for this one to clear away
	result, err := c.Run(ctx, seed)
	if ctx.Err() != nil { // it may have ended early, whatever it says
		return Result{}, fmt.Errorf("%w: run the same again to go on", ErrInterrupted)
	}
	if err != nil {
		return Result{}, fmt.Errorf("experiment %s, case %s, seed %d: %w", e.Name, strings.Join(c.Params, " "), seed, err)
	}
	return result, e.check(result)
}

func (l *lab) tell(e *Experiment, o *Outcome, total int) {
	if l.OnProgress != nil {
		l.OnProgress(Progress{Experiment: e.Name, Done: o.Made + o.Kept, Total: total})
	}
}

// report writes the plots and the page, of what was run now and of what o.Also holds.
func (l *lab) report(list []Experiment, outcomes []Outcome) error {
	var all []Results
	known := make(map[string]bool)
	for _, o := range outcomes {
		all, known[o.Name] = append(all, o.Results), true
	}
	for _, e := range append(append([]Experiment{}, list...), l.Also...) {
		if known[e.Name] {
			continue
		}
		known[e.Name] = true
		r, err := l.recorded(&e)
		if err != nil {
			l.Log.Warn("results left out of the report", "experiment", e.Name, "err", err)
			continue
		}
		all = append(all, r)
	}
	for _, r := range all {
		for _, p := range r.plots() {
			name := filepath.Join(l.Dir, r.experiment.Name+"-"+p.Name+".svg")
			if err := replaceFile(name, p.WriteSVG); err != nil {
				return err
			}
		}
	}
	return replaceFile(filepath.Join(l.Dir, "report.html"), func(w io.Writer) error {
		return writeReport(w, all, l.Plan, l.Machine)
	})
}

// recorded returns what the directory holds of an experiment that is not run, without changing anything.
func (l *lab) recorded(e *Experiment) (Results, error) {
	cases, err := e.cases(l.Plan)
	if err != nil {
		return Results{}, err
	}
	text, err := os.ReadFile(l.path(e))
	if errors.Is(err, os.ErrNotExist) {
		return Results{experiment: e}, nil
	}
	if err != nil {
		return Results{}, fmt.Errorf("read results: %w", err)
	}
	rows, err := e.parse(text[:strings.LastIndexByte(string(text), '\n')+1])
	if err != nil {
		return Results{}, fmt.Errorf("%w %q: %w", ErrResults, l.path(e), err)
	}
	return e.summarise(cases, rows, l.Plan, l.Machine), nil
}

// replaceFile writes a file beside the one it replaces, so that there is always a whole one.
func replaceFile(name string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return fmt.Errorf("replace %q: %w", name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := errors.Join(write(f), f.Chmod(0o644), f.Close()); err != nil {
		return fmt.Errorf("replace %q: %w", name, err)
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return fmt.Errorf("replace %q: %w", name, err)
	}
	return nil
}
