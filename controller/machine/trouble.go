package machine

import (
	"time"

	"github.com/afstream/afstream/cluster"
)

// trouble is how often a worker has ended by itself, without time between that made up for it.
type trouble struct {
	epoch   uint64    // that was counted last, so that the same end is counted once
	breaks  int       // in a row
	loads   int       // in a row that ended before anything was processed
	until   time.Time // it is not tried again before
	running uint64    // the epoch that processes items
	since   time.Time // when that was first seen
	rooted  uint64    // the epoch that could not retire
}

// progress notes that an incarnation processes items.
func (t *trouble) progress(now time.Time, epoch uint64, c *cluster.Counters) {
	if t.running != epoch && c.Items+c.Read > 0 {
		t.running, t.since, t.loads = epoch, now, 0
	}
}

// broke counts the end of an incarnation that ran.
func (t *trouble) broke(c *Config, now time.Time, epoch uint64) {
	if t.epoch == epoch {
		return
	}
	if t.running == epoch && now.Sub(t.since) >= c.Steady {
		t.breaks = 0
	}
	t.epoch = epoch
	t.breaks++
	t.until = now.Add(backoff(c, t.breaks-1))
}

// unloaded counts the end of an incarnation that could not be loaded.
func (t *trouble) unloaded(c *Config, now time.Time, epoch uint64) {
	if t.epoch == epoch {
		return
	}
	t.epoch = epoch
	t.loads++
	t.until = now.Add(backoff(c, t.loads))
}

// backoff is the wait after the nth time in a row; none after the 0th.
func backoff(c *Config, n int) time.Duration {
	if n <= 0 {
		return 0
	}
	return min(c.BackoffFirst<<min(n-1, 20), c.BackoffMost)
}
