package clustersim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
	runtime "github.com/afstream/afstream/worker"
)

// ledger is what is known of one job from outside: what its workers had, whether they live or not.
type ledger struct {
	plan     *plan
	panicked atomic.Bool

	mu      sync.Mutex
	over    time.Time                 // since when all nodes can know that the job has ended; zero before
	worked  map[incarnation]bool      // has processed something
	newest  map[incarnation]uint64    // epoch that has, of each worker: epoch 0
	moved   map[incarnation]bool      // has ended without loss, the record says
	failed  map[incarnation]bool      // has failed, the record says
	divided map[incarnation]bool      // was at rest at the end of a layout
	busyAt  map[incarnation]time.Time // when it has processed something last
	resting map[incarnation]time.Time // since when it is at rest for good, the record says
	bounds  []uint64                  // of each layout but the last, the highest epoch
	unseen  func() []*cluster.Job     // records that are stored and of which nothing is known here yet
	nodes   []*stream.Node            // operators
	costs   []failure
	zombies int                     // partitions that have worked beside a successor
	sets    map[int][]*set          // by partition, those that have begun, the newest last
	begun   int                     // how many have
	results map[int]*results        // by partition of the sink
	lease   func(s *site) time.Time // when the lease of a node is over
	flushed int                     // items that were given to a sink again since a failure came between a flush and its commit
	faults  []string
}

// incarnation is one life of one worker.
type incarnation struct {
	operator string
	index    int
	epoch    uint64
}

// failure is one that a job's record counts.
type failure struct {
	operator   string
	k          uint64 // failures before it
	partitions int    // of the operator, at that time
}

// layoutOf returns the layout that an epoch belongs to. The ledger is locked.
func (l *ledger) layoutOf(epoch uint64) int {
	bounds := slices.Clone(l.bounds)
	for _, j := range l.unseen() {
		if int(j.Layout) > max(len(bounds), 0)+1 {
			bounds = append(bounds, before(j))
		}
	}
	n := 1
	for _, b := range bounds {
		if epoch > b {
			n++
		}
	}
	return n
}

// before returns the highest epoch of the layout before that of a record, which is the first of its own.
func before(j *cluster.Job) uint64 {
	w := &j.Workers[0]
	if w.Node == "" {
		return w.Epoch
	}
	return w.Epoch - 1
}

func newLedger(p *plan) *ledger {
	return &ledger{plan: p, worked: map[incarnation]bool{}, newest: map[incarnation]uint64{}, moved: map[incarnation]bool{}, failed: map[incarnation]bool{}, divided: map[incarnation]bool{},
		busyAt: map[incarnation]time.Time{}, resting: map[incarnation]time.Time{}, sets: map[int][]*set{}, results: map[int]*results{}}
}

// fault notes what must not be. The ledger is locked.
func (l *ledger) fault(format string, args ...any) {
	if len(l.faults) < 10 {
		l.faults = append(l.faults, fmt.Sprintf(format, args...))
	}
}

// works is told whenever a worker does something. The ledger is locked.
func (l *ledger) works(w *worker) {
	life := incarnation{w.at.Operator, w.at.Partition / l.plan.compute[w.at.Operator], w.at.Epoch}
	l.worked[life] = true
	l.busyAt[life] = time.Now()
	if since, ok := l.resting[life]; ok {
		l.fault("%s works %v after all workers of its job were at rest", w, time.Since(since))
	}
	life.epoch = 0
	if l.newest[life] = max(l.newest[life], w.at.Epoch); l.newest[life] > w.at.Epoch && !w.zombie {
		w.zombie = true
		l.zombies++
	}
	now := time.Now()
	if late := now.Sub(l.lease(w.s)); late > grace && !w.late {
		w.late = true
		l.fault("%s works %v after the end of its node's lease", w, late)
	}
	if !l.over.IsZero() && now.Sub(l.over) > grace && !w.late {
		w.late = true
		l.fault("%s works %v after the end of its job", w, now.Sub(l.over))
	}
}

