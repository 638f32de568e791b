package connector

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/stream"
)

func TestMain(m *testing.M) {
	thorough.Rapid(25)
	goleak.VerifyTestMain(m)
}

// writeFile writes a file of the test's own and returns its path.
func writeFile(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

// zipped returns content compressed with gzip.
func zipped(t testing.TB, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// open opens the only partition of what OpenKeyed returns.
func open(t testing.TB, o KeyedOptions) stream.Source[Keyed] {
	t.Helper()
	factory, err := OpenKeyed(o)
	require.NoError(t, err)
	s, err := factory(0, 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// drain reads a source to its end, which may be an error.
func drain[T any](s stream.Source[T], batch int) (items []T, err error) {
	dst := make([]T, batch)
	for {
		n, err := s.Read(dst)
		items = append(items, dst[:n]...)
		if err == io.EOF {
			return items, nil
		}
		if err != nil {
			return items, err
		}
	}
}

// read reads all items of an input that is in good order.
func read(t testing.TB, o KeyedOptions) []Keyed {
	t.Helper()
	items, err := drain(open(t, o), 7)
	require.NoError(t, err)
	return items
}

// pairs shows items as key and weight.
func pairs(items []Keyed) (out []pair) {
	for _, it := range items {
		out = append(out, pair{it.Key.String(), it.Weight})
	}
	return out
}

type pair struct {
	key    string
	weight float64
}
