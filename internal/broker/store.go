package broker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrInUse is wrapped by the error of Start for a store that a running server has.
var ErrInUse = errors.New("directory is in use")

// owner is the file in a store that its process keeps locked and in which it says who it is. NATS servers do not keep each
// other away from their directories, and two in one destroy it.
const owner = "afstream.owner"

// own makes the directory and locks it, for as long as the file is open and at most as long as the process lives. Where
// the system has no such locks, it locks nothing.
func own(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, owner), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if !tryLock(f) {
		pid, _ := io.ReadAll(io.LimitReader(f, 20)) // it is there to help only
		f.Close()                                   // it was not written to
		who := "another process"
		if n, err := strconv.Atoi(strings.TrimSpace(string(pid))); err == nil {
			who = fmt.Sprintf("process %d", n)
		}
		return nil, fmt.Errorf("%w: %s has a NATS server on it: stop that or choose another directory", ErrInUse, who)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
