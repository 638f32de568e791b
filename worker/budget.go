package worker

import (
	"math"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/threshold"
)

// remembered returns k, the failures that still count against the budget at window level: all of them, none if the
// state fades, and otherwise those since which fewer than Forget windows have been closed.
func (c *Config) remembered(level uint64) uint64 {
	switch {
	case c.Node.Fades():
		return 0
	case c.Node.Forget == 0:
		return c.Failures
	}
	k := uint64(0)
	for _, at := range c.FailedAt {
		if level < at || level-at < uint64(c.Node.Forget) { // at may be the highest number there is
			k++
		}
	}
	return k
}

// split returns the budget of each partition of the worker after k failures.
func split(cfg *Config, m stream.Measure, k uint64) threshold.Budget {
	params := cfg.Params
	switch cfg.Guarantee {
	case UpstreamBackup:
		return threshold.Budget{L: math.MaxInt64, Gamma: math.MaxInt64} // each backup takes along all that has changed
	case None, MiniBatch:
		return threshold.Budget{Theta: math.Inf(1), L: math.MaxInt64, Gamma: math.MaxInt64}
	case ErrorFree:
		params.Theta, params.L, params.Gamma = 0, 0, 1
	default:
		share := cfg.Node.Budget
		params.Theta *= share
		params.L, params.Gamma = uint64(float64(params.L)*share), uint64(float64(params.Gamma)*share)
	}
	return threshold.Split(threshold.Config{
		Params: params, Norm: m.Norm, Combine: m.Combine, Partitions: cfg.Node.Partitions(), Failures: k,
	})
}

// startLevel is the window level that a new incarnation counts its failures at: where the last one struck of which that
// is known.
func (c *Config) startLevel() uint64 {
	level := uint64(0)
	for _, at := range c.FailedAt {
		if at != UnknownLevel {
			level = max(level, at)
		}
	}
	return level
}

// raise gives the partition back what forgotten failures had taken, once a window is closed. No commit is under way.
func (o *operator) raise(level uint64) {
	k := o.w.cfg.remembered(level)
	if k >= o.k || o.plan.never || o.w.cfg.Guarantee.batches() {
		return
	}
	o.k = k
	b := o.w.cfg.halve(split(&o.w.cfg, o.measure, k))
	o.peers.raise(b)
	if o.policy != nil {
		if t, ok := o.task.Operator().(stream.Thresholder); ok {
			t.SetTheta(b.Theta)
		}
		o.policy = o.newPolicy(b.Theta)
	}
	if o.marks != nil {
		o.marks.Raise(b.L)
	}
	if o.exit != nil && o.exit.sender != nil {
		o.exit.sender.Raise(b.Gamma)
	}
	o.limit.Store(b.L)
}

// newPolicy makes the machine that decides about backups. For a self-accounting state under L2 one begins at 9/10 of theta
// squared, since that is what grows with the items. What is processed while it is written is not in it: the earlier it
// begins, the more there are.
func (o *operator) newPolicy(theta float64) *threshold.Backup {
	o.inForce = theta
	c := threshold.BackupConfig{Theta: theta, Alpha: o.measure.Alpha, SelfAccounting: o.state.durable != nil}
	if c.SelfAccounting && o.measure.Norm == errorbound.L2 {
		c.Begin = math.Sqrt(0.9)
	}
	return threshold.NewBackup(c)
}
