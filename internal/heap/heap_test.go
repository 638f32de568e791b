package heap

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/internal/thorough"
)

func TestPercent(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		live, scanned uint64
		want          int
	}{
		{0, 0, 100},
		{10 * mb, 1 * mb, 100},
		{64 * mb, 0, 100},
		{128 * mb, 0, 50},
		{640 * mb, 10 * mb, 10},
		{640 * mb, 320 * mb, 50},
		{640 * mb, 640 * mb, 100},
		{640 * mb, 700 * mb, 100}, // it has grown since the collection
		{1 << 50, 0, 1},
	} {
		require.Equal(t, c.want, percent(c.live, c.scanned), "%d live, %d scanned", c.live/mb, c.scanned/mb)
	}
}

// A process of its own holds a large array of numbers and makes garbage: its heap stays near what is in use, or, with GOGC, does
// what that says.
func TestSpare(t *testing.T) {
	thorough.Only(t)
	if os.Getenv("AFSTREAM_TEST_HEAP") != "" {
		hold()
		return
	}
	for gogc, enough := range map[string]bool{"": true, "100": false} {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestSpare$")
		cmd.Env = append(cmd.Environ(), "AFSTREAM_TEST_HEAP=1", "GOGC="+gogc)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, enough, strings.Contains(string(out), "small"), "GOGC=%s: %s", gogc, out)
	}
}

var kept []byte

// hold says that the heap is small as soon as it is, or else after more garbage than it would take.
func hold() {
	Spare()
	numbers := make([]float64, 256<<17) // 256 MiB
	for range 10_000 {
		kept = make([]byte, 1<<20)
		s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}, {Name: "/gc/heap/live:bytes"}}
		metrics.Read(s)
		if goal, live := s[0].Value.Uint64(), s[1].Value.Uint64(); live > 256<<20 && goal < 400<<20 {
			println("small")
			break
		}
	}
	runtime.KeepAlive(numbers)
}
