package threshold

import (
	"fmt"
	"math"
)

// BackupConfig configures a Backup.
type BackupConfig struct {
	// Theta is Budget.Theta. +Inf: never back up.
	Theta float64
	// Alpha is the most divergence one item can add. 0, negative or NaN: unknown, items are then processed one by one
	// with a check after each. It steers only; a wrong Alpha costs waiting, never the bound.
	Alpha float64
	// SelfAccounting: the state is told when a backup is durable and its divergence includes what is in flight: it is
	// the larger of the divergences from the last durable backup and from the one in flight, since a failure may find
	// either (changes that cancel can bring the state closer to the one and further from the other). If false, the
	// state's divergence restarts when a backup begins, and Backup adds what is in flight.
	SelfAccounting bool
	// Begin is the share of theta beyond which a backup begins; 0 is 1/2, or 3/4 for a self-accounting state. What is left
	// is for what is processed while the backup is written. It steers only. A distance that grows with the root of the items, as
	// the Euclidean one does where steps are independent, passes the last part slowly and may begin later.
	Begin float64
}

// Backup decides when the state of one partition is backed up. Readings (d) are what the state's StateDivergence
// returns; a NaN counts as exceeded. One backup is in flight at a time.
//
// Invariants:
//
//	B1 [I1]   divergence from the last *durable* backup <= theta, for every item that counts as processed
//	B2        at most one backup in flight
//
// B1 holds while a backup is being written: by the triangle inequality the divergence is at most that of the
// snapshot in flight plus that of the state since. So a backup begins early, at theta/2 (at 3/4 theta for a
// self-accounting state, whose sum is exact), and processing stops only where B1 would break.
//
// What a reading must measure if inputs are at risk is told in the package documentation, "What a divergence must be".
//
// The caller's loop: n := Run(d, len); process n items; ask Decide with the new reading and obey until it no longer
// says Wait; only then count the n items as processed (Receiver.Processed). All methods are plain arithmetic; a Backup
// belongs to one goroutine.
type Backup struct {
	theta, alpha float64 // alpha 0: unknown
	begin        float64 // start a backup above this
	share        float64 // BackupConfig.Begin
	self         bool

	inFlight bool
	flight   float64 // plain: divergence of the snapshot in flight from the last durable backup
	carried  float64 // plain: the same of backups that failed and are not made good yet
	quiet    float64 // readings up to this need no decision; -1 while what is in flight or failed counts
	floor    float64 // the reading that a backup made now could not lower
	granted  bool    // Run granted items since the last backup began: a NaN may be theirs
}

// NewBackup returns a Backup for a state that equals its backup (a new or just restored one).
func NewBackup(c BackupConfig) *Backup {
	b := &Backup{theta: c.Theta, alpha: c.Alpha, self: c.SelfAccounting, share: c.Begin}
	if !(b.alpha > 0) {
		b.alpha = 0
	}
	b.begin = b.beginning(c.Theta)
	b.quiet = b.calm()
	return b
}

// beginning returns the reading above which a backup is to begin.
func (b *Backup) beginning(theta float64) float64 {
	switch {
	case b.share > 0:
		return theta * min(b.share, 1)
	case b.self:
		return theta * 3 / 4
	}
	return theta / 2
}

// calm returns the reading up to which nothing is to be done while no backup is in flight.
func (b *Backup) calm() float64 {
	if b.theta > math.MaxFloat64 {
		return b.theta // whatever alpha is
	}
	return min(b.begin, b.theta-b.alpha)
}

// Divergence returns the divergence from the last durable backup when the state reads d, including what is in flight.
func (b *Backup) Divergence(d float64) float64 {
	if b.self {
		return d
	}
	return d + b.flight + b.carried
}

// Run returns how many items, at most limit, may be processed before the divergence is read again. 0 means that a
// backup must become durable first: begin one unless one is in flight, and wait.
//
// With alpha known it is (theta - divergence)/alpha; with alpha unknown 1. If even a fresh backup leaves no room for an
// item (alpha above theta, or a partial backup that leaves much), it is 1 all the same: Decide then makes the item
// wait for its backup before it counts.
func (b *Backup) Run(d float64, limit int) int {
	if b.theta > math.MaxFloat64 { // +Inf: no call, no state
		return limit
	}
	return b.run(d, limit)
}

