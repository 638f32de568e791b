package link

import "time"

// Bounds of the time after which a message without an answer is taken for lost. The lower one is well above what a busy
// machine delays goroutines by; the upper one is how soon a peer that was away for long is tried again.
const (
	firstTimeout = 200 * time.Millisecond
	minTimeout   = 100 * time.Millisecond
	maxTimeout   = 2 * time.Second
)

// kept is a message that was sent.
type kept struct {
	msg   []byte // nil once the peer has it
	size  int
	sent  time.Time // last
	again bool      // more than once, so that its answer says nothing about the way
}

// outgoing is the sender of one direction: a pure machine, time is passed in. Messages are numbered from 1.
//
// Invariants:
//
//  1. taken <= got < next. The peer has all messages up to got, in order, and its owner is done with those up to taken.
//  2. kept[i] is message taken+1+i, for all up to next-1, and its bytes are there unless it is one of those up to got.
//  3. next-1-taken <= limit.messages, and the sizes of these add up to less than limit.bytes without the last.
type outgoing struct {
	limit window
	next  uint64
	got   uint64
	taken uint64
	kept  []kept
	bytes int // sizes of kept
	spare [][]byte

	trip  time.Duration // smoothed time from a message to its answer; 0 = none seen
	sway  time.Duration // smoothed deviation from that
	since time.Time     // when the peer was last heard of in a way that mattered, or what is waited for began
	tries int           // timeouts in a row since then
	again []uint64      // what answer, due and lost return
}

// window is how much may be under way in one direction, from a sender to what its peer's owner has not used yet.
type window struct{ messages, bytes int }

func newOutgoing(limit window) outgoing { return outgoing{limit: limit, next: 1} }

// room says whether one more message may be sent.
func (o *outgoing) room() bool {
	return o.next-1-o.taken < uint64(o.limit.messages) && (o.bytes < o.limit.bytes || len(o.kept) == 0)
}

// waits says whether an answer is needed to go on, or to forget a message.
func (o *outgoing) waits() bool { return o.got+1 < o.next || !o.room() }

// buffer returns an empty buffer for the next message.
func (o *outgoing) buffer() []byte {
	if n := len(o.spare); n > 0 {
		b := o.spare[n-1]
		o.spare = o.spare[:n-1]
		return b[:0]
	}
	return nil
}

// add takes over message next, which is sent now.
func (o *outgoing) add(msg []byte, now time.Time) {
	if !o.waits() {
		o.since, o.tries = now, 0
	}
	o.kept = append(o.kept, kept{msg: msg, size: len(msg), sent: now})
	o.bytes += len(msg)
	o.next++
}

// answer takes what the peer says: that it has all up to got and has used all up to taken, and, unless missing is 0,
// that it has message missing but none between got and that. It returns the numbers to be sent again, and false if the
// peer cannot have said that.
func (o *outgoing) answer(got, taken, missing uint64, now time.Time) (again []uint64, ok bool) {
	if got >= o.next || missing >= o.next {
		return nil, false
	}
	got, taken = max(got, o.got), max(taken, o.taken) // an older answer may come later
	if taken > got {
		return nil, false
	}
	o.again = o.again[:0]
	if got > o.got || taken > o.taken {
		o.measure(got, now)
		o.forget(got, taken)
		late := o.tries > 0
		o.since, o.tries = now, 0
		if late { // what was sent before the timeout is lost, too
			o.repeat(o.next, now.Add(-o.timeout()), false)
		}
	}
	if missing > o.got+1 && len(o.again) == 0 {
		o.repeat(missing, now.Add(-max(o.trip, time.Millisecond)), true)
	}
	return o.again, true
}

// repeat lists what is under way below number to and was last sent before limit, or, with fresh, only once.
func (o *outgoing) repeat(to uint64, limit time.Time, fresh bool) {
	for n := o.got + 1; n < to; n++ {
		if k := &o.kept[n-o.taken-1]; k.sent.Before(limit) || fresh && !k.again {
			o.again = append(o.again, n)
		}
	}
}

// measure learns from the answer to message got how long the way is.
func (o *outgoing) measure(got uint64, now time.Time) {
	if got == o.got {
		return
	}
	k := &o.kept[got-o.taken-1]
	if k.again {
		return
	}
	d := max(now.Sub(k.sent), time.Nanosecond)
	if o.trip == 0 {
		o.trip, o.sway = d, d/2
		return
	}
	o.sway += ((d - o.trip).Abs() - o.sway) / 4
	o.trip += (d - o.trip) / 8
}

// forget drops the bytes of messages up to got, and messages up to taken altogether.
func (o *outgoing) forget(got, taken uint64) {
	for n := o.got + 1; n <= got; n++ {
		k := &o.kept[n-o.taken-1]
		if len(o.spare) < spares {
			o.spare = append(o.spare, k.msg)
		}
		k.msg = nil
	}
	o.got = got
	n := int(taken - o.taken)
	for i := range n {
		o.bytes -= o.kept[i].size
	}
	rest := copy(o.kept, o.kept[n:])
	clear(o.kept[rest:])
	o.kept, o.taken = o.kept[:rest], taken
}

// spares bounds the buffers that are kept for use again.
const spares = 8

// timeout is how long an answer may take.
func (o *outgoing) timeout() time.Duration {
	d := firstTimeout
	if o.trip > 0 {
		d = o.trip + 4*o.sway
	}
	for range o.tries {
		d *= 2
		if d > maxTimeout {
			break
		}
	}
	return min(max(d, minTimeout), maxTimeout)
}

// deadline is when due has something to do; the zero time is never.
func (o *outgoing) deadline() time.Time {
	if !o.waits() {
		return time.Time{}
	}
	return o.since.Add(o.timeout())
}

// due returns what must be sent again because no answer came in time: the oldest message alone, for the peer may be away
// for long. probe says that there is none, but that the window is closed: the peer must be asked.
func (o *outgoing) due(now time.Time) (again []uint64, probe bool) {
	if !o.waits() || now.Before(o.since.Add(o.timeout())) {
		return nil, false
	}
	o.since = now
	o.tries++
	o.again = o.again[:0]
	if o.got+1 < o.next {
		o.again = append(o.again, o.got+1)
	}
	return o.again, len(o.again) == 0
}

// lost returns all that is under way: the peer has only begun to listen, or the connection was interrupted.
func (o *outgoing) lost(now time.Time) []uint64 {
	o.again = o.again[:0]
	o.repeat(o.next, now.Add(time.Nanosecond), false)
	o.since, o.tries = now, 0
	return o.again
}

// message returns the bytes of a message under way, which is sent again now.
func (o *outgoing) message(n uint64, now time.Time) []byte {
	k := &o.kept[n-o.taken-1]
	k.sent, k.again = now, true
	return k.msg
}
