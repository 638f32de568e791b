//go:build linux || darwin || freebsd

package broker

import (
	"os"
	"syscall"
)

// tryLock locks f for this opening of it, until it is closed or the process ends. It says whether it could.
func tryLock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
