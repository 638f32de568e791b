package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/afstream/afstream/backup"
)

// ClientOptions are how a client works.
type ClientOptions struct {
	// Cluster and Server name the server: ServerOptions.Cluster and Name. An empty Server is DefaultName.
	Cluster, Server string
	// Deadline is how long the server may be silent, with something to answer, before everything that waits fails with
	// ErrNoAnswer; default one minute. Restarts of the server that take less go unnoticed. Time during which the process
	// was stopped does not count.
	Deadline time.Duration
	// Window is how many bytes of batches may be on their way to the server; default 4 MiB, and one batch may always be.
	// A smaller window needs less memory on both sides and may be slower on a long line.
	Window int

	retry time.Duration // for tests: how long nothing may happen before the server is asked; default 200 ms
}

// Client is a backup.Store that a Server keeps. All of its batches, whoever their owners are, are applied in the order of
// the calls of Apply.
//
// It owns two goroutines, one of them the subscription's; Close ends both. Batches that wait are referred to and not copied: what a client has in memory of its own is at most one
// encoded batch, what the connection buffers, and one window of each scan.
type Client struct {
	nc      *nats.Conn
	link    link
	o       ClientOptions
	to      string // subject of the server
	inbox   string
	sub     *nats.Subscription
	wake    chan struct{} // capacity 1: there may be something to send
	stop    chan struct{}
	hangUp  func() // closes the connection, if it is the client's own
	pumping sync.WaitGroup

	store, session ident  // fixed once welcome
	boot           uint64 // the last start of the server that is known

	mu      sync.Mutex
	drained sync.Cond // signals: nothing waits for the server
	closed  bool
	failed  error         // nothing works any more
	silent  time.Duration // for how long the server has been, with something to answer
	idled   time.Duration // since it was last told that this client is alive
	asked   retryTimer    // since something has become of a batch, or the server was asked
	queue   queue
	calls   map[uint64]*pendingCall
	scans   map[uint64]*clientScan
	held    time.Duration // how long the server wants to be left alone
	scanned int           // scans under way, their functions included
	lastID  uint64        // of calls and scans

	buf, frame []byte // belong to the pump
}

var _ backup.Store = (*Client)(nil)

// pendingCall is something that is sent until it is answered.
type pendingCall struct {
	frame  []byte
	answer chan callAnswer // capacity 1
	timer  retryTimer
}

type callAnswer struct {
	welcome welcome // of a hello
	err     error
}

// openTime is how long Open waits for the server: who starts something wants to know soon that it cannot work.
const openTime = 3 * time.Second

// Open begins a session with a server. If it does not answer within three seconds, the error wraps ErrNoAnswer. The
// connection stays the caller's and has to outlive the client.
func Open(ctx context.Context, nc *nats.Conn, o ClientOptions) (*Client, error) {
	if o.Server == "" {
		o.Server = DefaultName
	}
	if o.Deadline <= 0 {
		o.Deadline = time.Minute
	}
	if o.Window <= 0 {
		o.Window = 4 << 20
	}
	if o.retry <= 0 {
		o.retry = 200 * time.Millisecond
	}
	if err := errors.Join(checkNames(o.Cluster, o.Server), checkPayload(nc)); err != nil {
		return nil, fmt.Errorf("open backup server: %w", err)
	}
	var id ident
	rand.Read(id[:])
	c := &Client{
		nc: nc, link: newLink(nc), o: o, to: subject(o.Cluster, o.Server), inbox: replySubject(o.Cluster, id),
		wake: make(chan struct{}, 1), stop: make(chan struct{}),
		calls: map[uint64]*pendingCall{}, scans: map[uint64]*clientScan{},
		queue: newQueue(o.Window),
	}
	c.drained.L = &c.mu
	if err := c.begin(ctx); err != nil {
		return nil, fmt.Errorf("open backup server: %w", err)
	}
	return c, nil
}

