package histogram

import (
	"math"
	"slices"
	"sort"
)

// Exact keeps all numbers, to check what a job reports. It takes 8 bytes per number, and may not be used by two
// goroutines at once.
type Exact struct {
	numbers []float64
	sorted  bool
}

// Add takes one number.
func (e *Exact) Add(x float64) { e.numbers, e.sorted = append(e.numbers, x), false }

// Total returns how many numbers there are.
func (e *Exact) Total() uint64 { return uint64(len(e.numbers)) }

// Quantile returns the number of rank q*(Total-1), rounded down, and NaN if there is none.
func (e *Exact) Quantile(q float64) float64 {
	if len(e.numbers) == 0 {
		return math.NaN()
	}
	return e.order()[rank(q, e.Total())]
}

// Rank returns how many numbers are less than x, and how many are not larger.
func (e *Exact) Rank(x float64) (less, notLarger uint64) {
	at, _ := slices.BinarySearch(e.order(), x)
	end, _ := slices.BinarySearch(e.order(), math.Nextafter(x, math.Inf(1)))
	return uint64(at), uint64(end)
}

func (e *Exact) order() []float64 {
	if !e.sorted {
		slices.Sort(e.numbers)
		e.sorted = true
	}
	return e.numbers
}

// Quality says how far a histogram is from the numbers.
type Quality struct {
	// MaxBinError and SumBinError are the largest difference of a bin and the sum of the differences, the L1 norm.
	MaxBinError uint64 `json:"max_bin_error"`
	SumBinError uint64 `json:"sum_bin_error"`
	// MaxQuantileError is the largest difference between a quantile and the exact one, of 0.01, 0.02 and so on to 0.99;
	// MaxRelativeError the largest of these differences relative to the exact ones that are not 0. Quantiles beyond the
	// range are left out.
	MaxQuantileError float64 `json:"max_quantile_error"`
	MaxRelativeError float64 `json:"max_relative_error"`
	// Total and Reported are how many numbers there were, and how many are in the histogram.
	Total    uint64 `json:"total"`
	Reported uint64 `json:"reported"`
}

// Compare checks a histogram, which must have a layout, against the numbers.
func Compare(h Histogram, exact *Exact) Quality {
	q := Quality{Total: exact.Total(), Reported: h.Total()}
	want := make([]uint64, h.layout.Bins())
	for _, x := range exact.numbers {
		want[h.layout.Bin(x)]++
	}
	for bin, n := range want {
		d := max(n, h.counts[bin]) - min(n, h.counts[bin])
		q.MaxBinError = max(q.MaxBinError, d)
		q.SumBinError += d
	}
	for percent := 1; percent < 100 && exact.Total() > 0; percent++ {
		share := float64(percent) / 100
		got, ok := h.Quantile(share)
		if !ok {
			continue
		}
		x := exact.Quantile(share)
		q.MaxQuantileError = max(q.MaxQuantileError, math.Abs(got-x))
		if x != 0 {
			q.MaxRelativeError = max(q.MaxRelativeError, math.Abs(got-x)/math.Abs(x))
		}
	}
	return q
}

// RankError returns by how many ranks the quantile q of a histogram is off: how many of the numbers lie between its bin and
// the exact quantile. Without failures it is 0, and after some at most [Bound]. That of a histogram of no numbers is how
// many there are. It takes a binary search.
func RankError(h Histogram, exact *Exact, q float64) uint64 {
	bin, ok := h.QuantileBin(q)
	if !ok || exact.Total() == 0 {
		return exact.Total()
	}
	l, numbers := &h.layout, exact.order() // bins are in the order of their numbers
	first := uint64(sort.Search(len(numbers), func(i int) bool { return l.Bin(numbers[i]) >= bin }))
	end := uint64(sort.Search(len(numbers), func(i int) bool { return l.Bin(numbers[i]) > bin }))
	switch r := rank(q, exact.Total()); {
	case r < first:
		return first - r
	case r >= end:
		return r - end + 1
	}
	return 0
}
