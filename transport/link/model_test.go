package link

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/ringbuf"
	"github.com/afstream/afstream/transport"
)

var modelRuns = flag.Int("link.runs", thorough.Number(40, 300), "seeds of TestLossyNetwork")

// network is a Carrier that loses, delays, reorders and doubles messages by chance, and is cut off from time to time.
type network struct {
	mu      sync.Mutex
	rnd     *rand.Rand
	subs    map[string]func([]byte)
	lose    float64
	double  float64
	damage  float64
	delay   time.Duration // up to
	payload int
	cut     bool
	perfect bool
	flying  sync.WaitGroup
}

func newNetwork(rnd *rand.Rand) *network {
	n := &network{rnd: rand.New(rand.NewPCG(rnd.Uint64(), 0)), subs: map[string]func([]byte){}, payload: 300 + rnd.IntN(5000)}
	n.lose, n.double, n.damage = rnd.Float64()*0.3, rnd.Float64()*0.2, rnd.Float64()*0.05
	n.delay = time.Duration(1 + rnd.IntN(20_000_000))
	return n
}

func (n *network) Publish(subject string, msg []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut {
		return errAway
	}
	if deliver := n.subs[subject]; n.perfect {
		if deliver != nil {
			deliver(bytes.Clone(msg))
		}
		return nil
	}
	copies := 1
	if n.rnd.Float64() < n.double {
		copies = 2
	}
	for range copies {
		if n.rnd.Float64() >= n.lose {
			n.fly(subject, bytes.Clone(msg))
		}
	}
	return nil
}

// fly delivers one copy after a delay of its own.
func (n *network) fly(subject string, msg []byte) {
	if n.rnd.Float64() < n.damage {
		msg[1+n.rnd.IntN(len(msg)-1)] ^= 1 << n.rnd.IntN(8) // not the version, which would end the connection
	}
	n.flying.Add(1)
	time.AfterFunc(time.Duration(n.rnd.Int64N(int64(n.delay))), func() {
		defer n.flying.Done()
		n.mu.Lock()
		deliver := n.subs[subject]
		n.mu.Unlock()
		if deliver != nil {
			deliver(msg)
		}
	})
}

func (n *network) Subscribe(subject string, _, _ int, deliver func([]byte)) (Subscription, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.subs[subject] = deliver
	return &heard{n, subject}, nil
}

func (n *network) MaxPayload() int { return n.payload }

func (n *network) setCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

type heard struct {
	n       *network
	subject string
}

func (h *heard) Dropped() uint64 { return 0 }

func (h *heard) Stop() {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	delete(h.n.subs, h.subject)
}

// Over a network that does to messages whatever it likes all frames arrive once, in order and with their items, and so do
// all acknowledgements; windows hold; nobody waits for ever; and all goroutines end.
func TestLossyNetwork(t *testing.T) {
	var total Stats
	for seed := range uint64(*modelRuns) {
		ok := t.Run("", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &model{t: t, rnd: rand.New(rand.NewPCG(seed, 1))}
				stuck := time.AfterFunc(time.Hour, func() { panic("nothing has moved for an hour") })
				defer stuck.Stop()
				m.run()
				for _, s := range []Stats{m.out.Stats(), m.in.Stats()} {
					total.Resent += s.Resent
					total.Timeouts += s.Timeouts
					total.Duplicates += s.Duplicates
					total.Gaps += s.Gaps
					total.Malformed += s.Malformed
					total.Refused += s.Refused
				}
			})
		})
		if !ok {
			t.Fatalf("seed %d", seed)
		}
	}
	for _, n := range []uint64{total.Resent, total.Timeouts, total.Duplicates, total.Gaps, total.Malformed, total.Refused} {
		require.Greater(t, n, uint64(*modelRuns/2), "%+v: the network is too kind", total)
	}
}

// Over a network that does nothing wrong no timer is ever needed: whatever closes a window, what opens it is told.
func TestPerfectNetwork(t *testing.T) {
	for seed := range uint64(*modelRuns) {
		synctest.Test(t, func(t *testing.T) {
			m := &model{t: t, rnd: rand.New(rand.NewPCG(seed, 2)), perfect: true}
			m.run()
			for _, s := range []Stats{m.out.Stats(), m.in.Stats()} {
				require.Zero(t, s.Timeouts+s.Gaps+s.Malformed+s.Refused+s.Overruns, "seed %d: %+v", seed, s)
			}
		})
	}
}

// model is one run.
type model struct {
	perfect  bool
	t        *testing.T
	rnd      *rand.Rand
	net      *network
	out      *Outbound
	in       *Inbound
	sender   *ringbuf.Parker
	receiver *ringbuf.Parker
	frames   int
}

