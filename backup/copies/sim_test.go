package copies

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
)

var (
	simRuns = flag.Int("sim.runs", 6, "runs of the simulation")
	simSeed = flag.Uint64("sim.seed", 0, "seed of the first run of the simulation; 0 for a new one")
)

// sim is some servers and a sequence of processes, in fake time. Each process takes over all owners in an epoch of its own
// while the one before may still be running, and learns late of which servers were dropped.
type sim struct {
	t       *testing.T
	seed    uint64
	servers []*server
	owners  []string
	marking bool

	mu      sync.Mutex
	rng     *rand.Rand
	calm    bool
	decided []string // the view
	views   [][]string
	procs   []*process
	nodes   map[string][]*node // of each owner, by number
	shown   map[string][]showing
	marked  map[string]map[uint64]uint64 // of each owner: the highest mark that an epoch has read, or made durable
	stats   struct{ acked, unacked, fences, drops, refused, larger int }
}

// node is a batch, on top of another one.
type node struct {
	id     uint64
	parent *node
	epoch  uint64
	batch  *backup.Batch // sent
	kept   *backup.Batch // what it was: the other one is the caller's again
	acked  bool
}

// showing is what a process read after its fence.
type showing struct {
	epoch uint64
	at    *node
}

var errSim = errors.New("simulated failure")

type server struct {
	name  string
	store backup.Store
	down  bool
}

func (m *sim) random(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.IntN(n)
}

// nap lets some time pass, never the same as another.
func (m *sim) nap(most time.Duration) {
	m.mu.Lock()
	d := time.Duration(m.rng.Int64N(int64(most)))
	m.mu.Unlock()
	time.Sleep(d)
}

// wire is a connection of a process to a server. Requests are carried out in order.
type wire struct {
	m      *sim
	server *server
	queue  chan wireRequest
	stop   chan struct{}
	ended  sync.WaitGroup

	mu   sync.Mutex
	cut  bool
	dead bool
}

type wireRequest struct {
	run  func(backup.Store) error
	done func(error)
}

func newWire(m *sim, s *server) *wire {
	w := &wire{m: m, server: s, queue: make(chan wireRequest, 1000), stop: make(chan struct{})}
	w.ended.Go(w.loop)
	return w
}

func (w *wire) loop() {
	for {
		select {
		case r := <-w.queue:
			w.carry(r)
		case <-w.stop:
			for {
				select {
				case r := <-w.queue:
					r.done(errSim)
				default:
					return
				}
			}
		}
	}
}

func (w *wire) isCut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	return w.cut || w.server.down
}

func (w *wire) isDead() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

func (w *wire) carry(r wireRequest) {
	w.m.nap(2 * time.Millisecond)
	for range 100 {
		if w.isDead() && w.m.random(2) == 0 {
			r.done(errSim) // it never got there
			return
		}
		if !w.isCut() {
			break
		}
		w.m.nap(100 * time.Millisecond)
	}
	fate := w.m.random(100)
	if w.m.isCalm() {
		fate = 99
	}
	switch {
	case w.isCut() || fate == 0:
		r.done(errSim)
	case fate == 1: // nobody hears of it
		_ = r.run(w.server.store)
		r.done(errSim)
	case fate == 2: // it arrives late
		r.done(errSim)
		w.m.nap(300 * time.Millisecond)
		_ = r.run(w.server.store)
	default:
		r.done(r.run(w.server.store))
	}
}

// ask queues a request, which fails at once if the process was killed.
func (w *wire) ask(r wireRequest) {
	w.mu.Lock()
	dead := w.dead
	if !dead {
		w.queue <- r
	}
	w.mu.Unlock()
	if dead {
		r.done(errSim)
	}
}

func (w *wire) Apply(b *backup.Batch, done func(error)) {
	w.ask(wireRequest{func(s backup.Store) error { return applyWait(s, b) }, done})
}

func (w *wire) wait(run func(s backup.Store) error) error {
	done := make(chan error, 1)
	w.ask(wireRequest{run, func(err error) { done <- err }})
	select {
	case err := <-done:
		return err
	case <-w.stop:
		return errSim
	}
}

