//go:build linux || darwin || freebsd

package backup

import "syscall"

// freeBytes is how much an ordinary user may still write to the disk that holds dir. It is one system call.
func freeBytes(dir string) (uint64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, err
	}
	blocks := max(0, int64(st.Bavail)) // some systems count below zero what is reserved for root
	return uint64(blocks) * uint64(st.Bsize), nil
}
