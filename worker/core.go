package worker

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/ringbuf"
)

// errHalted unwinds a compute goroutine out of user code when its worker is stopped or killed.
var errHalted = errors.New("worker: halted")

// ErrPanic is wrapped by the error of a worker whose operator panicked, which is a *[Panic].
var ErrPanic = errors.New("operator panicked")

// Panic is how a worker ends whose operator panicked.
type Panic struct {
	Stack string // of the goroutine that panicked, at that moment
	err   error
}

// Error says who panicked with what, and where.
func (p *Panic) Error() string { return p.err.Error() }

// Unwrap returns an error that wraps ErrPanic.
func (p *Panic) Unwrap() error { return p.err }

// core is what the compute goroutines of operators and of sources have in common.
type core struct {
	w     *Worker
	index int // number of the partition within the operator
	park  *ringbuf.Parker
	exit  *exit             // nil for sinks
	store *backup.Partition // nil under guarantee None
	items atomic.Uint64     // processed or read; published once per run
	waits atomic.Uint32     // what it waits for, a wait
	flight
	rest
	adopted bool // what it has is of an earlier layout, and not saved in this one yet
}

// flight is the commit under way, if any.
type flight struct {
	phase   atomic.Uint32
	err     error // written before phase becomes landed
	started time.Time
	bytes   int
}

const (
	noFlight uint32 = iota
	held            // made, and waiting for the receivers
	flying          // with the store
	landed
)

// commit starts writing c. The store calls back on a goroutine of its own.
func (c *core) commit(b *backup.Commit) {
	c.started, c.bytes = time.Now(), len(b.Elements)
	b.Lent = true // nothing is saved into the same memory before this commit has ended
	c.phase.Store(flying)
	c.store.Commit(b, func(err error) {
		c.err = err
		c.phase.Store(landed)
		c.park.Wake()
	})
}

// settled takes note of a commit that has ended, and reports whether there was one.
func (c *core) settled() (bool, error) {
	if c.phase.Load() != landed {
		return false, nil
	}
	c.phase.Store(noFlight)
	if c.err != nil {
		return true, fmt.Errorf("back up %s: %w", c.w.cfg.name(), c.err)
	}
	c.w.stats.committed(c.bytes, time.Since(c.started))
	return true, nil
}

// awaitFlight waits until the commit under way has ended.
func (c *core) awaitFlight() {
	c.await(forBackup, func() bool { return c.phase.Load() != flying })
}

// wait is what a compute goroutine waits for.
type wait uint32

const (
	forNothing wait = iota
	forItems
	forRoom
	forCredit
	forAcks
	forBackup
	forReceivers
	forFeedback
	forPeers
	forTheEnd
)

var waits = [...]string{
	forNothing: "nothing: it is working, or in user code", forItems: "items", forRoom: "room in the ring to downstream",
	forCredit: "acknowledgements, to send more", forAcks: "its acknowledgements, to process more", forBackup: "a backup to become durable",
	forReceivers: "its receivers to commit what they were sent", forFeedback: "feedback",
	forPeers: "the other partitions of its worker to end the window", forTheEnd: "the end of the job",
}

// show lets downstream see what the partition has emitted, before it waits.
func (c *core) show() {
	if c.exit != nil {
		c.exit.show()
	}
}

// await parks until cond holds. It does not return if the worker is halted.
func (c *core) await(what wait, cond func() bool) {
	c.show()
	c.waits.Store(uint32(what))
	c.park.Wait(func() bool { return c.w.halted.Load() || cond() })
	c.waits.Store(uint32(forNothing))
	if c.w.halted.Load() {
		panic(errHalted)
	}
}

// awaitFor is await with a limit; it reports whether cond holds.
func (c *core) awaitFor(what wait, d time.Duration, cond func() bool) bool {
	end := time.Now().Add(d)
	c.show()
	c.waits.Store(uint32(what))
	defer c.waits.Store(uint32(forNothing))
	if c.park.Look(func() bool { return c.w.halted.Load() || cond() }) && !c.w.halted.Load() {
		return true
	}
	for {
		c.park.Prepare()
		if c.w.halted.Load() {
			c.park.Cancel()
			panic(errHalted)
		}
		if cond() {
			c.park.Cancel()
			return true
		}
		left := time.Until(end)
		if left <= 0 {
			c.park.Cancel()
			return false
		}
		c.park.ParkTimeout(left)
	}
}

// cutAtFault ends the whole worker on the spot if it has reached its injected end, and otherwise cuts n so that it stops
// there: exactly with one compute goroutine, within a run with several.
func (c *core) cutAtFault(n int) int {
	kill := c.w.cfg.KillAt
	if kill == 0 {
		return n
	}
	left := kill - min(kill, c.w.Items())
	if left == 0 {
		c.w.Kill()
		panic(errHalted)
	}
	return int(min(uint64(n), left))
}

// pinned makes run tie its goroutine to a core first, if the job asks for that.
func (c *core) pinned(run func() error) func() error {
	if !c.w.cfg.Pin {
		return run
	}
	return func() error {
		if err := pin(c.w.cfg.PinFirst + c.index); err != nil {
			c.w.log.Warn("compute goroutine is not pinned", "worker", c.w.cfg.name(), "partition", c.index, "err", err)
		}
		return run()
	}
}

// place names the partition in messages.
func (c *core) place() string { return fmt.Sprintf("partition %d", c.index) }

// guard runs a stage, or the making of a worker, and turns what unwinds it into an error: nil if the worker was halted.
func (w *Worker) guard(place string, run func() error) (err error) {
	returned := false
	defer func() {
		r := recover()
		switch {
		case returned:
		case r == errHalted:
			err = nil
		case r == nil: // runtime.Goexit: the goroutine ends, whatever is said here
			err = &Panic{err: fmt.Errorf("%s %s: %w: it ended its goroutine", w.cfg.Node.Name, place, ErrPanic), Stack: string(debug.Stack())}
			w.Fail(err)
		default:
			p := &Panic{err: fmt.Errorf("%s %s: %w: %v (%s)", w.cfg.Node.Name, place, ErrPanic, r, panicked()), Stack: string(debug.Stack())}
			w.log.Debug("operator panicked", "worker", w.cfg.name(), "place", place, "panic", r, "stack", p.Stack)
			err = p
		}
	}()
	err = run()
	returned = true
	return err
}

// panicked returns the file and line of the panic that is being recovered from: the first frame below the runtime's.
func panicked() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, "runtime.") {
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
		if !more {
			return "unknown place"
		}
	}
}
