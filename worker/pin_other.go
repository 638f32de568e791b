//go:build !linux

package worker

import "runtime"

// pin ties the calling goroutine to a thread; choosing a core for it is not possible here.
func pin(int) error {
	runtime.LockOSThread()
	return nil
}
