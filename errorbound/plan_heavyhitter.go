package errorbound

import (
	"fmt"
	"math"
)

// HeavyHitterTarget is a wanted accuracy of heavy-hitter detection with count-min sketches, in the terms of the answer.
type HeavyHitterTarget struct {
	// Workload is the job. Its norm and combination are set by the planner: Max, Added.
	Workload
	// Error is the share of the total weight by which the estimate of a key may be off, in either direction, failures
	// included. It must be at most Threshold: with more, a key at the threshold might be taken for one that never came.
	Error float64
	// Confidence is the probability, for each key, that its estimate is off by no more. What failures take away is
	// certain to be within the error; only the sketch's overcount is left to chance. For all of m keys at once, ask for
	// 1-(1-c)/m.
	Confidence float64
	// Threshold is the share of the total from which on a key is reported.
	Threshold float64
	// Compensated says that recoveries add to each counter what the failure may have taken.
	Compensated bool
	// Memory is how many bytes all sketches together may take. 0: as many as keep one sketch in a core's cache
	// (1 MiB), or, if the target needs more, the least it needs.
	Memory float64
}

// HeavyHitterPlan is how a target is kept.
type HeavyHitterPlan struct {
	Params
	// Sketch is the shape of each partition's sketch.
	Sketch CountMin
	// SketchError and FailureError are what the two can add to the error of an estimate, as shares of the total. The
	// first holds for each key with the Confidence asked for, the second always. Their larger one is the error of an
	// estimate, or with compensation, where both can be on the same side, their sum.
	SketchError, FailureError float64
	// SureShare is the share of the total from which on a key is certain to be reported, FalseShare the one below which
	// a key is reported with probability at most 1-Confidence. The latter allows for a total that was measured too low,
	// and may be 0 or less: it then says nothing.
	SureShare, FalseShare float64
	// Memory is what the sketches and candidates of all partitions and of their merge take, in bytes, at most.
	Memory float64
	// Cost is the prediction for the chosen series, Others those for the series that were not chosen.
	Cost   Prediction
	Others []Prediction
}

// Bound returns the error of an estimate that the plan promises, as a share of the total: at most the target's.
func (p HeavyHitterPlan) Bound(compensated bool) float64 {
	if compensated {
		return p.SketchError + p.FailureError
	}
	return max(p.SketchError, p.FailureError)
}

// What a heavy-hitter job takes: 16 bytes of a counter and its limit, 16 for the durable values of it and of the backup
// in flight, 1 for its level; about 100 bytes a candidate, of which 4/threshold + 64 are kept.
const (
	counterBytes   = 33
	candidateBytes = 100
	cacheBytes     = 1 << 20
	mostBytes      = 4 << 30 // of all sketches, unless the user allows more
	mostRows       = 64
)

// Validate returns all faults of t in one error that wraps ErrPlan.
func (t HeavyHitterTarget) Validate() error {
	c := checks(t.Workload.faults())
	c.add(t.Error > 0 && t.Error < 1, "error %v: want a share of the total above 0 and below 1, such as 0.001", t.Error)
	c.add(t.Confidence > 0 && t.Confidence < 1, "confidence %v: want a probability above 0 and below 1, such as 0.99", t.Confidence)
	c.add(t.Threshold > 0 && t.Threshold <= 1, "threshold %v: want a share of the total above 0 and at most 1", t.Threshold)
	c.add(!(t.Error > t.Threshold), "error %v: it is above the threshold %v, from which on keys are reported:"+
		" give a smaller error or a larger threshold", t.Error, t.Threshold)
	c.add(t.Memory >= 0 && finite(t.Memory), "memory %v: want a number of bytes, or 0 for the usual", t.Memory)
	return planError(c)
}

// Plan returns the cheapest way to keep the target.
//
// # How the error is divided
//
// A sketch only ever estimates too high, failures only ever take away. Let c be a counter of the failure-free merged
// sketch and F what all failures together can take from it; a faulty counter lies in [c-F, c]. The estimate is the
// least of some counters, which moves by no more than they do, so with e the estimate without failures and v the
// weight, v - F <= e - F <= estimate <= e <= v + eps*U, the last with the wanted confidence. So without compensation
// the sketch and the failures may use the whole error each: eps = Error, F = Error*U. Compensation turns F from too low
// into too high, and then the two add up: eps*U + F = Error*U.
//
// # The shape
//
// A sketch of r rows keeps eps with probability 1-delta if its width is delta^(-1/r)/eps (see CountMin.Overcount). Few
// rows cost few updates and backups, many rows little memory: the least memory is at r = ln(1/delta). Of all r whose
// memory is within the limit the one with the least predicted work per item is taken, which is r updates and what
// Workload.Predict says. With compensation a wider sketch leaves more of the error to failures, so each r is tried with
// the widest sketch that the limit allows, up to the one that leaves 9/10.
//
// # The bar
//
// A key is reported if its estimate reaches Threshold of the measured total, which failures can lower by Theta/Threshold
// and the items lost: the bar falls by at most F and never rises. So every key from Threshold + F/U on is reported, and
// none below Threshold - F/U - eps (with compensation, that many again F/U less), but for the chance.
//
// The error wraps ErrPlan.
func (t HeavyHitterTarget) Plan() (HeavyHitterPlan, error) {
	t.Norm, t.Combine = Max, Added
	if err := t.Validate(); err != nil {
		return HeavyHitterPlan{}, err
	}
	var best HeavyHitterPlan
	least := math.Inf(1)
	var last error
	for _, s := range t.shapes() {
		p, work, err := t.with(s)
		if err != nil {
			last = err
			continue
		}
		if work < least {
			best, least = p, work
		}
	}
	if math.IsInf(least, 1) {
		if last == nil {
			last = t.tooLittleMemory()
		}
		return HeavyHitterPlan{}, last
	}
	best.Others = t.others(best)
	return best, nil
}

