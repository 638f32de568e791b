//go:build invariants

package jobtest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// double is an operator without a state.
type double struct{}

func (double) Process(in int, out *stream.Emitter[int]) error {
	out.Emit(2 * in)
	return nil
}

func doubled(in stream.Stream[int]) stream.Stream[int] {
	return stream.Then(in, "double", func() double { return double{} }, stream.Workers(2))
}

var items = slices.Collect(func(yield func(int) bool) {
	for i := 0; i < 5000 && yield(i); i++ {
	}
})

func TestRun(t *testing.T) {
	params := errorbound.Params{Theta: 1, L: 10, Gamma: 100}
	failures := map[bool][]int{}
	for c := range Cases(controller.Options{Params: params}, "double", 3, 500) {
		failures[c.PipeSources] = append(failures[c.PipeSources], len(c.Faults))
		out := Run(t, items, doubled, c)
		slices.Sort(out)
		different := slices.Compact(out)
		if len(c.Faults) == 0 {
			require.Len(t, out, len(items))
			require.Len(t, different, len(items))
			require.Equal(t, 2*len(items)-2, out[len(out)-1])
		}
		require.LessOrEqual(t, len(items)-len(different), int(2*(params.L+params.Gamma)), "at risk before and after the operator")
	}
	require.Equal(t, map[bool][]int{false: {0, 3}, true: {0, 3}}, failures)
}

func TestFaults(t *testing.T) {
	require.Equal(t, []controller.Fault{
		{Operator: "o", Worker: 0, Items: 7}, {Operator: "o", Worker: 1, Items: 14}, {Operator: "o", Worker: 0, Items: 21},
	}, Faults("o", 3, 7))
}

// recorder is a test that may fail.
type recorder struct{ faults []string }

func (r *recorder) Errorf(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}
func (r *recorder) FailNow()               { panic(r) }
func (*recorder) Helper()                  {}
func (*recorder) Context() context.Context { return context.Background() }

// TestRunFails where a failure never came, and where the job ended in an error.
func TestRunFails(t *testing.T) {
	late := controller.Options{Params: errorbound.Params{Theta: 1, L: 10, Gamma: 100}, Faults: Faults("double", 1, 1e6)}
	nobody := controller.Options{Params: late.Params, Faults: Faults("nobody", 1, 1)}
	for name, o := range map[string]controller.Options{"late": late, "nobody": nobody} {
		r := &recorder{}
		require.PanicsWithValue(t, r, func() { Run(r, items, doubled, o) }, name)
		require.Len(t, r.faults, 1, name)
	}
}

// TestScales: the number of workers changes while the job runs, and nothing is lost by it.
func TestScales(t *testing.T) {
	o := controller.Options{Params: errorbound.Params{Theta: 1, L: 10, Gamma: 100}}
	stop := Scales(&o, 1, "double")
	top := stream.New("scales")
	source := stream.From(top, "items", Drip(connector.Slice(items)))
	var out connector.Collector[int]
	stream.To(doubled(source), "out", connector.Collect(&out))
	_, err := controller.RunLocal(t.Context(), top, o)
	require.NoError(t, err)
	require.NotZero(t, stop())
	got := out.Items()
	slices.Sort(got)
	require.Len(t, slices.Compact(got), len(items))
}