func (w *wire) Fence(owner string, epoch uint64) error {
	return w.wait(func(s backup.Store) error { return s.Fence(owner, epoch) })
}

func (w *wire) Scan(prefix []byte, fn func(key, value []byte) error) error {
	found := make(chan []backup.Entry, 1)
	err := w.wait(func(s backup.Store) error {
		var list []backup.Entry
		err := s.Scan(prefix, func(key, value []byte) error {
			list = append(list, backup.Entry{Key: bytes.Clone(key), Value: bytes.Clone(value)})
			return nil
		})
		found <- list
		return err
	})
	if err != nil {
		return err
	}
	for _, e := range <-found {
		if !w.m.isCalm() && w.m.random(200) == 0 {
			return errSim
		}
		if err := fn(e.Key, e.Value); err != nil {
			return err
		}
	}
	return nil
}

func (w *wire) Close() error {
	w.mu.Lock()
	w.dead = true
	w.mu.Unlock()
	close(w.stop)
	w.ended.Wait()
	return nil
}

// markingWire also keeps marks.
type markingWire struct{ *wire }

func (w markingWire) usable() error {
	if w.isDead() || w.isCut() {
		return errSim
	}
	return nil
}

func (w markingWire) Mark(owner string, epoch uint64, record []byte) (bool, error) {
	if err := w.usable(); err != nil {
		return false, err
	}
	return w.server.store.(backup.Marker).Mark(owner, epoch, record)
}

func (w markingWire) ReadMark(owner string) ([]byte, error) {
	if err := w.usable(); err != nil {
		return nil, err
	}
	return w.server.store.(backup.Marker).ReadMark(owner)
}

func (w markingWire) DropMarks(prefix string) error { return nil }

// process is one client of the servers.
type process struct {
	m       *sim
	epoch   uint64
	store   *Store
	wires   []*wire
	ctx     context.Context
	kill    context.CancelFunc
	working sync.WaitGroup
	ended   chan struct{}
}

func newSim(t *testing.T, seed uint64) *sim {
	m := &sim{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)),
		nodes: map[string][]*node{}, shown: map[string][]showing{}, marked: map[string]map[uint64]uint64{},
	}
	for i := range 2 + m.rng.IntN(2) {
		m.servers = append(m.servers, &server{name: string(rune('a' + i)), store: backup.NewMemory()})
		m.decided = append(m.decided, m.servers[i].name)
	}
	m.views = [][]string{m.decided}
	for i := range 2 {
		owner := backup.PartitionKey{Job: "j", Incarnation: "i", Operator: "o", Partition: i}.Owner()
		m.owners = append(m.owners, owner)
		m.nodes[owner], m.marked[owner] = []*node{{}}, map[uint64]uint64{}
	}
	m.marking = m.rng.IntN(3) == 0
	return m
}

func (m *sim) isCalm() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calm
}

// start begins a process, which knows a view that was decided some time.
func (m *sim) start() *process {
	m.mu.Lock()
	p := &process{m: m, epoch: uint64(len(m.procs) + 1), ended: make(chan struct{})}
	p.ctx, p.kill = context.WithCancel(context.Background())
	m.procs = append(m.procs, p)
	from := m.rng.IntN(len(m.views))
	if m.calm {
		from = len(m.views) - 1
	}
	view, later := m.views[from], m.views[from+1:]
	m.mu.Unlock()
	var list []Member
	for _, s := range m.servers {
		if !slices.Contains(view, s.name) {
			continue
		}
		w := newWire(m, s)
		p.wires = append(p.wires, w)
		if m.marking {
			list = append(list, Member{s.name, markingWire{w}})
		} else {
			list = append(list, Member{s.name, w})
		}
	}
	p.store = New(list, Options{Patience: time.Second, Suspect: m.suspect})
	for _, v := range later {
		p.learn(v)
	}
	for _, owner := range m.owners {
		p.working.Go(func() { p.own(owner) })
	}
	go p.end()
	return p
}

// end cleans up after a process that was killed.
func (p *process) end() {
	<-p.ctx.Done()
	for _, w := range p.wires {
		_ = w.Close()
	}
	_ = p.store.Close()
	p.working.Wait()
	close(p.ended)
}

