package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/afstream/afstream/cluster"
)

// Run hosts workers until ctx ends: then it waits for a while for them to be moved, says that it leaves, stops those that are
// left, and returns nil. An error says why the process cannot be a node any more.
func Run(ctx context.Context, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil
	}
	h := &host{
		o: o, events: make(chan func()), over: make(chan struct{}), woken: make(chan struct{}, 1), claimed: make(chan struct{}, 1),
		jobs: map[string]*job{}, ending: map[*incarnation]bool{},
		stores: newStores(o.OpenStore), beater: beater{o: &o, latest: make(chan []byte, 1)},
	}
	return h.run(ctx)
}

// host is a node. Everything but what is marked belongs to the goroutine of run.
type host struct {
	o      Options
	events chan func()    // to be run by that goroutine
	over   chan struct{}  // closed when it takes no more
	woken  chan struct{}  // there may be news to tell in a beat
	tasks  sync.WaitGroup // all other goroutines
	stores *stores        // any goroutine

	session string                 // that the record names; empty as long as there is none
	until   time.Time              // when its lease ends, if the record is not written again
	claim   atomic.Pointer[string] // the session that the keeper is to write
	claimed chan struct{}          // it has changed
	err     error                  // why the process cannot be a node any more

	jobs   map[string]*job
	ending map[*incarnation]bool // that were told to end and have not yet

	leaving bool        // the process is about to end
	rested  atomic.Bool // a worker may have come to rest, or have saved what it has taken over; any goroutine
	beater
}

func (h *host) run(ctx context.Context) error {
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	h.claimAnew()
	k := &keeper{h: h, key: cluster.NodeKey(h.o.Name), since: time.Now(), mine: map[string]bool{}, renewed: h.renewed}
	var keeping sync.WaitGroup
	keeping.Go(func() { k.run(inner) })
	h.tasks.Go(func() { h.watch(inner) })
	h.tasks.Go(func() { h.publishBeats(inner) })
	h.loop(ctx)
	killed := errors.Is(context.Cause(ctx), ErrKilled)
	last := h.beat(time.Now(), true) // before it is forgotten what runs here
	for _, id := range slices.Sorted(maps.Keys(h.jobs)) {
		h.drop(h.jobs[id])
	}
	stop()
	close(h.over)
	keeping.Wait()
	if !killed && h.err == nil {
		h.farewell(last)
		k.leave()
	}
	return errors.Join(h.err, h.gather())
}

// loop runs what comes until ctx ends, or h.err says why it cannot go on.
func (h *host) loop(ctx context.Context) {
	tick := time.NewTicker(h.o.Beat)
	defer tick.Stop()
	soon := time.NewTimer(0)
	defer soon.Stop()
	told := ctx.Done()
	grace := &time.Timer{} // never, as long as nobody has told it to end
	for h.err == nil {
		due := false
		select {
		case f := <-h.events:
			h.checkLease(time.Now()) // before anything is begun: the process may have been stopped for a while
			f()
		case <-h.woken:
		case <-soon.C:
		case <-tick.C:
			due = true
		case <-told:
			if errors.Is(context.Cause(ctx), ErrKilled) || !h.leaveInOrder() {
				return
			}
			told, grace = nil, time.NewTimer(h.o.Grace)
			defer grace.Stop()
		case <-grace.C:
			h.graceOver(h.o.Grace)
			return
		}
		now := time.Now()
		h.checkLease(now)
		if h.leaving && h.unfinished() == 0 {
			return
		}
		if !due && !h.news() {
			continue
		}
		if wait := h.last.Add(beatsApart).Sub(now); wait > 0 && !due {
			soon.Reset(wait)
			continue
		}
		h.offer(h.beat(now, false))
	}
}

// do has f run on the goroutine that owns the state. It says false if that is over.
func (h *host) do(f func()) bool {
	select {
	case h.events <- f:
		return true
	case <-h.over:
		return false
	}
}

// wake has the host look whether there is news. Any goroutine may call it; it never waits.
func (h *host) wake() {
	select {
	case h.woken <- struct{}{}:
	default:
	}
}

// gather waits for all goroutines to end, and names the workers that take too long.
func (h *host) gather() error {
	ended := make(chan struct{})
	go func() { // ends when all others have, whoever waits for that
		h.tasks.Wait()
		h.stores.close()
		close(ended)
	}()
	late := time.NewTimer(graceTime)
	defer late.Stop()
	select {
	case <-ended:
		return nil
	case <-late.C:
	}
	var names []string
	for c := range h.ending {
		if !c.hasEnded() {
			names = append(names, fmt.Sprintf("%s of job %s", c.name(), c.job))
		}
	}
	slices.Sort(names)
	return fmt.Errorf("node %s: %s did not end within %v of being told to: user code, or a backup server, holds them up",
		h.o.Name, strings.Join(names, ", "), graceTime)
}

// claimAnew has the keeper write a session that there never was.
func (h *host) claimAnew() {
	session := cluster.NewID()
	h.claim.Store(&session)
	select {
	case h.claimed <- struct{}{}:
	default:
	}
}

// renewed is told by the keeper how the record could be written, which names session now, or why the name is gone.
func (h *host) renewed(session string, until time.Time, err error) {
	switch {
	case err != nil:
		h.err = err
	case session != *h.claim.Load() || !time.Now().Before(until):
		// It was lost in the meantime.
	case session == h.session:
		h.until = until
	default:
		h.session, h.until, h.number = session, until, 0
		h.o.Log.Info("node begins a session", "node", h.o.Name, "session", session)
		h.reconcileAll()
		h.changed = true
	}
}

// checkLease stops everything if the lease is over.
func (h *host) checkLease(now time.Time) {
	if h.session == "" || now.Before(h.until) {
		return
	}
	h.lose(h.session, fmt.Sprintf("its record was not written for %v", h.o.Lease))
}

// lose ends a session, if it has not ended yet, and all that runs in it.
func (h *host) lose(session, why string) {
	if session != *h.claim.Load() {
		return
	}
	h.o.Log.Warn("node lost its lease: its workers are stopped, others may have them", "node", h.o.Name, "session", session, "why", why)
	h.session = ""
	h.claimAnew()
	h.reconcileAll()
}
