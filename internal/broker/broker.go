// Package broker runs a NATS server inside this process, so that several processes of one machine, or of a few, need
// nothing beside afstream.
package broker

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// startTime is how long the server may take to listen.
const startTime = 10 * time.Second

// ErrAddress is wrapped by the error of Listen for an address that is none.
var ErrAddress = errors.New("invalid address to listen on")

// Server is a NATS server.
type Server struct {
	server *server.Server
	host   string
}

// Listen starts a NATS server at HOST:PORT, on 127.0.0.1 if the host is left out, on a free port if that is 0. It knows
// no users: whoever reaches it may do anything.
func Listen(address string) (*Server, error) {
	host, port, err := parse(address)
	if err != nil {
		return nil, err
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	s, err := server.NewServer(&server.Options{Host: host, Port: port, NoSigs: true})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	var first fault
	s.SetLoggerV2(&first, false, false, false)
	s.Start()
	b := &Server{server: s, host: host}
	for since := time.Now(); !s.ReadyForConnections(startTime / 100); {
		if why := first.text(); why != "" || time.Since(since) > startTime {
			b.Close()
			return nil, fmt.Errorf("listen on %s: %s: choose another address", address, cmp.Or(why, "it does not get ready"))
		}
	}
	return b, nil
}

// parse takes HOST:PORT, :PORT or PORT.
func parse(address string) (host string, port int, err error) {
	if !strings.Contains(address, ":") {
		address = ":" + address
	}
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("%w: %q: want HOST:PORT or PORT", ErrAddress, strings.TrimPrefix(address, ":"))
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return host, port, nil
}

// URL is where clients find the server.
func (b *Server) URL() string { return b.server.ClientURL() }

// Local says whether only this machine can reach the server.
func (b *Server) Local() bool {
	ip := net.ParseIP(b.host)
	return b.host == "localhost" || ip != nil && ip.IsLoopback()
}

// Connect connects to the server within the process.
func (b *Server) Connect(options ...nats.Option) (*nats.Conn, error) {
	return nats.Connect("", append(options, nats.InProcessServer(b.server))...)
}

// Close ends the server, its connections and its goroutines.
func (b *Server) Close() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}
