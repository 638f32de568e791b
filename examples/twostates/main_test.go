//go:build invariants

// In make race alone: a test of its own costs go test the linking of one more program.

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/data"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Both states keep their bounds through two failures.
func TestBothStatesAreWithinTheirBounds(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(&out))
	require.Equal(t, 2, strings.Count(out.String(), "failed at "))
	var each, all float64
	text := out.String()
	at := strings.Index(text, "no airport")
	require.GreaterOrEqual(t, at, 0, text)
	_, err := fmt.Sscanf(text[at:], "no airport is off by more than %g, all bands together by no more than %g", &each, &all)
	require.NoError(t, err)
	require.Equal(t, 50.0, each)
	require.Equal(t, 500.0, all)

	airports, counted := exactCounts(t)
	listed, off, inBands := 0, 0.0, 0
	for line := range strings.Lines(text) {
		var n float64
		var airport string
		var miles int
		if _, err := fmt.Sscanf(line, "%g from %s", &n, &airport); err == nil {
			listed++
			require.InDelta(t, airports[airport], n, each, airport)
		} else if _, err := fmt.Sscanf(line, "%g of %d miles", &n, &miles); err == nil {
			inBands++
			off += math.Abs(counted[miles/bandMiles] - n)
		}
	}
	require.GreaterOrEqual(t, listed, 4)
	require.Equal(t, bands, inBands)
	require.LessOrEqual(t, off, all)
}

func exactCounts(t *testing.T) (airports map[string]float64, counted [bands]float64) {
	f, ok := data.Lookup("flights")
	require.True(t, ok)
	z, err := gzip.NewReader(strings.NewReader(f.Content))
	require.NoError(t, err)
	records, err := csv.NewReader(z).ReadAll()
	require.NoError(t, err)
	distance, origin := slices.Index(records[0], "distance"), slices.Index(records[0], "origin")
	airports = map[string]float64{}
	for _, r := range records[1:] {
		miles, err := strconv.Atoi(r[distance])
		require.NoError(t, err)
		airports[r[origin]]++
		counted[min(miles/bandMiles, bands-1)]++
	}
	return airports, counted
}
