//go:build invariants

// In make race alone: a test of its own costs go test the linking of one more program.

package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every window has every sensor once, at the temperature that the source gives away up to Theta.
func TestWindowsAreWithinTheBound(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(&out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	const windows = readings / window
	require.Len(t, lines, windows*sensors+1, out.String())
	exact := exactHighest(t)
	for i, line := range lines[:windows*sensors] {
		var w, sensor int
		var degrees float64
		_, err := fmt.Sscanf(line, "window %d sensor %d: %g", &w, &sensor, &degrees)
		require.NoError(t, err, line)
		require.Equal(t, i/sensors+1, w)
		require.Equal(t, i%sensors, sensor)
		const rounding = 0.05
		require.InDelta(t, exact[w-1][sensor], degrees, theta+rounding, line)
	}
	require.Equal(t, "failures: 2, no temperature is off by more than 0.5", lines[windows*sensors])
}

// exactHighest reads both partitions of the source by hand.
func exactHighest(t *testing.T) (highest [readings / window][sensors]float64) {
	for w := range highest {
		for sensor := range highest[w] {
			highest[w][sensor] = math.Inf(-1)
		}
	}
	for part := range 2 {
		for i, r := range readAll(t, part, 0) {
			of := &highest[i/window][r.Sensor]
			*of = max(*of, r.Degrees)
		}
	}
	return highest
}

func readAll(t *testing.T, part int, from uint64) []reading {
	s, err := open(part, 2)
	require.NoError(t, err)
	require.NoError(t, s.(stream.Replayable).Seek(stream.Position{Item: from}))
	var all []reading
	for dst := make([]reading, 77); ; {
		n, err := s.Read(dst)
		all = append(all, dst[:n]...)
		if err == io.EOF {
			require.EqualValues(t, readings, s.(stream.Replayable).Position().Item)
			require.NoError(t, s.Close())
			return all
		}
		require.NoError(t, err)
	}
}

// What the source yields from a position on does not depend on how it got there.
func TestSourceGoesBack(t *testing.T) {
	all := readAll(t, 1, 0)
	require.Len(t, all, readings)
	for _, from := range []uint64{1, 76, 77, 5000, readings} {
		require.Equal(t, all[from:], append([]reading{}, readAll(t, 1, from)...))
	}
	s, err := open(0, 1)
	require.NoError(t, err)
	require.ErrorIs(t, s.(stream.Replayable).Seek(stream.Position{Item: readings + 1}), connector.ErrBadPosition)
}

func TestNeighboursShareAPartition(t *testing.T) {
	for sensor, want := range []int{0, 0, 1, 1} {
		require.Equal(t, want, byRange(reading{Sensor: sensor}, 2))
	}
}
