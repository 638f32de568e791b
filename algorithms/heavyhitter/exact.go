package heavyhitter

import (
	"fmt"
	"math"

	"github.com/afstream/afstream/connector"
)

// Exact counts every key, to check what a job reports. It takes about 150 bytes a key, and may not be used by two
// goroutines at once.
type Exact struct {
	weights map[connector.Key]float64
	total   float64
}

// NewExact returns an Exact that has counted nothing.
func NewExact() *Exact { return &Exact{weights: map[connector.Key]float64{}} }

// Add counts one item. The error wraps ErrWeight for a weight that is negative or not finite.
func (e *Exact) Add(item connector.Keyed) error {
	if !isSum(item.Weight) {
		return fmt.Errorf("%w: %v of key %q", ErrWeight, item.Weight, item.Key)
	}
	e.weights[item.Key] += item.Weight
	e.total += item.Weight
	return nil
}

// Total returns the sum of all weights.
func (e *Exact) Total() float64 { return e.total }

// Len returns the number of distinct keys.
func (e *Exact) Len() int { return len(e.weights) }

// Weight returns the weight of key, 0 if it never came.
func (e *Exact) Weight(key connector.Key) float64 { return e.weights[key] }

// Top returns the n heaviest keys, fewer if there are fewer, in the order in which Merge emits them.
func (e *Exact) Top(n int) []Row {
	rows := e.HeavyHitters(0)
	return rows[:min(max(n, 0), len(rows))]
}

// HeavyHitters returns the keys whose weight is positive and at least threshold, a share, of the total, in the order
// in which Merge emits them.
func (e *Exact) HeavyHitters(threshold float64) []Row {
	var rows []Row
	for key, w := range e.weights {
		if w > 0 && w >= threshold*e.total {
			rows = append(rows, Row{Key: key, Estimate: w})
		}
	}
	return ranked(rows, e.total)
}

// Quality says how good a report of heavy hitters is. No field is ever NaN.
type Quality struct {
	// Precision is the part of the reported keys that are heavy hitters, 1 if none is reported.
	Precision float64 `json:"precision"`
	// Recall is the part of the heavy hitters that is reported, 1 if there are none.
	Recall float64 `json:"recall"`
	// MeanRelativeError is the mean of |estimate - weight| / weight over the reported keys that are heavy hitters, 0 if
	// there are none.
	MeanRelativeError float64 `json:"mean_relative_error"`
	// Reported, True and Correct are the numbers of keys behind those ratios: reported, heavy hitters, and both.
	Reported int `json:"reported"`
	True     int `json:"true"`
	Correct  int `json:"correct"`
}

// Compare checks reported rows against exact weights; threshold is the share from which on a key is a heavy hitter. A
// key that is reported twice counts twice as reported and once as correct.
func Compare(reported []Row, exact *Exact, threshold float64) Quality {
	truth := exact.HeavyHitters(threshold)
	heavy := make(map[connector.Key]float64, len(truth))
	for _, r := range truth {
		heavy[r.Key] = r.Estimate
	}
	q := Quality{Precision: 1, Recall: 1, Reported: len(reported), True: len(truth)}
	for _, r := range reported {
		w, ok := heavy[r.Key]
		if !ok {
			continue
		}
		delete(heavy, r.Key)
		q.Correct++
		q.MeanRelativeError += math.Abs(r.Estimate-w) / w
	}
	if q.Correct > 0 {
		q.MeanRelativeError /= float64(q.Correct)
	}
	if q.Reported > 0 {
		q.Precision = float64(q.Correct) / float64(q.Reported)
	}
	if q.True > 0 {
		q.Recall = float64(q.Correct) / float64(q.True)
	}
	return q
}
