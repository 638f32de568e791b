package remote

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/internal/thorough"
)

var simRuns = flag.Int("sim.runs", thorough.Number(40, 300), "runs of the simulation")

// sim is a client and a server, as they are, on a network that loses, repeats and reorders messages, with a store that
// takes its time, refuses now and then, and survives the server. No goroutine runs and no time passes by itself.
type sim struct {
	t      *testing.T
	rng    *rand.Rand
	c      *Client
	s      *Server
	store  *simStore
	toServ [][]byte
	toCli  [][]byte
	calm   bool // nothing bad happens any more

	made    uint64
	outcome map[uint64]error // of each batch that has one
	fences  map[string]uint64
}

// simStore lets a batch through when it is told to.
type simStore struct {
	backup.Noting
	queue   []func(err error)
	applied []uint64 // in order
}

var errSim = errors.New("disk says no")

func (s *simStore) Apply(b *backup.Batch, done func(error)) { s.ApplyNoted(b, nil, done) }

func (s *simStore) ApplyNoted(b *backup.Batch, notes []backup.Entry, done func(error)) {
	s.queue = append(s.queue, func(err error) {
		if err != nil {
			done(err)
			return
		}
		s.Noting.ApplyNoted(b, notes, func(err error) {
			if err == nil && len(b.Puts) > 0 {
				var n uint64
				fmt.Sscanf(string(b.Puts[0].Key), "n%d", &n)
				s.applied = append(s.applied, n)
			}
			done(err)
		})
	})
}

func newSim(t *testing.T, seed uint64) *sim {
	m := &sim{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), store: &simStore{Noting: backup.NewMemory().(backup.Noting)},
		outcome: map[uint64]error{}, fences: map[string]uint64{},
	}
	m.startServer()
	m.c = &Client{
		link:  m.link(&m.toServ),
		o:     ClientOptions{Cluster: "sim", Server: "main", Deadline: 1000 * time.Hour, retry: time.Second},
		wake:  make(chan struct{}, 1),
		calls: map[uint64]*pendingCall{}, scans: map[uint64]*clientScan{}, queue: newQueue(60_000),
	}
	m.c.drained.L = &m.c.mu
	// The session begins on a quiet network: a client that never gets one does not send anything.
	m.s.onHello(&call{id: 1}, "client")
	m.drain()
	require.Len(t, m.s.sessions, 1)
	for id := range m.s.sessions {
		m.c.session, m.c.store, m.c.boot = id, m.s.id, m.s.boot
	}
	return m
}

// link collects what is published. Half a payload of a batch makes some batches two parts or three.
func (m *sim) link(to *[][]byte) link {
	return link{
		publish: func(_, _ string, frame []byte) error {
			*to = append(*to, slices.Clone(frame))
			return nil
		},
		payload: func() int { return minPayload },
		closed:  func() bool { return false },
	}
}

// startServer starts the server again: what it knew, and what the store had not done, is gone.
func (m *sim) startServer() {
	m.store.queue = nil
	m.s = &Server{
		link: m.link(&m.toCli), store: m.store, stop: make(chan struct{}), sessions: map[ident]*session{},
		o: ServerOptions{MaxBytes: 50_000, Logger: slog.New(slog.DiscardHandler), patience: usualPatience},
	}
	store := m.s.store
	m.s.store = m.store.Noting // the first note is waited for
	require.NoError(m.t, m.s.load())
	m.s.store = store
}

func (m *sim) drain() {
	for len(m.store.queue) > 0 {
		m.work(nil)
	}
}

func (m *sim) work(err error) {
	if len(m.store.queue) > 0 {
		next := m.store.queue[0]
		m.store.queue = m.store.queue[1:]
		next(err)
	}
}

