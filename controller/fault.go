package controller

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/afstream/afstream/stream"
)

// ErrFault is wrapped by all errors about injected failures.
var ErrFault = errors.New("invalid failure")

// Fault is a failure to inject: the worker is killed when it has processed Items items, counted over all its
// incarnations with those that it was given again, or, if Share is set, when so much of the input has been read. Two of the
// same worker at the same Items are refused: after the first one it would have to be killed before it does anything. Two
// at the same Share are two failures.
type Fault struct {
	Operator string
	Worker   int
	Items    uint64
	Share    float64 // in (0, 1]
}

// String returns the form that ParseFault reads.
func (f Fault) String() string {
	if f.Share > 0 {
		return fmt.Sprintf("%s/%d@%s%%", f.Operator, f.Worker, strconv.FormatFloat(f.Share*100, 'g', 6, 64))
	}
	return fmt.Sprintf("%s/%d@%d", f.Operator, f.Worker, f.Items)
}

// ParseFault reads OPERATOR/WORKER@WHEN, where WHEN is a number of items or a percentage of the input.
func ParseFault(s string) (Fault, error) {
	bad := func(why string) (Fault, error) {
		return Fault{}, fmt.Errorf("%w %q: %s (want OPERATOR/WORKER@WHEN, such as sketch/0@50%% or sketch/0@10000)", ErrFault, s, why)
	}
	who, when, ok := strings.Cut(s, "@")
	if !ok {
		return bad("no @WHEN")
	}
	operator, number, ok := strings.Cut(who, "/")
	if !ok || operator == "" {
		return bad("no OPERATOR/WORKER")
	}
	worker, err := strconv.Atoi(number)
	if err != nil || worker < 0 {
		return bad("the worker is no number")
	}
	f := Fault{Operator: operator, Worker: worker}
	if percent, ok := strings.CutSuffix(when, "%"); ok {
		f.Share, err = strconv.ParseFloat(percent, 64)
		if f.Share /= 100; err != nil || !(f.Share > 0 && f.Share <= 1) {
			return bad("the percentage is not above 0 and at most 100")
		}
		return f, nil
	}
	if f.Items, err = strconv.ParseUint(when, 10, 64); err != nil || f.Items == 0 {
		return bad("WHEN is neither a percentage nor a number of items above 0")
	}
	return f, nil
}

// RandomFaults draws k failures of random workers at random points of the input, the same for the same seed.
func RandomFaults(nodes []*stream.Node, k int, seed uint64) []Fault {
	rng := rand.New(rand.NewPCG(seed, 0))
	var workers []Fault
	for _, n := range nodes {
		for i := range n.Workers {
			workers = append(workers, Fault{Operator: n.Name, Worker: i})
		}
	}
	faults := make([]Fault, k)
	for i := range faults {
		faults[i] = workers[rng.IntN(len(workers))]
		faults[i].Share = 0.01 + 0.98*rng.Float64()
	}
	slices.SortStableFunc(faults, func(a, b Fault) int { return int(1e9 * (a.Share - b.Share)) })
	return faults
}

// checkFaults says which fault names nothing in the topology, or no time.
func checkFaults(nodes []*stream.Node, faults []Fault) error {
	errs := []error{CheckTwice(faults)}
	for _, f := range faults {
		i := slices.IndexFunc(nodes, func(n *stream.Node) bool { return n.Name == f.Operator })
		switch {
		case i < 0:
			names := make([]string, len(nodes))
			for j, n := range nodes {
				names[j] = n.Name
			}
			errs = append(errs, fmt.Errorf("%w %q: there is no operator %q (%s)", ErrFault, f, f.Operator, strings.Join(names, ", ")))
		case !(f.Share >= 0 && f.Share <= 1) || (f.Share > 0) == (f.Items > 0):
			errs = append(errs, fmt.Errorf("%w of %s/%d: give either a number of items or a share of the input up to 1, not %d and %v",
				ErrFault, f.Operator, f.Worker, f.Items, f.Share))
		case f.Worker < 0 || f.Worker >= nodes[i].Workers:
			errs = append(errs, fmt.Errorf("%w %q: operator %q has workers 0 to %d", ErrFault, f, f.Operator, nodes[i].Workers-1))
		}
	}
	return errors.Join(errs...)
}

// CheckTwice says which failures at a number of items are given twice. The error wraps ErrFault.
func CheckTwice(faults []Fault) error {
	var errs []error
	seen := map[Fault]bool{}
	for _, f := range faults {
		if f.Items > 0 && seen[f] {
			errs = append(errs, fmt.Errorf("%w %q: it is given twice; to kill the worker again at once, give %d items",
				ErrFault, f, f.Items+1))
		}
		seen[f] = true
	}
	return errors.Join(errs...)
}
