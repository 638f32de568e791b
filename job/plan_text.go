package job

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/afstream/afstream/connector"
)

// share returns a part of the total as a percentage of as many digits as it needs.
func share(n Number) string { return fmt.Sprintf("%.4g%%", 100*float64(n)) }

// line is a setting, or a consequence of it, and what it means.
type line struct{ name, value, meaning string }

func (p *Plan) writeSettings(b *bytes.Buffer) error {
	fmt.Fprintf(b, "plan for %s: estimates within %s of the total of %v with confidence %s, %s x %d, %s\n\n",
		p.Job, share(p.Error), p.Total, share(p.Confidence), plural(uint64(p.Workers), "worker", "workers"), p.Compute,
		plural(p.Failures, "failure expected", "failures expected"))
	source := "nothing is lost on the way: the source is read again"
	if !p.SourceReplay {
		source = "items that failures of receivers may lose, all together"
	}
	lines := []line{
		{"theta", p.Theta.String(), "how far the state may diverge through all failures together"},
		{"l", group(p.L), source},
		{"gamma", group(p.Gamma), strings.Replace(source, "receivers", "senders", 1)},
		{"series", p.Series, "how the budget is spread over failures"},
		{"rows x width", fmt.Sprintf("%d x %s", p.Rows, group(uint64(p.Width))), "counters of each sketch"},
		{"memory", scaled(float64(p.Memory)) + "B", "of all sketches together, at most"},
		{"error bound", share(p.ErrorBound), p.parts()},
		{"reported for sure", share(p.SureShare), "keys with this share of the total or more"},
		p.reportedFalsely(),
	}
	return writeTable(b, lines, []connector.Column[line]{
		{Title: "setting", Value: func(l line) string { return l.name }},
		{Title: "value", Number: true, Value: func(l line) string { return l.value }},
		{Title: "meaning", Value: func(l line) string { return l.meaning }},
	})
}

// parts says what the error is made of.
func (p *Plan) parts() string {
	if p.Compensate {
		return fmt.Sprintf("sketches add up to %s, recoveries up to %s", share(p.SketchError), share(p.FailureError))
	}
	return fmt.Sprintf("sketches add up to %s, failures take away up to %s", share(p.SketchError), share(p.FailureError))
}

func (p *Plan) reportedFalsely() line {
	chance := fmt.Sprintf("keys below are reported with a chance of %s at most", share(1-p.Confidence))
	if p.FalseShare <= 0 {
		return line{"reported falsely", "any", "the error is too large for the threshold to say more"}
	}
	return line{"reported falsely", share(p.FalseShare), chance}
}

func (p *Plan) writeCosts(b *bytes.Buffer) error {
	fmt.Fprintf(b, "\npredicted for each worker, averaged over a run with %s of it\n",
		plural(p.Cost.FailuresPerWorker, "failure", "failures"))
	perSecond := func(n Number) string { return strings.TrimSpace(scaled(float64(n))) + "/s" }
	err := writeTable(b, append([]Forecast{p.Cost}, p.Others...), []connector.Column[Forecast]{
		{Title: "series", Value: func(f Forecast) string { return f.Series }},
		{Title: "theta at first", Number: true, Value: func(f Forecast) string { return f.FirstTheta.String() }},
		{Title: "after failures", Number: true, Value: func(f Forecast) string { return f.LastTheta.String() }},
		{Title: "budget left", Number: true, Value: func(f Forecast) string { return share(f.BudgetLeft) }},
		{Title: "elements", Number: true, Value: func(f Forecast) string { return perSecond(f.ElementsPerSecond) }},
		{Title: "commits", Number: true, Value: func(f Forecast) string { return perSecond(f.CommitsPerSecond) }},
		{Title: "bytes", Number: true, Value: func(f Forecast) string { return scaled(float64(f.BytesPerSecond)) + "B/s" }},
		{Title: "throughput", Number: true, Value: func(f Forecast) string { return fmt.Sprintf("%+.2f%%", -100*float64(f.Slowdown)) }},
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "\n%s\n", strings.Join(p.Command, " "))
	return nil
}
