package threshold

import (
	"math"

	"github.com/afstream/afstream/errorbound"
)

// Config describes one incarnation of one partition of an operator.
type Config struct {
	// Params is the budget of the whole operator over all failures.
	Params errorbound.Params
	// Norm and Combine say how the partitions' divergences add up.
	Norm    errorbound.Norm
	Combine errorbound.Combine
	// Partitions is the number of partitions of the operator, over all its workers; below 1 is taken as 1.
	Partitions int
	// Failures is k, the number of failures of this partition's worker so far. It must be durable before the
	// incarnation starts (invariant I4), or repeated crashes would spend the same share again and again.
	Failures uint64
}

// Budget is what one partition may use in one incarnation.
type Budget struct {
	Theta float64 // divergence of the state from its last durable backup, in the operator's norm; +Inf: never back up
	L     uint64  // items acknowledged but neither processed nor logged
	Gamma uint64  // items emitted and not acknowledged; 0 is used as 1 by Sender, see errorbound.Params.Overdraft
}

// Split returns the budget of one partition in its k-th incarnation (k = c.Failures):
//
//	theta = Theta * a_k * Share(norm, combine, n)   l = floor(L*a_k/n)   gamma = floor(Gamma*a_k/n)
//
// Summed over all k and all n partitions, l and gamma stay at or under L and Gamma exactly, theta (combined in the
// norm) under Theta up to the rounding of float64.
func Split(c Config) Budget {
	n := uint64(max(c.Partitions, 1))
	p := c.Params
	theta := p.Theta
	if !math.IsInf(theta, 1) { // Inf * 0 would be NaN once the series has underflowed
		theta *= p.Series.Term(c.Failures) * errorbound.Share(c.Norm, c.Combine, c.Partitions)
	}
	return Budget{
		Theta: theta,
		L:     p.Series.Grant(p.L, c.Failures) / n,
		Gamma: p.Series.Grant(p.Gamma, c.Failures) / n,
	}
}