func (c *Client) begin(ctx context.Context) error {
	sub, err := c.nc.Subscribe(c.inbox, c.receive)
	if err != nil {
		return err
	}
	c.sub = sub
	c.pumping.Go(c.pump)
	if err := sub.SetPendingLimits(-1, -1); err != nil { // what servers send is bounded by what was asked for
		return errors.Join(err, c.end())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openTime, c.noAnswer(openTime))
	defer cancel()
	w, err := c.call(ctx, kindHello, &call{})
	if err != nil {
		return errors.Join(err, c.end())
	}
	c.mu.Lock()
	c.store, c.session, c.boot = w.store, w.session, w.boot
	c.mu.Unlock()
	return nil
}

// Apply implements backup.Store. An error that wraps ErrNoAnswer leaves open whether b was applied.
func (c *Client) Apply(b *backup.Batch, done func(error)) {
	err := backup.CheckBatch(b)
	if err == nil {
		c.mu.Lock()
		if err = c.usable(); err == nil {
			c.queue.push(b, done)
		}
		c.mu.Unlock()
	}
	if err != nil {
		done(err)
		return
	}
	c.signal()
}

// usable reports why nothing can be asked for. c.mu is held.
func (c *Client) usable() error {
	if c.closed {
		return backup.ErrClosed
	}
	return c.failed
}

func (c *Client) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Fence implements backup.Store.
func (c *Client) Fence(owner string, epoch uint64) error {
	if err := backup.CheckOwner(owner); err != nil {
		return err
	}
	_, err := c.call(context.Background(), kindFence, &call{owner: owner, epoch: epoch})
	return err
}

// call asks for something until it is answered.
func (c *Client) call(ctx context.Context, kind byte, q *call) (welcome, error) {
	c.mu.Lock()
	if err := c.usable(); err != nil {
		c.mu.Unlock()
		return welcome{}, err
	}
	c.lastID++
	id := c.lastID
	q.id = id
	p := &pendingCall{frame: appendCall(nil, kind, q), answer: make(chan callAnswer, 1)}
	c.calls[id] = p
	c.mu.Unlock()
	c.publish(p.frame)
	c.signal()
	select {
	case a := <-p.answer:
		return a.welcome, a.err
	case <-ctx.Done():
		c.mu.Lock()
		c.forget(id)
		c.mu.Unlock()
		return welcome{}, context.Cause(ctx)
	}
}

// forget drops a call. c.mu is held.
func (c *Client) forget(id uint64) {
	delete(c.calls, id)
	c.settled()
}

// settled wakes Close when nothing waits any more. c.mu is held.
func (c *Client) settled() {
	if c.idle() {
		c.drained.Broadcast()
	}
}

func (c *Client) idle() bool { return c.queue.empty() && len(c.calls) == 0 && c.scanned == 0 }

// publish sends what is sent again if it gets lost.
func (c *Client) publish(frame []byte) bool {
	return c.link.publish(c.to, c.inbox, frame) == nil
}

// Close waits for the batches and scans under way, which the deadline bounds, and ends the session.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	for !c.idle() {
		c.drained.Wait()
	}
	c.mu.Unlock()
	c.publish(appendBye(nil, c.session))
	err := c.end()
	if c.hangUp != nil {
		c.hangUp()
	}
	return err
}

// Abandon is Close that does not wait: what is under way fails with backup.ErrClosed, and of batches nobody knows then
// whether they were or will be applied. It is for a server that nobody relies on any more.
func (c *Client) Abandon() error {
	c.mu.Lock()
	var failing []func()
	if !c.closed && c.failed == nil {
		c.failed = backup.ErrClosed
		failing = c.fail(backup.ErrClosed)
	}
	c.mu.Unlock()
	for _, f := range failing {
		f()
	}
	return c.Close()
}

// end stops the goroutines.
func (c *Client) end() error {
	close(c.stop)
	c.pumping.Wait()
	err := c.sub.Unsubscribe()
	if err == nil && c.nc.IsConnected() {
		err = c.nc.FlushTimeout(flushTime)
	}
	if errors.Is(err, nats.ErrConnectionClosed) {
		return nil
	}
	return err
}
