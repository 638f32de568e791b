//go:build invariants

package grep_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/algorithms/grep"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func logText(lines int) []byte {
	r := rand.New(rand.NewPCG(1, 0))
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, "%d %s %s\n", i, []string{"info", "warn", "ERROR"}[r.IntN(3)], strings.Repeat("x", r.IntN(40)))
	}
	return []byte(b.String())
}

func run(t *testing.T, text []byte, o grep.Options, opts controller.Options) ([]grep.Match, uint64, *controller.Result) {
	path := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	top := stream.New("grep")
	blocks := stream.From(top, "text", connector.Blocks(grep.Blocks(path, o)))
	var matches connector.Collector[grep.Match]
	var sums connector.Collector[uint64]
	stream.To(stream.Then(blocks, "grep", func() *grep.Search { return grep.NewSearch(o) }, stream.Workers(2)),
		"lines", connector.Collect(&matches))
	counts := stream.Then(blocks, "tally", func() *grep.Tally { return grep.NewTally(o) }, stream.Workers(2))
	stream.To(stream.Then(counts, "sum", func() *grep.Sum { return grep.NewSum(o) }, stream.EmitOnClose()),
		"total", connector.Collect(&sums))
	result, err := controller.RunLocal(context.Background(), top, opts)
	require.NoError(t, err)
	require.Len(t, sums.Items(), 1)
	return matches.Items(), sums.Items()[0], result
}

func TestJobWithoutFailures(t *testing.T) {
	text := logText(5000)
	for _, o := range []grep.Options{
		{Strings: []string{"ERROR"}, BlockSize: 256},
		{Patterns: []string{"^[0-9]*7 warn"}, BlockSize: 1000},
		{Strings: []string{"7 error", "9 warn"}, IgnoreCase: true},
	} {
		exact := grep.Exact(o, text)
		matches, sum, _ := run(t, text, o, controller.Options{Params: errorbound.Params{Theta: 100, L: 10, Gamma: 100}})
		require.Equal(t, grep.Quality{Matches: len(exact), Reported: len(exact)}, grep.Compare(matches, exact))
		require.EqualValues(t, len(exact), sum)
		require.NotEmpty(t, exact)
	}
}

// TestJobWithFailures: no more matches are missing than the bound says, and none is made up.
func TestJobWithFailures(t *testing.T) {
	text := logText(20_000)
	o := grep.Options{Strings: []string{"ERROR"}, BlockSize: 128}
	exact := grep.Exact(o, text)
	for _, pipe := range []bool{false, true} {
		opts := controller.Options{Params: errorbound.Params{Theta: 100, L: 16, Gamma: 64}, PipeSources: pipe}
		for i := range 4 {
			opts.Faults = append(opts.Faults, controller.Fault{Operator: "grep", Worker: i % 2, Items: uint64(200 * (i + 1))})
		}
		matches, _, result := run(t, text, o, opts)
		require.Len(t, result.Failures, 4)
		q := grep.Compare(matches, exact)
		require.LessOrEqual(t, float64(q.Missing), grep.Bound(opts.Params, o, !pipe))
		require.Zero(t, q.Extra)
		require.Greater(t, q.Reported, 5000)
	}
}
