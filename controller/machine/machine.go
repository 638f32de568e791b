package machine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/afstream/afstream/cluster"
)

// Config sets the times. Zero values stand for what is given in brackets.
type Config struct {
	// Beat is how often nodes say something [100 ms].
	Beat time.Duration
	// SuspectFloor is the shortest silence after which a node is given nothing more [250 ms].
	SuspectFloor time.Duration
	// DeadFloor and DeadCeiling bound the silence after which a node is dead [600 ms, 5 s]. In between it depends on how
	// regularly its beats come. A lower floor finds the dead sooner, and takes a pause of a busy machine for a death.
	DeadFloor, DeadCeiling time.Duration
	// Gap is how much time may pass between two calls [1 s]. After more the controller was stopped itself, and nobody is
	// dead because of it.
	Gap time.Duration
	// BackoffFirst and BackoffMost bound the wait before a worker that has broken is tried again [100 ms, 10 s]. It doubles;
	// the first time there is none.
	BackoffFirst, BackoffMost time.Duration
	// Steady is how long a worker must have processed items for its earlier breaks to be forgotten [10 s].
	Steady time.Duration
	// Server is how long a backup server must have failed a job before the job goes on without it, for good [3 s]. Less
	// shortens the pause; more gives a server the time to be started again.
	Server time.Duration
	// Breaks in a row, without a steady time between them, end the job [8].
	Breaks int
	// Retire is how long a worker that has to move may take to end without loss [10 s]. After that it is moved at the cost of a
	// failure if its node is to be emptied, and else left where it is.
	Retire time.Duration
	// Calm is how long a job must have run without any change, and a node been up, before a worker is moved there to spread the
	// load [10 s]. So it is also the time between two such moves of a job.
	Calm time.Duration
	// Rest is for how long nothing may move while a job comes to rest, so that the number of workers of an operator can
	// change, and before that how long it may take until all its workers run [30 s]. Then the job goes on as it is; so it does
	// after ten times that, whatever moves: its sources are held for so long at most.
	Rest time.Duration
	// Unscalable says why the number of workers of no operator can change; empty if that can be.
	Unscalable string
}

// forgetAfter is how long a session without assignments is remembered.
const forgetAfter = time.Minute

// settling is how long it may take until all is as it will be: nodes of a cluster that has just been started are heard of, and those
// that run workers of a job that has ended have stopped them.
const settling = 2 * time.Second

func (c Config) withDefaults() Config {
	c.Beat = cmp.Or(c.Beat, 100*time.Millisecond)
	c.SuspectFloor = cmp.Or(c.SuspectFloor, 250*time.Millisecond)
	c.DeadFloor = cmp.Or(c.DeadFloor, 600*time.Millisecond)
	c.DeadCeiling = max(cmp.Or(c.DeadCeiling, 5*time.Second), c.DeadFloor)
	c.Gap = cmp.Or(c.Gap, time.Second)
	c.BackoffFirst = cmp.Or(c.BackoffFirst, 100*time.Millisecond)
	c.BackoffMost = max(cmp.Or(c.BackoffMost, 10*time.Second), c.BackoffFirst)
	c.Steady = cmp.Or(c.Steady, 10*time.Second)
	c.Server = cmp.Or(c.Server, 3*time.Second)
	c.Breaks = cmp.Or(c.Breaks, 8)
	c.Retire = cmp.Or(c.Retire, 10*time.Second)
	c.Calm = cmp.Or(c.Calm, 10*time.Second)
	c.Rest = cmp.Or(c.Rest, 30*time.Second)
	return c
}

// Write is a change of a record that has to be made. When its outcome is known, or cannot be had, the Machine is told
// what is stored (Record) and that the write is over (Settled).
type Write struct {
	Key      string
	Value    []byte // nil: delete the record
	Revision uint64 // that it must have
}

// Machine decides. It listens to beats at all times, so that it knows the nodes when it comes to lead; it decides
// between Lead and Rest, once Synced. It is for one goroutine.
type Machine struct {
	c       Config
	last    time.Time // of the last call
	swept   time.Time // when sessions were last forgotten
	yielded time.Time // when a job was last told to give up its places
	term    uint64
	leading bool
	deposed bool
	synced  time.Time // zero before Synced
	highest uint64    // term that was seen in any record

	sessions map[sessionKey]*session
	nodes    map[string]*node
	jobs     map[string]*job
	cancel   map[string]uint64    // wishes by job: their revisions
	scale    map[string]scaleWish // by job
	drain    map[string]bool      // wishes by node
	deleting map[string]bool      // keys of wishes whose deletion is under way
}

// node is a record of a node.
type node struct {
	session  string
	revision uint64
}

