package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Namespace is a network of its own for processes, at the other end of a cable to the network of the test.
type Namespace struct {
	t        testing.TB
	name     string
	host     string // address of the test's end
	own      string // address of the other end
	cable    string // the test's end
	noShapes bool
}

// NewNamespace makes one that ends with the test. It skips the test if this machine does not let it.
func NewNamespace(t testing.TB) *Namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces are for root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("network namespaces need the command ip, of iproute2")
	}
	// 198.18.0.0/15 is set aside for tests of networks.
	net := rand.IntN(1 << 15)
	part := func(host int) string {
		at := net*4 + host
		return fmt.Sprintf("198.%d.%d.%d", 18+at>>16, at>>8&255, at&255)
	}
	n := &Namespace{t: t, name: fmt.Sprintf("afs%05d", net), host: part(1), own: part(2)}
	n.cable = n.name + "h"
	if err := n.try("netns", "add", n.name); err != nil {
		t.Skipf("no network namespaces here: %v", err)
	}
	t.Cleanup(func() { _ = n.try("netns", "del", n.name) }) // the cable goes with it
	if err := n.try("link", "add", n.cable, "type", "veth", "peer", "name", "eth0", "netns", n.name); err != nil {
		t.Skipf("no cables between network namespaces here: %v", err)
	}
	n.ip("addr", "add", n.host+"/30", "dev", n.cable)
	n.ip("link", "set", n.cable, "up")
	n.ip("-n", n.name, "addr", "add", n.own+"/30", "dev", "eth0")
	n.ip("-n", n.name, "link", "set", "eth0", "up")
	n.ip("-n", n.name, "link", "set", "lo", "up")
	return n
}

// Host is the address at which processes in it find what the test's network has there; listen on it, or on all.
func (n *Namespace) Host() string { return n.host }

// Cut unplugs the cable.
func (n *Namespace) Cut() { n.ip("link", "set", n.cable, "down") }

// Heal plugs it in.
func (n *Namespace) Heal() { n.ip("link", "set", n.cable, "up") }

// Shape has what goes to the namespace take so long and be lost so often, and says whether this kernel can (netem).
func (n *Namespace) Shape(delay time.Duration, loss float64) bool {
	if !n.noShapes {
		out, err := exec.Command("tc", "qdisc", "replace", "dev", n.cable, "root", "netem",
			"delay", fmt.Sprintf("%dus", delay.Microseconds()), "loss", fmt.Sprintf("%.2f%%", 100*loss)).CombinedOutput()
		n.noShapes = err != nil
		if err != nil {
			n.t.Logf("no shaping here: %v: %s", err, out)
		}
	}
	return !n.noShapes
}

// prefix is how to run something in it.
func (n *Namespace) prefix() []string {
	if n == nil {
		return nil
	}
	return []string{"ip", "netns", "exec", n.name}
}

func (n *Namespace) ip(args ...string) {
	n.t.Helper()
	if err := n.try(args...); err != nil {
		n.t.Fatal(err)
	}
}

func (n *Namespace) try(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
