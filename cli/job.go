package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/connector"
)

// jobCommand is what users do with jobs in a cluster.
func (s *shell) jobCommand() *cli.Command {
	return &cli.Command{
		Name:  "job",
		Usage: "submit jobs to a cluster, watch and end them",
		Description: "A cluster is what meets at a NATS server: controllers, nodes and a backup server. One for a laptop: afstream up.\n" +
			"Flags come before the ID of a job.",
		OnUsageError: usageError,
		Action:       unknownCommand,
		Subcommands: []*cli.Command{
			s.submitCommand(), s.listCommand(), s.inspectCommand(), s.logsCommand(), s.scaleCommand(), s.cancelCommand(), s.resultCommand(), s.deleteCommand(),
		},
	}
}

// jsonReport writes a value as one indented JSON object or array.
func jsonReport(w io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	if _, err := w.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// textReport writes what write makes, in one piece.
func textReport(w io.Writer, write func(b *bytes.Buffer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// writeTable writes rows through the table sink, which aligns them and escapes what does not print.
func writeTable[T any](w io.Writer, rows []T, columns ...connector.Column[T]) error {
	sink, err := connector.Table(w, columns...)(0, 1)
	if err != nil {
		return err
	}
	if err := sink.Write(rows); err != nil {
		return err
	}
	return sink.Close()
}

// column is a column of text, number one of numbers.
func column[T any](title string, value func(T) string) connector.Column[T] {
	return connector.Column[T]{Title: title, Value: value}
}

func number[T any](title string, value func(T) uint64) connector.Column[T] {
	return connector.Column[T]{Title: title, Number: true, Value: func(row T) string { return strconv.FormatUint(value(row), 10) }}
}

// jobView is a job as lists show it.
type jobView struct {
	ID        string        `json:"id"`
	Job       string        `json:"job"`
	State     cluster.State `json:"state"`
	Why       string        `json:"why,omitempty"`
	Workers   int           `json:"workers"`
	Placed    int           `json:"placed"`  // workers that have a node
	Running   int           `json:"running"` // workers that a node says are running, or done
	Failures  uint64        `json:"failures"`
	Items     uint64        `json:"items"` // read, as far as is known
	Submitted time.Time     `json:"submitted"`
	Seconds   float64       `json:"seconds"` // since it was started, until it ended
}

// statusKey names one incarnation of a worker.
type statusKey struct {
	job, operator string
	index         int
	epoch         uint64
}

// statuses are what nodes say of the workers that run on them.
func statuses(beats map[string]*cluster.Beat) map[statusKey]cluster.Status {
	all := map[statusKey]cluster.Status{}
	for _, b := range beats {
		for _, s := range b.Workers {
			all[statusKey{s.Job, s.Operator, s.Index, s.Epoch}] = s
		}
	}
	return all
}

// viewOf puts together what a record says of a job and what nodes do.
func viewOf(j *cluster.Job, all map[statusKey]cluster.Status, now time.Time) jobView {
	v := jobView{ID: j.ID, Job: j.Spec.Name, State: j.State, Why: j.Why, Workers: len(j.Workers), Submitted: j.Submitted}
	sources := map[string]bool{}
	for _, o := range j.Spec.Operators {
		sources[o.Name] = o.Source
	}
	for _, w := range j.Workers {
		v.Failures += w.Failures
		read := w.Past.Read
		if w.Node != "" {
			v.Placed++
		}
		if s, ok := all[statusKey{j.ID, w.Operator, w.Index, w.Epoch}]; ok {
			read = max(read, s.Counters.Read)
			if s.Phase == cluster.Working || s.Phase == cluster.Done {
				v.Running++
			}
		}
		if sources[w.Operator] {
			v.Items += read
		}
	}
	switch {
	case j.Started.IsZero():
	case j.State.Ended():
		v.Seconds = j.Ended.Sub(j.Started).Seconds()
	default:
		v.Seconds = now.Sub(j.Started).Seconds()
	}
	return v
}

// duration is a number of seconds for people.
func duration(seconds float64) string {
	switch {
	case seconds <= 0:
		return "-"
	case seconds < 60:
		return fmt.Sprintf("%.1f s", seconds)
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

// clock is a time for people.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}
