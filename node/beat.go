package node

import (
	"cmp"
	"context"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/internal/cgroup"
)

// beatsApart is how soon a beat may follow another: a wave of workers that end shares one.
const beatsApart = 5 * time.Millisecond

// memoryEvery is how often the process looks how much memory it has.
const memoryEvery = time.Second

// beater is what the host knows of its beats. It belongs to the host's goroutine, but for what is in latest.
type beater struct {
	o       *Options
	latest  chan []byte // the newest beat, until it is published; holds one
	number  uint64      // of the last beat of the session
	last    time.Time   // when it was made
	changed bool        // a phase has, since then
	done    int         // workers that had finished the stream by then
	memory  uint64
	seen    time.Time // when memory was read
}

// news says whether there is anything to tell at once.
func (h *host) news() bool {
	if h.rested.Swap(false) {
		h.changed = true
	}
	return h.changed || h.finished() != h.done
}

// finished counts the workers that have finished the stream.
func (h *host) finished() int {
	n := 0
	for _, j := range h.jobs {
		for _, c := range j.workers {
			if c.finished.Load() {
				n++
			}
		}
	}
	return n
}

// beat makes the next beat; nil while there is no session.
func (h *host) beat(now time.Time, leaving bool) []byte {
	if h.session == "" {
		return nil
	}
	h.done = h.finished() // before the statuses are taken: what comes meanwhile is news again
	h.changed, h.last = false, now
	h.number++
	b := cluster.Beat{
		Node: h.o.Name, Session: h.session, Number: h.number, Slots: h.o.Slots, Ending: h.leaving, Leaving: leaving,
		PID: os.Getpid(), Memory: h.resident(now), Limits: h.limits(), Goroutines: runtime.NumGoroutine(),
	}
	b.Host, _ = os.Hostname()
	for _, p := range h.o.Programs {
		b.Programs = append(b.Programs, cluster.Program{Name: p.Name, Version: p.Version})
	}
	for _, j := range h.jobs {
		for _, c := range j.workers {
			b.Workers = append(b.Workers, c.status())
		}
	}
	b.Suspects = h.suspects()
	slices.SortFunc(b.Workers, func(x, y cluster.Status) int {
		return cmp.Or(cmp.Compare(x.Job, y.Job), cmp.Compare(x.Operator, y.Operator), cmp.Compare(x.Index, y.Index))
	})
	return b.Encode()
}

// offer leaves a beat to the publisher, in place of one that it has not come to.
func (h *host) offer(beat []byte) {
	if beat == nil {
		return
	}
	select {
	case <-h.latest:
	default:
	}
	h.latest <- beat // there is room: nobody else puts anything in
}

// publishBeats publishes beats until ctx ends. It is apart from the host since the network may hold it up.
func (h *host) publishBeats(ctx context.Context) {
	subject := h.o.subjects().Beat(h.o.Name)
	for failing := false; ; {
		select {
		case beat := <-h.latest:
			err := h.o.Messages.Publish(subject, beat)
			if err != nil && !failing {
				h.o.Log.Warn("beats cannot be sent", "node", h.o.Name, "err", err)
			}
			failing = err != nil
		case <-ctx.Done():
			return
		}
	}
}

// farewell says that the node leaves.
func (h *host) farewell(beat []byte) {
	if beat == nil {
		return
	}
	if err := h.o.Messages.Publish(h.o.subjects().Beat(h.o.Name), beat); err != nil {
		h.o.Log.Debug("nobody hears that the node leaves", "node", h.o.Name, "err", err)
	}
}

// resident returns how much memory the process has, as of a moment ago.
func (b *beater) resident(now time.Time) uint64 {
	if b.seen.IsZero() || now.Sub(b.seen) >= memoryEvery {
		b.memory, b.seen = resident(), now
	}
	return b.memory
}

func (b *beater) limits() string {
	if b.o.Limits == "" {
		b.o.Limits = cgroup.Granted()
	}
	return b.o.Limits
}