// begin takes in a set that is given its first item, or closes: with what it was restored with. The ledger is locked.
func (l *ledger) begin(s *set) {
	if s.begun > 0 {
		return
	}
	l.begun++
	s.begun, s.base = l.begun, maps.Clone(s.has)
	lives := l.sets[s.at.Partition]
	i, found := slices.BinarySearchFunc(lives, s.at.Epoch, func(o *set, epoch uint64) int { return int(o.at.Epoch) - int(epoch) })
	if found {
		l.fault("there are two of %s", s)
	}
	if i > 0 {
		l.compare(lives[i-1], s)
	}
	l.sets[s.at.Partition] = slices.Insert(lives, i, s)
}

// compare looks what a set has that its successor was not restored with. The ledger is locked.
func (l *ledger) compare(old, next *set) {
	if l.layoutOf(old.at.Epoch) != l.layoutOf(next.at.Epoch) {
		return // items have gone elsewhere
	}
	lost := 0
	for id := range old.has {
		_, had := old.base[id]
		if _, ok := next.base[id]; !ok && !(had && old.begun > next.begun) { // else it has that from what its successor has saved
			lost++
		}
	}
	old.lost = max(old.lost, lost)
	// One more item may be in the lost state than counted as processed: if it alone passes theta, it waits for a backup.
	if promised := l.plan.guarantee == runtime.Approximate || l.plan.guarantee == runtime.ErrorFree; promised && float64(lost) > max(old.theta, 1) {
		l.fault("I1: %s has %d items that %s was restored without, theta is %v", old, lost, next, old.theta)
	}
}

// beside looks at a set that may have a successor already: what it does can be saved no more. The ledger is locked.
func (l *ledger) beside(s *set) {
	lives := l.sets[s.at.Partition]
	if i := slices.Index(lives, s); i+1 < len(lives) {
		l.compare(s, lives[i+1])
	}
}

// results is what one partition of the sink has flushed.
type results struct {
	epoch uint64 // of who may write
	items map[item]bool
	safe  map[uint64]item // of each sender the last item that was committed: flushed, and another flush came after it
}

// sink keeps what it is given until it is flushed.
type sink struct {
	worker
	part    int
	fresh   []item
	flushed []item // last; a failure may come between that and its commit
}

func (k *sink) results() *results {
	r := k.l.results[k.part]
	if r == nil {
		r = &results{items: map[item]bool{}, safe: map[uint64]item{}}
		k.l.results[k.part] = r
	}
	return r
}

// fenced says whether another one has taken its place, as whatever keeps results has to.
func (k *sink) fenced() error {
	if r := k.results(); k.at.Epoch < r.epoch {
		return fmt.Errorf("the sink of epoch %d was replaced by that of %d", k.at.Epoch, r.epoch)
	}
	return nil
}

// open makes it the one that may write.
func (k *sink) open() error {
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	if err := k.fenced(); err != nil {
		return err
	}
	k.results().epoch = k.at.Epoch
	return nil
}

func (k *sink) Write(items []item) error {
	for _, i := range items {
		k.linger(i)
		k.l.mu.Lock()
		k.take(i)
		k.l.mu.Unlock()
	}
	k.fresh = append(k.fresh, items...)
	return nil
}

func (k *sink) Flush() error {
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	if err := k.fenced(); err != nil {
		return err
	}
	if len(k.fresh) == 0 {
		return nil
	}
	r := k.results()
	for _, i := range k.flushed {
		if safe, ok := r.safe[i.Part]; !ok || i.after(safe) {
			r.safe[i.Part] = i
		}
	}
	for _, i := range k.fresh {
		if safe, ok := r.safe[i.Part]; ok && !i.after(safe) {
			k.l.fault("I6, I7: %s is given %+v, and %+v was committed before", k, i, safe)
		}
		if r.items[i] {
			k.l.flushed++
		}
		r.items[i] = true
	}
	k.flushed, k.fresh = append(k.flushed[:0], k.fresh...), k.fresh[:0]
	return nil
}

