package errorbound

import (
	"errors"
	"fmt"
	"math"
)

// ErrHeavyHitters is wrapped by every error of [HeavyHitters.Validate].
var ErrHeavyHitters = errors.New("errorbound: invalid heavy-hitter target")

// CountMin is the shape of a count-min sketch: Rows rows of Width counters, one pairwise independent hash per row. A
// key is estimated by the least of its counters, so an estimate is never too low.
type CountMin struct {
	Rows, Width int
}

// CountMinFor returns the classic shape of Cormode and Muthukrishnan: the overcount of a key is at most eps*total with
// probability at least 1-delta; width ceil(e/eps), rows ceil(ln(1/delta)).
func CountMinFor(eps, delta float64) CountMin {
	return CountMin{Rows: ceilAtLeast1(math.Log(1 / delta)), Width: ceilAtLeast1(math.E / eps)}
}

// Overcount returns the bound that the overcount of one key exceeds with probability at most delta, after updates
// that sum up to total.
//
// In one row the expected overcount is at most total/width, so it exceeds c*total/width with probability at most 1/c
// (Markov), and in all rows with at most c^-rows. With c = delta^(-1/rows) this is delta.
func (s CountMin) Overcount(total, delta float64) float64 {
	return total / float64(s.Width) * math.Pow(delta, -1/float64(s.Rows))
}

// Exceeds returns a bound on the probability that the overcount of one key is above limit, after updates that sum up
// to total: Markov per row, rows independent. It is 1 where Markov says nothing.
func (s CountMin) Exceeds(limit, total float64) float64 {
	mean := total / float64(s.Width)
	if limit <= mean {
		return 1
	}
	return math.Pow(mean/limit, float64(s.Rows))
}

// HeavyHitters is the target of heavy-hitter detection with a count-min sketch: report the keys whose value is at
// least Phi.
type HeavyHitters struct {
	Total float64 // U, the sum of all values (packets: bytes)
	Phi   float64 // the threshold, in the same unit
	Eps   float64 // in (0, 1): keys between (1-Eps)*Phi and Phi may be reported or not
	Delta float64 // in (0, 1): probability that a key below the limit is reported
}

// Validate returns all faults of h, joined, each wrapping [ErrHeavyHitters].
func (h HeavyHitters) Validate() error {
	var faults []error
	check := func(ok bool, name string, v float64, want string) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: %s %v is not %s", ErrHeavyHitters, name, v, want))
		}
	}
	check(h.Total > 0 && !math.IsInf(h.Total, 1), "total", h.Total, "a finite number > 0")
	check(h.Phi > 0 && !math.IsInf(h.Phi, 1), "phi", h.Phi, "a finite number > 0")
	check(h.Eps > 0 && h.Eps < 1, "eps", h.Eps, "in (0, 1)")
	check(h.Delta > 0 && h.Delta < 1, "delta", h.Delta, "in (0, 1)")
	return errors.Join(faults...)
}

// Source returns the shape that the source paper states: rows log_1/2(delta) rounded up, width U/(eps*phi).
//
// By [CountMin.Exceeds] this width gives no better than certainty at a limit of eps*phi, because eps*phi is the very
// mean of a row's overcount: on a total spread over about U/(eps*phi) equal keys a row is over with probability 1-1/e.
// The stated delta needs the width of Proven; on the long-tailed traffic of the paper the difference is small.
func (h HeavyHitters) Source() CountMin {
	return CountMin{Rows: h.rows(), Width: ceilAtLeast1(h.Total / (h.Eps * h.Phi))}
}

// Proven returns the shape for which a key below FalseLimit is reported with probability at most Delta: the rows of
// Source and twice its width, so that a row is over eps*phi with probability at most 1/2.
func (h HeavyHitters) Proven() CountMin {
	return CountMin{Rows: h.rows(), Width: ceilAtLeast1(2 * h.Total / (h.Eps * h.Phi))}
}

func (h HeavyHitters) rows() int { return ceilAtLeast1(math.Log2(1 / h.Delta)) }

// MissLimit returns the value from which on a key is certain to be reported after any number of failures within p, if
// one item adds at most alpha to a counter. Failures can only take away: up to StateBound from each counter. With
// compensation (each recovery adds what it may have lost) it is Phi itself.
func (h HeavyHitters) MissLimit(p Params, alpha float64, compensated bool) float64 {
	if compensated {
		return h.Phi
	}
	return h.Phi + p.StateBound(alpha)
}

// FalseLimit returns the value below which a key is reported with probability at most Delta: (1-eps)*phi, and with
// compensation, which may add up to StateBound too much, (1-eps)*phi - Theta - alpha*L. At or below 0 it says that the
// budget is too large for the threshold. The probability is that of the Proven shape.
func (h HeavyHitters) FalseLimit(p Params, alpha float64, compensated bool) float64 {
	limit := (1 - h.Eps) * h.Phi
	if compensated {
		limit -= p.StateBound(alpha)
	}
	return limit
}

// ceilAtLeast1 rounds up, allowing for the rounding of the quotient: 8192.000000000001 columns are 8192.
func ceilAtLeast1(x float64) int {
	if nearest := math.Round(x); math.Abs(x-nearest) <= 1e-9*nearest {
		x = nearest
	}
	return max(int(math.Ceil(x)), 1)
}
