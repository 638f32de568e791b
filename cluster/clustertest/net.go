package clustertest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// Keeper is the place of the records and logs, for Cut and Block.
const Keeper = "keeper"

// patience is how long a request waits for its answer, and a watch or a store tries to go on.
const (
	requestPatience = 5 * time.Second
	watchPatience   = 10 * time.Second
	storePatience   = time.Minute
	storeRetry      = 200 * time.Millisecond
)

var (
	// ErrUnreached is wrapped by errors of what did not get through. A write may have been done.
	ErrUnreached = errors.New("simulated network: not reached")
	// ErrKilled is wrapped by errors that a process which is dead may still see.
	ErrKilled = errors.New("simulated network: process was killed")
)

// Faults is what goes wrong by chance. The zero value is a network on which all arrives at once, in order.
type Faults struct {
	Lose   float64       // of messages
	Double float64       // of messages
	Delay  time.Duration // each message takes up to so long, so they overtake each other
	Slow   time.Duration // each way of a request to records and stores takes up to so long, and news for a watch
	Fail   float64       // of requests: not done, or done although there is an error; and of news for a watch, which ends then
	Stale  time.Duration // how old may be what Get and List return
}

// Net is a simulated network. Any goroutine of its bubble may use it.
type Net struct {
	seed uint64

	mu      sync.Mutex
	faults  Faults
	cut     map[string]bool
	blocked map[[2]string]bool // from, to
	lives   map[string]uint64  // processes of that name so far
	procs   map[*Process]bool  // that live
	subs    []*subscription
	keeper  keeper
	changed chan struct{} // closed, and made anew, whenever anything has
	closed  chan struct{}
	running sync.WaitGroup // goroutines of the net
}

// New returns a network that ends with the test. Call it in a bubble.
func New(t testing.TB, seed uint64, f Faults) *Net {
	n := &Net{
		seed: seed, faults: f, cut: map[string]bool{}, blocked: map[[2]string]bool{}, lives: map[string]uint64{}, procs: map[*Process]bool{},
		keeper: newKeeper(), changed: make(chan struct{}), closed: make(chan struct{}),
	}
	t.Cleanup(n.close)
	return n
}

// close ends all that still waits for the network, and waits for its goroutines.
func (n *Net) close() {
	n.mu.Lock()
	close(n.closed)
	n.mu.Unlock()
	n.running.Wait()
}

// SetFaults changes what goes wrong from now on.
func (n *Net) SetFaults(f Faults) { n.change(func() { n.faults = f }) }

// Cut keeps a place, a process that is or will be of that name, a store or Keeper, from all others.
func (n *Net) Cut(place string) { n.change(func() { n.cut[place] = true }) }

// Heal ends Cut.
func (n *Net) Heal(place string) { n.change(func() { delete(n.cut, place) }) }

// Block has nothing of one place arrive at the other, while what goes the other way does.
func (n *Net) Block(from, to string) { n.change(func() { n.blocked[[2]string{from, to}] = true }) }

// Unblock ends Block.
func (n *Net) Unblock(from, to string) { n.change(func() { delete(n.blocked, [2]string{from, to}) }) }

func (n *Net) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	n.tell()
}

// tell wakes whoever waits for something to change. n.mu is held.
func (n *Net) tell() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// reaches says whether what one place sends arrives at another. n.mu is held.
func (n *Net) reaches(from, to string) bool {
	return !n.cut[from] && !n.cut[to] && !n.blocked[[2]string{from, to}]
}

// Process returns the handle of a new process. Of one name there may be one that lives.
func (n *Net) Process(name string) *Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	for p := range n.procs {
		if p.name == name {
			panic(fmt.Sprintf("clustertest: process %q lives: kill it before another one takes its name", name))
		}
	}
	n.lives[name]++
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", name, n.lives[name])
	p := &Process{n: n, name: name, rnd: rand.New(rand.NewPCG(n.seed, h.Sum64())), dead: make(chan struct{})}
	n.procs[p] = true
	return p
}

// Process is what a simulated process has of the world: cluster.Records, cluster.Messages and cluster.Logs, and more.
type Process struct {
	n    *Net
	name string
	dead chan struct{} // closed when it is killed

	// Guarded by n.mu.
	rnd    *rand.Rand
	until  time.Time // it stands still until then
	outbox []func()  // what goes out when it goes on
	inbox  []func()  // what has arrived meanwhile
}

// Name is its place, for Block.
func (p *Process) Name() string { return p.name }

// Cut keeps it from all others.
func (p *Process) Cut() { p.n.Cut(p.name) }

// Heal ends Cut.
func (p *Process) Heal() { p.n.Heal(p.name) }

// Kill has nothing that it does from now on have any effect. What it waits for comes no more: end the contexts of its calls.
func (p *Process) Kill() {
	p.n.change(func() {
		if p.n.procs[p] {
			delete(p.n.procs, p)
			close(p.dead)
			p.inbox, p.outbox = nil, nil
		}
	})
}

