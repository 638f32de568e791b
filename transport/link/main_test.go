package link

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the other process of a test in which there are two, if that is what this one was started for.
func TestMain(m *testing.M) {
	if os.Getenv(peerEnv) != "" {
		os.Exit(runPeer())
	}
	goleak.VerifyTestMain(m)
}
