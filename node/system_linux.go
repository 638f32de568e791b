package node

import (
	"fmt"
	"os"
)

// resident returns the memory of this process that is in RAM, in bytes; 0 if the system does not tell.
func resident() uint64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, pages uint64
	if _, err := fmt.Sscan(string(b), &size, &pages); err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}
