package threshold

import "fmt"

// Sender keeps the credits of one sending partition whose output is at risk, over all its output channels together:
// if its worker dies, what is emitted and not acknowledged is lost, wherever it is (in an open slab, a ring, on the
// wire, or at a receiver that holds its ack back).
//
// Invariants, checked by Valid:
//
//	S1        acked <= emitted
//	S2 [I3]   emitted - acked <= max(gamma, 1)
//
// A gamma of 0 is used as 1: the series floors to 0 after enough failures, and a sender without any credit could
// never emit again. Such an item is as much at risk as any other, so from then on a failure can cost one item above
// the Gamma of the operator; errorbound.Params.Overdraft accounts for it. There is no cheaper way out: an item that
// leaves a goroutine is either recorded before (then a crash in between loses it or its record lies) or after.
//
// The zero value is a Sender with gamma = 0. All methods are plain integer arithmetic; a Sender belongs to one goroutine.
type Sender struct {
	gamma          uint64
	emitted, acked uint64
}

// NewSender returns a Sender with nothing emitted. gamma is Budget.Gamma.
func NewSender(gamma uint64) *Sender { return &Sender{gamma: gamma} }

// Emitted counts n more items as emitted, n <= Credit. It is to be called at the emission by the operator, before the
// items reach a slab or ring, since they die with those.
func (s *Sender) Emitted(n uint64) { s.emitted += n }

// Acked says that total of the emitted items, summed over all output channels, are acknowledged. A total below an
// earlier one is ignored.
func (s *Sender) Acked(total uint64) { s.acked = max(s.acked, total) }

// Credit returns how many more items may be emitted now. At 0 the sender must flush what it has (an item in an open
// slab can never be acknowledged), tell the receivers that it is blocked, and wait.
func (s *Sender) Credit() uint64 {
	if w, u := s.Window(), s.Unacked(); u < w {
		return w - u
	}
	return 0
}

// Unacked returns how many items a failure of this partition would lose now.
func (s *Sender) Unacked() uint64 { return s.emitted - min(s.acked, s.emitted) }

// Emits returns the number of items emitted.
func (s *Sender) Emits() uint64 { return s.emitted }

// Window returns the limit in use: max(gamma, 1).
func (s *Sender) Window() uint64 { return max(s.gamma, 1) }

// Valid returns an error wrapping ErrInvariant that names the first broken invariant, or nil.
func (s *Sender) Valid() error {
	switch {
	case s.acked > s.emitted:
		return fmt.Errorf("%w: S1: acked %d is over emitted %d", ErrInvariant, s.acked, s.emitted)
	case s.Unacked() > s.Window():
		return fmt.Errorf("%w: S2 (I3): %d items unacknowledged, the limit is %d", ErrInvariant, s.Unacked(), s.Window())
	}
	return nil
}
