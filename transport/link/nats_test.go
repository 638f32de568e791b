package link

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/ringbuf"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/transport"
)

// serve starts a NATS server on a port of 127.0.0.1; 0 is a free one.
func serve(t testing.TB, port int, payload int32) *server.Server {
	t.Helper()
	if port == 0 {
		port = server.RANDOM_PORT
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true, MaxPayload: payload})
	require.NoError(t, err)
	s.Start()
	require.True(t, s.ReadyForConnections(10*time.Second))
	return s
}

func port(s *server.Server) int { return s.Addr().(*net.TCPAddr).Port }

// connect returns a bus and its NATS connection, which the test's end closes.
func connect(t testing.TB, s *server.Server) *Bus {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // links count what matters of these
	require.NoError(t, err)
	b, err := NewBus(nc, "test.cluster-1")
	require.NoError(t, err)
	t.Cleanup(func() {
		b.Close()
		nc.Close()
	})
	return b
}

// pair is a connection between two buses, and who owns its ends.
type pair struct {
	t                testing.TB
	out              *Outbound
	in               *Inbound
	sender, receiver *ringbuf.Parker
	edges            []*stream.Edge
	stopped          atomic.Bool
}

func newPair(t testing.TB, from, to *Bus, cfg Config) *pair {
	t.Helper()
	p := &pair{t: t, sender: ringbuf.NewParker(), receiver: ringbuf.NewParker(), edges: edges(t)}
	var err error
	p.out, err = from.Dial("conn_1", p.sender, cfg)
	require.NoError(t, err)
	p.in, err = to.Listen("conn_1", p.receiver, decoder(p.edges), cfg)
	require.NoError(t, err)
	return p
}

// run sends n frames with three words each, of which the second names the frame, and acknowledges all; at is called by
// the receiver with every frame.
func (p *pair) run(n int, size func(i int) int, at func(i int)) {
	var wg sync.WaitGroup
	wg.Go(func() { p.send(n, size) })
	wg.Go(func() { p.receive(n, size, at) })
	wg.Wait()
}

func (p *pair) send(n int, size func(i int) int) {
	for sent, acked := 0, uint64(0); acked < uint64(n) && !p.stopped.Load(); {
		var f transport.Frame
		if sent < n {
			f = transport.Frame{Channel: transport.Channel{Edge: 1}, First: uint64(3 * sent), Count: 3, Slab: words(p.t, p.edges[1], 1, size(sent), 2)}
		}
		p.sender.Wait(func() bool {
			moved := p.stopped.Load()
			if sent < n && p.out.Send(f) {
				sent++
				moved = true
			}
			for {
				a, ok := p.out.Acks()
				if !ok {
					return moved
				}
				if a.Acked != acked+1 {
					p.t.Errorf("acknowledged up to %d after %d", a.Acked, acked)
				}
				acked, moved = a.Acked, true
			}
		})
	}
}

