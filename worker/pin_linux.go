package worker

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// pin ties the calling goroutine to a thread and that thread to one of the cores the process may use, by turns. The
// thread ends with the goroutine: its affinity must not leak to others.
func pin(turn int) error {
	runtime.LockOSThread()
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("pin to a core: %w", err)
	}
	turn %= max(allowed.Count(), 1)
	for core := 0; ; core++ {
		if !allowed.IsSet(core) {
			continue
		}
		if turn == 0 {
			one.Set(core)
			break
		}
		turn--
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("pin to core: %w", err)
	}
	return nil
}
