package job

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/data"
	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/worker"
)

// faults reads failures that are written as on the command line.
func faults(t *testing.T, texts ...string) []controller.Fault {
	t.Helper()
	var all []controller.Fault
	for _, text := range texts {
		f, err := controller.ParseFault(text)
		require.NoError(t, err)
		all = append(all, f)
	}
	return all
}

// trial is one of the runs of throughFailures.
type trial struct {
	pipe    bool
	promise worker.Guarantee
	failing string // name of what fails
	faults  []controller.Fault
}

// allPromises are the guarantees there are.
func allPromises() []worker.Guarantee {
	return []worker.Guarantee{worker.Approximate, worker.None, worker.ErrorFree, worker.MiniBatch, worker.UpstreamBackup}
}

// part says which of its trials throughFailures makes: the one in 2n that a variant of the job gets if all share them, see
// thorough.Tries. With a different promise, input, list of failures or variant it is another one.
type part struct{ n, variant int }

// throughFailures runs a job as one subtest for each way to read its input, each promise, and each of some lists of
// failures that are written as on the command line. Guarantees that go by batches are refused for a pipe.
func throughFailures(t *testing.T, p part, promises []worker.Guarantee, failing map[string][]string, run func(t *testing.T, c trial)) {
	t.Helper()
	names := slices.Sorted(maps.Keys(failing))
	for i, pipe := range []bool{false, true} {
		for j, promise := range promises {
			for k, name := range names {
				if pipe && exact(promise) || !thorough.Tries(2*p.n, p.variant, i, j, k) {
					continue
				}
				t.Run(fmt.Sprintf("%s, pipe %v, %v", name, pipe, promise), func(t *testing.T) {
					run(t, trial{pipe, promise, name, faults(t, failing[name]...)})
				})
			}
		}
	}
}

// in makes the settings those of the trial, to be verified; batches are so small that there are many.
func (c trial) in(e *Engine) {
	e.Verify, e.PipeSources, e.Guarantee, e.Faults = true, c.pipe, c.promise, c.faults
	if exact(c.promise) {
		e.Batch = 40
	}
}

// exact says that no failure of such a run may be seen in a result that comes at its end.
func (c trial) exact() bool { return exact(c.promise) || c.promise == worker.ErrorFree && !c.pipe }

// survived checks what holds for every job: it has an answer, no bound is broken, and all failures have come, unless
// nothing was promised: then items may be gone that a failure waits for. It returns what the job says about itself.
func survived[A answer[V], V verification](t *testing.T, c trial, r *Report[A, V], err error) *V {
	t.Helper()
	require.NoError(t, err)
	require.NoError(t, broken(r.Checks()))
	if c.promise != worker.None {
		require.Len(t, r.Failures, len(c.faults))
	}
	return r.Verify
}

// textFile makes a text of a content.
func textFile(t *testing.T, content string) Text {
	t.Helper()
	path := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return Text{Path: path}
}

// opticks returns the text that comes with the program.
func opticks(t *testing.T) []byte {
	t.Helper()
	file, ok := data.Lookup("opticks")
	require.True(t, ok)
	z, err := gzip.NewReader(strings.NewReader(file.Content))
	require.NoError(t, err)
	text, err := io.ReadAll(z)
	require.NoError(t, err)
	return text
}

// requireRefused runs a job with each of some changes of settings that cannot work: nothing may be run, or written.
func requireRefused[J, R any](
	t *testing.T, base func() J, engine func(*J) *Engine, run func(J, context.Context) (*R, error), changes map[string]func(*J),
) {
	t.Helper()
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			j := base()
			dir := filepath.Join(t.TempDir(), "never-made")
			engine(&j).BackupDir = dir
			change(&j)
			r, err := run(j, t.Context())
			require.ErrorIs(t, err, ErrSettings)
			require.Nil(t, r)
			require.NoDirExists(t, dir)
		})
	}
}

// requireBroken makes each of some changes to a verification that found all bounds kept: the check of that name must
// break, and no other.
func requireBroken[V verification](t *testing.T, kept V, changes map[string]func(*V)) {
	t.Helper()
	require.NoError(t, broken(kept.Checks()))
	for what, change := range changes {
		v := kept
		change(&v)
		err := broken(v.Checks())
		require.ErrorIs(t, err, ErrBound, what)
		require.ErrorContains(t, err, what)
		require.Equal(t, 1, strings.Count(err.Error(), ErrBound.Error()), "%s: %v", what, err)
	}
}

// exact says whether a guarantee goes by batches: states are exact, and the input must be one that can be read again.
func exact(g worker.Guarantee) bool { return g == worker.MiniBatch || g == worker.UpstreamBackup }
