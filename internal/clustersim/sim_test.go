package clustersim

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/cluster/clustertest"
	"github.com/afstream/afstream/controller/leader"
	"github.com/afstream/afstream/controller/machine"
	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/node"
	"github.com/afstream/afstream/transport/link"
)

var (
	simRuns = flag.Int("sim.runs", thorough.Number(5, 16), "seeds of TestSimulation")
	simSeed = flag.Uint64("sim.seed", 0, "run only this seed, and say what happens")
)

// TestSimulation runs clusters through faults, see the package comment.
func TestSimulation(t *testing.T) {
	var sum tally
	if *simSeed != 0 {
		simulate(t, *simSeed, &sum, true)
		return
	}
	t.Run("seed", func(t *testing.T) {
		for seed := range uint64(*simRuns) {
			t.Run(fmt.Sprint(seed+1), func(t *testing.T) {
				t.Parallel()
				simulate(t, seed+1, &sum, false)
				if t.Failed() {
					t.Errorf("seed %d: again with -sim.seed=%d", seed+1, seed+1)
				}
			})
		}
	})
	t.Log(&sum)
	if *simRuns < 200 {
		return
	}
	// Runs that stay far from the bounds would prove nothing.
	require.Greater(t, sum.lost, 0.2)
	require.Greater(t, sum.again, 0.2)
	require.Greater(t, sum.zombies, *simRuns/40)
	require.Greater(t, sum.flushed, *simRuns/40)
	require.Greater(t, sum.moves, *simRuns/4)
	require.Greater(t, sum.scaled, *simRuns/4)
}

const (
	store     = "store"
	beat      = 200 * time.Millisecond
	nodeLease = 10 * time.Second
	// grace is how long after the end of a lease or a job a worker may still do something: until its node has looked, and it has
	// come to the end of a slab.
	grace = 2 * time.Second
	step  = 100 * time.Millisecond
	most  = 3 * time.Minute  // after the faults, by when all jobs must have ended
	quiet = 15 * time.Second // after that, by when nothing of them may run any more
)

// run is one run. The test's goroutine owns what is not marked.
type run struct {
	t           *testing.T
	rnd         *rand.Rand
	draw        *rand.Rand // for all that is about numbers of workers: what else happens does not depend on it
	say         bool
	began       time.Time
	net         *clustertest.Net
	store       backup.Store
	plans       []*plan
	ledgers     map[string]*ledger
	records     *records
	nodes       []*site
	controllers []*site
	later       []due
	wanted      map[string][]byte // what users want of records; nil is none
	wishes      int               // to scale, so far
	scaling     time.Duration     // that is wished about so often; 0: never
	rest        time.Duration     // how long jobs may take to come to rest

	calm   atomic.Bool // all faults are over, and what they have led to
	mu     sync.Mutex
	faults []string // any goroutine, under mu
	opened int      // stores that nodes have open, under mu
	healed bool
}

// due is something to do at a time.
type due struct {
	at time.Time
	do func()
}

func simulate(t *testing.T, seed uint64, sum *tally, say bool) {
	synctest.Test(t, func(t *testing.T) {
		r := &run{t: t, rnd: rand.New(rand.NewPCG(seed, 11)), draw: rand.New(rand.NewPCG(seed, 12)), say: say, began: time.Now(), store: backup.NewMemory(), ledgers: map[string]*ledger{}, wanted: map[string][]byte{}}
		r.net = clustertest.New(t, seed, drawFaults(r.rnd))
		lasts := 10*time.Second + r.upTo(20*time.Second)
		r.scaling, r.rest = pick(r.draw, 0, 0, time.Second, 4*time.Second), pick(r.draw, 2*time.Second, 5*time.Second, 10*time.Second)
		r.setUp(lasts)
		r.disturb(lasts)
		r.heal()
		r.settle()
		r.tearDown()
		r.judge(sum)
	})
}

func (r *run) log(format string, args ...any) {
	if r.say {
		r.t.Logf("%8.3f %s", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
	}
}

// fault notes what must not be. Any goroutine may call.
func (r *run) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.faults) < 10 {
		r.faults = append(r.faults, fmt.Sprintf("at %v: ", time.Since(r.began))+fmt.Sprintf(format, args...))
	}
}

// upTo is a time of at most d.
func (r *run) upTo(d time.Duration) time.Duration { return time.Duration(r.rnd.Int64N(int64(d))) }

func (r *run) node() *site       { return pick(r.rnd, r.nodes...) }
func (r *run) controller() *site { return pick(r.rnd, r.controllers...) }

// after does something in a while.
func (r *run) after(d time.Duration, do func()) {
	r.later = append(r.later, due{time.Now().Add(d), do})
}

func (r *run) cut(place string, most time.Duration) {
	r.net.Cut(place)
	r.after(r.upTo(most), func() { r.net.Heal(place) })
}