// Until returns the reading up to which items may be processed one by one without asking Decide: as long as the reading is
// no higher, nothing is due and another item is within theta. It is for where Run grants few, since alpha is what the worst
// item adds and most add less. If d is beyond it, or with theta +Inf, ok is false and Run says what to do.
func (b *Backup) Until(d float64) (most float64, ok bool) {
	most = b.quiet
	if most < 0 { // what is in flight or failed counts
		most = b.theta - b.alpha - b.flight - b.carried
		if !b.inFlight {
			most = min(most, b.begin)
		}
	}
	if b.theta > math.MaxFloat64 || !(d <= most) {
		return 0, false
	}
	b.granted = true
	return most, true
}

func (b *Backup) run(d float64, limit int) int {
	room := b.theta - b.Divergence(d) // NaN if d is
	n := 0
	switch {
	case b.alpha == 0 && room >= 0:
		n = min(1, limit)
	case b.alpha > 0 && room >= b.alpha:
		n = limit
		if fit := room / b.alpha; fit < float64(limit) {
			n = int(fit)
		}
	case b.futile(d) && !(room < 0):
		n = min(1, limit)
	}
	b.granted = b.granted || n > 0
	return n
}

// futile reports that a backup begun now would not lower the reading d: nothing was processed since the last one.
func (b *Backup) futile(d float64) bool {
	return !b.inFlight && (d <= b.floor || d != d && !b.granted)
}

// Decide returns what to do when the state reads d after items were processed. After a Wait it is asked again with
// the reading then: what was processed while the backup was in flight may need a second one.
func (b *Backup) Decide(d float64) Action {
	if d <= b.quiet {
		return Continue
	}
	return b.decide(d)
}

func (b *Backup) decide(d float64) Action {
	if b.theta > math.MaxFloat64 { // only a NaN comes here
		return Continue
	}
	total := b.Divergence(d)
	switch {
	case total != total:
		if b.futile(d) {
			return Continue
		}
		return Wait
	case total > b.theta:
		return Wait
	case b.inFlight:
		if total+b.alpha > b.theta {
			return Wait
		}
		return Continue
	case d <= b.floor:
		return Continue
	case d > b.begin || total+b.alpha > b.theta:
		return Start
	}
	return Continue
}

// Pays reports whether a commit that is made for another reason while the state reads d, a mark for instance, should take
// elements along: if a backup is due, or nearly, that is above half of where one starts. Below that it would write elements
// that are written again before long, or again and again where the positions are committed often.
func (b *Backup) Pays(d float64) bool {
	return !(d <= b.begin/2 && b.Divergence(d)+b.alpha <= b.theta)
}

// Started says that a backup has begun: the state read before when its snapshot was taken and reads after now. A
// whole backup of a plain state leaves after = 0, a partial one what its unsaved elements still diverge by; a
// self-accounting state reads the same until the backup is durable. Calling it with a backup in flight breaks B2.
//
// From here on Backup adds before to every reading of a plain state, although what a partial backup left is in both:
// which elements grow from now on cannot be told from a reading. So a plain partial backup that leaves more than about
// theta/4 makes the partition wait for it; a self-accounting state does not have the problem.
func (b *Backup) Started(before, after float64) {
	b.inFlight, b.granted, b.quiet = true, false, -1
	if !b.self {
		b.flight = before
		b.floor = after
	}
}

// Durable says that the backup in flight is durable and the state reads after now. It also makes good what failed
// before it, see Failed.
func (b *Backup) Durable(after float64) {
	b.inFlight = false
	b.flight, b.carried, b.quiet = 0, 0, b.calm()
	if b.self {
		b.floor = after
	}
}

// Failed says that the backup in flight will never become durable. A plain state has restarted its reading at the
// snapshot, so the snapshot's divergence counts on until a later backup is durable; that one must save the elements
// of the failed one too. A self-accounting state must not have dropped them from its reading.
func (b *Backup) Failed() {
	b.inFlight, b.granted = false, true
	b.carried += b.flight
	b.flight = 0
	b.floor = -1 // a backup lowers any reading now
}

// InFlight reports whether a backup has begun and is not durable yet.
func (b *Backup) InFlight() bool { return b.inFlight }

// Theta returns the limit.
func (b *Backup) Theta() float64 { return b.theta }

// Valid returns an error wrapping ErrInvariant if B1 is broken while the state reads d: the caller counted items
// without waiting, or a durable backup left the state more than theta from it. It is to be asked when items are about
// to count; between a Wait and its end, and right after a plain partial backup has begun (see Started), it may be over.
func (b *Backup) Valid(d float64) error {
	if total := b.Divergence(d); total > b.theta {
		return fmt.Errorf("%w: B1 (I1): divergence %v from the last durable backup, theta is %v", ErrInvariant, total, b.theta)
	}
	return nil
}
