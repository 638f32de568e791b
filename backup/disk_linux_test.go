package backup

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// On a disk that others fill up, down to less than the reserve, the process lives, what was stored can be read, and writing
// goes on after room was made. What is left of the reserve is what the database may still need for what it has taken.
func TestBadgerOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=160m"); err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
	defer func() { require.NoError(t, syscall.Unmount(dir, 0)) }()
	s, err := OpenBadger(filepath.Join(dir, "backup"), BadgerOptions{})
	require.NoError(t, err)
	p, _ := load(t, s, 1)
	base := strings.Repeat("b", 10<<20)
	require.NoError(t, commitWait(p, whole(base, 1)))

	filler := filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	require.NoError(t, err)
	block := make([]byte, 1<<20)
	for free := uint64(reserveBytes); free >= reserveBytes-8<<20; {
		_, err = f.Write(block)
		require.NoError(t, err)
		free, err = freeBytes(dir)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())

	for range 3 {
		require.ErrorIs(t, commitWait(p, part("refused", 2)), ErrDiskFull)
	}
	require.Len(t, contents(t, s, string(appendKey(nil, p.prefix, kindManifest))), 1)
	require.NoError(t, os.Remove(filler))
	require.NoError(t, commitWait(p, part("taken", 3)))
	require.NoError(t, s.Close())

	s, err = OpenBadger(filepath.Join(dir, "backup"), BadgerOptions{})
	require.NoError(t, err)
	_, r := load(t, s, 2)
	got := elements(t, r)
	require.Len(t, got, 2)
	require.True(t, got[0] == "["+base+"]" && got[1] == "taken")
	require.NoError(t, s.Close())
}
