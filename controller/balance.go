package controller

import (
	"time"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/worker"
)

// pace is when Theta is divided anew. What a division saves is second order in how far it is from the best one, so it is
// enough to measure roughly and to move seldom.
type pace struct {
	// every is how often the workers' counters are read and their answers looked for.
	every time.Duration
	// least is the least time between two decisions. A worker looks through its whole state when its theta changes.
	least time.Duration
	// commits is how many commits there must be per worker, on average, for the loads to count as measured. The number of n
	// commits varies by 1/sqrt(n), the share, which follows its root, by half of that, and the work by the square of it:
	// with 16 a wrong division costs 1 or 2 %.
	commits float64
	// gain is what a division must save of the present work, as a part of what is left of it. It keeps what is measured
	// wrong from moving shares to and fro.
	gain float64
	// floor is the least share of a worker, by the equal one: a worker that was idle and is no more backs up 1/floor times as
	// often as with an equal share until it is given more.
	floor float64
}

var usualPace = pace{every: 20 * time.Millisecond, least: 100 * time.Millisecond, commits: 16, gain: 0.1, floor: 0.1}

// commitBytes is what a commit costs beside the bytes of its elements, in bytes. A transaction of the store takes about
// as long as writing so many (backup/doc.go). It is a constant, and bytes are counted rather than time taken, so that the
// same job is divided in the same way however busy the machine is.
const commitBytes = 1024

// balance decides when Theta is divided anew among the workers of one operator. It knows no clock and no worker: it is
// fed with their counters and answers with what is to be told to them.
//
// The load of a partition is the divergence that its commits clear per second, and the cost of a commit. Cleared is what
// matters, not the number of commits: it does not depend on theta, by and large, whereas a worker that has been given more
// commits less often. Older figures count half as much with each decision.
type balance struct {
	pace   pace
	ledger *errorbound.Ledger
	meters []meter // per worker
	began  time.Time
	before float64 // seconds that the figures of earlier decisions still count for
}

// meter is what is known of one worker.
type meter struct {
	seen []worker.Saved // of each partition, at the last look; of the present incarnation
	sums []worked       // of each partition
}

// worked is what a partition has done; fractions since older figures count less.
type worked struct{ commits, cost, cleared float64 }

func newBalance(p pace, l *errorbound.Ledger, workers, partitions int, now time.Time) balance {
	b := balance{pace: p, ledger: l, meters: make([]meter, workers), began: now}
	for i := range b.meters {
		b.meters[i] = meter{seen: make([]worker.Saved, partitions), sums: make([]worked, partitions)}
	}
	return b
}

// observe takes note of the counters of a worker's present incarnation.
func (b *balance) observe(w int, now []worker.Saved) {
	m := &b.meters[w]
	for i, n := range now {
		s, old := &m.sums[i], m.seen[i]
		commits := float64(n.Commits - old.Commits)
		s.commits += commits
		s.cost += float64(n.Bytes-old.Bytes) + commits*commitBytes
		s.cleared += n.Cleared - old.Cleared
		m.seen[i] = n
	}
}

// renew says that a new incarnation of a worker counts from 0.
func (b *balance) renew(w int) { clear(b.meters[w].seen) }

// decide returns what is to be told to the workers now, mostly nothing: a division is looked at once the one before is in
// use everywhere, some time has passed and enough was measured, and is made if it saves enough.
func (b *balance) decide(now time.Time) ([]errorbound.Change, error) {
	passed := now.Sub(b.began)
	if !b.ledger.Settled() || passed < b.pace.least || b.commits() < b.pace.commits*float64(len(b.meters)) {
		return nil, nil
	}
	loads := b.loads(b.before + passed.Seconds())
	b.age(now)
	plan, err := b.ledger.Plan(loads, b.pace.floor)
	if err != nil {
		return nil, err
	}
	present, planned := errorbound.BackupWork(loads, b.ledger.Shares()), errorbound.BackupWork(loads, plan)
	if !(present > planned*(1+b.pace.gain)) { // also if both are infinite, after a thousand failures
		return nil, nil
	}
	return b.ledger.Rebalance(loads, b.pace.floor)
}

func (b *balance) commits() float64 {
	n := 0.0
	for i := range b.meters {
		for _, s := range b.meters[i].sums {
			n += s.commits
		}
	}
	return n
}

// loads returns the load of each worker: its partitions share what it gets in equal parts, so their products of rate and
// cost add up.
func (b *balance) loads(seconds float64) []errorbound.Load {
	loads := make([]errorbound.Load, len(b.meters))
	for i := range b.meters {
		rate, work := 0.0, 0.0
		for _, s := range b.meters[i].sums {
			if s.commits > 0 {
				rate += s.cleared / seconds
				work += s.cleared / seconds * s.cost / s.commits
			}
		}
		if rate > 0 {
			loads[i] = errorbound.Load{Rate: rate, Cost: work / rate}
		}
	}
	return loads
}

// age makes what was measured so far count half.
func (b *balance) age(now time.Time) {
	b.before = (b.before + now.Sub(b.began).Seconds()) / 2
	b.began = now
	for i := range b.meters {
		for j := range b.meters[i].sums {
			s := &b.meters[i].sums[j]
			*s = worked{commits: s.commits / 2, cost: s.cost / 2, cleared: s.cleared / 2}
		}
	}
}
