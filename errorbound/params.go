package errorbound

import (
	"errors"
	"fmt"
	"math"
)

// ErrParams is wrapped by every error of [Params.Validate].
var ErrParams = errors.New("errorbound: invalid parameters")

// Params is the error budget of one operator over all failures of all its workers, as the user states it.
type Params struct {
	// Theta bounds the divergence of the state from what a failure-free run would have, in the unit of the operator's
	// norm. 0: every change is backed up before it counts. +Inf: never back up.
	Theta float64
	// L bounds the items that failures of receivers may lose. 0: every item is logged before it is acknowledged.
	L uint64
	// Gamma bounds the items that failures of senders may lose, see also [Params.Overdraft]. 0 behaves as the least
	// possible: one item in flight at a time.
	Gamma uint64
	// Series divides the budget over failures.
	Series Series
}

// Validate returns all faults of p, joined, each wrapping [ErrParams]; nil if there is none.
func (p Params) Validate() error {
	var faults []error
	if math.IsNaN(p.Theta) || p.Theta < 0 {
		faults = append(faults, fmt.Errorf("%w: theta %v is not a number >= 0", ErrParams, p.Theta))
	}
	if p.Series > Telescoping {
		faults = append(faults, fmt.Errorf("%w: unknown %v", ErrParams, p.Series))
	}
	return errors.Join(faults...)
}

// StateBound returns Theta + L*alpha: the most by which the operator's state can differ from a failure-free run after
// any number of failures, if one item changes a state by at most alpha. Where all inputs can be had again
// (replayable sources), L plays no part and the bound is Theta.
func (p Params) StateBound(alpha float64) float64 {
	return p.Theta + times(p.L, alpha)
}

// LossBound returns Gamma + L*beta: the most outputs that any number of failures can lose if one item produces at most
// beta outputs. It holds while [Params.Overdraft] is 0; beyond that the overdraft is to be added.
func (p Params) LossBound(beta float64) float64 {
	return float64(p.Gamma) + times(p.L, beta)
}

// times is n*x with 0*Inf = 0: no item has no effect, however large the effect of one item.
func times(n uint64, x float64) float64 {
	if n == 0 {
		return 0
	}
	return float64(n) * x
}

// Compensation returns what the k-th recovery of a worker (k from 1) may add to every counter of a state that failures
// can only lower, so that none is too low afterwards: a_(k-1) * (Theta + L*alpha), the most that the failure can have
// taken from it. With the geometric series this is the paper's Theta/2^k + L*alpha/2^k. All compensations together add
// at most StateBound. k = 0 is no recovery and returns 0.
func (p Params) Compensation(k uint64, alpha float64) float64 {
	if k == 0 {
		return 0
	}
	bound := p.StateBound(alpha)
	if math.IsInf(bound, 1) { // Inf * 0 would be NaN once the series has underflowed
		return bound
	}
	return p.Series.Term(k-1) * bound
}

// Overdraft returns by how many items the senders of an operator with n partitions can lose more than Gamma if each of
// them fails the given number of times. A sender can make progress only with at least one item in flight, whereas
// floor(Gamma*a_k/n) becomes 0 after enough failures: from then on a failure may cost one item per partition. What
// rounding down left unspent pays for the first of these, so the result is 0 for a long time: with the geometric
// series, Gamma = 1000 and n = 1, for 15 failures. A Gamma below n is overdrawn from the start. Cost: O(log Gamma) or,
// for Telescoping, O(sqrt(Gamma/n)).
func (p Params) Overdraft(n int, failures uint64) uint64 {
	parts := uint64(max(n, 1))
	var spent, k uint64 // of one partition
	for ; k < failures; k++ {
		grant := p.Series.Grant(p.Gamma, k) / parts
		if grant == 0 {
			break // and so are all later grants
		}
		spent += grant
	}
	spent = saturatingAdd(spent, failures-k)
	if spent > math.MaxUint64/parts {
		return math.MaxUint64 - p.Gamma
	}
	if total := spent * parts; total > p.Gamma {
		return total - p.Gamma
	}
	return 0
}

func saturatingAdd(a, b uint64) uint64 {
	if s := a + b; s >= a {
		return s
	}
	return math.MaxUint64
}

// StageShare returns the part of Theta, L and Gamma that stage number stage (1 to stages) of a pipeline may use so
// that the whole pipeline keeps the bound stated for its end. beta is the number of outputs one item produces at a
// stage; below 1 (filters) it is taken as 1, so that no stage gets more than the whole.
//
// Derivation. One item lost at stage i of m is missed by every later stage and costs up to beta^(m-i) at the end. If
// stage i has the budget x_i, the end is off by at most sum of x_i*beta^(m-i). With x_i = w_i/beta^(m-i) this is the
// sum of the w_i, so any weights with sum at most 1 are right.
//
// The weights here are equal, 1/m, because that makes the number of backups least: stage i sees beta^(i-1) items per
// input of the pipeline and backs up once per x_i of divergence, at the rate beta^(i-1)*beta^(m-i)/w_i =
// beta^(m-1)/w_i. The amplification cancels, and a sum of 1/w_i with a fixed sum of the w_i is least when all are equal.
//
// The source paper starts stage i at 1/(2*beta^(m-i)), which is w_i = 1 for each stage (1/2 in the first
// incarnation): the sum is m/2 before any failure is recovered and m over all of them, above the stated bound
// whenever m > 2 or m > 1. Only for beta >= 2 do the bare x_i add up to less than 1, and that counts a loss at stage i
// as if it were not amplified.
func StageShare(stage, stages int, beta float64) float64 {
	if stages <= 1 {
		return 1
	}
	if !(beta > 1) {
		beta = 1
	}
	later := float64(stages - min(max(stage, 1), stages))
	return 1 / (float64(stages) * math.Pow(beta, later))
}
