package worker

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/afstream/afstream/stream"
)

// An operator waits for feedback no longer than paceLimit, then it goes on without. Each wait in vain halves how long the
// next one may be, down to paceLeast, and one that is rewarded makes it as long as at first: after a failure partitions may be
// out of step for good, and none of them must wait a second for each step from then on.
const (
	paceLimit = time.Second
	paceLeast = 100 * time.Microsecond
)

// openBack makes the partition's ends of all ways back. The operator may use what it sends on from then on; nothing
// arrives before ConnectBack.
func (o *operator) openBack() error {
	op := o.task.Operator()
	o.pacer, _ = op.(stream.Pacer)
	for _, e := range o.w.cfg.Node.BackIn {
		m, err := e.NewMailbox(op, o.park.Wake)
		if err != nil {
			return fmt.Errorf("operator %q: %w: %w", o.w.cfg.Node.Name, ErrOperator, err)
		}
		o.mail = append(o.mail, m)
	}
	for _, e := range o.w.cfg.Node.BackOut {
		p, err := e.NewPost(op, o.index)
		if err != nil {
			return fmt.Errorf("operator %q: %w: %w", o.w.cfg.Node.Name, ErrOperator, err)
		}
		o.posts = append(o.posts, p)
	}
	return nil
}

// ConnectBack leads the feedback of edge e from the partitions of one worker to those of another, in place of earlier
// incarnations of either.
func ConnectBack(e *stream.BackEdge, from, to *Worker) {
	out, in := slices.Index(e.From.BackOut, e), slices.Index(e.To.BackIn, e)
	for _, f := range from.operators {
		for _, t := range to.operators {
			f.posts[out].Connect(t.index, t.mail[in])
		}
	}
}

// ConnectOutbox leads the feedback of edge e from the worker's partitions to partition to of another process into box, in
// place of what it went into before.
func (w *Worker) ConnectOutbox(e *stream.BackEdge, to int, box stream.Outbox) {
	out := slices.Index(e.From.BackOut, e)
	for _, o := range w.operators {
		o.posts[out].ConnectOutbox(to, box)
	}
}

// PutBack gives partition to of the worker a value of edge e that partition from of another process has sent, see
// stream.Mailbox.
func (w *Worker) PutBack(e *stream.BackEdge, from, to int, value []byte) error {
	in := slices.Index(e.To.BackIn, e)
	for _, o := range w.operators {
		if o.index == to {
			return o.mail[in].Put(from, value)
		}
	}
	return fmt.Errorf("%s has no partition %d", w.cfg.name(), to)
}

// collect hands the operator the feedback and the values of its peers that have arrived.
func (o *operator) collect() error {
	for _, m := range o.mail {
		if !m.Pending() {
			continue
		}
		n, err := m.Deliver()
		o.w.stats.Feedback.Add(uint64(n))
		if err != nil {
			return fmt.Errorf("%s partition %d: feedback: %w", o.w.cfg.Node.Name, o.index, err)
		}
	}
	if o.peers != nil {
		return o.peers.collect()
	}
	return nil
}

// hasMail says whether feedback or values of peers wait.
func (o *operator) hasMail() bool {
	return o.peers != nil && o.peers.waiting() || slices.ContainsFunc(o.mail, stream.Mailbox.Pending)
}

// pace waits until the operator takes items again, and returns how many of the next n.
func (o *operator) pace(n int) (int, error) {
	if err := o.collect(); err != nil || o.pacer == nil {
		return n, err
	}
	if takes := o.pacer.Pace(); takes > 0 {
		return min(n, takes), nil
	}
	o.task.Flush() // the feedback may wait for this
	patience := cmp.Or(o.patience, paceLimit)
	for end := time.Now().Add(patience); ; {
		if !o.awaitFor(forFeedback, time.Until(end), o.hasMail) {
			o.w.stats.PacesGivenUp.Add(1)
			o.patience = max(patience/2, paceLeast)
			return 1, nil
		}
		if err := o.collect(); err != nil {
			return 0, err
		}
		if takes := o.pacer.Pace(); takes > 0 {
			o.patience = paceLimit
			return min(n, takes), nil
		}
	}
}

// feedbackLost counts the feedback that was replaced, found its receiver down, or dies with its mailbox.
func (o *operator) feedbackLost() uint64 {
	var n uint64
	for _, p := range o.posts {
		n += p.Dropped()
	}
	for _, m := range o.mail {
		n += uint64(m.Waiting())
	}
	return n
}
