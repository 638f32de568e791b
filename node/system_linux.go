package node

import (
	"fmt"
	"os"
	"path"
	"strings"
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

// limits says what cgroup v2 grants this process: its own group's, or of those around it the first that has any.
func limits() string {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "unknown: no cgroups"
	}
	for line := range strings.Lines(string(b)) {
		if group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return "cpu " + limit(group, "cpu.max") + ", memory " + limit(group, "memory.max")
		}
	}
	return "unknown: no cgroup v2"
}

// limit returns a setting of a group, or of the nearest around it that is not max.
func limit(group, file string) string {
	for ; ; group = path.Dir(group) {
		if b, err := os.ReadFile(path.Join("/sys/fs/cgroup", group, file)); err == nil {
			if s := strings.TrimSpace(string(b)); !strings.HasPrefix(s, "max") {
				return s
			}
		}
		if group == "/" || group == "." {
			return "max"
		}
	}
}
