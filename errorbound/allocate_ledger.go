package errorbound

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrLedger is wrapped by the errors of [Ledger.Valid].
var ErrLedger = errors.New("errorbound: invariant of the ledger broken")

// Change tells a worker its new share of Theta: its theta is Theta times Share from then on. A worker that is told to
// lower it does so, makes its state durable to within the new theta, and answers with the Round ([Ledger.Lowered]). A
// raise needs no answer. A worker must ignore a change of another incarnation than its own, or of a round before the
// last one that it has obeyed.
type Change struct {
	Worker   int
	Failures uint64 // of the worker so far, which names its incarnation
	Round    uint64 // of Rebalance
	Share    float64
	Lower    bool
}

// Ledger divides one operator's budget Theta over its workers while they run, from equal parts at first to parts that
// follow their loads, and keeps the bound over all failures however often the parts change. All figures are shares of
// Theta.
//
// # What must be kept
//
// It is not enough that the thetas of any moment keep the constraint. If a worker fails while it has nearly all, and
// nearly all is then moved to another that fails, the two failures together cost more than Theta. So the ledger deals
// in what all later failures of a worker may cost, its reserve y. In incarnation k a series grants the part a_k of what
// it has left, a_k + a_(k+1) + ...: the worker's theta is y*a_k/left_k ([Series.Rest]). A failure moves theta from the
// reserve to what is spent, b, and what remains is the reserve of the next incarnation. Moving reserves around then
// moves nothing that is spent.
//
// Invariants, for the norm over the workers that powerOf names (p = 1, 2 or infinity):
//
//  1. norm of (b_i + granted_i) <= 1, where granted is the largest reserve that worker i may be using: the old one until
//     it has said that it uses the new, lower one.
//  2. granted_i >= target_i >= 0: a raise is granted at once, a lowering when it is confirmed.
//
// Raises wait for lowerings: whatever a confirmed lowering frees is granted to the workers that are to have more, in
// proportion to what they lack.
//
// # What the caller must do
//
// Whoever keeps a Ledger makes it durable before it sends what a call returned (a controller that forgot a grant could
// make it twice). The zero value is not valid; a Ledger belongs to one goroutine. All calls cost O(workers), Rebalance
// O(workers^2) at worst.
type Ledger struct {
	p       power
	series  Series
	round   uint64
	workers []account
}

// account is what the ledger knows of a worker.
type account struct {
	failures uint64
	costs    []float64 // what each of its failures may have cost
	spent    float64   // b: the sum of costs
	granted  float64   // the largest reserve it may be using
	target   float64   // the reserve it is to have when all is confirmed
	lowering uint64    // the round that it has to confirm, 0 if none
	wish     float64   // the reserve that the last Rebalance wants; above granted where a raise is waiting
}

// NewLedger returns the ledger of an operator whose workers have not failed yet, with equal shares: those of [Share].
// A number of workers below 1 is taken as 1.
func NewLedger(series Series, norm Norm, combine Combine, workers int) *Ledger {
	n := max(workers, 1)
	l := &Ledger{p: powerOf(norm, combine), series: series, workers: make([]account, n)}
	for i := range l.workers {
		y := Share(norm, combine, n)
		l.workers[i] = account{granted: y, target: y, wish: y}
	}
	return l
}

// Rest returns (a_k + a_(k+1) + ...)/a_k: how many times its present theta a worker holds in reserve. It is 2 for
// Geometric and k+2 for Telescoping.
func (s Series) Rest(k uint64) float64 {
	if s == Telescoping {
		return float64(k) + 2
	}
	return 2
}

// Share returns the share of Theta that a worker is to use now: its theta is Theta times it. It is what an incarnation
// starts with.
func (l *Ledger) Share(worker int) float64 {
	a := &l.workers[worker]
	return a.target / l.series.Rest(a.failures)
}

// AtRisk returns the share that a failure of the worker at this moment may cost: Share, or more while a lowering is not
// confirmed.
func (l *Ledger) AtRisk(worker int) float64 {
	a := &l.workers[worker]
	return a.granted / l.series.Rest(a.failures)
}

