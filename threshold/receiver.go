package threshold

import (
	"errors"
	"fmt"
	"math"
)

// ErrInvariant is wrapped by the errors of the Valid methods, which name the broken invariant.
var ErrInvariant = errors.New("threshold: invariant broken")

// Receiver decides what one receiving partition may acknowledge, process and must log. It covers the partition's
// at-risk input channels only; channels whose sender can re-create its output need none of it.
//
// All at-risk channels of the partition form one arrival order, and every total counts items in it, punctuation
// included, from the start of this incarnation. An item joins the order when it is admitted, not when it reaches the
// machine: what a channel carries behind the end of a window that is not closed yet must stay unreceived, or processed
// would not be a prefix of the order. Entries replayed from the item log are received and logged like any other.
//
// Invariants, checked by Valid (the numbers of design.md in brackets):
//
//	R1        acked, processed, logged <= received
//	R2 [I2]   acked - safe <= l                      what this partition's failure loses
//	R3 [I2]   processed - acked <= l                 what the senders would resend although it was processed
//	R4        an unlogged punctuation is not acked
//
// safe is max(processed, logged); of a sink that keeps what it was given until it is flushed it is logged alone, since a failure
// takes what it has processed and not flushed as well.
//
// The zero value is a Receiver with l = 0. Every method is plain integer arithmetic: no allocation, no locks. A
// Receiver belongs to one goroutine.
type Receiver struct {
	l                                  uint64
	received, acked, processed, logged uint64
	// [holdFirst, holdLast] spans the punctuation that is not logged yet; holdFirst 0 means there is none.
	holdFirst, holdLast uint64
	flushes             bool // what is processed is safe only once it is logged
}

// NewReceiver returns a Receiver with nothing received. l is Budget.L.
func NewReceiver(l uint64) *Receiver { return &Receiver{l: l} }

// NewSinkReceiver is NewReceiver for a sink that is flushed: what it has processed counts only when Logged covers it.
func NewSinkReceiver(l uint64) *Receiver { return &Receiver{l: l, flushes: true} }

// Receive admits n data items.
func (r *Receiver) Receive(n uint64) { r.received += n }

// ReceivePunctuation admits one punctuation: Ack stops before it until it is in the item log.
func (r *Receiver) ReceivePunctuation() {
	r.received++
	if r.holdFirst == 0 {
		r.holdFirst = r.received
	}
	r.holdLast = r.received
}

// Processed says that the first total items are processed and count as such: the divergence they caused is within
// theta (see [Backup]). A total below an earlier one is ignored.
func (r *Receiver) Processed(total uint64) { r.processed = max(r.processed, total) }

// Logged says that every one of the first total items is durable in the item log or was processed when the log was
// written (by a sink: flushed), and all punctuation among them is durable; total is the `to` of the Pending call that
// the write answered. A durable commit covers the items it includes just as well: call Logged with the processed total
// that it was made at, and a punctuation needs no log entry of its own. A total below an earlier one is ignored.
func (r *Receiver) Logged(total uint64) {
	r.logged = max(r.logged, total)
	switch {
	case r.holdFirst == 0 || r.logged < r.holdFirst:
	case r.logged >= r.holdLast:
		r.holdFirst, r.holdLast = 0, 0
	default: // some punctuation in between is still unlogged; stopping at what is logged is right for any of it
		r.holdFirst = r.logged + 1
	}
}

// Ack advances the acknowledged total as far as R2 and R4 allow and returns it. It is cumulative: the caller sends it
// on whenever it moved. It never goes back.
func (r *Receiver) Ack() uint64 {
	a := min(r.received, saturatingAdd(r.Safe(), r.l))
	if r.holdFirst != 0 {
		a = min(a, r.holdFirst-1)
	}
	r.acked = max(r.acked, a)
	return r.acked
}

// Gate returns the total up to which the items may be processed now (R3). It can exceed Received.
func (r *Receiver) Gate() uint64 { return saturatingAdd(r.acked, r.l) }

// Pending returns the items (from, to] that the item log must take so that everything received can be acked: what is
// not safe, and everything from the first unlogged punctuation on, processed or not (processing a punctuation does not
// make it durable). from == to means nothing. The log is to be written when a sender reports itself blocked, or when
// MustLog.
func (r *Receiver) Pending() (from, to uint64) {
	from = min(r.Safe(), r.received)
	if r.holdFirst != 0 {
		from = min(from, r.holdFirst-1)
	}
	return from, r.received
}

// MustLog reports that the pending items are to be logged without waiting for a sender to be blocked: a punctuation
// is waiting for its ack, or l is 0 and nothing that was received may be processed before it is logged. Without it a
// receiver with l = 0 and a sender that pauses with credit left would wait for each other for ever. Call Ack first.
func (r *Receiver) MustLog() bool {
	return r.holdFirst != 0 || r.Gate() <= r.processed && r.processed < r.received
}

// Received returns the number of items admitted.
func (r *Receiver) Received() uint64 { return r.received }

// Acked returns the acknowledged total as of the last Ack.
func (r *Receiver) Acked() uint64 { return r.acked }

// Done returns the processed total.
func (r *Receiver) Done() uint64 { return r.processed }

// Safe returns the total up to which a failure loses nothing.
func (r *Receiver) Safe() uint64 {
	if r.flushes {
		return r.logged
	}
	return max(r.processed, r.logged)
}

// AtRisk returns how many acknowledged items a failure of this partition would lose now, at most l.
func (r *Receiver) AtRisk() uint64 {
	if safe := r.Safe(); r.acked > safe {
		return r.acked - safe
	}
	return 0
}

// Limit returns l.
func (r *Receiver) Limit() uint64 { return r.l }

// Valid returns an error wrapping ErrInvariant that names the first broken invariant, or nil.
func (r *Receiver) Valid() error {
	switch {
	case max(r.acked, r.processed, r.logged) > r.received:
		return fmt.Errorf("%w: R1: acked %d, processed %d or logged %d is over received %d",
			ErrInvariant, r.acked, r.processed, r.logged, r.received)
	case r.AtRisk() > r.l:
		return fmt.Errorf("%w: R2 (I2): %d items at risk, l is %d", ErrInvariant, r.AtRisk(), r.l)
	case r.processed > r.acked && r.processed-r.acked > r.l:
		return fmt.Errorf("%w: R3 (I2): processed %d is more than l = %d ahead of acked %d",
			ErrInvariant, r.processed, r.l, r.acked)
	case r.holdFirst != 0 && r.acked >= r.holdFirst:
		return fmt.Errorf("%w: R4: acked %d although the punctuation at %d is not logged",
			ErrInvariant, r.acked, r.holdFirst)
	}
	return nil
}

func saturatingAdd(a, b uint64) uint64 {
	if s := a + b; s >= a {
		return s
	}
	return math.MaxUint64
}
