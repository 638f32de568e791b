package controller

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/worker"
)

// crew is some workers that a test drives in time of its own: each diverges at a rate and commits whenever it has by half
// of its theta, Theta being 1000.
type crew struct {
	t        require.TestingT
	b        balance
	now      time.Time
	rates    []float64 // per second
	bytes    []float64 // of a commit
	saved    []worker.Saved
	diverged []float64
	told     int
	jitter   *rand.Rand
}

func newCrew(t require.TestingT, rates, bytes []float64) *crew {
	now := time.Unix(1e9, 0)
	n := len(rates)
	ledger := errorbound.NewLedger(errorbound.Geometric, errorbound.L1, errorbound.Added, n)
	return &crew{
		t: t, b: newBalance(usualPace, ledger, n, 1, now), now: now, rates: rates, bytes: bytes,
		saved: make([]worker.Saved, n), diverged: make([]float64, n), jitter: rand.New(rand.NewPCG(1, 2)),
	}
}

// run lets time pass. Workers confirm at the next look.
func (c *crew) run(d time.Duration) {
	for end := c.now.Add(d); c.now.Before(end); {
		c.now = c.now.Add(usualPace.every)
		for i := range c.rates {
			c.diverged[i] += c.rates[i] * usualPace.every.Seconds() * (0.5 + c.jitter.Float64())
			for part := 500 * c.b.ledger.Share(i); c.diverged[i] >= part; c.diverged[i] -= part {
				c.saved[i].Commits++
				c.saved[i].Bytes += uint64(c.bytes[i])
				c.saved[i].Cleared += part
			}
			c.b.observe(i, c.saved[i:i+1])
		}
		changes, err := c.b.decide(c.now)
		require.NoError(c.t, err)
		c.told += len(changes)
		for _, change := range changes {
			if change.Lower {
				c.told += len(c.b.ledger.Lowered(change.Worker, change.Round))
			}
		}
		require.NoError(c.t, c.b.ledger.Valid())
	}
}

// loads are the true ones.
func (c *crew) loads() []errorbound.Load {
	loads := make([]errorbound.Load, len(c.rates))
	for i := range loads {
		loads[i] = errorbound.Load{Rate: c.rates[i], Cost: c.bytes[i] + commitBytes}
	}
	return loads
}

// nearBest says that no division would save much.
func (c *crew) nearBest() {
	plan, err := c.b.ledger.Plan(c.loads(), usualPace.floor)
	require.NoError(c.t, err)
	present, best := errorbound.BackupWork(c.loads(), c.b.ledger.Shares()), errorbound.BackupWork(c.loads(), plan)
	require.Less(c.t, present, best*1.3, "shares %v, best are %v", c.b.ledger.Shares(), plan)
}

func TestBalanceFollowsTheLoad(t *testing.T) {
	c := newCrew(t, []float64{64e3, 16e3, 4e3, 1e3}, []float64{100, 100, 100, 100})
	c.run(2 * time.Second)
	c.nearBest()
	require.Greater(t, c.b.ledger.Share(0), 3*c.b.ledger.Share(2))
	told := c.told
	require.Positive(t, told)
	c.run(10 * time.Minute)
	require.Equal(t, told, c.told, "nothing is moved for what is measured a little differently each time")

	c.rates = []float64{1e3, 4e3, 16e3, 64e3}
	c.run(5 * time.Second)
	c.nearBest()
	c.bytes = []float64{1e6, 100, 100, 100}
	c.run(time.Minute)
	c.nearBest()
}

func TestBalanceLeavesEqualLoadsAlone(t *testing.T) {
	c := newCrew(t, []float64{9e3, 9e3, 9e3}, []float64{500, 500, 500})
	c.run(10 * time.Minute)
	require.Zero(t, c.told)
}

func TestBalanceWaitsUntilItKnows(t *testing.T) {
	c := newCrew(t, []float64{900, 0}, []float64{100, 100})
	c.run(3 * time.Second)
	require.Zero(t, c.told, "a few commits say little")
	c.run(time.Minute)
	require.Positive(t, c.told)
	require.InDelta(t, 0.05/2, c.b.ledger.Share(1), 1e-3, "a worker that is idle keeps a tenth of an equal share")
}

// While a lowering is not confirmed nothing else is moved; a failure ends the wait, and the dead worker's counters with it.
func TestBalanceWaitsForAnswers(t *testing.T) {
	c := newCrew(t, []float64{64e3, 1e3}, []float64{100, 100})
	observe := func(commits uint64) []errorbound.Change {
		c.now = c.now.Add(time.Second)
		c.b.observe(0, []worker.Saved{{Commits: commits, Cleared: 1000 * float64(commits)}})
		changes, err := c.b.decide(c.now)
		require.NoError(t, err)
		return changes
	}
	first := observe(100)
	require.Len(t, first, 1)
	require.True(t, first[0].Lower)
	require.Equal(t, 1, first[0].Worker)
	require.Empty(t, observe(1000))
	require.Len(t, c.b.ledger.Failed(1), 1, "what it held back is free")
	c.b.renew(1)
	c.b.observe(1, []worker.Saved{{Commits: 1, Cleared: 3}})
	require.Equal(t, 1.0, c.b.meters[1].sums[0].commits)
	require.True(t, c.b.ledger.Settled())
}

// Whatever loads come, the division ends up near the best, and rests.
func TestBalanceProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 6).Draw(t, "workers")
		rates, bytes := make([]float64, n), make([]float64, n)
		for i := range rates {
			rates[i] = rapid.SampledFrom([]float64{1e3, 3e3, 1e4, 1e5}).Draw(t, "rate")
			bytes[i] = rapid.SampledFrom([]float64{10, 1000, 50_000}).Draw(t, "bytes")
		}
		c := newCrew(t, rates, bytes)
		c.run(10 * time.Second)
		c.nearBest()
		told := c.told
		c.run(20 * time.Second)
		require.LessOrEqual(t, c.told, told+4*n, "it rests, but for a late correction")
	})
}
