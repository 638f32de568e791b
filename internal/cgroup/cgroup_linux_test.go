package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// fake is a directory that looks as the kernel's does to a process in the group /service. Unlike the kernel's, files of a new
// group have to be put there beforehand.
func fake(t *testing.T, controllers string) (s system, group string) {
	s = system{mount: t.TempDir(), pid: 77}
	group = filepath.Join(s.mount, "service")
	s.self = filepath.Join(s.mount, "self")
	put(t, s.self, "9:name=systemd:/\n0::/service\n")
	for _, dir := range []string{group, filepath.Join(group, "afstream-n1")} {
		for _, file := range []string{"cgroup.procs", "cgroup.subtree_control", "cpu.max", "memory.max"} {
			put(t, filepath.Join(dir, file), "")
		}
	}
	put(t, filepath.Join(group, "cgroup.controllers"), controllers)
	return s, group
}

func put(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func get(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	return string(b)
}

func TestLimitMovesTheProcessIntoAGroupOfItsOwn(t *testing.T) {
	s, group := fake(t, "cpuset cpu memory\n")
	require.NoError(t, s.limit("afstream-n1", 1.5, 2<<30))
	own := filepath.Join(group, "afstream-n1")
	require.Equal(t, "77", get(t, own, "cgroup.procs"))
	require.Equal(t, "150000 100000", get(t, own, "cpu.max"))
	require.Equal(t, "2147483648", get(t, own, "memory.max"))
	// The kernel adds what is written; a plain file keeps the beginning of what was there.
	require.Equal(t, "+memory", get(t, group, "cgroup.subtree_control"))

	put(t, s.self, "0::/service/afstream-n1\n")
	require.Equal(t, "cpu 150000 100000, memory 2147483648", s.granted())
}

func TestLimitOfOneAlone(t *testing.T) {
	s, group := fake(t, "cpu memory\n")
	require.NoError(t, s.limit("afstream-n1", 0, 1<<20))
	require.Empty(t, get(t, group, "afstream-n1", "cpu.max"))
	require.Equal(t, "1048576", get(t, group, "afstream-n1", "memory.max"))
}

func TestNothingIsLimitedUnasked(t *testing.T) {
	require.NoError(t, system{}.limit("afstream-n1", 0, 0))
}

func TestLimitSaysWhyNot(t *testing.T) {
	t.Run("no controller", func(t *testing.T) {
		s, group := fake(t, "cpu\n")
		require.ErrorContains(t, s.limit("afstream-n1", 1, 1<<30), `no controller "memory"`)
		require.Empty(t, get(t, group, "afstream-n1", "cgroup.procs"), "nothing has changed")
	})
	t.Run("version 1", func(t *testing.T) {
		s, _ := fake(t, "cpu\n")
		put(t, s.self, "4:memory:/here\n")
		require.ErrorContains(t, s.limit("afstream-n1", 1, 0), "version 2")
		require.Contains(t, s.granted(), "unknown")
	})
	t.Run("others in the group", func(t *testing.T) {
		s, group := fake(t, "cpu memory\n")
		// What the kernel refuses with busy: here a directory in place of the file.
		control := filepath.Join(group, "cgroup.subtree_control")
		require.NoError(t, os.Remove(control))
		require.NoError(t, os.Mkdir(control, 0o700))
		err := s.limit("afstream-n1", 1, 0)
		require.ErrorContains(t, err, "Delegate=yes")
		require.NotContains(t, err.Error(), "\n")
		require.True(t, errors.Is(err, syscall.EISDIR), err)
		require.Equal(t, "77", get(t, group, "cgroup.procs"), "the process is back where it was")
	})
}

func TestGrantedIsTheNearestLimit(t *testing.T) {
	s, group := fake(t, "cpu memory\n")
	put(t, filepath.Join(group, "cpu.max"), "max 100000\n")
	put(t, filepath.Join(group, "memory.max"), "max\n")
	require.Equal(t, "cpu max, memory max", s.granted())
	put(t, filepath.Join(s.mount, "memory.max"), "4096\n")
	require.Equal(t, "cpu max, memory 4096", s.granted())
}

func TestGrantedHere(t *testing.T) {
	require.NotEmpty(t, Granted())
	require.NotContains(t, Granted(), "\n")
}
