package errorbound

import "math"

// Prediction is what a budget is expected to cost one worker of the stateful operator, averaged over a run through the
// expected failures. They are taken to be spread evenly over the workers and over the run.
type Prediction struct {
	Series Series
	// FailuresPerWorker is how many failures the worker that has most of them is expected to have: the expected ones
	// divided by the number of workers, rounded up.
	FailuresPerWorker uint64
	// FirstTheta is the theta of one partition before its worker has failed, LastTheta after all these failures.
	FirstTheta, LastTheta float64
	// BudgetLeft is the share of a worker's budget that all later failures may cost together.
	BudgetLeft float64
	// ElementsPerSecond is how many elements are written to the store at most, CommitsPerSecond how many commits that
	// takes, BytesPerSecond what it amounts to.
	ElementsPerSecond, CommitsPerSecond, BytesPerSecond float64
	// Slowdown is the part of the throughput that is lost, 0 to 1. It is a prudent figure: work that another core could
	// do meanwhile counts in full.
	Slowdown float64
}

// Predict returns what p costs if an item changes rows elements of the state, each by the weight of the item.
//
// An element that is backed up by itself is written when it has grown by theta/2 since it was last written (with alpha
// above theta/2: by theta - alpha, so that one more item fits), so a stream of total growth rows*weight per item needs
// at most rows*weight/(theta/2) element writes per item; and never more than rows. A commit is begun when an element
// has grown by 3/4 theta, and leaves none that has grown by theta/2, so that one has to grow by theta/4 before the next:
// at most w.Heaviest*weight/(theta/4) commits per item. Where that says little, weight/(3/4 theta) is expected, because
// the elements that one item changes grow together. In the k-th incarnation theta is Theta*a_k*share.
//
// The commits of all workers meet in one store, so one commit costs a worker Workers/CommitsPerSecond of its time. w
// must be valid, as Divide has it; Cost: O(failures per worker).
func (w Workload) Predict(p Params, rows float64) Prediction {
	k, workers := w.Costs.orDefault(), float64(max(w.Workers, 1))
	failures := (w.Failures + uint64(workers) - 1) / uint64(workers)
	var elements, commits, handovers float64 // per item, added up over the incarnations
	for i := range failures + 1 {
		e, c, h := w.perItem(p, rows, i)
		elements, commits, handovers = elements+e, commits+c, handovers+h
	}
	n := float64(failures + 1)
	elements, commits, handovers = elements/n, commits/n, handovers/n
	work := 1 / k.ItemsPerSecond
	added := workers*(commits/k.CommitsPerSecond+elements/k.ElementsPerSecond) + handovers*k.Handover
	perSecond := 1 / (work + added)
	left := 1.0
	if failures > 0 {
		left -= p.Series.Spent(failures - 1)
	}
	return Prediction{
		Series: p.Series, FailuresPerWorker: failures, BudgetLeft: left,
		FirstTheta: w.theta(p, 0), LastTheta: w.theta(p, failures),
		ElementsPerSecond: elements * perSecond, CommitsPerSecond: commits * perSecond,
		BytesPerSecond: elements * perSecond * k.ElementBytes,
		Slowdown:       added / (work + added),
	}
}

func (w Workload) heaviest() float64 {
	if w.Heaviest > 0 {
		return w.Heaviest
	}
	return 1
}

// theta is that of one partition in incarnation k.
func (w Workload) theta(p Params, k uint64) float64 {
	if math.IsInf(p.Theta, 1) {
		return p.Theta
	}
	return p.Theta * p.Series.Term(k) * Share(w.Norm, w.Combine, w.partitions())
}

// perItem returns the element writes, commits and waits for a window that one item costs in incarnation k.
func (w Workload) perItem(p Params, rows float64, k uint64) (elements, commits, handovers float64) {
	theta, weight := w.theta(p, k), w.weight()
	if !math.IsInf(theta, 1) {
		writeAt := max(0, min(theta/2, theta-w.Alpha))
		commitAt := max(writeAt, min(theta*3/4, theta-2*w.Alpha))
		elements = rows * min(1, weight/writeAt) // rows if writeAt is 0
		commits = min(1, weight/commitAt, w.heaviest()*weight/(commitAt-writeAt))
	}
	if w.Pipe {
		n := uint64(w.partitions())
		window := p.Series.Grant(p.L, k)/n*n + max(p.Series.Grant(p.Gamma, k), 1)
		handovers = 1 / float64(window)
	}
	return elements, commits, handovers
}

// MeanShrink returns the mean of 1/a_k over the incarnations 0 to failures, by which the backups of a run whose failures
// come at even distances grow: the cost of a series for a worker with that many failures. In closed form it is
// (2^(failures+2) - 2)/(failures+1) for Geometric and (failures+2)(failures+3)/3 for Telescoping. So Geometric is
// cheaper up to 4 failures of one worker, Telescoping from 5 on.
func (s Series) MeanShrink(failures uint64) float64 {
	m := float64(failures)
	if s == Telescoping {
		return (m + 2) * (m + 3) / 3
	}
	return (math.Exp2(m+2) - 2) / (m + 1)
}
