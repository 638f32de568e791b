package cli

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSourceVersion(t *testing.T) {
	build := func(sum string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Path: "example.org/own", Version: "v1.2.3", Sum: sum}, Settings: settings}
	}
	revision, clean, dirty := debug.BuildSetting{Key: "vcs.revision", Value: "abc"}, debug.BuildSetting{Key: "vcs.modified", Value: "false"}, debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	require.Equal(t, "example.org/own@abc", sourceVersion(build("", revision, clean)))
	require.Equal(t, "example.org/own@v1.2.3", sourceVersion(build("h1:x")))
	require.Empty(t, sourceVersion(build("", revision, dirty)))
	require.Empty(t, sourceVersion(build("")))
	require.Empty(t, sourceVersion(nil))
	require.Equal(t, programVersion(), programVersion())
	require.NotEqual(t, "unknown", programVersion())
}
