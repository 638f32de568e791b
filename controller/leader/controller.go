package leader

import (
	"context"
	"time"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/controller/machine"
)

// event is something that happened, as what the goroutine of Run has to do about it.
type event func(now time.Time)

// controller is what Run's goroutine owns.
type controller struct {
	o      Options
	m      *machine.Machine
	events chan event
	seen   sight
}

// Run is a controller until ctx ends. Nothing but that ends it: what goes wrong is logged and tried again. An error says that
// the options cannot work.
func Run(ctx context.Context, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	c := &controller{o: o, m: machine.New(o.Machine), events: make(chan event, 1024)}
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() { // ends with ctx
		defer close(watched)
		c.follow(ctx, cluster.LeaderKey, c.events, c.see, func(time.Time) { c.seen.synced = true })
	}()
	defer func() { cancel(); <-watched }()
	stop := c.subscribe(ctx)
	defer stop()
	for {
		l := c.stand(ctx)
		if l == nil {
			return nil
		}
		c.reign(ctx, l)
	}
}

// subscribe listens to beats. If there are more than can be looked at some are left out: they come again.
func (c *controller) subscribe(ctx context.Context) (stop func()) {
	for p := (pause{}); ; {
		stop, err := c.o.Messages.Subscribe(cluster.Subjects{Cluster: c.o.Cluster}.Beat("*"), func(subject string, message []byte) {
			b, err := cluster.DecodeBeat(message)
			if err != nil {
				c.o.Log.Warn("beat cannot be read", "subject", subject, "err", err)
				return
			}
			select {
			case c.events <- func(now time.Time) { c.m.Beat(now, b) }:
			default:
			}
		})
		if err == nil {
			return stop
		}
		c.o.Log.Warn("cannot listen to nodes", "err", err)
		if !p.wait(ctx) {
			return func() {}
		}
	}
}

// follow tells of all records whose keys begin with prefix, of those that are gone too, until ctx ends, whatever becomes of
// the connection.
func (c *controller) follow(ctx context.Context, prefix string, to chan<- event, changed func(time.Time, cluster.Record), synced func(time.Time)) {
	known := make(map[string]bool)
	for p := (pause{}); ; {
		told := make(map[string]bool)
		began, complete := time.Now(), false
		err := c.o.Records.Watch(ctx, prefix, func(r cluster.Record) {
			if told[r.Key] = true; r.Value != nil {
				known[r.Key] = true
			} else {
				delete(known, r.Key)
			}
			post(ctx, to, func(now time.Time) { changed(now, r) })
		}, func() {
			for key := range known {
				if !told[key] { // deleted while nobody watched
					delete(known, key)
					post(ctx, to, func(now time.Time) { changed(now, cluster.Record{Key: key}) })
				}
			}
			clear(told)
			complete = true
			post(ctx, to, synced)
		})
		if ctx.Err() != nil {
			return
		}
		c.o.Log.Warn("watch of records ended", "prefix", prefix, "err", err)
		if complete && time.Since(began) > pauseMost {
			p = pause{}
		}
		if !p.wait(ctx) {
			return
		}
	}
}

// post hands over an event, unless nobody is interested any more.
func post(ctx context.Context, to chan<- event, e event) {
	select {
	case to <- e:
	case <-ctx.Done():
	}
}

// pause waits longer each time.
type pause struct{ next time.Duration }

const pauseFirst, pauseMost = 20 * time.Millisecond, time.Second

// wait reports false if ctx ended first.
func (p *pause) wait(ctx context.Context) bool {
	p.next = min(max(2*p.next, pauseFirst), pauseMost)
	t := time.NewTimer(p.next)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
