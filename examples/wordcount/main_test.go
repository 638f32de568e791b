//go:build invariants

// In make race alone: a test of its own costs go test the linking of one more program.

package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/afstream/afstream/data"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The counts after two failures are those of a plain loop over the text, up to the bound that the program prints.
func TestCountsAreWithinTheBound(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(&out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, top+3, out.String())
	require.Regexp(t, `^count/1 failed at item 2000, \d+ of at most 50 `, lines[top])
	require.Regexp(t, `^count/2 failed at item 4000, \d+ of at most \d+ `, lines[top+1])
	var bound float64
	_, err := fmt.Sscanf(lines[top+2], "however often count fails, no count is off by more than %g", &bound)
	require.NoError(t, err)
	require.Equal(t, 150.0, bound)

	exact := exactCounts(t)
	for _, line := range lines[:top] {
		var n int64
		var word string
		_, err := fmt.Sscan(line, &n, &word)
		require.NoError(t, err, line)
		require.Contains(t, exact, word)
		require.InDelta(t, exact[word], n, bound, word)
	}
	require.Contains(t, lines[0], "the")
}

func exactCounts(t *testing.T) map[string]int64 {
	f, ok := data.Lookup("opticks")
	require.True(t, ok)
	z, err := gzip.NewReader(strings.NewReader(f.Content))
	require.NoError(t, err)
	text, err := io.ReadAll(z)
	require.NoError(t, err)
	counts := map[string]int64{}
	for word := range strings.FieldsFuncSeq(string(text), func(r rune) bool { return !unicode.IsLetter(r) }) {
		counts[strings.ToLower(word)]++
	}
	return counts
}
