package join

import (
	"math"

	"github.com/afstream/afstream/errorbound"
)

// MissingPairs returns the most pairs that any number of failures within p can take from the result of a join whose rows
// have at most beta partners each: beta for each of the Theta rows that states can have lost and of the L rows that were
// lost before they were processed, and Gamma pairs on their way. A window in which a row of each input was lost counts
// their pair twice, so it is a bound and no more.
func MissingPairs(p errorbound.Params, beta float64) float64 {
	lost := p.StateBound(1)
	if lost == 0 {
		return float64(p.Gamma)
	}
	return lost*beta + float64(p.Gamma)
}

// RelativeError returns the error of a ripple join after n sampled rows, with z standard deviations, in units of the
// standard deviation of what one row contributes: z/sqrt(n) without failures, and z/sqrt(n - Theta - L*beta - Gamma) with
// any number of failures within p, since as many samples can be lost. It is +Inf where nothing is certain to be left.
//
// That is the width of the interval. Lost samples also make the estimate, which is scaled up by the rates of sampling,
// too small, by the same share of n at most.
func RelativeError(z, n float64, p errorbound.Params, beta float64) float64 {
	lost := p.Theta + float64(p.Gamma)
	if p.L > 0 {
		lost += float64(p.L) * beta
	}
	if !(n > lost) {
		return math.Inf(1)
	}
	return z / math.Sqrt(n-lost)
}
