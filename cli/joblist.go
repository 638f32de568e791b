package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/cluster"
)

func (s *shell) listCommand() *cli.Command {
	return s.command(asked{
		name: "list", usage: "list the jobs of a cluster, the newest first",
		description: "It takes a second, to hear from the nodes how far they are.",
		run:         listJobs,
	})
}

func listJobs(ctx context.Context, a *ask) error {
	beats, err := a.beats(ctx)
	if err != nil {
		return err
	}
	jobs, err := a.list(ctx)
	if err != nil {
		return err
	}
	all, now := statuses(beats), time.Now()
	views := jobViews{}
	for _, j := range jobs {
		views = append(views, viewOf(j, all, now))
	}
	slices.SortFunc(views, func(a, b jobView) int { return cmp.Or(b.Submitted.Compare(a.Submitted), cmp.Compare(a.ID, b.ID)) })
	return a.Print(views)
}

// list returns all jobs.
func (a *ask) list(ctx context.Context) ([]*cluster.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	records, err := a.records.List(ctx, cluster.JobPrefix)
	if err != nil {
		return nil, err
	}
	var jobs []*cluster.Job
	for _, r := range records {
		j, err := cluster.DecodeJob(r.Value)
		if err != nil {
			a.Log.Warn("record of a job cannot be read", "key", r.Key, "err", err)
			continue
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// jobViews is the report of job list.
type jobViews []jobView

// WriteJSON implements Report.
func (v jobViews) WriteJSON(w io.Writer) error { return jsonReport(w, v) }

// WriteText implements Report.
func (v jobViews) WriteText(w io.Writer) error {
	return textReport(w, func(b *bytes.Buffer) error {
		if len(v) == 0 {
			fmt.Fprintln(b, "no jobs")
			return nil
		}
		return writeTable(b, v,
			column("id", func(j jobView) string { return j.ID }),
			column("job", func(j jobView) string { return j.Job }),
			column("state", func(j jobView) string { return string(j.State) }),
			column("running", func(j jobView) string { return fmt.Sprintf("%d of %d", j.Running, j.Workers) }),
			number("failures", func(j jobView) uint64 { return j.Failures }),
			number("items", func(j jobView) uint64 { return j.Items }),
			column("submitted", func(j jobView) string { return clock(j.Submitted) }),
			column("for", func(j jobView) string { return duration(j.Seconds) }),
		)
	})
}
