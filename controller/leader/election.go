package leader

import (
	"context"
	"errors"
	"time"

	"github.com/afstream/afstream/cluster"
)

// sight is the lease as it was seen last.
type sight struct {
	synced   bool // all there was at the start was seen
	leader   cluster.Leader
	revision uint64 // 0: there is none
	at       time.Time
}

// free says whether the lease can be had: nobody has it, or whoever had it has not renewed it in time.
func (s *sight) free(now time.Time, lease time.Duration) bool {
	return s.synced && (s.revision == 0 || s.leader.Controller == "" || now.Sub(s.at) >= lease)
}

// see takes in the record of the lease.
func (c *controller) see(now time.Time, r cluster.Record) {
	switch {
	case r.Value == nil && (r.Revision == 0 || r.Revision > c.seen.revision):
		c.seen.leader, c.seen.revision, c.seen.at = cluster.Leader{Term: c.seen.leader.Term}, 0, now
	case r.Value == nil || r.Revision <= c.seen.revision:
	default:
		l, err := cluster.DecodeLeader(r.Value)
		if err != nil {
			c.o.Log.Error("record of the leader cannot be read: it is replaced", "err", err)
			l = &cluster.Leader{Controller: "unknown", Term: c.seen.leader.Term}
		}
		l.Term = max(l.Term, c.seen.leader.Term)
		c.seen.leader, c.seen.revision, c.seen.at = *l, r.Revision, now
	}
}

// lease is what a leader has.
type lease struct {
	leader   cluster.Leader
	revision uint64
	until    time.Time // by when it must have stopped
}

// stand waits until this controller has the lease. Nil if ctx ended first.
func (c *controller) stand(ctx context.Context) *lease {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tick := time.NewTicker(c.o.Tick)
	defer tick.Stop()
	var claim chan *lease // where the outcome of the one under way comes
	for {
		select {
		case <-ctx.Done():
			if claim == nil {
				return nil
			}
			return <-claim // to be given back
		case e := <-c.events:
			e(time.Now())
		case l := <-claim:
			if l != nil {
				return l
			}
			claim = nil
		case <-tick.C:
			now := time.Now()
			c.m.Step(now) // nothing to do, but it must not take the time for a gap
			if claim == nil && c.seen.free(now, c.o.Lease) {
				claim = make(chan *lease, 1)
				out, seen, term := claim, c.seen, max(c.seen.leader.Term, c.m.Highest())+1
				go func() { out <- c.claim(ctx, seen, term) }() // ends with ctx, and stand does not return before
			}
		}
	}
}

// claim tries to get the lease that was seen. Nil if it could not be had: then the next look at it is news.
func (c *controller) claim(ctx context.Context, seen sight, term uint64) *lease {
	l := &lease{leader: cluster.Leader{Controller: c.o.Name, Term: term}, until: time.Now().Add(c.o.Lease - c.o.Margin)}
	limited, cancel := context.WithDeadline(ctx, l.until)
	defer cancel()
	var err error
	if seen.revision == 0 {
		l.revision, err = c.o.Records.Create(limited, cluster.LeaderKey, l.leader.Encode())
	} else {
		l.revision, err = c.o.Records.Update(limited, cluster.LeaderKey, l.leader.Encode(), seen.revision)
	}
	if err == nil {
		return l
	}
	if !errors.Is(err, cluster.ErrConflict) {
		c.o.Log.Warn("cannot take the lease", "term", term, "err", err)
	}
	// If nobody knows whether it was written it was not won: another controller may have this one's name.
	if p := (pause{}); !p.wait(ctx) {
		return nil
	}
	if r, err := c.o.Records.Get(limited, cluster.LeaderKey); err == nil {
		post(ctx, c.events, func(now time.Time) { c.see(now, r) })
	}
	return nil
}

// renew sends a renewal, if it is time for one and none is under way.
func (r *reign) renew(now time.Time) {
	if r.renewing || now.Sub(r.renewed) < r.c.o.Renew {
		return
	}
	r.renewing, r.renewed = true, now
	next, revision, until := r.lease.leader, r.lease.revision, r.lease.until
	next.Renewal++
	r.workers.Go(func() {
		ctx, cancel := context.WithDeadline(r.ctx, earlier(until, now.Add(2*r.c.o.Renew)))
		defer cancel()
		got, err := r.c.o.Records.Update(ctx, cluster.LeaderKey, next.Encode(), revision)
		var stored cluster.Record
		if errors.Is(err, cluster.ErrConflict) {
			if record, err := r.c.o.Records.Get(ctx, cluster.LeaderKey); err == nil {
				stored = record
			}
		}
		post(r.ctx, r.events, func(heard time.Time) {
			r.renewing = false
			switch {
			case err == nil:
				r.answered = heard
				r.lease = lease{leader: next, revision: got, until: now.Add(r.c.o.Lease - r.c.o.Margin)}
			case stored.Key != "" && !r.mine(stored):
				r.over = "another controller has the lease"
			case stored.Key != "":
				r.renewed = time.Time{} // again, at once
			default:
				r.c.o.Log.Warn("lease was not renewed", "term", next.Term, "err", err)
			}
		})
	})
}

// mine says whether a record of the lease, read after a change of it was refused, is this leader's still. It may come from a renewal
// of which it was not known that it was stored; when that was sent is not known either, so it does not count as one.
func (r *reign) mine(stored cluster.Record) bool {
	l, err := cluster.DecodeLeader(stored.Value)
	if err != nil || l.Term != r.lease.leader.Term || l.Controller != r.lease.leader.Controller {
		return false
	}
	if stored.Revision > r.lease.revision {
		r.lease.leader, r.lease.revision = *l, stored.Revision
	}
	return true
}

// resign gives the lease back, so that nobody has to wait for its end.
func (r *reign) resign() {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(r.ctx), r.lease.until)
	defer cancel()
	for p := (pause{}); ; {
		free := cluster.Leader{Term: r.lease.leader.Term, Renewal: r.lease.leader.Renewal + 1}
		if _, err := r.c.o.Records.Update(ctx, cluster.LeaderKey, free.Encode(), r.lease.revision); err == nil || !p.wait(ctx) {
			return
		}
		if stored, err := r.c.o.Records.Get(ctx, cluster.LeaderKey); err == nil && !r.mine(stored) {
			return
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