// job is a record of a job, and what is known of it besides.
type job struct {
	stored   *cluster.Job
	revision uint64
	next     *cluster.Job      // its write is under way; nil if there is none
	seen     time.Time         // when this leader first saw it as it is: queued, running or ended
	waits    time.Time         // since when there has been no place for some of its workers; zero if there is
	cleared  bool              // its backups are gone
	trouble  []trouble         // by worker
	move     *move             // of the worker that is asked to retire; nil if there is none
	calm     time.Time         // since when all its workers have been running; zero if they are not
	servers  suspects          // backup servers
	waiting  waiting           // of the change of the number of workers under way
	accused  []cluster.Suspect // backup servers that this controller could not reach, while it freezes or drops
	frozen   uint64            // the layout that is
	dropped  uint64            // the layout of which the one before is
}

// New returns a machine that does not lead.
func New(c Config) *Machine {
	m := &Machine{c: c.withDefaults(), sessions: map[sessionKey]*session{}}
	m.forget()
	return m
}

func (m *Machine) forget() {
	m.nodes, m.jobs = map[string]*node{}, map[string]*job{}
	m.scale = map[string]scaleWish{}
	m.cancel, m.drain, m.deleting = map[string]uint64{}, map[string]bool{}, map[string]bool{}
	m.synced, m.leading, m.deposed, m.term = time.Time{}, false, false, 0
}

// Lead begins to lead in a term. All records have to be told from now on, and Synced when they all were.
func (m *Machine) Lead(now time.Time, term uint64) {
	m.advance(now)
	m.forget()
	m.leading, m.term, m.highest = true, term, max(m.highest, term)
}

// Synced says that all there is was told. Every node is given the full time before it may be called dead.
func (m *Machine) Synced(now time.Time) {
	m.advance(now)
	m.synced = now
	m.forgive(now)
}

// Rest ends leading. What was under way is no longer waited for.
func (m *Machine) Rest() { m.forget() }

// Deposed says that a record was seen that a later leader has written.
func (m *Machine) Deposed() bool { return m.deposed }

// Highest is the highest term that was seen.
func (m *Machine) Highest() uint64 { return m.highest }

// advance notices if the process was stopped. Then it is not the nodes that were silent.
func (m *Machine) advance(now time.Time) {
	if !m.last.IsZero() && now.Sub(m.last) > m.c.Gap {
		m.forgive(now)
	}
	if now.After(m.last) {
		m.last = now
	}
}

func (m *Machine) forgive(now time.Time) {
	for _, s := range m.sessions {
		s.forgive(now)
	}
}

// Beat takes in what a node says. The machine keeps b.
func (m *Machine) Beat(now time.Time, b *cluster.Beat) {
	m.advance(now)
	m.session(b.Node, b.Session, now).hear(&m.c, now, b)
}

// ErrKey is wrapped by errors about records that are none of the known kinds.
var ErrKey = errors.New("unknown kind of record")

// Record takes in a record as it is stored; older ones than are known already are left aside. A deletion whose revision is
// 0 always counts. An error says that the record cannot be read, and is left as it is.
func (m *Machine) Record(now time.Time, r cluster.Record) error {
	m.advance(now)
	if id, ok := strings.CutPrefix(r.Key, cluster.JobPrefix); ok {
		return m.jobRecord(now, id, r)
	}
	if name, ok := strings.CutPrefix(r.Key, cluster.NodePrefix); ok {
		return m.nodeRecord(now, name, r)
	}
	if id, ok := strings.CutPrefix(r.Key, cluster.CancelKey("")); ok {
		if delete(m.cancel, id); r.Value != nil {
			m.cancel[id] = r.Revision
		}
		return nil
	}
	if id, ok := strings.CutPrefix(r.Key, cluster.ScaleKey("")); ok {
		return m.scaleRecord(id, r)
	}
	if name, ok := strings.CutPrefix(r.Key, cluster.DrainKey("")); ok {
		if delete(m.drain, name); r.Value != nil {
			m.drain[name] = true
		}
		return nil
	}
	return fmt.Errorf("record %q: %w", r.Key, ErrKey)
}

func (m *Machine) jobRecord(now time.Time, id string, r cluster.Record) error {
	j := m.jobs[id]
	if j != nil && r.Revision != 0 && r.Revision <= j.revision {
		return nil
	}
	if r.Value == nil {
		delete(m.jobs, id)
		return nil
	}
	stored, err := cluster.DecodeJob(r.Value)
	if err == nil && stored.ID != id {
		err = fmt.Errorf("%w a job: it is that of %s", cluster.ErrRecord, stored.ID)
	}
	if err != nil {
		return fmt.Errorf("record %q: %w", r.Key, err)
	}
	if j == nil {
		j = &job{seen: now}
		m.jobs[id] = j
	} else if j.stored.State != stored.State {
		j.seen = now
	}
	if j.stored == nil || j.stored.Layout != stored.Layout || len(j.trouble) != len(stored.Workers) {
		j.trouble, j.move = make([]trouble, len(stored.Workers)), nil
	}
	j.stored, j.revision = stored, r.Revision
	m.highest = max(m.highest, stored.Term)
	m.deposed = m.deposed || m.leading && stored.Term > m.term
	return nil
}

