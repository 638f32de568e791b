// Package broker runs a NATS server inside this process, so that several processes of one machine, or of a few, need
// nothing beside afstream.
package broker

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
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

// Options set up a server.
type Options struct {
	// Address is HOST:PORT to listen on; the host is 127.0.0.1 if it is left out, the port a free one if it is 0.
	Address string
	// Store is the directory in which the server keeps streams and records (JetStream); it is made if it is missing, and no
	// other server may use it. What was written survives that this process is killed, but not a power cut of the last two
	// minutes, unless Sync is set. Empty for a server that keeps nothing.
	Store string
	// Sync has each write wait for the disk.
	Sync bool
}

// Server is a NATS server.
type Server struct {
	server *server.Server
	host   string
	lock   *os.File // of the store; nil if there is none
}

// Listen starts a server that keeps nothing.
func Listen(address string) (*Server, error) { return Start(Options{Address: address}) }

// Start starts a NATS server. It knows no users: whoever reaches it may do anything.
func Start(o Options) (*Server, error) {
	host, port, err := parse(o.Address)
	if err != nil {
		return nil, err
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	b := &Server{host: host}
	if o.Store != "" {
		if b.lock, err = own(o.Store); err != nil {
			return nil, fmt.Errorf("open the store of a NATS server in %q: %w", o.Store, err)
		}
	}
	b.server, err = server.NewServer(&server.Options{
		Host: host, Port: port, NoSigs: true, JetStream: o.Store != "", StoreDir: o.Store, SyncAlways: o.Sync,
	})
	if err != nil {
		b.unlock()
		return nil, fmt.Errorf("listen on %s: %w", o.Address, err)
	}
	var first fault
	b.server.SetLoggerV2(&first, false, false, false)
	b.server.Start()
	for since := time.Now(); !b.server.ReadyForConnections(startTime / 100); {
		if why := first.text(); why != "" || time.Since(since) > startTime {
			b.Close()
			if of, ok := strings.CutPrefix(why, "Can't start JetStream: "); ok {
				return nil, fmt.Errorf("open the store of a NATS server in %q: %s: make it a directory that can be written to, or choose another", o.Store, of)
			}
			return nil, fmt.Errorf("listen on %s: %s: choose another address", o.Address, cmp.Or(why, "it does not get ready"))
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
	b.unlock()
}

func (b *Server) unlock() {
	if b.lock != nil {
		b.lock.Close() // nothing is lost: it holds a number for people
	}
}
