//go:build unix

package chaos

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// NATS is one server, which keeps its store and its port when it is started again.
type NATS struct {
	*Process
	address string
	conf    string // file of its configuration
	base    string // what that always has: a server does not keep its name through a change otherwise
	store   string
}

// Store is the directory of what it keeps.
func (s *NATS) Store() string { return s.store }

// Address is HOST:PORT for clients.
func (s *NATS) Address() string { return s.address }

// URL is where clients of the namespace of the test find it.
func (s *NATS) URL() string { return "nats://" + s.address }

// Configure has it go by this configuration beside its arguments, also when it is started again: for users and what they may do.
// Those who may no longer be connected are cut off.
func (s *NATS) Configure(text string) {
	s.t.Helper()
	if err := os.WriteFile(s.conf, []byte(s.base+text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	const done = "Reloaded server configuration"
	before := strings.Count(s.Output(), done)
	s.signal(syscall.SIGHUP)
	deadline := time.After(patience)
	for {
		said, more := s.out.since()
		if strings.Count(said, done) > before {
			return
		}
		select {
		case <-more:
		case <-s.end:
			s.t.Fatalf("%s has ended:\n%s", s.c.Name, said)
		case <-deadline: // or it has said why not
			s.t.Fatalf("%s does not take its configuration:\n%s", s.c.Name, said)
		}
	}
}

// URLs is for clients that may use any of several servers.
func URLs(servers []*NATS) string {
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL())
	}
	return strings.Join(urls, ",")
}

// StartNATS starts n servers with JetStream on 127.0.0.1, as a cluster if there are several. They listen when it returns; what is kept
// in several copies may take some seconds more.
func StartNATS(t testing.TB, tools *Tools, n int) []*NATS {
	return StartNATSAt(t, tools, "127.0.0.1", n)
}

// StartNATSAt does so on another address of this machine.
func StartNATSAt(t testing.TB, tools *Tools, host string, n int) []*NATS {
	t.Helper()
	path := tools.NATSServer(t)
	clients, routes := make([]string, n), make([]string, n)
	for i, address := range freeAddresses(t, host, 2*n) {
		if i < n {
			clients[i] = address
		} else {
			routes[i-n] = "nats://" + address
		}
	}
	servers := make([]*NATS, n)
	for i := range servers {
		_, port, _ := net.SplitHostPort(clients[i]) // it was made by a listener
		dir := t.TempDir()
		conf, base := filepath.Join(dir, "nats.conf"), fmt.Sprintf("server_name: n%d\n", i)
		if err := os.WriteFile(conf, []byte(base), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"-c", conf, "-a", host, "-p", port, "-js", "-sd", dir}
		if n > 1 {
			args = append(args, "--cluster_name", "chaos", "--cluster", routes[i], "--routes", strings.Join(routes, ","))
		}
		servers[i] = &NATS{Process: Start(t, Command{Name: fmt.Sprintf("nats-server %d", i), Path: path, Args: args}), address: clients[i], conf: conf, base: base, store: dir}
	}
	for _, s := range servers {
		s.Await("Server is ready")
	}
	return servers
}

// freeAddresses are of ports that nobody listens on now. None is of those that systems give to connections, and to who listens
// on port 0: these could be gone while a server is dead, or before it is started.
func freeAddresses(t testing.TB, host string, n int) []string {
	t.Helper()
	const first, ports, tries = 20_000, 10_000, 1000
	var all []string
	for range tries {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(first+rand.IntN(ports))))
		if err != nil {
			continue
		}
		defer l.Close() // all at once, so that they differ
		if all = append(all, l.Addr().String()); len(all) == n {
			return all
		}
	}
	t.Fatalf("%d free ports of %s from %d on: not found in %d tries", n, host, first, tries)
	return nil
}
