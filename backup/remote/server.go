package remote

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/afstream/afstream/backup"
)

// ServerOptions are how a server works.
type ServerOptions struct {
	// Cluster is what the subjects begin with; Name tells the servers of a cluster apart, and is "main" if empty. Both
	// match [A-Za-z0-9_-]{1,64}.
	Cluster, Name string
	// MaxBytes is how many bytes of batches may wait for the store, in all; default 256 MiB. Beyond it clients are told
	// to send again later, so a small value makes them slow and never fail.
	MaxBytes int
	// Logger takes what needs attention: invalid messages at warn level, sessions at debug level. Default none.
	Logger *slog.Logger

	patience patience // for tests; the zero value is the usual one
}

// patience is how long a server waits for clients that may be dead.
type patience struct {
	parts   time.Duration // until parts of a batch are dropped
	scan    time.Duration // until a scan is given up
	session time.Duration // until a session is forgotten
	fenced  time.Duration // until one is whose owners have all been fenced by others since it wrote
	sweep   time.Duration // how often all that is looked at
}

// usualPatience: a session is forgotten when no client can be waiting for an answer any more, whatever its deadline. What it is
// kept for is to tell a client what has become of its batches, and not to apply one twice. Of a client all of whose owners belong
// to others now, as those of a killed node do, nothing would be applied any more: it is forgotten as soon as it must be dead, or
// as good as that, since one that is alive says so each minute (aliveEvery).
var usualPatience = patience{
	parts: 30 * time.Second, scan: 30 * time.Second, session: 24 * time.Hour, fenced: 5 * aliveEvery, sweep: time.Second,
}

// maxJobs bounds the fences and scans under way, each of which has a goroutine.
const maxJobs = 64

// minPending is how many bytes of messages may wait to be looked at: that takes no time worth mentioning, and what is
// beyond it is dropped and sent again.
const minPending = 64 << 20

// Server serves a store. It owns a subscription, a goroutine that drops what dead clients left, and one for each scan and
// fence under way; it owns neither the connection nor the store.
type Server struct {
	nc    *nats.Conn
	link  link
	store backup.Noting
	o     ServerOptions
	id    ident  // of the store
	boot  uint64 // number of this start on the store
	sub   *nats.Subscription
	stop  chan struct{}
	jobs  sync.WaitGroup // goroutines, and batches in the store

	mu       sync.Mutex
	closed   bool
	sessions map[ident]*session
	fencing  map[jobKey]bool
	scans    map[jobKey]*serverScan
	running  int // of maxJobs
	bytes    int // of batches in the store or not complete yet
	invalid  int // messages since the last sweep
}

// jobKey tells fences and scans apart: clients number their own.
type jobKey struct {
	reply string
	id    uint64
}

// Serve answers the clients of store on nc until Close. The store must be of package backup itself, and should have no
// other writers.
//
// Errors: ErrTwoServers if another server has that name in that cluster, and those of the connection and the store.
func Serve(nc *nats.Conn, store backup.Store, o ServerOptions) (*Server, error) {
	s, err := newServer(nc, store, o)
	if err == nil {
		err = s.start()
	}
	if err != nil {
		return nil, fmt.Errorf("serve backup %q of cluster %q: %w", o.Name, o.Cluster, err)
	}
	return s, nil
}

func newServer(nc *nats.Conn, store backup.Store, o ServerOptions) (*Server, error) {
	if o.Name == "" {
		o.Name = DefaultName
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 256 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.patience == (patience{}) {
		o.patience = usualPatience
	}
	noting, ok := store.(backup.Noting)
	if !ok {
		return nil, errors.New("this store cannot keep notes: serve one of OpenBadger or NewMemory")
	}
	return &Server{
		nc: nc, link: newLink(nc), store: noting, o: o, stop: make(chan struct{}), sessions: map[ident]*session{},
		fencing: map[jobKey]bool{}, scans: map[jobKey]*serverScan{},
	}, errors.Join(checkNames(o.Cluster, o.Name), checkPayload(nc))
}

func (s *Server) start() error {
	if err := s.load(); err != nil {
		return err
	}
	to := subject(s.o.Cluster, s.o.Name)
	// Whoever is there answers that it knows no such scan; if nobody is, NATS says so at once.
	if _, err := s.nc.Request(to, appendCall(nil, kindTake, &call{}), time.Second); err == nil {
		return ErrTwoServers
	}
	sub, err := s.nc.Subscribe(to, s.receive)
	if err != nil {
		return err
	}
	s.sub = sub
	s.jobs.Go(s.sweepLoop)
	if err := errors.Join(sub.SetPendingLimits(-1, max(s.o.MaxBytes, minPending)), s.nc.FlushTimeout(flushTime)); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// Close stops serving and waits for the batches that the store has. What it does not answer any more, clients send
// again to the next server of that name on this store.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	for _, sc := range s.scans {
		sc.giveUp()
	}
	s.mu.Unlock()
	close(s.stop)
	err := s.sub.Unsubscribe()
	s.jobs.Wait()
	if err == nil {
		err = s.nc.FlushTimeout(flushTime) // the last answers
	}
	if errors.Is(err, nats.ErrConnectionClosed) {
		return nil
	}
	return err
}

