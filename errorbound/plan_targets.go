package errorbound

import "math"

// CountBudget returns what failures may cost, for Workload.Divide, if a count of a key may be off by at most counts:
// counts kept exactly, as of words, err by nothing else. The norm is Max. Both arguments are in the unit of the counts.
func CountBudget(counts float64) (float64, error) {
	var c checks
	c.add(counts > 0 && finite(counts), "count error %v: want a number above 0", counts)
	return counts, planError(c)
}

// JoinBudget returns what failures may cost, for Workload.Divide with Alpha 1, if at least the share completeness of the
// pairs of a join must be found. The state are the stored items, its norm Count, and one item, of either input, makes at
// most beta pairs (below 1 is taken as 1).
//
// Derivation. A stored item that a failure takes away, and an item that is lost before it is joined, cost up to beta
// pairs each. So with F = Theta + L + Gamma items in all at most F*beta pairs are missing, and F = (1-completeness) *
// pairs / beta. (The source counts beta for L only, since its Gamma are pairs on their way to the next stage. Counting
// it for all is never too little.) pairs is the number of pairs without failures, or a lower estimate of it.
func JoinBudget(pairs, beta, completeness float64) (float64, error) {
	var c checks
	c.add(pairs >= 1 && finite(pairs), "%v pairs: want a number of at least 1", pairs)
	c.add(beta > 0 && finite(beta), "beta %v: want the most pairs of an item, above 0", beta)
	c.add(completeness >= 0 && completeness < 1, "completeness %v: want a share of at least 0 and below 1: 1 needs backups"+
		" of every change", completeness)
	if err := planError(c); err != nil {
		return 0, err
	}
	return (1 - completeness) * pairs / max(beta, 1), nil
}

// SampleJoinBudget is JoinBudget for the ripple join, which estimates from samples: failures may widen its confidence
// interval by the share widen (0.1 makes it a tenth wider).
//
// Derivation. The interval is z*s/sqrt(n) after n sampled pairs, and failures that lose x of them leave z*s/sqrt(n-x)
// (the source's error bound). The ratio sqrt(n/(n-x)) is at most 1+widen if x <= n*(1 - 1/(1+widen)^2). Of these x
// pairs, an item costs up to beta.
func SampleJoinBudget(pairs, beta, widen float64) (float64, error) {
	var c checks
	c.add(widen > 0 && finite(widen), "interval wider by %v: want a share above 0, such as 0.1", widen)
	if err := planError(c); err != nil {
		return 0, err
	}
	return JoinBudget(pairs, beta, 1/((1+widen)*(1+widen)))
}

// LearningBudget returns what failures may cost, for Workload.Divide with the norm L2, if the mean loss of online
// learning over the given number of examples may be worse by excess. diameter is the largest distance of two models
// that the learner admits (twice the radius to which it projects).
//
// Derivation, for gradient steps of size 1/sqrt(t) on convex losses, projected to a set of that diameter D. Zinkevich's
// proof ("Online convex programming and generalized infinitesimal gradient ascent", ICML 2003, theorem 1) bounds the
// regret by a sum of (|w_t-w|^2 - |w_{t+1}-w|^2)/(2*eta_t), w being the best fixed model. A failure at step t moves the
// model from w_t to a w' of the same set at a distance d. That adds to the sum (|w'-w|^2 - |w_t-w|^2)/(2*eta_t) =
// (|w'-w| - |w_t-w|) * (|w'-w| + |w_t-w|) * sqrt(t)/2 <= d*2D*sqrt(t)/2 <= D*d*sqrt(T). Over all failures the distances
// add up to at most F = Theta + L*alpha (+ Gamma*alpha for a pipe), however many there are, and the mean loss is worse
// by at most D*F/sqrt(T). So F = excess*sqrt(T)/D. (The source's terms of Theta^2 come from not projecting.)
func LearningBudget(examples, diameter, excess float64) (float64, error) {
	var c checks
	c.add(examples >= 1 && finite(examples), "%v examples: want a number of at least 1", examples)
	c.add(diameter > 0 && finite(diameter), "diameter %v: want a finite number above 0", diameter)
	c.add(excess > 0 && finite(excess), "excess loss %v: want a finite number above 0", excess)
	if err := planError(c); err != nil {
		return 0, err
	}
	return excess * math.Sqrt(examples) / diameter, nil
}
