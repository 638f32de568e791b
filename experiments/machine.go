package experiments

import (
	"fmt"
	"runtime"
)

// Machine is what of a machine decides about rates and may be told to others.
type Machine struct {
	Cores        int // that Go may use at once
	Go, OS, Arch string
}

// ThisMachine returns the one that the process runs on.
func ThisMachine() Machine {
	return Machine{Cores: runtime.GOMAXPROCS(0), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
}

// String returns a line for people.
func (m Machine) String() string {
	cores := "1 core"
	if m.Cores != 1 {
		cores = fmt.Sprintf("%d cores", m.Cores)
	}
	return fmt.Sprintf("%s, %s, %s/%s", cores, m.Go, m.OS, m.Arch)
}
