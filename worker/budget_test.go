package worker

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/stream"
)

// A failure of which nobody knows when it struck is remembered for ever, and tells nothing of where the worker stands.
func TestFailuresAtUnknownLevelsAreNeverForgotten(t *testing.T) {
	for _, c := range []struct {
		failedAt []uint64
		level    uint64
		k        uint64
	}{
		{[]uint64{UnknownLevel}, 0, 1},
		{[]uint64{UnknownLevel}, 1 << 40, 1},
		{[]uint64{UnknownLevel, 3}, 4, 2},
		{[]uint64{UnknownLevel, 3}, 5, 1},
		{[]uint64{1, UnknownLevel - 1}, 10, 1},
		{[]uint64{1, 3}, 10, 0},
	} {
		cfg := Config{Node: &stream.Node{Forget: 2}, Failures: uint64(len(c.failedAt)), FailedAt: c.failedAt}
		require.Equal(t, c.k, cfg.remembered(c.level), "%v at level %d", c.failedAt, c.level)
	}
	cfg := Config{Node: &stream.Node{Forget: 2}, FailedAt: []uint64{4, UnknownLevel}}
	require.EqualValues(t, 4, cfg.startLevel())
}

func TestReplayOf(t *testing.T) {
	source, plain, closer := &stream.Node{IsSource: true}, &stream.Node{}, &stream.Node{EmitOnClose: true}
	for _, c := range []struct {
		n    *stream.Node
		g    Guarantee
		want Replay
	}{
		{source, Approximate, Rewinds},
		{source, None, Live},
		{closer, ErrorFree, Retains},
		{closer, None, Live},
		{plain, Approximate, AtRisk},
		{plain, MiniBatch, Remakes},
		{plain, UpstreamBackup, Remakes},
	} {
		require.Equal(t, c.want, ReplayOf(c.n, c.g))
	}
}
