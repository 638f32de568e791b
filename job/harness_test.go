package job

import (
	"compress/gzip"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/data"
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
