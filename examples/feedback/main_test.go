//go:build invariants

// In make race alone: a test of its own costs go test the linking of one more program.

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The largest numbers are found in spite of a failure, and the feedback keeps nearly all others from being sent.
func TestFeedbackSparesNearlyAll(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(&out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, keep+1)

	numbers, random := make([]uint64, 100_000), rand.New(rand.NewPCG(1, 2))
	for i := range numbers {
		numbers[i] = random.Uint64N(1e9)
	}
	slices.Sort(numbers)
	for i, number := range numbers[len(numbers)-keep:] {
		require.Equal(t, fmt.Sprint(number), lines[i])
	}
	var failures, sent, of int
	_, err := fmt.Sscanf(lines[keep], "failures: %d, items sent: %d for %d numbers", &failures, &sent, &of)
	require.NoError(t, err)
	require.Equal(t, 1, failures)
	require.Equal(t, len(numbers), of)
	require.Less(t, sent, of/10)
}