// load reads the notes of earlier servers on this store.
func (s *Server) load() error {
	err := s.store.Notes(func(key, value []byte) error {
		var id ident
		copy(id[:], key[1:])
		n, ok := decodeNote(value)
		if !ok || len(key) < 1+len(id) {
			return fmt.Errorf("note %q: %w", key, backup.ErrDamaged)
		}
		if key[0] == noteStore {
			s.id, s.boot = id, n
		} else if key[0] == noteSession {
			s.sessions[id] = &session{id: id, heard: time.Now(), before: &history{}}
		} else if ss := s.sessions[id]; ss != nil { // sessions come before their slots
			ss.before.applied[n%windowBatches] = n
			ss.before.highest = max(ss.before.highest, n)
			ss.highest = ss.before.highest
		}
		return nil
	})
	if err != nil {
		return err
	}
	if s.id == (ident{}) {
		rand.Read(s.id[:])
	}
	s.boot++
	return s.note(backup.Entry{Key: append([]byte{noteStore}, s.id[:]...), Value: appendNote(nil, s.boot)})
}

// noteOwner is who writes notes without a batch.
const noteOwner = "backup-server"

// note writes notes and waits until they are durable.
func (s *Server) note(notes ...backup.Entry) error {
	done := make(chan error, 1)
	s.store.ApplyNoted(&backup.Batch{Owner: noteOwner}, notes, func(err error) { done <- err })
	return <-done
}

// receive takes a message of a client. NATS calls it from one goroutine, which is what keeps batches in order.
func (s *Server) receive(m *nats.Msg) {
	kind, r, err := openFrame(m.Data)
	if err == nil {
		err = s.dispatch(kind, r, m.Reply)
	}
	if err == nil {
		return
	}
	s.mu.Lock()
	s.invalid++
	first := s.invalid == 1
	s.mu.Unlock()
	if first { // at most once per sweep
		s.o.Logger.Warn("invalid message to backup server", "err", err)
	}
}

func (s *Server) dispatch(kind byte, r reader, reply string) error {
	switch kind {
	case kindApply:
		a, err := decodeApply(r)
		if err == nil {
			s.onApply(&a, reply)
		}
		return err
	case kindProbe:
		p, err := decodeProbe(r)
		if err == nil {
			s.onProbe(&p, reply)
		}
		return err
	case kindBye:
		id, err := decodeBye(r)
		if err == nil {
			s.onBye(id)
		}
		return err
	case kindHello, kindFence, kindScan, kindTake:
		c, err := decodeCall(kind, r)
		if err == nil {
			s.onCall(kind, &c, reply)
		}
		return err
	}
	return fmt.Errorf("%w: kind %q", errFrame, kind)
}

func (s *Server) onCall(kind byte, c *call, reply string) {
	switch kind {
	case kindHello:
		s.onHello(c, reply)
	case kindFence:
		s.onFence(c, reply)
	case kindScan:
		s.onScan(c, reply)
	case kindTake:
		s.onTake(c, reply)
	}
}

// send publishes an answer. One that is lost is asked for again.
func (s *Server) send(reply string, frame []byte) {
	if reply == "" {
		return
	}
	if err := s.link.publish(reply, "", frame); err != nil {
		s.o.Logger.Debug("answer of backup server", "err", err)
	}
}

// goOff starts job in a goroutine, unless there are too many. s.mu is held.
func (s *Server) goOff(job func()) bool {
	if s.closed || s.running == maxJobs {
		return false
	}
	s.running++
	s.jobs.Go(func() {
		defer func() {
			s.mu.Lock()
			s.running--
			s.mu.Unlock()
		}()
		job()
	})
	return true
}

// onFence is done again for each time it is asked for: repeating is fine, and an epoch that has become older meanwhile
// is refused as it should be.
func (s *Server) onFence(c *call, reply string) {
	key := jobKey{reply, c.id}
	owner, epoch := c.owner, c.epoch
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fencing[key] {
		return
	}
	started := s.goOff(func() {
		err := s.store.Fence(owner, epoch)
		s.mu.Lock()
		if err == nil {
			for _, ss := range s.sessions {
				ss.fencedOff(owner, epoch)
			}
		}
		delete(s.fencing, key)
		s.mu.Unlock()
		if !errors.Is(err, backup.ErrClosed) {
			s.send(reply, appendAnswer(nil, kindFenced, &answer{c.id, resultOf(err)}))
		}
	})
	if started {
		s.fencing[key] = true
	} else {
		s.send(reply, appendAnswer(nil, kindBusy, &answer{id: c.id}))
	}
}

// sweepLoop drops what dead clients left behind.
func (s *Server) sweepLoop() {
	tick := time.NewTicker(s.o.patience.sweep)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case now := <-tick.C:
			s.sweep(now)
		}
	}
}

func (s *Server) sweep(now time.Time) {
	var old []ident
	s.mu.Lock()
	s.invalid = 0
	for id, ss := range s.sessions {
		silent := now.Sub(ss.heard)
		if silent > s.o.patience.parts && len(ss.wire) > 0 {
			s.bytes -= len(ss.wire)
			ss.wire = nil
		}
		if silent > s.o.patience.session || silent > s.o.patience.fenced && ss.isFenced() {
			old = append(old, id)
		}
	}
	for key, sc := range s.scans {
		if now.Sub(sc.heard) > s.o.patience.scan {
			sc.giveUp()
			delete(s.scans, key)
		}
	}
	s.mu.Unlock()
	for _, id := range old {
		s.onBye(id)
	}
}
