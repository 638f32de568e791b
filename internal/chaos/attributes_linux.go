package chaos

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// attributes has a process lead a group, and die with the test.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Resident is how many bytes of memory it has.
func (p *Process) Resident() int64 {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		p.t.Fatalf("memory of %s: %v", p.c.Name, err)
	}
	for line := range strings.Lines(string(status)) {
		var kB int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kB); n == 1 {
			return kB << 10
		}
	}
	p.t.Fatalf("memory of %s: none in %q", p.c.Name, status)
	return 0
}
