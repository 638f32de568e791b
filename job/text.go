package job

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
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

// WriteText writes the report for people: the answer, what the job did, and, if it was verified, each figure beside its
// bound. Nothing is written unless all of it can be made.
func (r *Report[A, V]) WriteText(w io.Writer) error {
	var b bytes.Buffer
	if err := r.Outcome.write(&b, r.Verify); err != nil {
		return err
	}
	r.Summary.write(&b)
	if err := r.writeFailures(&b); err != nil {
		return err
	}
	if r.Verify != nil {
		if err := r.writeVerification(&b, (*r.Verify).Checks(), (*r.Verify).figures()); err != nil {
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

func (s *Summary) write(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n%s in %s (%s items/s) from %s, %s x %d\n", plural(s.Items, "item", "items"), seconds(float64(s.Seconds)),
		strings.TrimSpace(scaled(float64(s.ItemsPerSecond))), printableName(s.Input), plural(uint64(s.Workers), "worker", "workers"), s.Compute)
	if p := s.Plan; p != nil {
		fmt.Fprintf(b, "planned: estimates within %s of the total of %v with confidence %s, sketches of %d x %s\n",
			share(p.Error), p.Total, share(p.Confidence), p.Rows, group(uint64(p.Width)))
	}
	s.writeGuarantee(b)
	if s.SkippedRows > 0 {
		fmt.Fprintf(b, "%s left out\n", plural(uint64(s.SkippedRows), "bad row was", "bad rows were"))
	}
	if s.IgnoredRows > 0 {
		fmt.Fprintf(b, "%s no item in them\n", plural(uint64(s.IgnoredRows), "row had", "rows had"))
	}
	for _, f := range s.Unreached {
		fmt.Fprintf(b, "failure %s was never reached\n", f)
	}
	if s.Interrupted {
		fmt.Fprintln(b, "interrupted: this is the result so far")
	}
}

func (s *Summary) writeGuarantee(b *bytes.Buffer) {
	if s.Guarantee == worker.None.String() {
		fmt.Fprintln(b, "guarantee none: nothing was backed up")
		return
	}
	source := "source can be read again"
	if !s.SourceReplay {
		source = "source is read like a pipe"
	}
	switch s.Guarantee {
	case worker.ErrorFree.String():
		fmt.Fprintf(b, "guarantee %s: every item and every change was backed up (theta %v, l %s, gamma %s), %s\n", s.Guarantee,
			s.Theta, group(s.L), group(s.Gamma), source)
	case worker.MiniBatch.String(), worker.UpstreamBackup.String():
		what := "all"
		if s.Guarantee == worker.UpstreamBackup.String() {
			what = "what had changed"
		}
		fmt.Fprintf(b, "guarantee %s: %s was backed up every %s items, %s\n", s.Guarantee, what, group(cmp.Or(s.Batch, DefaultBatch)), source)
	default:
		fmt.Fprintf(b, "guarantee %s: theta %v, l %s, gamma %s, %s series, %s\n", s.Guarantee, s.Theta, group(s.L),
			group(s.Gamma), s.Series, source)
		if s.Allocate == controller.ByCost.String() {
			fmt.Fprintf(b, "theta was divided by cost: %s\n", plural(s.Moves, "part was moved", "parts were moved"))
		}
	}
	fmt.Fprintf(b, "backups: %s, %s, %s, %sB in %s\n", plural(s.Backups.StateCommits, "state commit", "state commits"),
		plural(s.Backups.Marks, "mark", "marks"), plural(s.Backups.ItemCommits, "item commit", "item commits"), scaled(float64(s.Backups.Bytes)),
		seconds(float64(s.Backups.Seconds)))
}

func (s *Summary) writeFailures(b *bytes.Buffer) error {
	if len(s.Failures) == 0 {
		return nil
	}
	b.WriteByte('\n')
	return writeTable(b, s.Failures, []connector.Column[Failure]{
		{Title: "failure", Value: func(f Failure) string { return fmt.Sprintf("%s/%d", f.Operator, f.Worker) }},
		{Title: "at item", Number: true, Value: func(f Failure) string { return group(f.AtItem) }},
		{Title: "divergence", Number: true, Value: func(f Failure) string { return f.Divergence.String() }},
		{Title: "budget", Number: true, Value: func(f Failure) string { return f.DivergenceBudget.String() }},
		{Title: "recovered in", Number: true, Value: func(f Failure) string { return seconds(float64(f.RecoverySeconds)) }},
		{Title: "replayed", Number: true, Value: func(f Failure) string { return group(f.Replayed) }},
		{Title: "lost", Number: true, Value: func(f Failure) string { return group(f.Lost) }},
	})
}

// figure is a line of the verification.
type figure struct{ what, measured, bound, verdict string }

// figure returns the check as a line.
func (c Check) figure() figure {
	f := figure{what: c.What, measured: c.Measured.String(), bound: c.Bound.String(), verdict: "broken"}
	switch {
	case !c.Promised():
		f.bound, f.verdict = "none", "not promised"
	case c.Kept():
		f.verdict = "kept"
	}
	return f
}

func (s *Summary) writeVerification(b *bytes.Buffer, checks []Check, more []figure) error {
	b.WriteByte('\n')
	var lines []figure
	for _, c := range checks {
		lines = append(lines, c.figure())
	}
	err := writeTable(b, append(lines, more...), []connector.Column[figure]{
		{Title: "verified", Value: func(f figure) string { return f.what }},
		{Title: "measured", Number: true, Value: func(f figure) string { return f.measured }},
		{Title: "bound", Number: true, Value: func(f figure) string { return f.bound }},
		{Title: "verdict", Value: func(f figure) string { return f.verdict }},
	})
	if err != nil {
		return err
	}
	switch {
	case !allKept(checks):
		fmt.Fprintln(b, "verdict: a bound is broken")
	case s.Guarantee == worker.None.String():
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
