package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/job"
)

// TestScreenKeepsLinesWhole draws bars and prints lines between them: a line must begin where the bar was cleared.
func TestScreenKeepsLinesWhole(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out)
	s.progress(job.PhaseRun, 30, 100)
	s.update(job.PhaseRun, true)
	require.Contains(t, out.String(), "running")
	require.Contains(t, out.String(), "30%")

	s.event(controller.Event{Failure: controller.Failure{Operator: "sketch", AtItem: 5, Epoch: 1}})
	lines := strings.Split(out.String(), "\r")
	require.Equal(t, "failed     sketch/0  after 5 items (incarnation 1)\n", lines[len(lines)-1])

	s.progress(job.PhaseExact, 7, 0) // of unknown size
	s.update(job.PhaseExact, true)
	require.Contains(t, out.String(), string(job.PhaseExact))
	s.close()
	s.close()
	lines = strings.Split(out.String(), "\r")
	require.Empty(t, strings.TrimSpace(lines[len(lines)-1]), "the bar is gone")
}

// TestScreenDrawsNothingElsewhere leaves files and pipes without bars.
func TestScreenDrawsNothingElsewhere(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out)
	s.progress(job.PhaseRun, 30, 100)
	s.close()
	require.Empty(t, out.String())
}