func (p *pair) receive(n int, size func(i int) int, at func(i int)) {
	for i, next := 0, uint64(0); i < n; {
		var f transport.Frame
		p.receiver.Wait(func() bool {
			var ok bool
			f, ok = p.in.Receive()
			return ok
		})
		if f.First != next {
			p.t.Errorf("got item %d, want %d", f.First, next)
			p.stopped.Store(true)
			p.sender.Wake()
			return
		}
		want := words(p.t, p.edges[1], 1, size(i), 2)
		if at := int(next % 3); !bytes.Equal(items(p.t, f.Slab, 0, f.Count), items(p.t, want, at, at+f.Count)) {
			p.t.Errorf("frame %d has other items", i)
		}
		if next = f.Next(); next%3 != 0 {
			continue // it was cut
		}
		at(i)
		i++
		p.receiver.Wait(func() bool { return p.in.Acknowledge(transport.Ack{Acked: uint64(i)}) })
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := p.in.Flush(ctx); err != nil {
		p.t.Error(err)
	}
}

func small(i int) int { return i % 300 }

// The server goes away and comes back several times while frames are under way: nothing is lost and the order is kept.
func TestServerRestarts(t *testing.T) {
	t.Parallel() // it waits more than it works
	s := serve(t, 0, 0)
	at := port(s)
	a, b := connect(t, s), connect(t, s)
	p := newPair(t, a, b, Config{Bytes: 200_000, Batch: 4000})
	restarts := 0
	p.run(20_000, small, func(i int) {
		if i%5000 == 4000 {
			s.Shutdown()
			s.WaitForShutdown()
			s = serve(t, at, 0)
			restarts++
		}
	})
	defer s.Shutdown()
	require.Equal(t, 4, restarts)
	for _, bus := range []*Bus{a, b} {
		require.Eventually(t, func() bool { return bus.Stats().Disconnects >= 4 && bus.Stats().Reconnects >= 4 }, 20*time.Second, time.Millisecond)
	}
	require.Positive(t, p.out.Stats().Resent)
	require.Zero(t, p.in.Stats().Malformed+p.out.Stats().Malformed)
}

// A consumer that takes its time throttles the sender, and NATS never sees more than the window.
func TestSlowConsumerThrottles(t *testing.T) {
	s := serve(t, 0, 0)
	defer s.Shutdown()
	a, b := connect(t, s), connect(t, s)
	p := newPair(t, a, b, Config{Bytes: 50_000, Batch: 2000, Queue: 4})
	f := transport.Frame{Channel: transport.Channel{Edge: 1}, Count: 1, Slab: words(t, p.edges[1], 1000)}
	sent := 0
	var refused time.Time // since when there is no room
	for {
		p.sender.Prepare()
		f.First = uint64(sent)
		f.Slab.Retain()
		if p.out.Send(f) {
			p.sender.Cancel()
			sent++
			refused = time.Time{}
			continue
		}
		f.Slab.Release()
		if refused.IsZero() {
			refused = time.Now()
		}
		p.sender.ParkTimeout(20 * time.Millisecond)
		if sent > 50_000/1000-10 && time.Since(refused) > 200*time.Millisecond {
			break // nobody receives, and for long nothing has moved
		}
	}
	require.Less(t, sent, 50_000/1000+10, "more than the window is under way")
	for i := range sent {
		p.receiver.Wait(func() bool {
			f, ok := p.in.Receive()
			require.True(t, !ok || f.First == uint64(i))
			return ok
		})
	}
	p.sender.Wait(func() bool { return p.out.Send(f) }) // it was woken
	require.Zero(t, p.in.Stats().Slow)
	require.Zero(t, p.in.Stats().Overruns)
}

// NATS drops what its client is too slow for; the link notices the gap and loses nothing.
func TestDropsOfTheClient(t *testing.T) {
	thorough.Only(t)
	t.Parallel() // it waits more than it works
	s := serve(t, 0, 0)
	defer s.Shutdown()
	a, b := connect(t, s), connect(t, s)
	p := newPair(t, a, b, Config{Batch: 300})
	require.NoError(t, p.in.sub.(*subscribed).sub.SetPendingLimits(20, -1))
	p.in.mail.mu.Lock() // NATS is held up until it has to drop: the window is larger than the limit
	var wg sync.WaitGroup
	wg.Go(func() { p.run(1000, small, func(int) {}) })
	require.Eventually(t, func() bool { return p.in.sub.Dropped() > 0 }, 10*time.Second, time.Millisecond)
	p.in.mail.mu.Unlock()
	wg.Wait()
	require.Positive(t, p.in.Stats().Slow)
	require.Positive(t, p.in.Stats().Gaps)
	require.Positive(t, p.out.Stats().Resent)
}

// Slabs larger than a message of the server are cut; an item that is, ends the connection with an error that names it.
func TestMaxPayload(t *testing.T) {
	s := serve(t, 0, 4096)
	defer s.Shutdown()
	a, b := connect(t, s), connect(t, s)
	failed := make(chan error, 1)
	p := newPair(t, a, b, Config{Failed: func(err error) { failed <- err }})
	p.run(500, func(i int) int { return i * 7 }, func(int) {})
	require.Empty(t, failed)
	f := transport.Frame{Channel: transport.Channel{Edge: 1, From: 4, To: 5}, First: 77, Count: 2, Slab: words(t, p.edges[1], 1, 5000)}
	require.True(t, p.out.Send(f))
	err := <-failed
	require.ErrorIs(t, err, transport.ErrTooLarge)
	require.ErrorContains(t, err, "link conn_1: transport: item too large: item 78 of channel 4->5, edge 1, takes ")
	require.False(t, p.out.Send(f), "the connection has ended")
	require.ErrorIs(t, p.out.Flush(t.Context()), transport.ErrTooLarge)
	p.out.Close()
}

// Items that the receiver cannot read end the connection there.
func TestItemsOfAnotherBuild(t *testing.T) {
	s := serve(t, 0, 0)
	defer s.Shutdown()
	a, b := connect(t, s), connect(t, s)
	failed := make(chan error, 1)
	p := newPair(t, a, b, Config{Failed: func(err error) { failed <- err }})
	odd := errors.New("odd")
	p.in.decode = func(int, []byte) (stream.Slab, error) { return nil, odd }
	require.True(t, p.out.Send(transport.Frame{Channel: transport.Channel{Edge: 1}, Count: 1, Slab: words(t, p.edges[1], 1)}))
	p.receiver.Wait(func() bool {
		_, ok := p.in.Receive()
		require.False(t, ok)
		return p.in.closing.Load()
	})
	require.ErrorIs(t, <-failed, odd)
}

// What comes for a connection that is unknown or was closed is dropped, and its end closes at once although the peer is
// gone. A bus closes what is open.
func TestClose(t *testing.T) {
	s := serve(t, 0, 0)
	defer s.Shutdown()
	a, b := connect(t, s), connect(t, s)
	p := newPair(t, a, b, Config{})
	p.in.Close()
	p.in.Close()
	require.Equal(t, 0, b.Stats().Open)
	released := make(chan struct{})
	f := transport.Frame{Channel: transport.Channel{Edge: 1}, Count: 1, Slab: noted{words(t, p.edges[1], 1), released}}
	require.True(t, p.out.Send(f))
	<-released // it was packed
	_, ok := p.in.Receive()
	require.False(t, ok)
	require.False(t, p.in.Acknowledge(transport.Ack{}))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.out.Flush(ctx), context.DeadlineExceeded)
	a.Close()
	a.Close()
	require.False(t, p.out.Send(f))
	require.ErrorIs(t, p.out.Flush(t.Context()), ErrClosed)
	_, err := a.Dial("conn_2", p.sender, Config{})
	require.ErrorIs(t, err, ErrClosed)
}

