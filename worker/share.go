package worker

import (
	"math"
	"sync/atomic"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// Grant is what the division of Theta by load gives an incarnation of a worker (errorbound.Ledger), as shares of the
// operator's Theta. Its partitions divide it as they divide an equal share, by errorbound.Share.
type Grant struct {
	Share float64   // to start with
	Costs []float64 // what each failure before this incarnation may have cost
}

// Saved is what the state backups of one partition have been so far in one incarnation. Positions alone, and items that
// are logged, cost the same whatever theta is, and do not count.
type Saved struct {
	Commits uint64 // that held elements of the state
	Bytes   uint64 // of these elements
	// Cleared is the divergence that they have taken off the state, added up, as the policy sees it: what a backup leaves out
	// of a state that does not account for itself is in it, and what was infinite or no number is not.
	Cleared float64
}

// share is what a partition has to do with the division of Theta while it runs. Fields without atomics belong to the
// compute goroutine.
type share struct {
	told    atomic.Pointer[errorbound.Change] // the newest that is not obeyed yet; from whoever keeps the ledger
	obeyed  atomic.Uint64                     // the round of the last that was
	inForce float64                           // theta that the items processed so far were held to; the old one while it is being lowered

	commits, saves atomic.Uint64 // commits and bytes of Saved, written once per commit
	cleared        atomic.Uint64 // the same, bits of a float64
}

// theta returns what a share of the operator's Theta is for one partition.
func (c *Config) theta(m stream.Measure, share float64) float64 {
	return c.Params.Theta * c.Node.Budget * share * errorbound.Share(m.Norm, m.Combine, c.Node.Compute)
}

// thetaAfter returns theta of a partition after k failures, which is equal unless the worker has a Grant.
func (c *Config) thetaAfter(k uint64, m stream.Measure, equal float64) float64 {
	switch {
	case c.Grant == nil:
		return equal
	case k < uint64(len(c.Grant.Costs)):
		return c.theta(m, c.Grant.Costs[k])
	}
	return c.theta(m, c.Grant.Share)
}

// Divisible says whether Theta can be divided by load among the workers of this one's operator, and how its divergence
// is measured. It is to be asked before Run. Theta can be divided where
//
//   - the guarantee is Approximate: no other has a theta between nothing and all;
//   - the operator has a divergence, and Theta is neither 0 nor infinite;
//   - it has several workers, and what one of them may diverge is missing from the others: the Max norm over disjoint keys
//     gives each the whole Theta;
//   - no failure is forgotten (stream.Forget, stream.Decaying): a ledger counts what failures have spent for good.
func (w *Worker) Divisible() (stream.Measure, bool) {
	cfg := &w.cfg
	if cfg.Guarantee != Approximate || cfg.Node.Workers < 2 || cfg.Node.Forget != 0 || len(w.operators) == 0 {
		return stream.Measure{}, false
	}
	m := w.operators[0].measure
	if m.Combine == errorbound.Disjoint && m.Norm == errorbound.Max {
		return m, false
	}
	for _, o := range w.operators {
		finite := o.inForce > 0 && !math.IsInf(o.inForce, 1)
		if o.policy == nil || !finite || o.measure.Norm != m.Norm || o.measure.Combine != m.Combine {
			return m, false
		}
	}
	return m, true
}

// Reshare tells the worker its new share of Theta. A change of another incarnation is ignored, and so is one of an older
// round than one that it was told already. It does not wait: see Obeyed.
func (w *Worker) Reshare(c errorbound.Change) {
	if c.Failures != w.cfg.Failures {
		return
	}
	for _, o := range w.operators {
		for old := o.told.Load(); old == nil || old.Round <= c.Round; old = o.told.Load() {
			if o.told.CompareAndSwap(old, &c) {
				break
			}
		}
		o.park.Wake()
	}
}

// Obeyed returns the round of the last change that all partitions have obeyed: their states are durable to within its
// thetas. 0 means none.
func (w *Worker) Obeyed() uint64 {
	round := uint64(math.MaxUint64)
	for _, o := range w.operators {
		round = min(round, o.obeyed.Load())
	}
	if len(w.operators) == 0 {
		return 0
	}
	return round
}

// Saved appends what each partition has saved to dst. It may be called at any time.
func (w *Worker) Saved(dst []Saved) []Saved {
	for _, o := range w.operators {
		dst = append(dst, Saved{
			Commits: o.commits.Load(), Bytes: o.saves.Load(), Cleared: math.Float64frombits(o.cleared.Load()),
		})
	}
	return dst
}

// saved takes note of a commit with elements that has become durable: the divergence was before, and is after.
func (s *share) saved(bytes int, before, after float64) {
	if cleared := before - after; cleared > 0 && cleared <= math.MaxFloat64 { // neither NaN nor from an infinite one
		s.cleared.Store(math.Float64bits(math.Float64frombits(s.cleared.Load()) + cleared))
	}
	s.saves.Add(uint64(bytes))
	s.commits.Add(1) // last: who reads a commit reads what it did
}

// diverged returns the divergence from the last durable backup, 0 if the state cannot tell.
func (o *operator) diverged() float64 {
	if o.policy == nil {
		return 0
	}
	return o.policy.Divergence(o.state.now())
}

// reshare obeys the newest change of the worker's share, if there is one. It is asked between two runs of items.
func (o *operator) reshare() error {
	if o.told.Load() == nil {
		return nil
	}
	// A state is not told another theta while it is being saved: what it leaves out depends on it.
	if o.phase.Load() != noFlight {
		o.awaitFlight()
		if err := o.settle(); err != nil {
			return err
		}
	}
	c := o.told.Swap(nil)
	if c.Round < o.obeyed.Load() || o.policy == nil {
		return nil
	}
	theta := o.w.cfg.theta(o.measure, c.Share)
	if t, ok := o.task.Operator().(stream.Thresholder); ok {
		t.SetTheta(theta)
	}
	o.policy.SetTheta(theta)
	// After the end of the stream the state is in a commit, whole, and a failure costs nothing of it.
	if theta < o.inForce && !o.closed.Last {
		if err := o.obey(); err != nil {
			return err
		}
		o.claimed = o.diverged()
	}
	o.inForce = theta
	o.obeyed.Store(c.Round)
	return nil
}
