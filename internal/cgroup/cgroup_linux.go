package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// system is where the kernel shows its groups.
type system struct {
	mount string // of the unified hierarchy
	self  string // the file that names the groups of this process
	pid   int
}

func host() system {
	return system{mount: "/sys/fs/cgroup", self: "/proc/self/cgroup", pid: os.Getpid()}
}

// Limit lets the system grant this process so many processors, and so many bytes of memory, beyond which it is killed; 0 does
// not limit. The group that it makes is called name, and is used again by the next process that asks for it.
func Limit(name string, cpus float64, memory uint64) error { return host().limit(name, cpus, memory) }

// Granted says in words what the system grants this process: its own group's limits, or of those around it the first that has any.
func Granted() string { return host().granted() }

// period is that of cpu.max in microseconds, which is the kernel's default.
const period = 100_000

// setting is a limit: a file of a group, and what to write to it.
type setting struct{ controller, file, value string }

func (s system) limit(name string, cpus float64, memory uint64) (err error) {
	var all []setting
	if cpus > 0 {
		all = append(all, setting{"cpu", "cpu.max", fmt.Sprintf("%d %d", max(1, int64(cpus*period)), period)})
	}
	if memory > 0 {
		all = append(all, setting{"memory", "memory.max", strconv.FormatUint(memory, 10)})
	}
	if len(all) == 0 {
		return nil
	}
	parent, err := s.group()
	if err != nil {
		return err
	}
	if err := s.offered(parent, all); err != nil {
		return err
	}
	child := filepath.Join(parent, name)
	if err := os.Mkdir(child, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make a control group: %w", err)
	}
	if err := s.enter(child); err != nil {
		s.leave(child, parent)
		return err
	}
	for _, l := range all {
		if err := s.apply(parent, child, l); err != nil {
			s.leave(child, parent)
			return err
		}
	}
	return nil
}

// group returns the directory of the group that this process is in.
func (s system) group() (string, error) {
	b, err := os.ReadFile(s.self)
	if err != nil {
		return "", fmt.Errorf("no control groups: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return filepath.Join(s.mount, group), nil
		}
	}
	return "", errors.New("no control groups of version 2")
}

// offered says whether the group that the process is in has what the limits need.
func (s system) offered(group string, all []setting) error {
	b, err := os.ReadFile(filepath.Join(group, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("no control groups of version 2: %w", err)
	}
	has := strings.Fields(string(b))
	for _, l := range all {
		if !slices.Contains(has, l.controller) {
			return fmt.Errorf("control group %s has no controller %q", group, l.controller)
		}
	}
	return nil
}

// apply sets a limit of a group, and first has the one above hand its controller down.
func (s system) apply(parent, child string, l setting) error {
	if err := write(parent, "cgroup.subtree_control", "+"+l.controller); err != nil {
		return fmt.Errorf("%w (give the process a group without others in it, such as a service with Delegate=yes)", err)
	}
	return write(child, l.file, l.value)
}

// enter moves this process into a group.
func (s system) enter(group string) error { return write(group, "cgroup.procs", strconv.Itoa(s.pid)) }

// leave goes back to where this process was, and removes the group. Should it stay, it has no limits, or nobody in it.
func (s system) leave(group, parent string) {
	_ = s.enter(parent)
	_ = os.Remove(group)
}

// write sets a file of a group, which must be there: the kernel makes them.
func write(group, file, value string) error {
	f, err := os.OpenFile(filepath.Join(group, file), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("limit the process: %w", err)
	}
	_, err = f.WriteString(value)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("limit the process: %w", err)
	}
	return nil
}

func (s system) granted() string {
	group, err := s.group()
	if err != nil {
		return "unknown: " + err.Error()
	}
	return "cpu " + s.nearest(group, "cpu.max") + ", memory " + s.nearest(group, "memory.max")
}

// nearest returns a setting of a group, or of the nearest around it that is not max.
func (s system) nearest(group, file string) string {
	for ; ; group = path.Dir(group) {
		if b, err := os.ReadFile(filepath.Join(group, file)); err == nil {
			if text := strings.TrimSpace(string(b)); !strings.HasPrefix(text, "max") {
				return text
			}
		}
		if group == s.mount || group == "/" || group == "." {
			return "max"
		}
	}
}