// noted is a slab that says when it is released.
type noted struct {
	stream.Slab
	released chan struct{}
}

func (n noted) Release() { close(n.released) }

// A NATS connection that ends for good ends its links, with an error.
func TestConnectionGone(t *testing.T) {
	s := serve(t, 0, 0)
	defer s.Shutdown()
	a, b := connect(t, s), connect(t, s)
	failed := make(chan error, 2)
	newPair(t, a, b, Config{Failed: func(err error) { failed <- err }})
	a.nc.Close()
	require.ErrorIs(t, <-failed, ErrGone)
}

func TestNames(t *testing.T) {
	s := serve(t, 0, 0)
	defer s.Shutdown()
	a := connect(t, s)
	for _, prefix := range []string{"", "a.", ".a", "a b", "a.*", "a.>"} {
		_, err := NewBus(a.nc, prefix)
		require.ErrorContains(t, err, "subject prefix")
	}
	park := ringbuf.NewParker()
	for _, id := range []string{"", "a.b", "*", "ä", string(make([]byte, 65))} {
		o, err := a.Dial(id, park, Config{})
		require.ErrorIs(t, err, ErrID)
		require.Nil(t, o)
		_, err = a.Listen(id, park, nil, Config{})
		require.ErrorIs(t, err, ErrID)
	}
	_, err := a.Dial("x", park, Config{Batch: -1})
	require.ErrorContains(t, err, "Batch")
	o, err := a.Dial("x", park, Config{})
	require.NoError(t, err)
	_, err = a.Dial("x", park, Config{})
	require.ErrorContains(t, err, `connection id "x" is in use`)
	_, err = a.Listen("x", park, nil, Config{})
	require.NoError(t, err, "the other end may be in the same process")
	o.Close()
	_, err = a.Dial("x", park, Config{})
	require.NoError(t, err)
}
