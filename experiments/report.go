package experiments

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
)

//go:embed report.html
var reportPage string

// reportTemplate is the page; it is parsed anew for each report, which is cheap against what fills it.
func reportTemplate() (*template.Template, error) { return template.New("report").Parse(reportPage) }

// page is what the template sees.
type page struct {
	Plan     Plan
	Machine  Machine
	Sections []section
	Broken   int
	Runs     int
}

// section is the part of one experiment.
type section struct {
	*Experiment
	Headings []heading
	Rows     [][]string
	Verdicts []bool // of Rows: no bound broken
	Plots    []template.HTML
	Claims   []claim
}

// claim is a Claim ready to show.
type claim struct{ What, Source, Here, Ratio string }

// writeReport writes the page of everything there are results of.
func writeReport(w io.Writer, all []Results, p Plan, m Machine) error {
	report := page{Plan: p, Machine: m}
	for _, r := range all {
		if len(r.Summaries) == 0 {
			continue
		}
		s := newSection(r)
		for _, sum := range r.Summaries {
			report.Broken += sum.Broken
			report.Runs += sum.Runs
		}
		report.Sections = append(report.Sections, s)
	}
	t, err := reportTemplate()
	if err != nil {
		return fmt.Errorf("parse report page: %w", err)
	}
	if err := t.Execute(w, report); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func newSection(r Results) section {
	s := section{Experiment: r.experiment, Headings: r.headings()}
	for _, sum := range r.Summaries {
		var cells []string
		for _, h := range s.Headings {
			cells = append(cells, h.Value(sum))
		}
		s.Rows, s.Verdicts = append(s.Rows, cells), append(s.Verdicts, sum.Broken == 0)
	}
	for _, p := range r.plots() {
		s.Plots = append(s.Plots, template.HTML(p.svg())) // made of numbers and escaped text only
	}
	if r.experiment.Claims != nil {
		for _, c := range r.experiment.Claims(r) {
			s.Claims = append(s.Claims, c.show())
		}
	}
	return s
}

// plots returns the plots that have anything to show.
func (r Results) plots() []Plot {
	if r.experiment.Plots == nil || len(r.Summaries) == 0 {
		return nil
	}
	plots := r.experiment.Plots(r)
	return slices.DeleteFunc(plots, func(p Plot) bool {
		return !slices.ContainsFunc(p.Lines, func(l Line) bool { return len(l.Y) > 0 })
	})
}

func (c Claim) show() claim {
	one := func(f float64) string {
		if c.Unit == "%" && !math.IsNaN(f) {
			return strconv.FormatFloat(100*f, 'f', 1, 64) + "%"
		}
		return figure(f)
	}
	return claim{What: c.What, Source: one(c.Source), Here: one(c.Here), Ratio: figure(c.Here / c.Source)}
}
