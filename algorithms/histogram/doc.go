// Package histogram counts numbers by ranges, and answers how many lie between two values and where a quantile is.
//
//	layout, err := histogram.Relative(0.01, 1e-3, 1e6)
//	histograms := histogram.Assemble(latencies, layout, 4)
//	...
//	p99, ok := h.Quantile(0.99)
//
// [Count] keeps a histogram per partition and emits it at the end of a window, [Merge] adds them up and emits the
// [Histogram] of the whole stream.
//
// # Layouts
//
//   - [EquiWidth]: bins of the same width over a range, and one on either side of it. A quantile within the range is off
//     by at most the width of a bin; counts between edges of bins are exact.
//   - [Relative]: bins whose ends have a fixed ratio, for positive and negative numbers, in the manner of DDSketch
//     (Masson, Rim and Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees", VLDB
//     2019): with gamma = (1+eps)/(1-eps), bin i takes gamma^(i-1) < |x| <= gamma^i, and 2*gamma^i/(gamma+1) is within
//     eps*|x| of every x in it. So a quantile is off by at most eps times itself. Numbers nearer to 0 than least count
//     as 0, and those beyond most are only known to be beyond it. The number of bins is fixed, about
//     ln(most/least)/eps, so that no bins ever have to be collapsed and histograms can be merged in any order.
//
// # Fault tolerance
//
// The state is counts that only grow. The distance is the sum of their differences (L1), alpha = 1: after failures at
// most theta numbers are missing, wherever they were. A rank, or a count between any two values, is off by no more than
// that, whereas bins that are each off by theta (the Max norm) would let a rank be off by theta times their number. A
// partial backup writes the bins that have changed, each once however often, so that the L1 norm costs no more here
// than there are bins. Histograms of partitions are added up, so each has an n-th of Theta.
//
// [Bound] is how many numbers can be missing, and [Histogram.Range] what that makes of a quantile.
package histogram
