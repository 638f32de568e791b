package leader

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/controller/machine"
)

// writesAtOnce is how many writes are under way at most: after a takeover every record is written.
const writesAtOnce = 16

// clearEvery is how often it is looked for jobs whose backups can go, clearAgain after how long one is tried again.
const (
	clearEvery = time.Second
	clearAgain = 10 * time.Second
)

// reign is one time of leading, from winning the lease to losing it.
type reign struct {
	c       *controller
	ctx     context.Context // of all goroutines of the reign
	workers sync.WaitGroup
	events  chan event
	lease   lease
	over    string // why it has ended; empty as long as it has not

	renewing bool
	renewed  time.Time // when a renewal was sent last
	answered time.Time // when one was last known to be stored

	unsynced map[string]bool // prefixes of which not all records were told yet
	writing  chan struct{}   // holds one for each write under way

	dividing map[string]bool // jobs of whose partitions some are being frozen or dropped

	clearing bool
	looked   time.Time            // for jobs to clear
	failed   map[string]time.Time // when clearing one was tried in vain
}

// reign leads until the lease is lost or ctx ends, and leaves nothing running.
func (c *controller) reign(ctx context.Context, l *lease) {
	ctx, cancel := context.WithCancel(ctx)
	r := &reign{
		c: c, ctx: ctx, events: make(chan event, 256), lease: *l, renewed: time.Now(), answered: time.Now(),
		unsynced: map[string]bool{cluster.NodePrefix: true, cluster.WishPrefix: true, cluster.JobPrefix: true},
		writing:  make(chan struct{}, writesAtOnce), failed: map[string]time.Time{}, dividing: map[string]bool{},
	}
	c.o.Log.Info("leading", "controller", c.o.Name, "term", l.leader.Term)
	c.m.Lead(time.Now(), l.leader.Term)
	for prefix := range r.unsynced {
		r.workers.Go(func() {
			c.follow(ctx, prefix, r.events, r.take, func(now time.Time) { r.told(now, prefix) })
		})
	}
	r.lead()
	cancel()
	r.workers.Wait()
	c.m.Rest()
	c.o.Log.Info("leads no more", "controller", c.o.Name, "term", l.leader.Term, "why", r.over)
	r.resign()
}

// lead is the loop of the reign.
func (r *reign) lead() {
	tick := time.NewTicker(r.c.o.Tick)
	defer tick.Stop()
	for r.over == "" {
		select {
		case <-r.ctx.Done():
			r.over = "told to end"
		case e := <-r.c.events:
			e(time.Now())
		case e := <-r.events:
			e(time.Now())
		case <-tick.C:
			r.act(time.Now())
		}
	}
}

// act does what there is to do, unless the lease is lost.
func (r *reign) act(now time.Time) {
	switch term := r.lease.leader.Term; {
	case r.ctx.Err() != nil: // lead is about to see it
	case !now.Before(r.lease.until):
		r.over = "the lease could not be renewed in time"
	case r.c.m.Deposed() || r.c.seen.leader.Term > term:
		r.over = "there is a later leader"
	default:
		r.renew(now)
		if r.deaf(now) {
			return
		}
		for _, w := range r.c.m.Step(now) {
			r.write(w)
		}
		r.layouts()
		r.clear(now)
	}
}

// deaf says whether it is time for an answer to the last renewal, and there is none: then it may be this controller that hears nothing,
// and not the nodes that say nothing. What it writes may get through all the same, until its lease is over.
func (r *reign) deaf(now time.Time) bool { return now.Sub(r.answered) > r.c.o.Renew*3/2 }

func (r *reign) take(now time.Time, record cluster.Record) {
	if err := r.c.m.Record(now, record); err != nil {
		r.c.o.Log.Error("record is left as it is", "err", err)
	}
}

// told is called when all records of one kind were told. They are watched from the beginning of the reign on, and not before it, so that
// they are no older than what the last leader went by.
func (r *reign) told(now time.Time, prefix string) {
	if len(r.unsynced) == 0 {
		return // a watch has begun again
	}
	if delete(r.unsynced, prefix); len(r.unsynced) == 0 {
		r.c.m.Synced(now)
	}
}

// write carries out a write. It ends with the lease that there is now: so it never reaches into the time of another leader.
func (r *reign) write(w machine.Write) {
	until := r.lease.until
	r.workers.Go(func() {
		ctx, cancel := context.WithDeadline(r.ctx, until)
		defer cancel()
		select {
		case r.writing <- struct{}{}:
			defer func() { <-r.writing }()
		case <-r.ctx.Done():
			return
		}
		stored, err := put(ctx, r.c.o.Records, w)
		if err != nil {
			if !errors.Is(err, cluster.ErrConflict) {
				r.c.o.Log.Warn("record was not written", "key", w.Key, "err", err)
			}
			stored = r.read(w.Key)
		}
		post(r.ctx, r.events, func(now time.Time) {
			if stored.Key != "" {
				r.take(now, stored)
			}
			r.c.m.Settled(w.Key)
		})
	})
}

func put(ctx context.Context, records cluster.Records, w machine.Write) (cluster.Record, error) {
	if w.Value == nil {
		return cluster.Record{Key: w.Key}, records.Delete(ctx, w.Key, w.Revision)
	}
	revision, err := records.Update(ctx, w.Key, w.Value, w.Revision)
	return cluster.Record{Key: w.Key, Value: w.Value, Revision: revision}, err
}

// read returns a record after a write of it has failed. If there is none the watch will say so: what Get says may be old.
func (r *reign) read(key string) cluster.Record {
	for p := (pause{}); p.wait(r.ctx); {
		stored, err := r.c.o.Records.Get(r.ctx, key)
		if err == nil && stored.Value != nil {
			return stored
		}
		if err == nil || errors.Is(err, cluster.ErrNoRecord) {
			return cluster.Record{}
		}
		r.c.o.Log.Warn("record cannot be read", "key", key, "err", err)
	}
	return cluster.Record{}
}

// clear has the backups of one job that has ended deleted, if there is one.
func (r *reign) clear(now time.Time) {
	if r.c.o.Drop == nil || r.clearing || now.Sub(r.looked) < clearEvery {
		return
	}
	r.looked = now
	maps.DeleteFunc(r.failed, func(_ string, at time.Time) bool { return now.Sub(at) >= clearAgain }) // some jobs are no more
	for _, j := range r.c.m.ToClear(now) {
		if _, tried := r.failed[j.ID]; tried {
			continue
		}
		r.clearing = true
		r.workers.Go(func() {
			err := r.c.o.Drop(r.ctx, j)
			post(r.ctx, r.events, func(now time.Time) { r.cleared(now, j.ID, err) })
		})
		return
	}
}

func (r *reign) cleared(now time.Time, job string, err error) {
	r.clearing, r.looked = false, time.Time{} // there may be more
	if err != nil {
		r.failed[job] = now
		r.c.o.Log.Warn("backups of a job that has ended cannot be deleted; tried again later", "job", job, "err", err)
		return
	}
	delete(r.failed, job)
	r.c.m.Cleared(job)
}
