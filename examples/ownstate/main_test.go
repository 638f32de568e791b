//go:build invariants

// In make race alone: a test of its own costs go test the linking of one more program.

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/data"
	"github.com/afstream/afstream/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The result after two failures is exactly that of a plain loop over the flights.
func TestMeansAreExact(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(&out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	exact := exactMeans(t)
	airports := slices.SortedFunc(maps.Keys(exact), func(a, b string) int { return int(1e6 * (exact[b] - exact[a])) })
	require.Len(t, lines, 6)
	for i, airport := range airports[:5] {
		require.Equal(t, fmt.Sprintf("%s %5.0f miles", airport, exact[airport]), lines[i])
	}
	require.Equal(t, fmt.Sprintf("airports: %d, failures: 2", len(exact)), lines[5])
}

func exactMeans(t *testing.T) map[string]float64 {
	f, ok := data.Lookup("flights")
	require.True(t, ok)
	z, err := gzip.NewReader(strings.NewReader(f.Content))
	require.NoError(t, err)
	records, err := csv.NewReader(z).ReadAll()
	require.NoError(t, err)
	distance, origin := slices.Index(records[0], "distance"), slices.Index(records[0], "origin")
	miles, flights := map[string]float64{}, map[string]float64{}
	for _, r := range records[1:] {
		d, err := strconv.ParseFloat(r[distance], 64)
		require.NoError(t, err)
		miles[r[origin]] += d
		flights[r[origin]]++
	}
	for airport, n := range flights {
		miles[airport] /= n
	}
	return miles
}

// A whole backup and a partial one after it restore to what the state was; a partial one holds only what has changed.
func TestBackupsRestore(t *testing.T) {
	m := newMeans()
	fly := func(airport string, miles float64) {
		require.NoError(t, m.Process(connector.MakeKeyed([]byte(airport), miles), nil))
	}
	fly("ATL", 500)
	fly("SFO", 2000)
	require.Equal(t, 2500.0, m.StateDivergence())
	whole := stream.NewStateWriter(nil, true)
	require.NoError(t, m.BackupState(whole))
	require.Zero(t, m.StateDivergence())

	fly("SFO", 100)
	require.Equal(t, 100.0, m.StateDivergence())
	partial := stream.NewStateWriter(nil, false)
	require.NoError(t, m.BackupState(partial))
	require.Less(t, len(partial.Bytes()), len(whole.Bytes()))

	restored := newMeans()
	require.NoError(t, restored.RestoreState(reader(whole.Bytes(), partial.Bytes())))
	require.Equal(t, m.totals, restored.totals)
	require.Zero(t, restored.StateDivergence())
}

func TestRestoreRejectsWhatIsNoState(t *testing.T) {
	w := stream.NewStateWriter(nil, true)
	w.Put([]byte("ATL"), []byte("short"))
	require.ErrorIs(t, newMeans().RestoreState(reader(w.Bytes())), stream.ErrState)
}

func reader(chunks ...[]byte) *stream.StateReader {
	return stream.NewStateReader(func() ([]byte, error) {
		if len(chunks) == 0 {
			return nil, io.EOF
		}
		chunk := chunks[0]
		chunks = chunks[1:]
		return chunk, nil
	})
}
