//go:build invariants

package wordcount_test

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

	"github.com/afstream/afstream/algorithms/wordcount"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// longTailed is a text of n words whose frequencies fall as in a language.
func longTailed(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 0))
	zipf := rand.NewZipf(r, 1.1, 2, 20_000)
	separators := []string{" ", " ", " ", ", ", ".\n", " – ", "\n"}
	var b strings.Builder
	for range n {
		w := zipf.Uint64()
		switch word := fmt.Sprintf("w%c%d", 'a'+w%26, w); w % 16 {
		case 5:
			b.WriteString(strings.ToUpper(word))
		case 6:
			b.WriteString("é" + word)
		case 7:
			b.WriteString(word + "'s")
		default:
			b.WriteString(word)
		}
		b.WriteString(separators[r.IntN(len(separators))])
	}
	return b.String()
}

// textFile is a text in a file, whose source can go back.
func textFile(t testing.TB, text string) string {
	path := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// count runs a job and returns its rows.
func count(t testing.TB, path string, o wordcount.Options, split bool, w wordcount.Workers, run controller.Options) ([]wordcount.Row, *controller.Result) {
	top := stream.New("wordcount")
	blocks := stream.From(top, "text", connector.Blocks(wordcount.Blocks(path, o)))
	assemble := wordcount.Assemble
	if split {
		assemble = wordcount.AssembleSplit
	}
	var rows connector.Collector[wordcount.Row]
	stream.To(assemble(blocks, o, w), "rows", connector.Collect(&rows))
	result, err := controller.RunLocal(context.Background(), top, run)
	require.NoError(t, err)
	return rows.Items(), result
}

func exactOf(o wordcount.Options, text string) *wordcount.Exact {
	e := wordcount.NewExact(o)
	e.Add([]byte(text))
	return e
}

// TestWithoutFailures: every layout counts what an independent count does, in all ways to cut words.
func TestWithoutFailures(t *testing.T) {
	text := longTailed(1, 20_000)
	path := textFile(t, text)
	for _, o := range []wordcount.Options{
		{}, {Fold: true}, {Boundaries: wordcount.Alnum}, {Boundaries: wordcount.Letters, Fold: true}, {Boundaries: wordcount.Fields, Fold: true, BlockSize: 1024, Norm: errorbound.L1},
	} {
		for _, split := range []bool{false, true} {
			rows, _ := count(t, path, o, split, wordcount.Workers{Split: 2, Count: 3, Merge: 2}, budget(1000))
			q := wordcount.Compare(rows, exactOf(o, text))
			require.Zero(t, q.SumError)
			require.Zero(t, q.MaxError+uint64(q.Missing+q.Extra))
			require.Equal(t, q.Words, len(rows), "each word is reported once")
			require.Greater(t, q.Words, 20)
		}
	}
}

func budget(theta float64) controller.Options {
	return controller.Options{Params: errorbound.Params{Theta: theta, L: 10, Gamma: 1000}}
}

// TestTop: whatever the number of partitions, the most frequent words come in order.
func TestTop(t *testing.T) {
	text := longTailed(2, 10_000)
	path := textFile(t, text)
	all, _ := count(t, path, wordcount.Options{}, false, wordcount.Workers{}, budget(100))
	for _, merge := range []int{1, 3} {
		rows, _ := count(t, path, wordcount.Options{Top: 20}, false, wordcount.Workers{Count: 2, Merge: merge}, budget(100))
		require.Equal(t, all[:20], rows)
	}
	require.Equal(t, 1, all[0].Rank)
	for i := range all[1:] {
		require.True(t, all[i].Count > all[i+1].Count || all[i].Count == all[i+1].Count && all[i].Word < all[i+1].Word)
	}
}

// TestFailuresStayUnderTheBound: in both norms, with sources that go back and with sources that do not.
func TestFailuresStayUnderTheBound(t *testing.T) {
	text := longTailed(3, 40_000)
	path := textFile(t, text)
	for _, norm := range []errorbound.Norm{errorbound.Max, errorbound.L1} {
		for _, pipe := range []bool{false, true} {
			for _, split := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v pipe=%v split=%v", norm, pipe, split), func(t *testing.T) {
					o := wordcount.Options{Norm: norm, BlockSize: 32}
					run := budget(800)
					run.PipeSources = pipe
					name := map[bool]string{false: "count", true: "tally"}[split]
					for i := range 3 {
						run.Faults = append(run.Faults, controller.Fault{Operator: name, Worker: i % 2, Items: uint64(500 * (i + 1))})
					}
					rows, result := count(t, path, o, split, wordcount.Workers{Count: 2}, run)
					require.Len(t, result.Failures, 3)
					q := wordcount.Compare(rows, exactOf(o, text))
					bound := wordcount.Bound(run.Params, o)
					if split {
						bound = wordcount.BoundSplit(run.Params, o)
					}
					got := map[errorbound.Norm]uint64{errorbound.Max: q.MaxError, errorbound.L1: q.SumError}[norm]
					require.LessOrEqual(t, float64(got), bound)
					require.Zero(t, q.Extra)
					require.Greater(t, q.Words, 20)
				})
			}
		}
	}
}

// TestInfiniteThetaLoses shows that the test above can fail: without backups the failures do cost counts.
func TestInfiniteThetaLoses(t *testing.T) {
	text := longTailed(3, 40_000)
	run := controller.Options{Params: errorbound.Params{Theta: 1e18, L: 10, Gamma: 1000}, PipeSources: true}
	run.Faults = []controller.Fault{{Operator: "count", Worker: 0, Items: 1000}}
	rows, _ := count(t, textFile(t, text), wordcount.Options{BlockSize: 32}, false, wordcount.Workers{Count: 2}, run)
	require.Greater(t, wordcount.Compare(rows, exactOf(wordcount.Options{}, text)).SumError, uint64(1000))
}