// with completes a plan for one shape, and returns the seconds of work per item.
func (t HeavyHitterTarget) with(s CountMin) (p HeavyHitterPlan, work float64, err error) {
	total := t.Total()
	p.Sketch = s
	p.SketchError = s.Overcount(1, 1-t.Confidence)
	room := t.Error
	if t.Compensated {
		room -= p.SketchError
	}
	rows := float64(s.Rows)
	changed := rows + t.Threshold // the total may be off by 1/Threshold times as much as a counter
	p.Params, p.Cost, err = t.Divide(room*total, changed)
	if err != nil {
		return p, 0, err
	}
	p.FailureError = t.FailureBound(p.Params) / total
	p.SureShare = t.Threshold + p.FailureError
	p.FalseShare = t.Threshold - p.FailureError - p.SketchError
	if t.Compensated {
		p.SureShare = t.Threshold + max(0, p.FailureError-p.Theta/total)
		p.FalseShare -= p.FailureError
	}
	p.Memory = t.memory(s)
	added := p.Cost.Slowdown / (1 - p.Cost.Slowdown) / t.Costs.orDefault().ItemsPerSecond
	work = rows*rowSeconds + added
	return p, work, nil
}

// rowSeconds is what the update of one counter takes while the sketch is in the cache.
const rowSeconds = 5e-9

// shapes returns those that keep the sketch's part of the target within the memory, rows ascending.
func (t HeavyHitterTarget) shapes() []CountMin {
	limit := t.sketchLimit()
	var shapes []CountMin
	smallest := CountMin{Rows: 1, Width: math.MaxInt32}
	for r := 1; r <= mostRows; r++ {
		s := t.shape(r, limit)
		if size(s) <= limit {
			shapes = append(shapes, s)
		}
		if size(s) < size(smallest) {
			smallest = s
		}
	}
	if len(shapes) == 0 && t.Memory == 0 && t.memory(smallest) <= mostBytes {
		return []CountMin{smallest}
	}
	return shapes
}

// shape returns the sketch of so many rows that keeps the target: the narrowest, or, if width leaves more of the error
// to failures, the widest within the limit.
func (t HeavyHitterTarget) shape(rows int, limit float64) CountMin {
	width := t.narrowest(rows)
	if t.Compensated {
		const most = 5 // times the narrowest, which leaves half of the error
		width = max(width, math.Floor(min(most*width, limit/counterBytes/float64(rows))))
	}
	return CountMin{Rows: rows, Width: int(min(width, math.MaxInt32))}
}

// narrowest is the least width that keeps all of the error, or with compensation half of it.
func (t HeavyHitterTarget) narrowest(rows int) float64 {
	width := math.Pow(1-t.Confidence, -1/float64(rows)) / t.Error
	if t.Compensated {
		width *= 2
	}
	return math.Ceil(width)
}

// sketchLimit returns how many bytes one sketch may take.
func (t HeavyHitterTarget) sketchLimit() float64 {
	if t.Memory == 0 {
		return cacheBytes
	}
	sketches := float64(t.partitions() + 1)
	return t.Memory/sketches - t.candidates()
}

func (t HeavyHitterTarget) candidates() float64 { return (4/t.Threshold + 64) * candidateBytes }

func size(s CountMin) float64 { return float64(s.Rows) * float64(s.Width) * counterBytes }

// memory is that of all partitions and of the merge.
func (t HeavyHitterTarget) memory(s CountMin) float64 {
	return float64(t.partitions()+1) * (size(s) + t.candidates())
}

func (t HeavyHitterTarget) tooLittleMemory() error {
	least := math.Inf(1)
	for r := 1; r <= mostRows; r++ {
		bytes := float64(r) * t.narrowest(r) * counterBytes
		least = min(least, float64(t.partitions()+1)*(bytes+t.candidates()))
	}
	limit := t.Memory
	if limit == 0 {
		limit = mostBytes
	}
	return planError([]error{fmt.Errorf("memory of %.4g MB: sketches that keep an error of %v take %.2f MB at least:"+
		" allow more memory, a larger error or a lower confidence", limit/1e6, t.Error, math.Ceil(least/1e4)/100)})
}

// others predicts the cost of the series that were not chosen, each with the best parameters for it.
func (t HeavyHitterTarget) others(chosen HeavyHitterPlan) []Prediction {
	var others []Prediction
	for _, s := range []Series{Geometric, Telescoping} {
		if s == chosen.Series {
			continue
		}
		alone := t
		alone.Series = []Series{s}
		if p, _, err := alone.with(chosen.Sketch); err == nil {
			others = append(others, p.Cost)
		}
	}
	return others
}