// Shares returns Share of every worker.
func (l *Ledger) Shares() []float64 {
	shares := make([]float64, len(l.workers))
	for i := range shares {
		shares[i] = l.Share(i)
	}
	return shares
}

// Failures returns how often the worker has failed.
func (l *Ledger) Failures(worker int) uint64 { return l.workers[worker].failures }

// Costs returns the share of Theta that each failure of the worker may have cost, in order: AtRisk just before it. The
// slice is the caller's.
func (l *Ledger) Costs(worker int) []float64 { return slices.Clone(l.workers[worker].costs) }

// Settled says whether every lowering has been confirmed, or has ended with a failure.
func (l *Ledger) Settled() bool {
	return !slices.ContainsFunc(l.workers, func(a account) bool { return a.lowering != 0 })
}

// Spent returns what all failures so far may have cost together.
func (l *Ledger) Spent() float64 {
	spent := make([]float64, len(l.workers))
	for i, a := range l.workers {
		spent[i] = a.spent
	}
	return l.p.of(spent)
}

// Rebalance plans for new loads, one per worker: the reserves for which the backup work at present is least (see
// [Allocate] for the rule and for floor). It returns what is to be told to the workers now: all lowerings, and raises
// for what earlier ones have freed. It replaces the plan before it; confirmations of older rounds no longer count. The
// error wraps ErrAllocate.
//
// The work of worker i with reserve y is w/(y/rest_k), so the product w*rest_k takes the place of w. What is spent
// already leaves less room: under p = 1 the optimum of what is left is the optimum scaled down, under p = 2 the scaled
// one is within the bound but not quite the best.
func (l *Ledger) Rebalance(loads []Load, floor float64) ([]Change, error) {
	wish, err := l.wishes(loads, floor)
	if err != nil {
		return nil, err
	}
	l.round++
	var changes []Change
	least := leastChange
	if l.lacking(wish) {
		least = 0 // a hundredth of a large reserve may be all that a small one lacks
	}
	for i := range l.workers {
		a := &l.workers[i]
		before := a.target
		a.wish, a.lowering = wish[i], 0
		if a.target = a.granted; wish[i] < a.granted*(1-least) {
			a.target = wish[i]
			a.lowering = l.round
			changes = append(changes, l.change(i, true))
		} else if a.target > before { // it may have obeyed a lowering that is now called off
			changes = append(changes, l.change(i, false))
		}
	}
	return append(changes, l.raise()...), nil
}

// lacking says whether a worker is to have more by a change that is worth a message.
func (l *Ledger) lacking(wish []float64) bool {
	for i, a := range l.workers {
		if wish[i] > a.granted*(1+leastChange) {
			return true
		}
	}
	return false
}

// wishes returns the reserves that are best for loads.
func (l *Ledger) wishes(loads []Load, floor float64) ([]float64, error) {
	weights, err := workOf(loads, floor)
	if err == nil && len(loads) != len(l.workers) {
		err = fmt.Errorf("%w: %d of them for %d workers", ErrAllocate, len(loads), len(l.workers))
	}
	if err != nil {
		return nil, err
	}
	for i := range weights {
		weights[i] *= l.series.Rest(l.workers[i].failures)
	}
	return l.fitted(allocate(l.p, weights, floor)), nil
}

// Plan returns the shares that Rebalance of the same loads leads to once all is confirmed, and changes nothing: whoever
// keeps the ledger compares their BackupWork with that of the present ones ([Ledger.Shares]) before it moves anything.
// The error wraps ErrAllocate.
func (l *Ledger) Plan(loads []Load, floor float64) ([]float64, error) {
	plan, err := l.wishes(loads, floor)
	for i := range plan {
		plan[i] /= l.series.Rest(l.workers[i].failures)
	}
	return plan, err
}

