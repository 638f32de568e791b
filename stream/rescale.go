package stream

import (
	"errors"
	"fmt"
	"io"

	"github.com/afstream/afstream/errorbound"
)

// ErrRescale is wrapped by the errors about an operator whose number of workers cannot be changed while it runs.
var ErrRescale = errors.New("number of workers cannot be changed")

// Division is how the state of an operator is divided anew when its number of partitions changes.
type Division uint8

// Divisions.
const (
	Stateless Division = iota // there is nothing to divide
	Merging                   // partition p goes to partition p mod n, see MergeState
	ByKey                     // each element goes where its key belongs, see Keyed
)

// Resize sets the number of workers of an operator that Build has returned, or will. It is not for a topology of which
// workers are running. An error, which wraps [ErrTopology], leaves it as it was.
func (t *Topology) Resize(operator string, workers int) error {
	for _, n := range t.nodes {
		if n.Name != operator {
			continue
		}
		if workers < 1 {
			return fmt.Errorf("%w: %s: operator %q: needs at least one worker, not %d", ErrTopology, t.name, operator, workers)
		}
		before := n.Workers
		n.Workers = workers
		if _, err := t.Build(); err != nil {
			n.Workers = before
			return err
		}
		return nil
	}
	return fmt.Errorf("%w: %s: there is no operator %q", ErrTopology, t.name, operator)
}

// Division returns how the state of op, an instance of n's operator, is divided when n gets another number of partitions.
// The error wraps [ErrRescale] and says what is in the way.
func (n *Node) Division(op any) (Division, error) {
	fault := func(format string, args ...any) (Division, error) {
		return 0, fmt.Errorf("operator %q: %w: %s", n.Name, ErrRescale, fmt.Sprintf(format, args...))
	}
	switch {
	case n.IsSource:
		return fault("a source has as many partitions as its input")
	case n.IsSink:
		return fault("a sink has as many partitions as its result")
	}
	chosen := true // by what an item is
	for _, e := range n.Inputs {
		if e.routing == routeForward {
			return fault("its input from %q is forwarded partition by partition", e.From.Name)
		}
		chosen = chosen && e.routing == routePick
	}
	for _, e := range n.Outputs {
		if e.routing == routeForward {
			return fault("its output to %q is forwarded partition by partition", e.To.Name)
		}
	}
	if _, ok := op.(BackupState); !ok {
		return Stateless, nil
	}
	for _, e := range n.Inputs {
		if e.routing == routeBroadcast {
			return fault("every partition has the state of all items that %q broadcasts", e.From.Name)
		}
	}
	_, keyed := op.(Keyed)
	_, merges := op.(MergeState)
	measurer, measured := op.(Measurer)
	added := !measured || measurer.Measure().Combine == errorbound.Added
	switch {
	case merges && added:
		return Merging, nil
	case keyed && chosen:
		return ByKey, nil
	case keyed:
		return fault("its elements belong to partitions by key (PartitionOf), and items are not sent to them by key")
	case merges:
		return fault("its partitions have keys of their own (Measure.Combine), and it has no PartitionOf to say which belongs where")
	}
	return fault("%T has neither MergeState, to add the state of one partition to another's, nor PartitionOf, to say which element belongs where", op)
}

// selectBytes is how much Select hands on at a time.
const selectBytes = 64 << 10

// Select returns a reader of those elements of r whose key is wanted.
func Select(r *StateReader, wanted func(key []byte) bool) *StateReader {
	w := NewStateWriter(nil, true)
	return NewStateReader(func() ([]byte, error) {
		for w.Reset(true); len(w.Bytes()) < selectBytes && r.Next(); {
			switch {
			case !wanted(r.Key()):
			case r.Deleted():
				w.Delete(r.Key())
			default:
				w.Put(r.Key(), r.Value())
			}
		}
		if err := r.Err(); err != nil {
			return nil, err
		}
		if len(w.Bytes()) == 0 {
			return nil, io.EOF
		}
		return w.Bytes(), nil
	})
}
