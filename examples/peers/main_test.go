//go:build invariants

// In make race alone: a test of its own costs go test the linking of one more program.

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/data"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The airports with the most flights have as many as a plain count says, but for what the program says the two failures
// can have cost; every airport is there once, although all partitions have counted flights of most of them.
func TestCountsAreWithinWhatTheFailuresCost(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(&out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 7)

	var airports, failures, handed, lost, twice int
	_, err := fmt.Sscanf(lines[5], "airports: %d, failures: %d, handed over: %d, lost: at most %d, repeated: at most %d",
		&airports, &failures, &handed, &lost, &twice)
	require.NoError(t, err)
	exact := exactCounts(t)
	require.Equal(t, 2, failures)
	require.Greater(t, handed, 100)
	// Two failures of four partitions, with a half and a fourth of the budget: see errorbound.Geometric.
	require.LessOrEqual(t, lost, 80/2+80/4)
	require.LessOrEqual(t, twice, 40/2+40/4)

	var bound float64
	_, err = fmt.Sscanf(lines[6], "so no airport is off by more than %g", &bound)
	require.NoError(t, err)
	require.Equal(t, float64(50+batch*(lost+twice)), bound)
	large := 0 // airports that cannot have been lost as a whole
	for _, n := range exact {
		if float64(n) > bound {
			large++
		}
	}
	require.GreaterOrEqual(t, airports, large)
	require.LessOrEqual(t, airports, len(exact))
	for _, line := range lines[:5] {
		var airport string
		var n int
		_, err := fmt.Sscanf(line, "%s %d flights", &airport, &n)
		require.NoError(t, err)
		require.InDelta(t, exact[airport], n, bound, airport)
	}
}

func exactCounts(t *testing.T) map[string]int {
	f, ok := data.Lookup("flights")
	require.True(t, ok)
	z, err := gzip.NewReader(strings.NewReader(f.Content))
	require.NoError(t, err)
	records, err := csv.NewReader(z).ReadAll()
	require.NoError(t, err)
	origin, counts := slices.Index(records[0], "origin"), map[string]int{}
	for _, r := range records[1:] {
		counts[r[origin]]++
	}
	return counts
}
