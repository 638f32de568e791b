package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/cluster"
)

func (s *shell) inspectCommand() *cli.Command {
	return s.command(asked{
		name: "inspect", args: "ID", most: 1, usage: "show where the workers of a job are, what they do, and what went wrong",
		run: inspectJob,
	})
}

func inspectJob(ctx context.Context, a *ask) error {
	id := a.Flags.Args().First()
	if _, _, err := a.find(ctx, id); err != nil {
		return err // at once
	}
	beats, err := a.beats(ctx)
	if err != nil {
		return err
	}
	j, _, err := a.find(ctx, id)
	if err != nil {
		return err
	}
	all := statuses(beats)
	d := details{Summary: viewOf(j, all, time.Now()), Record: j}
	for _, w := range j.Workers {
		v := workerView{Worker: w.Name(), Node: w.Node, Epoch: w.Epoch, Failures: w.Failures, Counters: w.Past}
		if s, ok := all[statusKey{j.ID, w.Operator, w.Index, w.Epoch}]; ok {
			v.Phase, v.WaitsFor, v.Error = s.Phase, s.WaitsFor, s.Error
			v.Counters.Add(s.Counters)
		} else if w.Done {
			v.Phase = cluster.Done
		}
		d.Workers = append(d.Workers, v)
	}
	return a.Print(d)
}

// details is the report of job inspect.
type details struct {
	Summary jobView      `json:"summary"`
	Workers []workerView `json:"workers"`
	Record  *cluster.Job `json:"record"`
}

// workerView is what is known of a worker now.
type workerView struct {
	Worker   string           `json:"worker"`
	Node     string           `json:"node,omitempty"`
	Phase    cluster.Phase    `json:"phase,omitempty"` // empty if no node says anything of it
	Epoch    uint64           `json:"epoch"`
	Failures uint64           `json:"failures"`
	Counters cluster.Counters `json:"counters"` // of all its incarnations, as far as is known
	WaitsFor []string         `json:"waits_for,omitempty"`
	Error    string           `json:"error,omitempty"`
}

// WriteJSON implements Report.
func (d details) WriteJSON(w io.Writer) error { return jsonReport(w, d) }

// shownIncidents is how many of the last incidents people are shown.
const shownIncidents = 10

// WriteText implements Report.
func (d details) WriteText(w io.Writer) error {
	return textReport(w, func(b *bytes.Buffer) error {
		s, j := d.Summary, d.Record
		fmt.Fprintf(b, "%s  %s %s\n", s.ID, s.Job, strings.Join(j.Spec.Args, " "))
		fmt.Fprintf(b, "%s", s.State)
		if s.Why != "" {
			fmt.Fprintf(b, ": %s", s.Why)
		}
		fmt.Fprintf(b, "\nsubmitted %s, started %s, ended %s; %d items read in %s\n", clock(j.Submitted), clock(j.Started), clock(j.Ended), s.Items, duration(s.Seconds))
		fmt.Fprintf(b, "program %s; backups %s\n", j.Spec.Version, backupsOf(j))
		if j.Scaling != nil {
			fmt.Fprintln(b, scaleViewOf(j.ID, j.Scaling).line())
		}
		fmt.Fprintln(b)
		err := writeTable(b, d.Workers,
			column("worker", func(v workerView) string { return v.Worker }),
			column("node", func(v workerView) string { return orDash(v.Node) }),
			column("phase", func(v workerView) string { return orDash(string(v.Phase)) }),
			number("epoch", func(v workerView) uint64 { return v.Epoch }),
			number("failures", func(v workerView) uint64 { return v.Failures }),
			number("items", func(v workerView) uint64 { return v.Counters.Items }),
			number("emitted", func(v workerView) uint64 { return v.Counters.Emitted }),
			number("commits", func(v workerView) uint64 { return v.Counters.StateCommits }),
			number("marks", func(v workerView) uint64 { return v.Counters.Marks }),
			number("bytes", func(v workerView) uint64 { return v.Counters.Bytes }),
			column("waits for", func(v workerView) string { return strings.Join(v.WaitsFor, ", ") }),
		)
		if err != nil || len(j.History) == 0 {
			return err
		}
		shown := j.History[max(0, len(j.History)-shownIncidents):]
		fmt.Fprintf(b, "\nlast %d of %d incidents\n", len(shown), j.Incidents)
		return writeTable(b, shown,
			column("at", func(i cluster.Incident) string { return clock(i.At) }),
			column("worker", incidentWorker),
			column("node", func(i cluster.Incident) string { return orDash(i.Node) }),
			column("recovered in", func(i cluster.Incident) string { return duration(i.Recovery) }),
			column("what", func(i cluster.Incident) string { return i.What }),
		)
	})
}

// backupsOf says where a job is backed up, and where it was.
func backupsOf(j *cluster.Job) string {
	var gone []string
	for _, name := range j.Spec.Backups {
		if !slices.Contains(j.View, name) {
			gone = append(gone, name)
		}
	}
	text := orDash(strings.Join(j.View, ", "))
	if len(gone) > 0 {
		text += fmt.Sprintf(" (given up: %s)", strings.Join(gone, ", "))
	}
	return text
}

func incidentWorker(i cluster.Incident) string {
	if i.Operator == "" {
		return "-"
	}
	return fmt.Sprintf("%s/%d", i.Operator, i.Worker)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
