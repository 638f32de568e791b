package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Tools are programs that are built when they are first asked for.
type Tools struct {
	mu    sync.Mutex
	dir   string
	built map[string]string
}

// NewTools returns tools without any program yet.
func NewTools() *Tools { return &Tools{built: map[string]string{}} }

// Close removes the programs.
func (x *Tools) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return os.RemoveAll(x.dir)
}

// Afstream is the path of the program.
func (x *Tools) Afstream(t testing.TB) string {
	return x.Build(t, "github.com/afstream/afstream/cmd/afstream")
}

// NATSServer is the path of the program, of the version that is in go.mod.
func (x *Tools) NATSServer(t testing.TB) string {
	return x.Build(t, "github.com/nats-io/nats-server/v2")
}

// Build is the path of a program whose main package is given.
func (x *Tools) Build(t testing.TB, main string) string {
	t.Helper()
	path, err := x.build(main)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (x *Tools) build(main string) (string, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if path, ok := x.built[main]; ok {
		return path, nil
	}
	dir, err := x.directory()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, fmt.Sprintf("%d-%s", len(x.built), filepath.Base(main)))
	if out, err := exec.Command("go", "build", "-o", path, main).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", main, err, out)
	}
	x.built[main] = path
	return path, nil
}

// Dir is a directory for what tests make once, removed by Close.
func (x *Tools) Dir() (string, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.directory()
}

// directory makes it when it is first needed. mu is held.
func (x *Tools) directory() (string, error) {
	if x.dir == "" {
		dir, err := os.MkdirTemp("", "afstream-chaos-")
		if err != nil {
			return "", err
		}
		x.dir = dir
	}
	return x.dir, nil
}