// learn tells the process of a view after a while.
func (p *process) learn(view []string) {
	p.working.Go(func() {
		p.m.nap(8 * time.Second)
		for _, name := range p.store.View() {
			if !slices.Contains(view, name) && p.ctx.Err() == nil {
				_ = p.store.Drop(name)
			}
		}
	})
}

// suspect decides, now and then, that a server is dropped.
func (m *sim) suspect(name string, _ error) {
	if m.random(3) == 0 {
		m.drop(name)
	}
}

func (m *sim) drop(name string) {
	m.mu.Lock()
	if m.calm || len(m.decided) == 1 || !slices.Contains(m.decided, name) {
		m.mu.Unlock()
		return
	}
	m.decided = slices.DeleteFunc(slices.Clone(m.decided), func(n string) bool { return n == name })
	m.views = append(m.views, m.decided)
	view, procs := m.decided, slices.Clone(m.procs)
	m.stats.drops++
	m.mu.Unlock()
	for _, p := range procs {
		if p.ctx.Err() == nil {
			p.learn(view)
		}
	}
}

// own takes an owner over and then writes until the process ends or somebody else has taken over.
func (p *process) own(owner string) {
	at, ok := p.takeOver(owner)
	if !ok {
		return
	}
	m := p.m
	var writing sync.WaitGroup
	var mu sync.Mutex
	broken := false
	flight := make(chan struct{}, 1+m.random(3))
	mark := uint64(0)
	for p.ctx.Err() == nil {
		m.nap(20 * time.Millisecond)
		mu.Lock()
		stop := broken
		mu.Unlock()
		if stop {
			break
		}
		if m.marking && m.random(2) == 0 {
			mark = p.mark(owner, mark)
		}
		select {
		case flight <- struct{}{}:
		case <-p.ctx.Done():
			continue
		}
		n := m.draw(owner, at, p.epoch)
		at = n
		writing.Add(1)
		p.store.Apply(n.batch, func(err error) {
			m.outcome(p, n, err)
			if err != nil {
				mu.Lock()
				broken = true
				mu.Unlock()
			}
			// The batch is the caller's again: nobody may read it any more.
			for i := range n.batch.Puts {
				clear(n.batch.Puts[i].Value)
			}
			<-flight
			writing.Done()
		})
	}
	<-p.ctx.Done()
	writing.Wait()
}

func (m *sim) outcome(p *process, n *node, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil && p.ctx.Err() == nil:
		n.acked = true
		m.stats.acked++
	case errors.Is(err, backup.ErrFenced):
		m.stats.refused++
	default:
		m.stats.unacked++
	}
}

func (p *process) mark(owner string, n uint64) uint64 {
	n++
	number := p.epoch<<32 + n
	ok, err := p.store.Mark(owner, p.epoch, fmt.Append(nil, number))
	if ok && err == nil && p.ctx.Err() == nil {
		p.m.mu.Lock()
		p.m.marked[owner][p.epoch] = number
		p.m.mu.Unlock()
	}
	return n
}

func prefixOf(owner string) string {
	ranges := backup.OwnedKeys(owner)
	return string(ranges[len(ranges)-1].Prefix)
}

// draw makes a batch: some keys put and deleted, and its number.
func (m *sim) draw(owner string, parent *node, epoch uint64) *node {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := &node{id: uint64(len(m.nodes[owner])), parent: parent, epoch: epoch}
	m.nodes[owner] = append(m.nodes[owner], n)
	prefix := prefixOf(owner)
	b := &backup.Batch{Owner: owner, Epoch: epoch}
	b.Puts = append(b.Puts, backup.Entry{Key: []byte(prefix + "last"), Value: fmt.Append(nil, n.id)})
	for range m.rng.IntN(14) {
		b.Puts = append(b.Puts, backup.Entry{Key: fmt.Append(nil, prefix, "k", m.rng.IntN(30)), Value: fmt.Append(nil, n.id)})
	}
	for range m.rng.IntN(3) {
		b.Deletes = append(b.Deletes, fmt.Append(nil, prefix, "k", m.rng.IntN(30)))
	}
	if m.rng.IntN(80) == 0 { // has no room for its number
		key := fmt.Append(nil, prefix, "large", m.rng.IntN(3))
		room := backup.MaxBatchBytes - b.Size() - entryOverhead - len(key)
		b.Puts = append(b.Puts, backup.Entry{Key: key, Value: bytes.Repeat([]byte{byte(n.id)}, room)})
	}
	kept := *b
	kept.Puts = nil
	for _, e := range b.Puts {
		kept.Puts = append(kept.Puts, backup.Entry{Key: e.Key, Value: bytes.Clone(e.Value)})
	}
	n.batch, n.kept = b, &kept
	return n
}