func (r *run) block(from, to string, most time.Duration) { r.blockFor(from, to, r.upTo(most)) }

func (r *run) blockFor(from, to string, d time.Duration) {
	r.net.Block(from, to)
	r.after(d, func() { r.net.Unblock(from, to) })
}

// setUp draws what there is, and starts it.
func (r *run) setUp(lasts time.Duration) {
	r.records = newRecords(r)
	slots := 0
	for i := range 1 + r.rnd.IntN(2) {
		p := drawPlan(r.rnd, fmt.Sprint("job", i), lasts)
		p.keyed = r.draw.IntN(2) == 0
		r.plans = append(r.plans, p)
		l := newLedger(p)
		nodes, err := p.topology(l, r.began, nil).Build()
		if err != nil {
			r.t.Fatal(err)
		}
		l.nodes = nodes
		l.unseen = func() []*cluster.Job { return r.records.unseen(p.id) }
		l.lease = r.records.lease
		r.ledgers[p.id] = l
		slots = max(slots, p.workers())
		r.log("%v", p)
		r.after(r.upTo(lasts/4), func() { r.submit(p) })
	}
	many := 3 + r.rnd.IntN(2)
	slots = (slots+many-1)/many + r.rnd.IntN(4) // room for the larger job, sometimes for both
	for i := range many {
		s := &site{name: string(rune('a' + i))}
		s.run = func(ctx context.Context, p *clustertest.Process) error { return r.runNode(ctx, s, p, slots) }
		r.nodes = append(r.nodes, s)
		s.begin(r)
	}
	for i := range 2 {
		s := &site{name: fmt.Sprint("c", i)}
		s.run = func(ctx context.Context, p *clustertest.Process) error { return r.runController(ctx, s, p) }
		r.controllers = append(r.controllers, s)
		s.begin(r)
	}
}

func (r *run) logger(name string) *slog.Logger {
	if !r.say {
		return nil
	}
	return slog.New(slog.NewTextHandler(r.t.Output(), nil)).With("at", name)
}

func (r *run) runNode(ctx context.Context, s *site, p *clustertest.Process, slots int) error {
	bus, err := link.NewBusOver(p.Carrier(), "afstream.sim")
	if err != nil {
		return err
	}
	o := node.Options{
		Name: s.name, Slots: slots, Cluster: "sim", Records: p, Messages: p, Bus: bus, Beat: beat, Lease: nodeLease, Limits: "none", Log: r.logger(s.name),
		OpenStore: func(context.Context, string) (backup.Store, error) {
			r.open(1)
			return counted{p.Store(store, r.store), r}, nil
		},
	}
	for _, p := range r.plans {
		o.Programs = append(o.Programs, p.program(r.ledgers[p.id], r.began, s))
	}
	err = node.Run(ctx, o)
	if open := bus.Stats().Open; open != 0 {
		r.fault("node %s has left %d ends of links open", s.name, open)
	}
	bus.Close()
	return err
}

// counted is a store that is counted while it is open.
type counted struct {
	backup.Store
	r *run
}

func (c counted) Close() error {
	c.r.open(-1)
	return c.Store.Close()
}

func (r *run) open(more int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened += more
}

func (r *run) runController(ctx context.Context, s *site, p *clustertest.Process) error {
	return leader.Run(ctx, leader.Options{
		Name: s.name, Cluster: "sim", Records: p, Messages: p, Tick: beat / 4, Log: r.logger(s.name),
		Machine: machine.Config{Beat: beat, SuspectFloor: 5 * beat / 2, DeadFloor: 6 * beat, Retire: 4 * time.Second, Calm: 3 * time.Second, Rest: r.rest},
		OpenBackups: func(context.Context, *cluster.Job) (backup.Store, error) {
			r.open(1)
			return counted{p.Store(store, r.store), r}, nil
		},
	})
}

// submit has the record of a job made.
func (r *run) submit(p *plan) {
	r.wanted[cluster.JobKey(p.id)] = cluster.NewJob(p.id, p.spec(), time.Now()).Encode()
}

// wish asks for another number of workers of an operator, again and again.
func (r *run) wish() {
	r.scale(pick(r.draw, r.plans...))
	if !r.healed {
		r.after(time.Duration(r.draw.Int64N(int64(2*r.scaling))), r.wish)
	}
}

// scale asks for another number of workers of one of a job's operators.
func (r *run) scale(p *plan) {
	operators := p.operators
	if j := r.records.jobs[p.id]; j != nil {
		operators = j.Spec.Operators
	}
	var able []cluster.Operator
	for _, o := range operators {
		if !o.Source && (!o.Sink || r.draw.IntN(8) == 0) { // a sink is refused
			able = append(able, o)
		}
	}
	if len(able) == 0 {
		return
	}
	o := pick(r.draw, able...)
	w := &cluster.ScaleWish{ID: fmt.Sprint("w", r.wishes), Operator: o.Name, Workers: 1 + (o.Workers+r.draw.IntN(2))%3}
	r.wishes++
	r.wanted[cluster.ScaleKey(p.id)] = w.Encode()
}

