package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/afstream/afstream/worker"
)

// handle deals with the end of one incarnation: an error fails the job, anything else is a failure to recover from.
func (r *run) handle(ctx context.Context, e ended) error {
	if e.err != nil {
		r.account(e.slot, e.w)
		e.w.Close()
		e.slot.loaded = nil
		e.slot.current.Store(nil)
		return e.err
	}
	if e.w.Retired() {
		return r.succeed(ctx, e.slot, e.w)
	}
	return r.recover(ctx, e.slot, e.w)
}

// succeed puts another incarnation in the place of one that has ended so that nothing is lost.
func (r *run) succeed(ctx context.Context, s *slot, retired *worker.Worker) error {
	autopsy := retired.Autopsy()
	r.account(s, retired)
	retired.Close()
	s.before += autopsy.Items
	s.loaded = nil
	s.current.Store(nil)
	if err := r.load(ctx, s, autopsy); err != nil {
		return fmt.Errorf("replace: %w", err)
	}
	r.reconnect(s, autopsy)
	r.launch(ctx, s)
	return nil
}

func (r *run) recover(ctx context.Context, s *slot, dead *worker.Worker) error {
	noticed := time.Now()
	s.current.Store(nil)
	autopsy := dead.Autopsy()
	r.account(s, dead)
	failure := Failure{
		Operator: s.node.Name, Worker: s.index, AtItem: s.before + autopsy.Items, Epoch: s.epoch, DivergenceBudget: dead.Budget().Theta,
	}
	for _, p := range autopsy.Partition {
		failure.Divergence = max(failure.Divergence, p.Divergence)
	}
	if theta := autopsy.Theta(); theta > 0 {
		failure.DivergenceBudget = theta // it may have changed since the start
	}
	r.o.Log.Info("worker failed", "operator", s.node.Name, "worker", s.index, "epoch", s.epoch, "items", autopsy.Items)
	r.tell(Event{Failure: failure})
	if dead.Replay() == worker.Rewinds {
		dead.Close() // its successor opens the source anew
	}
	s.before += autopsy.Items
	s.failures++
	s.failedAt = append(s.failedAt, autopsy.Level())
	s.failedIn = append(s.failedIn, s.epoch)
	s.loaded = nil
	if err := r.load(ctx, s, autopsy); err != nil {
		dead.Close()
		return fmt.Errorf("recover: %w", err)
	}
	r.reconnect(s, autopsy)
	r.launch(ctx, s)
	if r.result.Interrupted && s.node.IsSource {
		s.loaded.Drain()
	}
	failure.RecoverySeconds = time.Since(noticed).Seconds()
	r.replaced = append(r.replaced, replacement{failure: len(r.result.Failures), stats: s.loaded.Stats()})
	r.result.Failures = append(r.result.Failures, failure)
	r.o.Log.Info("worker recovered", "operator", s.node.Name, "worker", s.index, "epoch", s.epoch, "dur", failure.RecoverySeconds)
	r.tell(Event{Failure: failure, Recovered: true})
	return nil
}

// reconnect attaches a new incarnation to all its neighbours.
func (r *run) reconnect(s *slot, dead *worker.Autopsy) {
	var emitted [][]uint64
	if replay := s.loaded.Replay(); replay == worker.AtRisk || replay == worker.Live {
		for _, p := range dead.Partition {
			emitted = append(emitted, p.Emitted)
		}
	}
	for _, e := range s.node.Outputs {
		for _, to := range r.byNode[e.To] {
			connect(e, s, to, worker.EmittedOn(e, emitted))
		}
	}
	for _, e := range s.node.Inputs {
		for _, from := range r.byNode[e.From] {
			connect(e, from, s, nil)
		}
	}
	r.connectBack(s)
}

func (r *run) tell(e Event) {
	if r.o.OnEvent != nil {
		r.o.OnEvent(e)
	}
}

// account adds what an incarnation did to the totals of its operator.
func (r *run) account(s *slot, w *worker.Worker) {
	st, t := w.Stats(), s.totals
	s.read = max(s.read, w.Read())
	t.Items += w.Items()
	t.Emitted += st.Emitted.Load()
	t.Lost += st.Lost.Load()
	t.Repeated += st.Repeated.Load()
	t.Duplicates += st.Duplicates.Load()
	t.Stale += st.Stale.Load()
	t.Waits += st.Waits.Load()
	t.PacesGivenUp += st.PacesGivenUp.Load()
	t.StateCommits += st.StateCommits.Load()
	t.Marks += st.Marks.Load()
	t.ItemCommits += st.ItemCommits.Load()
	t.Bytes += st.Bytes.Load()
	t.Feedback += st.Feedback.Load()
	t.FeedbackLost += w.Autopsy().Feedback
	t.Handed += st.Handed.Load()
	t.HandedLost += st.HandedLost.Load()
	t.HandedTwice += st.HandedTwice.Load()
	t.Seconds += time.Duration(st.Nanoseconds.Load()).Seconds()
}

// summarise fills in what is known only at the end.
func (r *run) summarise() {
	for _, s := range r.slots {
		r.result.Items += s.read
	}
	for _, p := range r.replaced {
		f := &r.result.Failures[p.failure]
		f.Replayed, f.Lost, f.Repeated = p.stats.Replayed.Load(), p.stats.Lost.Load(), p.stats.Repeated.Load()
	}
	for _, d := range r.divisions {
		d.summarise()
	}
	r.result.Unreached = r.faults.unreached()
}
