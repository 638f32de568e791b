package logreg

import "math"

// buckets is the resolution of the AUC.
const buckets = 10_000

// Prequential counts how good predictions are, each made before its example was learned from (test, then train). The zero
// Prequential has counted nothing. It takes 160 KB, and may not be used by two goroutines at once.
type Prequential struct {
	histogram [2][buckets]uint64 // of the predictions, for negatives and positives
	loss      float64
	correct   uint64
}

// leastProbability bounds the loss of one example, at 34.5: a saturated prediction that is wrong would else cost +Inf.
const leastProbability = 1e-15

// Add counts one prediction: p is the probability that was given to the label being positive. A p that is NaN counts as
// the worst.
func (q *Prequential) Add(p float64, positive bool) {
	label, given := 0, 1-p // the probability given to what came true
	if positive {
		label, given = 1, p
	}
	if !(given > leastProbability) {
		given = leastProbability
	}
	q.loss -= math.Log(given)
	if given > 0.5 {
		q.correct++
	}
	at := 0
	switch {
	case p >= 1:
		at = buckets - 1
	case p > 0: // and not NaN, of which no index can be made
		at = min(int(p*buckets), buckets-1)
	}
	q.histogram[label][at]++
}

// Merge adds what other has counted.
func (q *Prequential) Merge(other *Prequential) {
	for label := range q.histogram {
		for i, n := range other.histogram[label] {
			q.histogram[label][i] += n
		}
	}
	q.loss += other.loss
	q.correct += other.correct
}

// Quality says how good predictions were. No field is ever NaN.
type Quality struct {
	// Examples is how many were predicted, Positive how many of them were positive.
	Examples uint64 `json:"examples"`
	Positive uint64 `json:"positive"`
	// LogLoss is the mean of -ln of the probability given to what came true; BaseLoss is that of always predicting the
	// share of positives.
	LogLoss  float64 `json:"log_loss"`
	BaseLoss float64 `json:"base_loss"`
	// Accuracy is the part of the examples whose label was given a probability above 1/2.
	Accuracy float64 `json:"accuracy"`
	// AUC is the area under the receiver operating characteristic: the probability that a positive example was given a
	// higher probability than a negative one, ties counting half; 1/2 if there are only positives or only negatives.
	// Probabilities within the same ten-thousandth count as tied, so it is exact to within half the probability that the
	// two fall into one bucket.
	AUC float64 `json:"auc"`
}

// Quality returns what has been counted, in 10^4 steps.
func (q *Prequential) Quality() Quality {
	var total [2]float64
	wins := 0.0
	for i := range buckets {
		negative, positive := float64(q.histogram[0][i]), float64(q.histogram[1][i])
		wins += positive * (total[0] + negative/2)
		total[0] += negative
		total[1] += positive
	}
	n := total[0] + total[1]
	r := Quality{Examples: uint64(n), Positive: uint64(total[1]), AUC: 0.5}
	if n == 0 {
		return r
	}
	r.LogLoss = q.loss / n
	r.Accuracy = float64(q.correct) / n
	if total[0] > 0 && total[1] > 0 {
		r.AUC = wins / total[0] / total[1]
		r.BaseLoss = -(total[0]*math.Log(total[0]/n) + total[1]*math.Log(total[1]/n)) / n
	}
	return r
}