// ask does what users want of the records, if it has not been done.
func (r *run) ask() {
	user := r.net.Process("user")
	defer user.Kill()
	ctx, cancel := context.WithTimeout(context.Background(), step)
	defer cancel()
	for key, value := range r.wanted {
		revision := r.records.there[key]
		switch {
		case value != nil && revision == 0:
			_, err := user.Create(ctx, key, value) // else it is tried again
			if err == nil && strings.HasPrefix(key, cluster.ScaleKey("")) {
				delete(r.wanted, key) // the controller deletes it
			}
		case value == nil && revision != 0:
			_ = user.Delete(ctx, key, revision)
		}
	}
}

// advance lets time pass.
func (r *run) advance() {
	time.Sleep(step)
	now := time.Now()
	slices.SortStableFunc(r.later, func(a, b due) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	for len(r.later) > 0 && !now.Before(r.later[0].at) {
		next := r.later[0]
		r.later = r.later[1:]
		next.do()
	}
	for _, s := range slices.Concat(r.nodes, r.controllers) {
		s.begin(r)
	}
	r.records.look()
	r.ask()
}

// failed says whether there is no use in going on.
func (r *run) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.faults) > 0
}

// disturb makes trouble for some time.
func (r *run) disturb(lasts time.Duration) {
	end := time.Now().Add(lasts)
	apart := time.Second + r.upTo(3*time.Second)
	next := time.Now().Add(r.upTo(apart))
	if r.scaling > 0 {
		if r.draw.IntN(2) == 0 {
			apart *= 2 // no worker may be replaced while a job comes to rest
		}
		r.after(time.Duration(r.draw.Int64N(int64(r.scaling))), r.wish)
	}
	for time.Now().Before(end) && !r.failed() {
		if !time.Now().Before(next) {
			next = time.Now().Add(r.upTo(apart))
			t := drawTrouble(r.rnd)
			r.log("trouble: %s", t.name)
			t.do(r)
		}
		r.advance()
	}
}

// heal ends all trouble.
func (r *run) heal() {
	r.healed = true
	r.log("the trouble ends")
	r.net.SetFaults(calm)
	for len(r.later) > 0 {
		next := r.later[0]
		r.later = r.later[1:]
		next.do()
	}
	for range pick(r.draw, 0, 1, 4) { // one that was given up must have left nobody behind
		r.after(time.Duration(r.draw.Int64N(int64(8*time.Second))), func() { r.scale(pick(r.draw, r.plans...)) })
	}
}

// settle waits until all jobs have ended, and then until nothing of them runs.
func (r *run) settle() {
	for end := time.Now().Add(most); !r.records.ended() && !r.failed(); r.advance() {
		if time.Now().After(end) {
			for _, j := range r.records.jobs {
				r.fault("the job has not ended: %s\n%s", j.Encode(), r.records.beats())
			}
		}
	}
	for slices.ContainsFunc(slices.Concat(r.nodes, r.controllers), func(s *site) bool { return time.Now().Before(s.still) }) {
		r.advance()
	}
	opened := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.opened
	}
	for end := time.Now().Add(quiet); opened() > 0 && !r.failed(); r.advance() {
		if time.Now().After(end) {
			r.fault("%d nodes still have the store open after the last job has ended", opened())
		}
	}
}

func (r *run) tearDown() {
	r.calm.Store(true)
	if r.failed() {
		time.Sleep(time.Minute) // somebody may be stuck for a while
	}
	sites := slices.Concat(r.controllers, r.nodes)
	for _, s := range sites {
		s.leave(r)
	}
	for _, s := range sites {
		<-s.ended
	}
	r.records.stop()
	if err := r.store.Close(); err != nil {
		r.fault("%v", err)
	}
}

// judge says what has gone wrong.
func (r *run) judge(sum *tally) {
	bad := r.failed()
	sum.mu.Lock()
	sum.terms += int(r.records.leader.Term) - 1
	sum.mu.Unlock()
	for _, p := range r.plans {
		l, j := r.ledgers[p.id], r.records.jobs[p.id]
		if j != nil && j.State == cluster.Finished {
			was, may := l.check(j)
			r.log("job %s, %d incidents: %+v of %+v", p.id, j.Incidents, was, may)
			sum.add(l, was, may)
		}
		for _, f := range l.faults {
			bad = true
			r.t.Errorf("job %s: %s", p.id, f)
		}
	}
	for _, f := range r.faults {
		r.t.Error(f)
	}
	if bad {
		for _, p := range r.plans {
			r.t.Log(p)
			if j := r.records.jobs[p.id]; j != nil {
				r.t.Logf("%s", j.Encode())
			}
		}
	}
}
