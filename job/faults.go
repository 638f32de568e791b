package job

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/stream"
)

// injected returns all failures to inject. It checks them before the store is opened, which may make a directory.
func (e *Engine) injected(t *stream.Topology, measurable bool) ([]controller.Fault, error) {
	nodes, err := t.Build()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSettings, err)
	}
	faults := append(slices.Clone(e.Faults), controller.RandomFaults(nodes, e.RandomFaults, e.Seed)...)
	var wrong []error
	for _, f := range faults {
		if err := checkFault(f, nodes); err != nil {
			wrong = append(wrong, fmt.Errorf("failure %s: %w", f, err))
		}
	}
	if err := controller.CheckTwice(faults); err != nil {
		wrong = append(wrong, err)
	}
	if !measurable && slices.ContainsFunc(faults, func(f controller.Fault) bool { return f.Share > 0 }) {
		wrong = append(wrong, errors.New("failures at a share of the input: its size is not known,"+
			" give numbers of items or read a file"))
	}
	return faults, settingsError(wrong)
}

func checkFault(f controller.Fault, nodes []*stream.Node) error {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		if n.Name == f.Operator && f.Worker < n.Workers {
			return nil
		}
		if n.Name == f.Operator {
			return fmt.Errorf("operator %q has no worker %d, its workers are 0 to %d", n.Name, f.Worker, n.Workers-1)
		}
		names[i] = n.Name
	}
	return fmt.Errorf("there is no operator %q, only %s", f.Operator, strings.Join(names, ", "))
}
