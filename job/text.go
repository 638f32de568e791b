package job

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/worker"
)

// EventLine returns what a failure or a recovery looks like to a person, without a newline.
func EventLine(e controller.Event) string {
	name := fmt.Sprintf("%s/%d", e.Operator, e.Worker)
	if e.Recovered {
		return fmt.Sprintf("recovered  %-9s in %s", name, seconds(e.RecoverySeconds))
	}
	return fmt.Sprintf("failed     %-9s after %s (incarnation %d)", name, plural(e.AtItem, "item", "items"), e.Epoch)
}

// WriteText writes the report for people: the heavy hitters, what the job did, and, if it was verified, each figure
// beside its bound. Nothing is written unless all of it can be made.
func (r *Report) WriteText(w io.Writer) error {
	var b bytes.Buffer
	for _, write := range []func(*bytes.Buffer) error{r.writeHeavyHitters, r.writeSummary, r.writeFailures, r.writeVerification} {
		if err := write(&b); err != nil {
			return err
		}
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// writeTable writes rows through the table sink, which aligns them and escapes what does not print.
func writeTable[T any](b *bytes.Buffer, rows []T, columns []connector.Column[T]) error {
	sink, err := connector.Table(b, columns...)(0, 1)
	if err != nil {
		return err
	}
	if err := sink.Write(rows); err != nil {
		return err
	}
	return sink.Close()
}

func (r *Report) writeHeavyHitters(b *bytes.Buffer) error {
	o := &r.Outcome
	if o.Total == 0 {
		fmt.Fprintln(b, "no heavy hitters: there was no item with a weight")
		return nil
	}
	if len(o.HeavyHitters) == 0 {
		fmt.Fprintf(b, "no key has %s of the total weight of %v\n", percent(float64(o.Threshold)), o.Total)
		return nil
	}
	columns := []connector.Column[HeavyKey]{
		{Title: "rank", Number: true, Value: func(k HeavyKey) string { return group(uint64(k.Rank)) }},
		{Title: "key", Value: func(k HeavyKey) string { return k.Key.String() }},
		{Title: "estimate", Number: true, Value: func(k HeavyKey) string { return k.Estimate.String() }},
		{Title: "share", Number: true, Value: func(k HeavyKey) string { return percent(float64(k.Share)) }},
	}
	if v := r.Verify; v != nil {
		columns = append(columns,
			connector.Column[HeavyKey]{Title: "exact", Number: true, Value: func(k HeavyKey) string {
				return Number(v.exact.Weight(k.Key)).String()
			}},
			connector.Column[HeavyKey]{Title: "error", Number: true, Value: func(k HeavyKey) string {
				exact := v.exact.Weight(k.Key)
				return fmt.Sprintf("%+.3f%%", 100*(float64(k.Estimate)-exact)/exact)
			}})
	}
	return writeTable(b, o.HeavyHitters, columns)
}

func (r *Report) writeSummary(b *bytes.Buffer) error {
	fmt.Fprintf(b, "\n%s in %s (%s items/s) from %s, %s x %d\n", plural(r.Items, "item", "items"), seconds(float64(r.Seconds)),
		strings.TrimSpace(scaled(float64(r.ItemsPerSecond))), printableName(r.Input), plural(uint64(r.Workers), "worker", "workers"), r.Compute)
	if r.Guarantee == worker.None.String() {
		fmt.Fprintln(b, "guarantee none: nothing was backed up")
	} else {
		source := "source can be read again"
		if !r.SourceReplay {
			source = "source is read like a pipe"
		}
		fmt.Fprintf(b, "guarantee %s: theta %v, l %s, gamma %s, %s series, %s\n", r.Guarantee, r.Theta, group(r.L),
			group(r.Gamma), r.Series, source)
		fmt.Fprintf(b, "backups: %s, %s, %sB in %s\n", plural(r.Backups.StateCommits, "state commit", "state commits"),
			plural(r.Backups.ItemCommits, "item commit", "item commits"), scaled(float64(r.Backups.Bytes)),
			seconds(float64(r.Backups.Seconds)))
	}
	if r.SkippedRows > 0 {
		fmt.Fprintf(b, "%s left out\n", plural(uint64(r.SkippedRows), "bad row was", "bad rows were"))
	}
	if r.IgnoredRows > 0 {
		fmt.Fprintf(b, "%s no item in them\n", plural(uint64(r.IgnoredRows), "row had", "rows had"))
	}
	for _, f := range r.Unreached {
		fmt.Fprintf(b, "failure %s was never reached\n", f)
	}
	if r.Interrupted {
		fmt.Fprintln(b, "interrupted: this is the result so far")
	}
	return nil
}

func (r *Report) writeFailures(b *bytes.Buffer) error {
	if len(r.Failures) == 0 {
		return nil
	}
	b.WriteByte('\n')
	return writeTable(b, r.Failures, []connector.Column[Failure]{
		{Title: "failure", Value: func(f Failure) string { return fmt.Sprintf("%s/%d", f.Operator, f.Worker) }},
		{Title: "at item", Number: true, Value: func(f Failure) string { return group(f.AtItem) }},
		{Title: "divergence", Number: true, Value: func(f Failure) string { return f.Divergence.String() }},
		{Title: "budget", Number: true, Value: func(f Failure) string { return f.DivergenceBudget.String() }},
		{Title: "recovered in", Number: true, Value: func(f Failure) string { return seconds(float64(f.RecoverySeconds)) }},
		{Title: "replayed", Number: true, Value: func(f Failure) string { return group(f.Replayed) }},
		{Title: "lost", Number: true, Value: func(f Failure) string { return group(f.Lost) }},
	})
}

// measure is a line of the verification.
type measure struct{ what, measured, bound, verdict string }

func (r *Report) writeVerification(b *bytes.Buffer) error {
	v := r.Verify
	if v == nil {
		return nil
	}
	b.WriteByte('\n')
	bounded := func(what string, measured, bound Number, slack float64) measure {
		m := measure{what: what, measured: measured.String(), bound: bound.String(), verdict: "broken"}
		switch {
		case math.IsInf(float64(bound), 1):
			m.bound, m.verdict = "none", "not promised"
		case float64(measured) <= float64(bound)+slack:
			m.verdict = "kept"
		}
		return m
	}
	lines := []measure{
		bounded("state divergence", v.StateDivergence, v.StateDivergenceBound, v.slack),
		bounded("total divergence", v.TotalDivergence, v.TotalDivergenceBound, v.slack),
		bounded("items lost", Number(v.LostItems), v.LostItemsBound, 0),
		{what: "recall", measured: percent(v.Recall), verdict: fmt.Sprintf("%d of %d heavy hitters found", v.Correct, v.True)},
		{what: "precision", measured: percent(v.Precision), verdict: fmt.Sprintf("%d of %d reported are heavy", v.Correct, v.Reported)},
		{what: "mean relative error", measured: fmt.Sprintf("%.3f%%", 100*v.MeanRelativeError), verdict: "of the estimates of these"},
	}
	err := writeTable(b, lines, []connector.Column[measure]{
		{Title: "verified", Value: func(m measure) string { return m.what }},
		{Title: "measured", Number: true, Value: func(m measure) string { return m.measured }},
		{Title: "bound", Number: true, Value: func(m measure) string { return m.bound }},
		{Title: "verdict", Value: func(m measure) string { return m.verdict }},
	})
	if err != nil {
		return err
	}
	switch {
	case !v.Kept:
		fmt.Fprintln(b, "verdict: a bound is broken")
	case r.Guarantee == worker.None.String():
		fmt.Fprintln(b, "verdict: nothing was promised")
	default:
		fmt.Fprintln(b, "verdict: all bounds kept")
	}
	return nil
}

// printableName keeps a file name from controlling the terminal.
func printableName(name string) string {
	q := fmt.Sprintf("%q", name)
	if q[1:len(q)-1] == name {
		return name
	}
	return q
}