func (m *Machine) nodeRecord(now time.Time, name string, r cluster.Record) error {
	n := m.nodes[name]
	if n != nil && r.Revision != 0 && r.Revision <= n.revision {
		return nil
	}
	if r.Value == nil {
		delete(m.nodes, name)
		return nil
	}
	decoded, err := cluster.DecodeNode(r.Value)
	if err != nil {
		return fmt.Errorf("record %q: %w", r.Key, err)
	}
	m.nodes[name] = &node{session: decoded.Session, revision: r.Revision}
	m.session(name, decoded.Session, now)
	return nil
}

// Settled says that the write of a key is over, however it went. What is stored now was told before.
func (m *Machine) Settled(key string) {
	delete(m.deleting, key)
	if id, ok := strings.CutPrefix(key, cluster.JobPrefix); ok && m.jobs[id] != nil {
		m.jobs[id].next = nil
	}
}

// Step returns what has to be written now. It has to be called several times per beat.
func (m *Machine) Step(now time.Time) []Write {
	m.advance(now)
	if now.Sub(m.swept) > forgetAfter/2 {
		m.swept = now
		m.forgetSessions(now)
	}
	if !m.leading || m.deposed || m.synced.IsZero() {
		return nil
	}
	seats, yields := m.seats(now), m.yields(now)
	var writes []Write
	for _, j := range m.inOrder() {
		if j.next != nil {
			continue
		}
		if next := m.decide(now, j, seats, j == yields); next != nil {
			j.next = next
			writes = append(writes, Write{Key: cluster.JobKey(next.ID), Value: next.Encode(), Revision: j.revision})
		}
	}
	return append(writes, m.wishesDone()...)
}

// inOrder returns the jobs of which something may have to be written, in the order in which they may take places: who has lost
// some first, then who waits longest.
func (m *Machine) inOrder() []*job {
	var jobs []*job
	for _, j := range m.jobs {
		if !j.stored.State.Ended() || j.cleared && !j.stored.Cleared {
			jobs = append(jobs, j)
		}
	}
	queued := func(j *job) int {
		if j.stored.State == cluster.Queued {
			return 1
		}
		return 0
	}
	slices.SortFunc(jobs, func(a, b *job) int {
		return cmp.Or(cmp.Compare(queued(a), queued(b)), a.stored.Submitted.Compare(b.stored.Submitted), cmp.Compare(a.stored.ID, b.stored.ID))
	})
	return jobs
}

// wishesDone deletes the wishes that jobs end once these have, and those that were taken over.
func (m *Machine) wishesDone() []Write {
	writes := m.scaleWishesDone()
	for id, revision := range m.cancel {
		key := cluster.CancelKey(id)
		if j := m.jobs[id]; j != nil && j.stored.State.Ended() && !m.deleting[key] {
			m.deleting[key] = true
			writes = append(writes, Write{Key: key, Revision: revision})
		}
	}
	slices.SortFunc(writes, func(a, b Write) int { return cmp.Compare(a.Key, b.Key) })
	return writes
}

// ToClear returns the jobs whose backups can go: they have ended some time ago, and no node says that it still runs
// some of their workers. They are not to be changed.
func (m *Machine) ToClear(now time.Time) []*cluster.Job {
	if !m.leading || m.deposed || m.synced.IsZero() {
		return nil
	}
	var jobs []*cluster.Job
	for _, j := range m.jobs {
		if j.stored.State.Ended() && !j.stored.Cleared && !j.cleared && now.Sub(j.seen) > settling && !m.runs(j.stored.ID, now) {
			jobs = append(jobs, j.stored)
		}
	}
	slices.SortFunc(jobs, func(a, b *cluster.Job) int { return cmp.Compare(a.ID, b.ID) })
	return jobs
}

// runs says whether a node that is up tells of workers of a job.
func (m *Machine) runs(job string, now time.Time) bool {
	for _, s := range m.sessions {
		if s.beat != nil && m.dead(s, now) == "" && slices.ContainsFunc(s.beat.Workers, func(st cluster.Status) bool { return st.Job == job }) {
			return true
		}
	}
	return false
}

// Cleared says that the backups of a job are gone; the record will say so.
func (m *Machine) Cleared(id string) {
	if j := m.jobs[id]; j != nil {
		j.cleared = true
	}
}