// fitted scales reserves so that they and what is spent make up the budget.
func (l *Ledger) fitted(reserves []float64) []float64 {
	scale := 1.0
	switch l.p {
	case 0:
		for i := range reserves {
			reserves[i] = max(0, 1-l.workers[i].spent)
		}
		return reserves
	case 1:
		scale = max(0, 1-l.Spent()) / l.p.of(reserves)
	default: // the positive root of |y|^2 s^2 + 2(b.y)s + |b|^2 - 1
		dot, y := 0.0, l.p.of(reserves)
		for i, a := range l.workers {
			dot += a.spent * reserves[i]
		}
		room := max(math.SmallestNonzeroFloat64, 1-l.Spent()*l.Spent()) // not 0, whose root may be 0/0
		scale = room / (dot + math.Sqrt(dot*dot+y*y*room))
	}
	for i := range reserves {
		reserves[i] *= scale * (1 - slack)
	}
	return reserves
}

// slack is the part of reserves that is kept back for rounding. The sums of a thousand workers err by less.
const slack = 1e-12

// Lowered says that a worker uses its share of the given round and that its state is durable to within it. It returns
// the raises that this makes possible; none for a round that is no longer waited for.
func (l *Ledger) Lowered(worker int, round uint64) []Change {
	a := &l.workers[worker]
	if round == 0 || a.lowering != round {
		return nil
	}
	a.granted, a.lowering = a.target, 0
	return l.raise()
}

// Failed says that a worker has failed: what that may have cost is spent, and its next incarnation starts with Share.
// A lowering that it has not confirmed is thereby done, since the new incarnation starts at its backup. It returns the
// raises that this makes possible.
func (l *Ledger) Failed(worker int) []Change {
	a := &l.workers[worker]
	rest := l.series.Rest(a.failures)
	cost := a.granted / rest
	a.costs = append(a.costs, cost)
	a.spent += cost
	a.granted -= cost
	a.target, a.wish = min(a.target, a.granted), min(a.wish, a.granted)
	a.granted, a.lowering = a.target, 0
	a.failures++
	return l.raise()
}

// raise grants what is free to the workers that are to have more, in proportion to what they lack: the largest part of
// all that they lack for which invariant 1 holds, found by bisection.
func (l *Ledger) raise() []Change {
	total := make([]float64, len(l.workers))
	fits := func(part float64) bool {
		for i := range l.workers {
			a := &l.workers[i]
			total[i] = a.spent + a.granted + part*max(0, a.wish-a.granted)
		}
		return l.p.of(total) <= 1-slack/2
	}
	part := 1.0
	if !fits(1) {
		low := 0.0
		for range 40 {
			if middle := (low + part) / 2; fits(middle) {
				low = middle
			} else {
				part = middle
			}
		}
		part = low
	}
	var changes []Change
	for i := range l.workers {
		a := &l.workers[i]
		more := part * (a.wish - a.granted)
		if !(more > leastChange*a.granted) {
			continue
		}
		a.granted += more
		a.target = a.granted
		changes = append(changes, l.change(i, false))
	}
	return changes
}

// leastChange is the part of a reserve by which it must change for a message to be worth it.
const leastChange = 0.01

func (l *Ledger) change(worker int, lower bool) Change {
	return Change{
		Worker: worker, Failures: l.workers[worker].failures, Round: l.round, Share: l.Share(worker), Lower: lower,
	}
}

// Valid returns an error that wraps ErrLedger if an invariant is broken.
func (l *Ledger) Valid() error {
	granted := make([]float64, len(l.workers))
	for i, a := range l.workers {
		if !(a.target >= 0 && a.granted >= a.target && a.spent >= 0) {
			return fmt.Errorf("%w: 2: worker %d has reserve %v, is to have %v, has spent %v", ErrLedger, i, a.granted, a.target, a.spent)
		}
		granted[i] = a.spent + a.granted
	}
	if whole := l.p.of(granted); !(whole <= 1+1e-9) {
		return fmt.Errorf("%w: 1: failures may cost %v of the budget", ErrLedger, whole)
	}
	return nil
}