// replay returns what the batches up to n make of nothing.
func replay(n *node) map[string]string {
	var path []*node
	for ; n.parent != nil; n = n.parent {
		path = append(path, n)
	}
	state := map[string]string{}
	for _, n := range slices.Backward(path) {
		for _, e := range n.kept.Puts {
			state[string(e.Key)] = string(e.Value)
		}
		for _, k := range n.kept.Deletes {
			delete(state, string(k))
		}
	}
	return state
}

// path is the batches up to n, that on which all build included.
func (n *node) path() map[*node]bool {
	path := map[*node]bool{}
	for ; n != nil; n = n.parent {
		path[n] = true
	}
	return path
}

// takeOver fences an owner and checks what there is. ok is false if the process has ended, or somebody else took over.
func (p *process) takeOver(owner string) (at *node, ok bool) {
	m := p.m
	for p.ctx.Err() == nil {
		err := p.store.Fence(owner, p.epoch)
		if errors.Is(err, backup.ErrFenced) {
			return nil, false
		}
		if errors.Is(err, ErrIncomplete) {
			m.fail("epoch %d of %s: %v", p.epoch, owner, err)
		}
		state := map[string]string{}
		var mark []byte
		if err == nil {
			err = p.store.Scan([]byte(prefixOf(owner)), func(key, value []byte) error {
				state[string(key)] = string(value)
				return nil
			})
		}
		if err == nil {
			mark, err = p.store.ReadMark(owner)
		}
		if err == nil { // otherwise what was read may be that of a successor
			err = p.store.Fence(owner, p.epoch)
		}
		if errors.Is(err, backup.ErrFenced) {
			return nil, false
		}
		if err == nil && p.ctx.Err() == nil {
			return p.check(owner, state, mark), true
		}
		m.nap(200 * time.Millisecond)
	}
	return nil, false
}

func (m *sim) fail(format string, args ...any) {
	m.t.Errorf("seed %d: "+format, append([]any{m.seed}, args...)...)
}

// check looks at what a process has found after its fence.
func (p *process) check(owner string, state map[string]string, mark []byte) *node {
	m := p.m
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats.fences++
	id, _ := strconv.ParseUint(state[prefixOf(owner)+"last"], 10, 64)
	at := m.nodes[owner][id]
	if want := replay(at); !maps.Equal(want, state) {
		m.fail("epoch %d of %s: what is there is not that of batch %d: %d keys for %d", p.epoch, owner, id, len(state), len(want))
	}
	if m.marking {
		found, _ := strconv.ParseUint(string(mark), 10, 64)
		for epoch, number := range m.marked[owner] {
			if epoch < p.epoch && found < number {
				m.fail("epoch %d of %s: mark %x, and %x was durable in epoch %d", p.epoch, owner, found, number, epoch)
			}
		}
		m.marked[owner][p.epoch] = found // what was shown must stay, too
	}
	m.shown[owner] = append(m.shown[owner], showing{p.epoch, at})
	if p.epoch == uint64(len(m.procs)) { // nobody writes, so that all must be alike
		for _, s := range m.servers {
			if slices.Contains(p.store.View(), s.name) {
				if !maps.Equal(contentsOf(m.t, s.store, prefixOf(owner)), state) {
					m.fail("epoch %d of %s: server %s has something else", p.epoch, owner, s.name)
				}
				kept, err := s.store.(backup.Marker).ReadMark(owner)
				require.NoError(m.t, err)
				if _, kept = cutMark(kept); m.marking && !bytes.Equal(kept, mark) {
					m.fail("epoch %d of %s: server %s has mark %s, not %s", p.epoch, owner, s.name, kept, mark)
				}
			}
		}
	}
	if len(p.store.View()) > len(m.decided) {
		m.stats.larger++
	}
	return at
}