func (m *model) run() {
	m.net = newNetwork(m.rnd)
	m.net.perfect = m.perfect
	m.sender, m.receiver = ringbuf.NewParker(), ringbuf.NewParker()
	m.frames = 1 + m.rnd.IntN(400)
	cfg, err := Config{Bytes: 1 + m.rnd.IntN(20_000), Messages: 1 + m.rnd.IntN(20), Batch: 1 + m.rnd.IntN(2000), Queue: 1 + m.rnd.IntN(8),
		Failed: func(err error) { m.t.Error(err) }}.withDefaults()
	require.NoError(m.t, err)
	all := edges(m.t)
	m.out = newOutbound("x", m.sender, cfg)
	m.in = newInbound("x", m.receiver, decoder(all), cfg)
	m.out.carrier, m.out.subject, m.in.carrier, m.in.subject = m.net, "data", m.net, "ack"
	// Either may come first, and long before the other.
	starts := []func(){func() { require.NoError(m.t, m.out.start("ack")) }, func() { require.NoError(m.t, m.in.start("data")) }}
	m.rnd.Shuffle(2, func(i, j int) { starts[i], starts[j] = starts[j], starts[i] })
	starts[0]()
	var wg sync.WaitGroup
	seeds := [3]uint64{m.rnd.Uint64(), m.rnd.Uint64(), m.rnd.Uint64()}
	slow := time.Duration(m.rnd.IntN(3)) * time.Millisecond
	if late := time.Duration(m.rnd.IntN(1000)) * time.Millisecond; !m.perfect {
		time.Sleep(late)
	}
	starts[1]()
	wg.Go(func() { m.send(rand.New(rand.NewPCG(seeds[0], 0))) })
	wg.Go(func() { m.receive(rand.New(rand.NewPCG(seeds[1], 0)), slow) })
	stop := make(chan struct{})
	var cuts sync.WaitGroup
	cuts.Go(func() { m.cut(rand.New(rand.NewPCG(seeds[2], 0)), stop) })
	wg.Wait()
	close(stop)
	cuts.Wait()
	m.out.Close()
	m.in.Close()
	m.net.flying.Wait()
}

// cut interrupts the connection to the server now and then; the bus would notice and tell both ends.
func (m *model) cut(rnd *rand.Rand, stop chan struct{}) {
	for !m.perfect {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rnd.IntN(3000)) * time.Millisecond):
		}
		m.net.setCut(true)
		time.Sleep(time.Duration(rnd.IntN(500)) * time.Millisecond)
		m.net.setCut(false)
		for _, e := range []*end{&m.out.end, &m.in.end} {
			e.hello.Store(true)
			e.park.Wake()
		}
	}
}

// send sends all frames as soon as there is room, and checks the acknowledgements.
func (m *model) send(rnd *rand.Rand) {
	sent, acked := 0, uint64(0)
	for acked < uint64(m.frames) {
		var f transport.Frame
		if sent < m.frames {
			f = transport.Frame{Epoch: 3, Channel: transport.Channel{Edge: 1}, First: uint64(sent), Count: 1, Slab: words(m.t, edges(m.t)[1], sent%200)}
			if sent%7 == 0 {
				f = transport.Frame{Kind: transport.Blocked, First: uint64(sent)}
			}
		}
		m.sender.Wait(func() bool {
			moved := false
			if sent < m.frames && m.out.Send(f) {
				sent++
				moved = true
			}
			for {
				a, ok := m.out.Acks()
				if !ok {
					return moved
				}
				if a.Acked != acked+1 {
					m.t.Errorf("acknowledged up to %d after %d", a.Acked, acked)
				}
				acked, moved = a.Acked, true
			}
		})
		if rnd.IntN(10) == 0 {
			time.Sleep(time.Duration(rnd.IntN(3_000_000)))
		}
	}
	ctx := m.t.Context()
	require.NoError(m.t, m.out.Flush(ctx))
}

// receive checks all frames and acknowledges each. With slow it takes its time, so that the window closes.
func (m *model) receive(rnd *rand.Rand, slow time.Duration) {
	all := edges(m.t)
	for next := 0; next < m.frames; next++ {
		var f transport.Frame
		m.receiver.Wait(func() bool {
			var ok bool
			f, ok = m.in.Receive()
			return ok
		})
		if f.First != uint64(next) {
			m.t.Errorf("frame %d, want %d", f.First, next)
			return
		}
		if next%7 != 0 && !bytes.Equal(items(m.t, f.Slab, 0, 1), items(m.t, words(m.t, all[1], next%200), 0, 1)) {
			m.t.Errorf("frame %d has other items", next)
		}
		f.Release()
		if slow > 0 && rnd.IntN(3) == 0 {
			time.Sleep(slow)
		}
		m.receiver.Wait(func() bool { return m.in.Acknowledge(transport.Ack{Acked: uint64(next) + 1}) })
	}
	require.NoError(m.t, m.in.Flush(m.t.Context()))
}
