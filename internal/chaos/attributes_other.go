//go:build unix && !linux

package chaos

import "syscall"

// attributes has a process lead a group.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
