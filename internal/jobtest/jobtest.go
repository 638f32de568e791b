// Package jobtest runs the operators of an algorithm as a job of one process, for the tests of the algorithm that want to
// see it through failures.
//
//	for c := range jobtest.Cases(controller.Options{Params: params}, "count", 4, 4000) {
//		out := jobtest.Run(t, items, assemble, c)
//		...
//	}
//
// Only tests may import it; internal/house guards that.
package jobtest

import (
	"context"
	"iter"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/stream"
)

// TB is what Run needs of a test.
type TB interface {
	require.TestingT
	Helper()
	Context() context.Context
}

// Cases yields o without failures and with n of them, each with a source that can go back and with one that is read like
// a pipe. The failures hit the two workers of an operator in turn, after every, 2*every, ... items of their own.
func Cases(o controller.Options, operator string, n int, every uint64) iter.Seq[controller.Options] {
	return func(yield func(controller.Options) bool) {
		for _, pipe := range []bool{false, true} {
			for _, faults := range [][]controller.Fault{nil, Faults(operator, n, every)} {
				c := o
				c.PipeSources, c.Faults = pipe, faults
				if !yield(c) {
					return
				}
			}
		}
	}
}

// Faults returns the failures of Cases.
func Faults(operator string, n int, every uint64) []controller.Fault {
	faults := make([]controller.Fault, n)
	for i := range faults {
		faults[i] = controller.Fault{Operator: operator, Worker: i % 2, Items: every * uint64(i+1)}
	}
	return faults
}

// Run gives items, which can be read again, to what assemble makes of them, and returns what comes out. It fails the test
// unless the job ends and every failure of o has come.
func Run[I, O any](t TB, items []I, assemble func(stream.Stream[I]) stream.Stream[O], o controller.Options) []O {
	t.Helper()
	top := stream.New("job")
	var out connector.Collector[O]
	stream.To(assemble(stream.From(top, "items", connector.Slice(items))), "out", connector.Collect(&out))
	result, err := controller.RunLocal(t.Context(), top, o)
	require.NoError(t, err)
	require.Len(t, result.Failures, len(o.Faults))
	return out.Items()
}
