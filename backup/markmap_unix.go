//go:build linux || darwin || freebsd

package backup

import (
	"os"
	"syscall"
)

// mapMarks returns the first size bytes of a file as memory, in which a mark is written without a system call. What lies beyond
// the end of the file must not be touched. What the memory holds is the system's, as after a write: it survives the process.
func mapMarks(f *os.File, size int) []byte {
	b, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil { // not every file system can: marks are written then
		return nil
	}
	return b
}

func unmapMarks(b []byte) error {
	if b == nil {
		return nil
	}
	return syscall.Munmap(b)
}
