package job

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// A temporary directory for backups holds two things: the backups, and a file that its process has locked for as long as
// it lives. The system lets go of the lock however the process ends, so a lock that can be had belongs to a dead one. The
// file is locked before it gets its name: a directory without it is just being made, or none of ours, and is left alone.
const (
	tempPrefix  = "afstream-"
	tempBackups = "backup"
	tempOwner   = "owner"
)

// tempDir is a temporary directory of this process.
type tempDir struct {
	path string
	lock *os.File // nil where the system has no such locks; what is left there by a killed process stays
}

// newTempDir makes one, and removes those that killed processes have left behind.
func newTempDir(log *slog.Logger) (*tempDir, error) {
	sweep(os.TempDir(), log)
	path, err := os.MkdirTemp("", tempPrefix)
	if err != nil {
		return nil, fmt.Errorf("make temporary directory for backups: %w", err)
	}
	d := &tempDir{path: path}
	if d.lock, err = own(path); err != nil {
		return nil, errors.Join(fmt.Errorf("make temporary directory for backups: %w", err), d.remove())
	}
	return d, nil
}

// own makes the locked file in a new directory; nil where the system has no such locks.
func own(dir string) (*os.File, error) {
	unnamed := filepath.Join(dir, tempOwner+".new")
	f, err := os.OpenFile(unnamed, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if !tryLock(f) {
		return nil, errors.Join(f.Close(), os.Remove(unnamed))
	}
	if err := os.Rename(unnamed, filepath.Join(dir, tempOwner)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// backups is where the store goes.
func (d *tempDir) backups() string { return filepath.Join(d.path, tempBackups) }

// remove removes the directory, the lock last: should the process be killed meanwhile, the next one goes on.
func (d *tempDir) remove() error {
	err := errors.Join(os.RemoveAll(d.backups()), os.RemoveAll(d.path))
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
	}
	return err
}

// sweep removes the temporary directories of processes that are dead. That it cannot is no reason not to run a job.
func sweep(parent string, log *slog.Logger) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return // making a directory there will say why
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		left := leftover(filepath.Join(parent, e.Name()))
		if left == nil {
			continue
		}
		if err := left.remove(); err != nil {
			log.Warn("backups of a killed process stay", "dir", left.path, "err", err)
			continue
		}
		log.Info("removed backups of a killed process", "dir", left.path)
	}
}

// leftover takes over the directory of a dead process; nil if its process lives, or if it is none of ours.
func leftover(path string) *tempDir {
	owner := filepath.Join(path, tempOwner)
	f, err := os.OpenFile(owner, os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	if tryLock(f) && isStill(owner, f) {
		return &tempDir{path: path, lock: f}
	}
	f.Close() // it was not written to
	return nil
}

// isStill says whether f is what has the name: another process may have removed the directory before f was locked.
func isStill(name string, f *os.File) bool {
	now, err := os.Lstat(name)
	if err != nil {
		return false
	}
	then, err := f.Stat()
	return err == nil && os.SameFile(now, then)
}