// Pause has it stand still for a while: see the package comment. Its calls return afterwards.
func (p *Process) Pause(d time.Duration) {
	p.n.change(func() {
		if until := time.Now().Add(d); until.After(p.until) {
			p.until = until
			time.AfterFunc(d, p.goOn)
		}
	})
}

// goOn lets out and in what has waited, in any order.
func (p *Process) goOn() {
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	if p.still() {
		return
	}
	first, second := p.outbox, p.inbox
	p.outbox, p.inbox = nil, nil
	if p.rnd.IntN(2) == 0 {
		first, second = second, first
	}
	for _, f := range append(first, second...) {
		f()
	}
	p.n.tell()
}

// still says whether it stands still. n.mu is held.
func (p *Process) still() bool { return time.Now().Before(p.until) }

// isDead says whether it was killed.
func (p *Process) isDead() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

// chance is true so often. n.mu is held.
func (p *Process) chance(of float64) bool { return of > 0 && p.rnd.Float64() < of }

// upTo is a time of at most d. n.mu is held.
func (p *Process) upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(p.rnd.Int64N(int64(d)))
}

// slow is how long a request is on its way.
func (p *Process) slow() time.Duration {
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	return p.upTo(p.n.faults.Slow)
}

// move returns when the process does not stand still, or the error of one that is dead.
func (p *Process) move() error {
	for {
		p.n.mu.Lock()
		wait := time.Until(p.until)
		p.n.mu.Unlock()
		switch {
		case p.isDead():
			return ErrKilled
		case wait <= 0:
			return nil
		}
		select {
		case <-time.After(wait):
		case <-p.dead:
		case <-p.n.closed:
			return ErrUnreached
		}
	}
}

// dwell returns err, but not to a dead process before ctx has ended: it would try again.
func (p *Process) dwell(ctx context.Context, err error) error {
	if errors.Is(err, ErrKilled) {
		select {
		case <-ctx.Done():
		case <-p.n.closed:
		}
	}
	return err
}

// request has do done at a place, and returns its error if both ways are open. do is called with n.mu held.
func (p *Process) request(ctx context.Context, place string, do func() error) error {
	if err := p.move(); err != nil {
		return p.dwell(ctx, err)
	}
	answer := make(chan error, 1)
	p.n.mu.Lock()
	if lost := p.chance(p.n.faults.Fail / 2); !lost && p.n.reaches(p.name, place) {
		p.n.after(p.upTo(p.n.faults.Slow), func() {
			err := do()
			if lost := p.chance(p.n.faults.Fail / 2); !lost && p.n.reaches(place, p.name) {
				p.n.after(p.upTo(p.n.faults.Slow), func() { answer <- err })
			}
		})
	}
	p.n.mu.Unlock()
	err := p.await(ctx, answer)
	if moved := p.move(); moved != nil {
		return p.dwell(ctx, moved)
	}
	return err
}

// after calls f, with n.mu held as it is now, in a while.
func (n *Net) after(d time.Duration, f func()) {
	if d <= 0 {
		f()
		return
	}
	time.AfterFunc(d, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		f()
	})
}

func (p *Process) await(ctx context.Context, answer <-chan error) error {
	timer := time.NewTimer(requestPatience)
	defer timer.Stop()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnreached, ctx.Err())
	case <-timer.C:
		return fmt.Errorf("%w: no answer", ErrUnreached)
	case <-p.dead:
		return ErrKilled
	case <-p.n.closed:
		return ErrUnreached
	}
}

// hold waits until what it looks for is ready and the way to it open, but not longer than patience for that. look is called
// with n.mu held.
func (p *Process) hold(ctx context.Context, patience time.Duration, look func() (open, ready bool)) error {
	for shut := (time.Time{}); ; {
		p.n.mu.Lock()
		open, ready := look()
		changed := p.n.changed
		p.n.mu.Unlock()
		var late <-chan time.Time
		switch {
		case open && ready:
			return p.move()
		case open:
			shut = time.Time{}
		case shut.IsZero():
			shut = time.Now()
			fallthrough
		default:
			left := patience - time.Since(shut)
			if left <= 0 {
				return ErrUnreached
			}
			late = time.After(left)
		}
		select {
		case <-changed:
		case <-late:
		case <-ctx.Done():
			return ctx.Err()
		case <-p.dead:
			return p.move()
		case <-p.n.closed:
			return ErrUnreached
		}
	}
}

// pass waits for d, and while the process stands still.
func (p *Process) pass(ctx context.Context, d time.Duration) error {
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return ctx.Err()
		case <-p.dead:
		case <-p.n.closed:
			return ErrUnreached
		}
	}
	return p.move()
}

// send does something that is not waited for, when the process does not stand still. It is called with n.mu held.
func (p *Process) send(f func()) {
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	switch {
	case p.isDead():
	case p.still():
		p.outbox = append(p.outbox, f)
	default:
		f()
	}
}
