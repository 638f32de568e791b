package ringbuf

import (
	"runtime"
	"sync/atomic"
	"time"
)

// A waiter lets other goroutines run and looks again, some rounds, before it parks. Machines here have few Ps: what it
// waits for is often done by a goroutine that needs this very P, so a round yields to the scheduler instead of burning
// time. Without any, a round trip through two rings takes twice as long (BenchmarkRoundTrip).
//
// To be woken is slow where another P has to do it: the runtime wakes a thread, and that thread waits some 50 us more before
// it takes over what the waker has just made ready (runqgrab). Stages that hand small windows of items to and fro would wait
// for each other most of the time. So a waiter is patient: it looks on for many rounds. Where that is in vain it soon does so in
// few of its waits alone.
const fewRounds = 4

// patience is how long and how often a waiter looks on.
type patience struct {
	rounds int // at most
	skip   int // how many waits in a row are not patient at most
}

var (
	usual = patience{rounds: 64, skip: 255} // some 15 us, if there is nothing else to run
	great = patience{rounds: 256, skip: 15} // about what it takes to be woken; the others feel it
)

// maxPatient is about how many may be patient at the same time: each round takes the lock of the scheduler.
const maxPatient = 8

// patient is how many do.
var patient atomic.Int32

// The states of a Parker.
const (
	parkerIdle     uint32 = iota // the owner is not waiting; set by the owner
	parkerPrepared               // the owner has announced itself, and may be asleep; set by the owner
	parkerWoken                  // a waker has taken the announcement; set by that waker
)

// Parker puts one goroutine, its owner, to sleep until any other wakes it. All
// methods but [Parker.Wake] are for the owner alone. One Parker serves all that
// its owner ever waits for: several rings, an acknowledgement, a stop flag.
//
// Most owners call [Parker.Wait]. Those who also need a deadline write the
// protocol out:
//
//	p.Prepare()
//	if ready() {
//		p.Cancel()
//	} else {
//		woken := p.ParkTimeout(d)
//		...
//	}
//
// A wake-up says that the condition may have become true, not that it is: look
// again. A wake-up that comes before Prepare is not remembered; it need not be,
// because the owner looks at its condition after Prepare.
//
// The zero value is not usable and a Parker must not be copied: use [NewParker].
//
// Invariants:
//
//  1. Only the owner leaves idle and only the owner returns to it.
//  2. Exactly one waker turns prepared into woken, and it sends one token.
//  3. The owner receives that token before it returns to idle. So the token
//     channel is empty whenever a waker sends, which hence never blocks, and no
//     token is left over to end a later sleep early.
type Parker struct {
	state atomic.Uint32
	token chan struct{} // capacity 1
	timer *time.Timer   // of ParkTimeout; nil until its first call

	// Wakers read state on each push; nothing else may drag its line about.
	_ [falseSharing - 24]byte

	closely atomic.Bool // great patience

	skip int // how many waits are not patient after one that was in vain
	left int // of these, how many are still to come
}

// NewParker returns a Parker for one owner, nobody waiting.
func NewParker() *Parker {
	return &Parker{token: make(chan struct{}, 1)}
}

// Prepare announces that the owner is about to sleep. The owner has to look at
// its condition afterwards, and then call exactly one of [Parker.Cancel],
// [Parker.Park] and [Parker.ParkTimeout]. It panics if the owner has announced
// itself already, which most often means that the Parker has two owners.
func (p *Parker) Prepare() {
	// The announcement is ordered before the owner's look at its condition, as
	// the waker's change is before its look at the state: Go's atomics are
	// sequentially consistent, so one of the two sees the other.
	if !p.state.CompareAndSwap(parkerIdle, parkerPrepared) {
		panic("ringbuf: Prepare of a Parker that is in use")
	}
}

// Cancel takes the announcement back: the condition turned out to be true.
// Without a preceding Prepare it does nothing.
//
// If a waker was faster it waits for that waker's token, which is on its way.
func (p *Parker) Cancel() {
	if p.state.CompareAndSwap(parkerPrepared, parkerIdle) {
		return
	}
	if p.state.Load() == parkerWoken {
		p.take()
	}
}

