package chaos

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is a way to a server, on 127.0.0.1, that can be slow, hang or break. All of its methods may be called by any goroutine.
type Proxy struct {
	target string
	l      net.Listener

	mu      sync.Mutex
	delay   time.Duration
	hangs   [2]bool // upstream, downstream
	broken  bool
	conns   map[net.Conn]bool
	changed chan struct{} // closed, and made anew, with each change
	closed  bool
	running sync.WaitGroup
}

// NewProxy returns a way to a server at HOST:PORT, which ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: target, l: l, conns: map[net.Conn]bool{}, changed: make(chan struct{})}
	p.running.Go(p.accept) // ends with close
	t.Cleanup(p.close)
	return p
}

// Address is HOST:PORT for clients.
func (p *Proxy) Address() string { return p.l.Addr().String() }

// URL is the same for clients of NATS.
func (p *Proxy) URL() string { return "nats://" + p.Address() }

// Delay has what comes from now on take d, each way.
func (p *Proxy) Delay(d time.Duration) { p.change(func() { p.delay = d }) }

// Hang lets nothing through, either way, and keeps it, as a network does that is cut while both ends wait.
func (p *Proxy) Hang() { p.change(func() { p.hangs = [2]bool{true, true} }) }

// HangUp does so for what goes to the server.
func (p *Proxy) HangUp() { p.change(func() { p.hangs[0] = true }) }

// HangDown does so for what comes from the server.
func (p *Proxy) HangDown() { p.change(func() { p.hangs[1] = true }) }

// Drop breaks all connections that there are. New ones can be made.
func (p *Proxy) Drop() { p.change(p.drop) }

// Cut breaks all connections, and those that are made.
func (p *Proxy) Cut() {
	p.change(func() {
		p.broken = true
		p.drop()
	})
}

// Heal ends Hang, HangUp, HangDown and Cut. What hung goes on.
func (p *Proxy) Heal() { p.change(func() { p.hangs, p.broken = [2]bool{}, false }) }

func (p *Proxy) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

// drop is called with mu held.
func (p *Proxy) drop() {
	for c := range p.conns {
		c.Close() // whoever uses it notices
	}
	clear(p.conns)
}

func (p *Proxy) close() {
	p.l.Close() // accept notices
	p.change(func() {
		p.closed = true
		p.drop()
	})
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(c) }) // ends with either connection
	}
}

// serve carries one connection until either end closes it.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	refused := p.broken || p.closed
	if !refused {
		p.conns[client], p.conns[server] = true, true
	}
	p.mu.Unlock()
	if refused {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.carry(0, client, server) })
	both.Go(func() { p.carry(1, server, client) })
	both.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, client)
	delete(p.conns, server)
}

type chunk struct {
	bytes []byte
	due   time.Time
}

// carry takes bytes from one connection to the other, and closes both at the end of either.
func (p *Proxy) carry(way int, from, to net.Conn) {
	chunks := make(chan chunk, 64) // what is on its way
	done := make(chan struct{})
	go func() { // ends with chunks
		defer close(done)
		for c := range chunks {
			time.Sleep(time.Until(c.due))
			if !p.pass(way, to) {
				break
			}
			if _, err := to.Write(c.bytes); err != nil {
				break
			}
		}
		from.Close() // so that reading ends
		to.Close()
		for range chunks {
		}
	}()
	for {
		b := make([]byte, 32<<10)
		n, err := from.Read(b)
		p.mu.Lock()
		due := time.Now().Add(p.delay)
		p.mu.Unlock()
		if n > 0 {
			chunks <- chunk{b[:n], due}
		}
		if err != nil {
			break
		}
	}
	close(chunks)
	<-done
}

// pass waits while the way hangs, and says whether the connection is still there.
func (p *Proxy) pass(way int, c net.Conn) bool {
	for {
		p.mu.Lock()
		hangs, there, changed := p.hangs[way], p.conns[c], p.changed
		p.mu.Unlock()
		if !there || !hangs {
			return there
		}
		<-changed
	}
}
