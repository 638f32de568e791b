package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/afstream/afstream/cluster"
)

func (s *shell) scaleCommand() *cli.Command {
	return s.command(asked{
		name: "scale", args: "ID OPERATOR=N", most: 2, usage: "change the number of workers of an operator while the job runs, and wait until that is done",
		description: "The job stands still for a moment, loses nothing, and goes on with N workers; if it does not come to rest it goes on as it was.\n" +
			"Not every operator can be divided, and sources and sinks cannot: then nothing is held up, and the command says why.",
		flags: []cli.Flag{&cli.BoolFlag{
			Name: "detach", Category: categoryCluster, EnvVars: env("detach"),
			Usage: "do not wait; job inspect tells what has become of it",
		}},
		run: scaleJob,
	})
}

func scaleJob(ctx context.Context, a *ask) error {
	id := a.Flags.Args().First()
	operator, workers, err := parseScale(a.Flags.Args().Get(1))
	if err != nil {
		return err
	}
	j, _, err := a.find(ctx, id)
	if err != nil {
		return err
	}
	if err := scalable(j, operator, workers); err != nil {
		return fmt.Errorf("job %s: %w", id, err)
	}
	w := &cluster.ScaleWish{ID: cluster.NewID(), Operator: operator, Workers: workers}
	if err := a.wishScale(ctx, id, w); err != nil {
		return err
	}
	if a.Flags.Bool("detach") {
		return a.Print(scaleView{Job: id, Operator: operator, Workers: workers, Phase: cluster.ScaleAsked})
	}
	return a.awaitScale(ctx, id, w)
}

// parseScale reads OPERATOR=N.
func parseScale(text string) (operator string, workers int, err error) {
	i := strings.LastIndexByte(text, '=')
	if i > 0 {
		workers, err = strconv.Atoi(text[i+1:])
	}
	if i <= 0 || err != nil {
		return "", 0, fmt.Errorf("%w: %q: want OPERATOR=N, such as count=4", ErrUsage, text)
	}
	return text[:i], workers, nil
}

// scalable says what is in the way, as far as the record tells.
func scalable(j *cluster.Job, operator string, workers int) error {
	if s := j.Scaling; s != nil && !s.Phase.Over() {
		return fmt.Errorf("operator %q is being given %d workers: wait until that is done", s.Operator, s.Workers)
	}
	err := j.CannotScale(operator, workers)
	if err == nil {
		return nil
	}
	var names []string
	for _, o := range j.Spec.Operators {
		if names = append(names, o.Name); o.Name == operator {
			return err
		}
	}
	if s := nearest(operator, names); s != "" {
		return fmt.Errorf("%w: did you mean %q?", err, s)
	}
	return fmt.Errorf("%w: there are %s", err, strings.Join(names, ", "))
}

// wishScale makes the wish. One that was made and seemed not to be is found again.
func (a *ask) wishScale(ctx context.Context, id string, w *cluster.ScaleWish) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	_, err := a.records.Create(ctx, cluster.ScaleKey(id), w.Encode())
	if errors.Is(err, cluster.ErrConflict) {
		if r, err := a.records.Get(ctx, cluster.ScaleKey(id)); err == nil {
			if there, err := cluster.DecodeScaleWish(r.Value); err == nil && there.ID == w.ID {
				return nil
			}
		}
		return fmt.Errorf("job %s: another number of workers was asked for just now: wait until that is done", id)
	}
	if err != nil {
		return fmt.Errorf("scale job %s: %w; see in job inspect %s whether it was asked for nevertheless", id, err, id)
	}
	return nil
}

// lookEvery is how often a command that waits looks at a record.
const lookEvery = 200 * time.Millisecond

// awaitScale waits until a change is over, and prints what has become of it.
func (a *ask) awaitScale(ctx context.Context, id string, w *cluster.ScaleWish) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	begun := false
	for {
		j, err := a.look(ctx, id)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, cluster.ErrNoRecord):
			return fmt.Errorf("job %s was deleted", id)
		case err != nil:
			a.Log.Warn("record of the job cannot be read", "job", id, "err", err)
		case j.Scaling != nil && j.Scaling.ID == w.ID:
			s := j.Scaling
			begun = true
			if s.Phase == cluster.ScaleRefused {
				return fmt.Errorf("job %s: operator %q has %d workers as before: %s", id, s.Operator, s.Former, s.Why)
			}
			if s.Phase == cluster.ScaleDone {
				return a.Print(scaleViewOf(id, s))
			}
		case begun:
			return fmt.Errorf("job %s: another number of workers was asked for since: see job inspect %s", id, id)
		case j.State.Ended():
			return fmt.Errorf("job %s has ended: it is %s", id, j.State)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("interrupted: what was asked for goes on, see job inspect %s", id)
		}
	}
}

// look reads a job's record; the error wraps cluster.ErrNoRecord if there is none.
func (m *members) look(ctx context.Context, id string) (*cluster.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	r, err := m.records.Get(ctx, cluster.JobKey(id))
	if err != nil {
		return nil, err
	}
	return cluster.DecodeJob(r.Value)
}

// scaleView is the report of job scale.
type scaleView struct {
	Job      string             `json:"job"`
	Operator string             `json:"operator"`
	Workers  int                `json:"workers"`
	Former   int                `json:"former,omitempty"`
	Phase    cluster.ScalePhase `json:"phase"`
	Seconds  float64            `json:"seconds,omitempty"` // from when it was taken up until all was saved
	Why      string             `json:"why,omitempty"`
}

func scaleViewOf(id string, s *cluster.Scaling) scaleView {
	v := scaleView{Job: id, Operator: s.Operator, Workers: s.Workers, Former: s.Former, Phase: s.Phase, Why: s.Why}
	if !s.Ended.IsZero() {
		v.Seconds = max(s.Ended.Sub(s.Since).Seconds(), 0)
	}
	return v
}

// line says it in one line.
func (v scaleView) line() string {
	switch {
	case v.Phase == cluster.ScaleDone:
		return fmt.Sprintf("operator %s has %d workers, after %d, since a change that took %s", v.Operator, v.Workers, v.Former, duration(v.Seconds))
	case v.Phase == cluster.ScaleRefused:
		return fmt.Sprintf("operator %s was not given %d workers: %s", v.Operator, v.Workers, v.Why)
	case v.Former > 0:
		return fmt.Sprintf("operator %s is being given %d workers, after %d: %s", v.Operator, v.Workers, v.Former, v.Phase)
	}
	return fmt.Sprintf("operator %s of job %s is to have %d workers", v.Operator, v.Job, v.Workers)
}

// WriteJSON implements Report.
func (v scaleView) WriteJSON(w io.Writer) error { return jsonReport(w, v) }

// WriteText implements Report.
func (v scaleView) WriteText(w io.Writer) error {
	_, err := fmt.Fprintln(w, v.line())
	return err
}