// Park sleeps until somebody has called [Parker.Wake] since Prepare, and
// returns at once if that has happened. It panics without a preceding Prepare,
// since nobody could end that sleep.
func (p *Parker) Park() {
	p.mustBePrepared()
	p.take()
}

// ParkTimeout is Park for no longer than d. It reports whether it was woken;
// false means that d has passed. A d of 0 or less does not sleep at all.
// Only the first call on a Parker allocates.
func (p *Parker) ParkTimeout(d time.Duration) (woken bool) {
	p.mustBePrepared()
	if d <= 0 {
		return !p.expire()
	}
	if p.timer == nil {
		p.timer = time.NewTimer(d)
	} else {
		p.timer.Reset(d)
	}
	select {
	case <-p.token:
		// Since Go 1.23 no stale tick survives a Stop or a Reset.
		p.timer.Stop()
		p.state.Store(parkerIdle)
		return true
	case <-p.timer.C:
		return !p.expire()
	}
}

// Wake ends the owner's sleep, or prevents the one it has announced. Any
// goroutine may call it, at any time and as often as it likes. It never blocks.
// If the owner is not waiting it costs one atomic load and does nothing.
//
// The caller must have made the change that the owner waits for before it calls.
func (p *Parker) Wake() {
	if p.state.Load() != parkerPrepared {
		return
	}
	if p.state.CompareAndSwap(parkerPrepared, parkerWoken) {
		p.token <- struct{}{}
	}
}

// WatchClosely makes the owner look on for longer, and more often, before it sleeps: it is for who waits for something that
// comes again and again within less time than it takes to be woken. Anybody may call it, at any time.
func (p *Parker) WatchClosely() { p.closely.Store(true) }

// Wait returns as soon as cond reports true. It looks at once, then a few times
// more while letting other goroutines run, and then sleeps between looks: every
// change that may make cond true has to be followed by a [Parker.Wake].
//
// The owner's goroutine runs cond, which may have effects (a cond that pushes
// or pops ends the wait by its success) but must not use the Parker, and must
// not panic. To stop a waiter let cond look at a stop flag as well, set the
// flag, and Wake. Wait does not allocate, nor does a closure passed to it.
func (p *Parker) Wait(cond func() bool) {
	if p.Look(cond) {
		return
	}
	for {
		p.Prepare()
		if cond() {
			p.Cancel()
			return
		}
		p.Park()
	}
}

// Look is what Wait does before it sleeps: it looks a few times, or more if that has been of use, while letting other goroutines
// run, and reports whether cond was true.
func (p *Parker) Look(cond func() bool) bool {
	if look(cond, fewRounds) {
		return true
	}
	if p.left > 0 {
		p.left--
		return false
	}
	if patient.Load() >= maxPatient {
		return false
	}
	how := usual
	if p.closely.Load() {
		how = great
	}
	patient.Add(1)
	seen := look(cond, how.rounds-fewRounds)
	patient.Add(-1)
	if seen {
		p.skip /= 4
		return true
	}
	p.skip = min(2*p.skip+1, how.skip)
	p.left = p.skip
	return false
}

func look(cond func() bool, rounds int) bool {
	for range rounds {
		if cond() {
			return true
		}
		runtime.Gosched()
	}
	return false
}

// mustBePrepared panics if no Prepare came before.
func (p *Parker) mustBePrepared() {
	if p.state.Load() == parkerIdle {
		panic("ringbuf: Park of a Parker that is not prepared")
	}
}

// expire takes the announcement back after a timeout and reports true, unless a
// waker was faster: then it takes that waker's token and reports false, since
// a wake-up must not be counted as none.
func (p *Parker) expire() bool {
	if p.state.CompareAndSwap(parkerPrepared, parkerIdle) {
		return true
	}
	p.take()
	return false
}

// take receives the token of the waker that took the announcement.
func (p *Parker) take() {
	<-p.token
	p.state.Store(parkerIdle)
}