func (k *sink) Close() error { return k.Flush() }

func (k *sink) Open(ctx context.Context, at stream.Placement) error {
	return errors.Join(k.worker.Open(ctx, at), k.open())
}

// final is a sink that cannot flush: the items of a partition are those of the one that was closed last.
type final struct{ s *sink }

func (f final) Write(items []item) error                            { return f.s.Write(items) }
func (f final) Open(ctx context.Context, at stream.Placement) error { return f.s.Open(ctx, at) }

func (f final) Close() error {
	f.s.l.mu.Lock()
	clear(f.s.results().items)
	f.s.l.mu.Unlock()
	return f.s.Flush()
}

// cost is the most that failures can do to a result.
type cost struct{ lost, again uint64 }

// mayCost adds up what each failure in a job's record may have cost, by the share that it had of the budgets.
func (l *ledger) mayCost() cost {
	var c cost
	p := l.plan
	for _, f := range l.costs {
		n := l.nodes[slices.IndexFunc(l.nodes, func(n *stream.Node) bool { return n.Name == f.operator })]
		if n.IsSource {
			continue
		}
		risky := slices.ContainsFunc(n.Inputs, func(e *stream.Edge) bool { return !e.From.IsSource && !e.From.EmitOnClose })
		emits := !n.IsSink && !n.EmitOnClose
		each := func(total uint64) uint64 { return p.params.Series.Grant(total, f.k) / uint64(f.partitions) }
		var lost, again uint64
		switch {
		case p.guarantee == runtime.MiniBatch || p.guarantee == runtime.UpstreamBackup:
			if emits {
				again = 2 * p.batch
			}
		default:
			if n.EmitOnClose {
				theta := p.params.Theta * p.params.Series.Term(f.k) * errorbound.Share(errorbound.Count, errorbound.Added, f.partitions)
				lost += uint64(max(theta, 1))
			}
			if risky {
				lost += each(p.params.L)
			}
			if emits {
				lost += max(each(p.params.Gamma), 1)
				again = max(each(p.params.L), 1)
			}
		}
		c.lost += lost * uint64(n.Compute)
		c.again += again * uint64(n.Compute)
	}
	return c
}

// check compares the result of a job that has finished with what it has to be.
func (l *ledger) check(j *cluster.Job) (was, may cost) {
	l.mu.Lock()
	defer l.mu.Unlock()
	may = l.mayCost()
	count, seen := map[uint64]int{}, uint64(0)
	for _, r := range l.results {
		for i := range r.items {
			count[i.ID]++
			seen++
		}
	}
	for id := range count {
		if id >= l.plan.n {
			l.fault("there is no item %d in the input", id)
		}
	}
	distinct := uint64(len(count))
	was = cost{l.plan.n - distinct, seen - distinct}
	if was.lost > may.lost {
		l.fault("%d items are lost, the failures may cost %d", was.lost, may.lost)
	}
	if was.again > may.again {
		l.fault("%d items are there twice, the failures may cost %d", was.again, may.again)
	}
	l.audit(j)
	return was, may
}

// audit compares what the sets were with how they ended, by the job's record.
func (l *ledger) audit(j *cluster.Job) {
	spent := 0.0
	for part, lives := range l.sets {
		index := part / l.plan.compute["set"]
		w := j.Worker("set", index)
		for _, s := range lives {
			switch {
			case l.failed[incarnation{"set", index, s.at.Epoch}], w != nil && s.at.Epoch == w.Epoch:
				spent += s.theta
			case s.lost > 0:
				l.fault("%s has moved without loss, and lost %d items", s, s.lost)
			}
		}
	}
	if l.plan.guarantee == runtime.Approximate && spent > l.plan.params.Theta*(1+1e-9) {
		l.fault("I4: the thetas of all incarnations that have failed, and of the last, add up to %v of %v", spent, l.plan.params.Theta)
	}
}
