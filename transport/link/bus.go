package link

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/afstream/afstream/ringbuf"
	"github.com/afstream/afstream/transport"
)

// Bus makes the connections of one process over one NATS connection, which stays its caller's. Any goroutine may use it.
//
// The NATS connection should reconnect for ever (nats.MaxReconnects(-1)): if it gives up, all connections of the bus
// fail.
type Bus struct {
	carrier Carrier
	prefix  string
	nc      *nats.Conn       // nil if the carrier is another one
	status  chan nats.Status // of nc
	done    chan struct{}    // the watch has ended

	mu     sync.Mutex
	ends   map[string]*end // by subject that the end listens to
	closed bool

	disconnects, reconnects atomic.Uint64
}

// BusStats counts what has happened to the NATS connection.
type BusStats struct {
	Disconnects uint64
	Reconnects  uint64
	Open        int // ends that are open now
}

// NewBus returns a bus whose subjects all begin with prefix, which names the cluster: tokens of letters, digits, - and _,
// joined by dots.
func NewBus(nc *nats.Conn, prefix string) (*Bus, error) {
	b, err := NewBusOver(carried{nc}, prefix)
	if err != nil {
		return nil, err
	}
	b.nc, b.done = nc, make(chan struct{})
	b.status = nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	go b.watch() // ends with Close
	return b, nil
}

// NewBusOver returns the same over another carrier, such as a simulated network. Nobody tells the bus when that was cut
// off: what was lost then is sent again after a timeout.
func NewBusOver(c Carrier, prefix string) (*Bus, error) {
	if !validPrefix.MatchString(prefix) {
		return nil, fmt.Errorf("link: subject prefix %q must match %s", prefix, validPrefix)
	}
	return &Bus{carrier: c, prefix: prefix, ends: map[string]*end{}}, nil
}

// watch has all ends send again what may have been lost when the connection to the server was.
func (b *Bus) watch() {
	defer close(b.done)
	for s := range b.status {
		switch s {
		case nats.RECONNECTING:
			b.disconnects.Add(1)
		case nats.CONNECTED:
			b.reconnects.Add(1)
			b.each(func(e *end) {
				e.hello.Store(true)
				e.park.Wake()
			})
		case nats.CLOSED:
			b.each(func(e *end) { e.fail(fmt.Errorf("%w: %w", ErrGone, nats.ErrConnectionClosed)) })
		}
	}
}

func (b *Bus) each(f func(e *end)) {
	b.mu.Lock()
	ends := make([]*end, 0, len(b.ends))
	for _, e := range b.ends {
		ends = append(ends, e)
	}
	b.mu.Unlock()
	for _, e := range ends {
		f(e)
	}
}

// Dial returns the sending end of connection id. owner parks the goroutine that will use it.
func (b *Bus) Dial(id string, owner *ringbuf.Parker, cfg Config) (*Outbound, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	o := newOutbound(id, owner, cfg)
	if err := b.open(&o.end, "data", "ack"); err != nil {
		return nil, err
	}
	return o, nil
}

// Listen returns the receiving end of connection id. owner parks the goroutine that will use it and call decode.
func (b *Bus) Listen(id string, owner *ringbuf.Parker, decode transport.Decode, cfg Config) (*Inbound, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	i := newInbound(id, owner, decode, cfg)
	if err := b.open(&i.end, "ack", "data"); err != nil {
		return nil, err
	}
	return i, nil
}

// open starts an end that sends on one subject and listens on another.
func (b *Bus) open(e *end, send, listen string) error {
	if !validID.MatchString(e.name) {
		return fmt.Errorf("%w %q must match %s", ErrID, e.name, validID)
	}
	subject := b.prefix + ".link." + e.name + "."
	e.carrier, e.subject = b.carrier, subject+send
	listen = subject + listen
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("link %s: %w", e.name, ErrClosed)
	}
	if b.ends[listen] != nil {
		return fmt.Errorf("%w %q is in use: every connection needs one of its own", ErrID, e.name)
	}
	if err := e.start(listen); err != nil {
		return err
	}
	b.ends[listen] = e
	e.gone = func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.ends, listen)
	}
	return nil
}

// Stats returns what has happened so far.
func (b *Bus) Stats() BusStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return BusStats{Disconnects: b.disconnects.Load(), Reconnects: b.reconnects.Load(), Open: len(b.ends)}
}

// Close closes all ends of the bus, and waits for their goroutines. The NATS connection stays open.
func (b *Bus) Close() {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.mu.Unlock()
	b.each((*end).close)
	if b.nc == nil {
		return
	}
	if first {
		b.nc.RemoveStatusListener(b.status)
	}
	<-b.done
}

// carried is a Carrier on a NATS connection.
type carried struct{ nc *nats.Conn }

// errAway says that a message was not even tried: NATS would keep it and send it when nobody waits for it any more.
var errAway = errors.New("not connected to NATS")

func (c carried) Publish(subject string, msg []byte) error {
	if !c.nc.IsConnected() {
		if c.nc.IsClosed() {
			return fmt.Errorf("%w: %w", ErrGone, nats.ErrConnectionClosed)
		}
		return errAway
	}
	err := c.nc.Publish(subject, msg)
	if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrMaxPayload) {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}

func (c carried) Subscribe(subject string, messages, bytes int, deliver func(msg []byte)) (Subscription, error) {
	sub, err := c.nc.Subscribe(subject, func(m *nats.Msg) { deliver(m.Data) })
	if err != nil {
		return nil, err
	}
	if err := sub.SetPendingLimits(messages, bytes); err != nil {
		return nil, errors.Join(err, sub.Unsubscribe())
	}
	return &subscribed{sub: sub}, nil
}

// defaultPayload is what a message may have as long as no server has said anything else.
const defaultPayload = 1 << 20

func (c carried) MaxPayload() int {
	if n := c.nc.MaxPayload(); n > 0 {
		return int(min(n, 64<<20))
	}
	return defaultPayload
}

type subscribed struct {
	sub  *nats.Subscription
	last atomic.Uint64
}

func (s *subscribed) Dropped() uint64 {
	if n, err := s.sub.Dropped(); err == nil {
		s.last.Store(uint64(n))
	}
	return s.last.Load()
}

func (s *subscribed) Stop() {
	s.Dropped()
	_ = s.sub.Unsubscribe() // fails only if the connection was closed, which ends it as well
}