func contentsOf(t *testing.T, s backup.Store, prefix string) map[string]string {
	state := map[string]string{}
	require.NoError(t, s.Scan([]byte(prefix), func(key, value []byte) error {
		state[string(key)] = string(value)
		return nil
	}))
	return state
}

// verdict checks that nothing that was reported durable, and nothing that was read, is missing in what was read later.
func (m *sim) verdict() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, owner := range m.owners {
		for i, later := range m.shown[owner] {
			there := later.at.path()
			for _, n := range m.nodes[owner] {
				if n.acked && n.epoch < later.epoch && !there[n] {
					m.fail("%s: epoch %d was at batch %d, without batch %d of epoch %d, which was durable", owner, later.epoch, later.at.id, n.id, n.epoch)
				}
			}
			for _, earlier := range m.shown[owner][:i] {
				if earlier.epoch < later.epoch && !there[earlier.at] {
					m.fail("%s: epoch %d was at batch %d, without batch %d, which epoch %d had read", owner, later.epoch, later.at.id, earlier.at.id, earlier.epoch)
				}
			}
		}
	}
}

// disturb does something bad.
func (m *sim) disturb() {
	m.nap(500 * time.Millisecond)
	switch m.random(10) {
	case 0, 1: // a server is away
		s := m.servers[m.random(len(m.servers))]
		m.setDown(s, true)
		m.nap(4 * time.Second)
		m.setDown(s, false)
	case 2, 3, 4: // a connection is
		m.mu.Lock()
		p := m.procs[len(m.procs)-1]
		m.mu.Unlock()
		w := p.wires[m.random(len(p.wires))]
		w.setCut(true)
		m.nap(4 * time.Second)
		w.setCut(false)
	case 5: // a server is dropped although nothing is wrong
		if m.random(3) == 0 {
			m.drop(m.servers[m.random(len(m.servers))].name)
		}
	case 6, 7: // the newest process is killed, or only replaced
		m.mu.Lock()
		p := m.procs[len(m.procs)-1]
		m.mu.Unlock()
		if m.random(3) > 0 {
			p.kill()
		}
		m.start()
	}
}

func (m *sim) setDown(s *server, down bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.down = down
}

func (w *wire) setCut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
}

// run ends with all servers lost but one of the view, and a last process that takes over.
func (m *sim) run() {
	m.start()
	for range 30 {
		m.disturb()
	}
	m.mu.Lock()
	procs := slices.Clone(m.procs)
	m.mu.Unlock()
	for _, p := range procs {
		p.kill()
		<-p.ended
	}
	m.mu.Lock()
	m.calm = true
	m.decided = []string{m.decided[m.rng.IntN(len(m.decided))]}
	m.views = append(m.views, m.decided)
	m.mu.Unlock()
	last := m.start()
	for {
		time.Sleep(time.Second)
		m.mu.Lock()
		all := true
		for _, owner := range m.owners {
			shown := m.shown[owner]
			all = all && len(shown) > 0 && shown[len(shown)-1].epoch == last.epoch
		}
		m.mu.Unlock()
		if all {
			break
		}
	}
	last.kill()
	<-last.ended
	m.verdict()
}

// Whatever fails, and however late the processes learn of the view: what was reported durable is there for each successor, what
// a successor has read is there for all that follow, and one of the view is enough.
func TestSimulation(t *testing.T) {
	seed := *simSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seeds from %d", seed)
	var acked, unacked, fences, drops, refused, larger int
	for run := range uint64(*simRuns) {
		synctest.Test(t, func(t *testing.T) {
			m := newSim(t, seed+run)
			m.run()
			acked += m.stats.acked
			unacked += m.stats.unacked
			fences += m.stats.fences
			drops += m.stats.drops
			refused += m.stats.refused
			larger += m.stats.larger
		})
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%d batches durable, %d not, %d refused, %d times taken over, %d of these with an older view, %d drops", acked, unacked, refused, fences, larger, drops)
	if *simRuns >= 20 {
		require.Positive(t, unacked)
		require.Positive(t, refused)
		require.Positive(t, larger)
	}
}