// deliver takes a message off a list, mostly the first one, and loses it or repeats it now and then.
func (m *sim) deliver(list *[][]byte, to func([]byte)) {
	if len(*list) == 0 {
		return
	}
	i, fate := 0, 9
	if !m.calm {
		fate = m.rng.IntN(20)
		if m.rng.IntN(10) == 0 {
			i = m.rng.IntN(len(*list))
		}
	}
	frame := (*list)[i]
	if fate != 0 { // 0: it stays, and is delivered again
		*list = slices.Delete(*list, i, i+1)
	}
	if fate != 1 {
		to(frame)
	}
}

func (m *sim) apply() {
	m.made++
	n := m.made
	owner := fmt.Sprintf("o%d", m.rng.IntN(3))
	epoch := m.fences[owner] + uint64(m.rng.IntN(2)) // may be fenced before it arrives
	size := 10
	if m.rng.IntN(5) == 0 {
		size = m.rng.IntN(45_000)
	}
	m.c.Apply(put(owner, epoch, fmt.Sprintf("n%d", n), string(make([]byte, size))), func(err error) {
		_, twice := m.outcome[n]
		require.False(m.t, twice, "batch %d has two outcomes", n)
		m.outcome[n] = err
		require.Equal(m.t, err == nil, slices.Contains(m.store.applied, n), "batch %d: %v", n, err)
	})
}

func (m *sim) step() {
	switch r := m.rng.IntN(100); {
	case r < 20:
		m.apply()
	case r < 45:
		m.c.sendNext()
	case r < 65:
		m.deliver(&m.toServ, func(b []byte) { m.s.receive(&nats.Msg{Reply: "client", Data: b}) })
	case r < 80:
		m.deliver(&m.toCli, func(b []byte) { m.c.receive(&nats.Msg{Data: b}) })
	case r < 94:
		m.work(nil)
	case r < 95:
		m.work(errSim)
	case r < 97:
		m.c.pass(time.Second)
	case r < 98:
		owner := fmt.Sprintf("o%d", m.rng.IntN(3))
		m.fences[owner]++
		require.NoError(m.t, m.store.Fence(owner, m.fences[owner]))
	case r < 99:
		m.toServ = m.toServ[:m.rng.IntN(len(m.toServ)+1)] // the connection breaks
	default:
		for range m.rng.IntN(3) {
			m.work(nil)
		}
		m.startServer()
	}
}

// settle lets everything come to rest on a network that works, and says whether it did.
func (m *sim) settle() bool {
	m.calm = true
	for range 100_000 {
		if len(m.outcome) == int(m.made) {
			return true
		}
		m.c.sendNext()
		m.deliver(&m.toServ, func(b []byte) { m.s.receive(&nats.Msg{Reply: "client", Data: b}) })
		m.work(nil)
		m.deliver(&m.toCli, func(b []byte) { m.c.receive(&nats.Msg{Data: b}) })
		if len(m.toServ)+len(m.toCli)+len(m.store.queue) == 0 {
			m.c.pass(time.Second)
		}
	}
	return false
}

// Whatever gets lost or comes twice, and however often the server starts again: each batch is applied at most once and in
// order, and the client is told the truth about each.
func TestSimulation(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seeds from %d", seed)
	applied, refused := 0, 0
	for run := range uint64(*simRuns) {
		m := newSim(t, seed+run)
		for range 400 + m.rng.IntN(1200) {
			m.step()
		}
		require.True(t, m.settle(), "seed %d: %d of %d batches have an outcome", seed+run, len(m.outcome), m.made)
		require.True(t, slices.IsSorted(m.store.applied), "seed %d: out of order", seed+run)
		require.Len(t, slices.Compact(slices.Clone(m.store.applied)), len(m.store.applied), "seed %d: applied twice", seed+run)
		applied += len(m.store.applied)
		refused += int(m.made) - len(m.store.applied)
	}
	require.Positive(t, refused, "no run refused anything")
	require.Positive(t, applied)
	t.Logf("%d applied, %d refused", applied, refused)
}
