package backup

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkResident reports what 10,000 commits leave resident, anonymous memory and mapped files apart. Run alone: it
// measures the process.
func BenchmarkResident(b *testing.B) {
	for b.Loop() {
		s := openTestBadger(b, b.TempDir(), BadgerOptions{})
		p, _ := load(b, s, 1)
		c := part(strings.Repeat("e", 64*16), 0)
		for n := range uint64(10_000) {
			c.Whole = p.NeedWhole()
			c.Inputs[0].Seq = n
			require.NoError(b, commitWait(p, c))
		}
		b.ReportMetric(residentMB(b, "RssAnon"), "anon-MB")
		b.ReportMetric(residentMB(b, "RssFile"), "file-MB")
		require.NoError(b, s.Close())
	}
}

func residentMB(t testing.TB, field string) float64 {
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(status), field+":")
	require.True(t, ok)
	var kb float64
	_, err = fmt.Sscan(rest, &kb)
	require.NoError(t, err)
	return kb / 1024
}
