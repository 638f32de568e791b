//go:build unix && !linux

package chaos

import (
	"testing"
	"time"
)

// Namespace is a network of its own for processes. Only Linux has them.
type Namespace struct{}

// NewNamespace skips the test.
func NewNamespace(t testing.TB) *Namespace {
	t.Skip("network namespaces are of Linux")
	return nil
}

// Host is never called.
func (n *Namespace) Host() string { return "" }

// Cut is never called.
func (n *Namespace) Cut() {}

// Heal is never called.
func (n *Namespace) Heal() {}

// Shape is never called.
func (n *Namespace) Shape(time.Duration, float64) bool { return false }

func (n *Namespace) prefix() []string { return nil }
