package link

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/afstream/afstream/ringbuf"
	"github.com/afstream/afstream/transport"
)

// Carrier is what a link needs of NATS. Nothing it does is reliable.
type Carrier interface {
	// Publish sends a message and copies it before it returns. It may block. After ErrGone trying again is of no use.
	Publish(subject string, msg []byte) error
	// Subscribe has deliver called with each message, which then belongs to deliver. messages and bytes are how much may
	// have to wait.
	Subscribe(subject string, messages, bytes int, deliver func(msg []byte)) (Subscription, error)
	// MaxPayload is how many bytes a message may have.
	MaxPayload() int
}

// Subscription is one subject that is listened to.
type Subscription interface {
	// Dropped counts the messages that were lost since deliver was too slow.
	Dropped() uint64
	// Stop ends it; deliver may be called once more.
	Stop()
}

// ErrGone is wrapped by the errors of a carrier that will take no message any more, or not this one.
var ErrGone = errors.New("NATS takes no more messages")

// Timing of answers: the first few messages may wait together, for a short while.
const (
	answerEvery = 8
	answerAfter = 2 * time.Millisecond
)

// contents is what the goroutine of an end sends: frames, or acknowledgements.
type contents interface {
	// waiting says whether there is anything, and whether so much that it should go at once.
	waiting() (some, busy bool)
	// fill appends what there is to a message that was just begun, until it has batch bytes, and at most limit.
	fill(msg []byte, batch, limit int) ([]byte, error)
	// discard lets go of all that was not sent.
	discard()
}

// end is what both ends of a connection have in common. All but what is marked belongs to its goroutine.
type end struct {
	name    string // the connection's id
	cfg     Config
	carrier Carrier
	subject string // where to send
	sub     Subscription
	what    contents
	owner   *ringbuf.Parker // of the goroutine that uses the end
	park    *ringbuf.Parker // of the end's goroutine

	out   outgoing
	in    incoming
	mail  mailbox // any goroutine
	mails [][]byte
	inbox *ringbuf.SPSC[[]byte] // contents in order, to the owner

	wrote     time.Time // when the last content was sent
	lingering atomic.Bool
	urgent    bool // answer now
	toldGot   uint64
	answerBy  time.Time // when the peer must be told; zero: it knows all
	behind    bool      // the peer was told while the owner had not used everything

	taken  atomic.Uint64 // messages that the owner is done with; written by it
	hungry atomic.Bool   // the owner is to wake the goroutine when it has used enough, or all
	used   window        // by the owner since it did so last; its own

	payload  atomic.Int64 // bytes that a message may have
	hello    atomic.Bool  // say hello and send all again; set by anybody
	closing  atomic.Bool
	gone     func()        // tells the bus
	done     chan struct{} // closed when the goroutine has ended
	failure  atomic.Pointer[error]
	flushing flushing
	counters
}

// start subscribes and starts the goroutine.
func (e *end) start(listen string) error {
	e.park, e.done = ringbuf.NewParker(), make(chan struct{})
	e.out = newOutgoing(window{messages: e.cfg.Messages, bytes: e.cfg.Bytes})
	e.inbox = ringbuf.NewSPSC[[]byte](MaxMessages)
	// Contents within the window, all of them once more, and answers.
	e.mail.limit = 4 * MaxMessages
	sub, err := e.carrier.Subscribe(listen, 4*MaxMessages, 64<<20, func(msg []byte) {
		if !e.mail.put(msg) {
			e.overruns.Add(1)
			return
		}
		e.park.Wake()
	})
	if err != nil {
		return fmt.Errorf("link %s: subscribe %s: %w", e.name, listen, err)
	}
	e.sub = sub
	e.payload.Store(int64(e.carrier.MaxPayload()))
	e.hello.Store(true)
	go e.run() // ends with close or fail
	return nil
}

// run is the goroutine of the end.
func (e *end) run() {
	defer close(e.done)
	for !e.closing.Load() {
		now := time.Now()
		if e.hello.Load() && e.hello.Swap(false) {
			e.greet(now)
		}
		e.read(now)
		e.resendDue(now)
		e.write(now)
		e.tell(now)
		e.settle()
		e.sleep()
	}
	e.lastWord()
	e.mail.close()
	e.sub.Stop()
	e.what.discard()
	e.release()
}

// lastWord tells the peer what has arrived, if that is still owed: it may wait for it before it closes, too.
func (e *end) lastWord() {
	if e.failure.Load() != nil || e.answerBy.IsZero() && !e.urgent {
		return
	}
	msg := begin(nil, kindAnswer)
	complete(msg, header{got: e.in.got, taken: e.taken.Load()})
	_ = e.carrier.Publish(e.subject, msg) // if it is lost the peer finds nobody to ask, as after a crash
}

// sleep returns when there may be something to do.
func (e *end) sleep() {
	until := e.deadline()
	for range 2 { // what is waited for is often done by a goroutine that needs this very processor
		if e.ready() {
			return
		}
		runtime.Gosched()
	}
	e.park.Prepare()
	switch {
	case e.ready():
		e.park.Cancel()
	case until.IsZero():
		e.park.Park()
	default:
		e.park.ParkTimeout(time.Until(until))
	}
}

// ready says whether there is something to do before the deadline.
func (e *end) ready() bool {
	if e.closing.Load() || e.hello.Load() || e.mail.filled.Load() || e.flushing.some.Load() && e.idle() {
		return true
	}
	if e.behind && !e.hungry.Load() {
		return true
	}
	some, busy := e.what.waiting()
	return some && e.out.room() && (busy || !e.lingering.Load())
}

// deadline is when the goroutine must look again; the zero time is never.
func (e *end) deadline() time.Time {
	first := e.out.deadline()
	earlier := func(t time.Time) {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	earlier(e.answerBy)
	if e.lingering.Load() {
		earlier(e.wrote.Add(e.cfg.Linger))
	}
	return first
}

// greet tells the peer that all it has sent so far may be lost, and assumes the same.
func (e *end) greet(now time.Time) {
	e.payload.Store(int64(e.carrier.MaxPayload())) // it may be another server
	e.transmit(begin(nil, kindHello), 0)
	e.resend(e.out.lost(now), now)
}

// read takes what NATS has delivered.
func (e *end) read(now time.Time) {
	e.mails = e.mail.take(e.mails)
	for _, msg := range e.mails {
		kind, h, content, err := parse(msg)
		if errors.Is(err, transport.ErrVersion) {
			e.fail(err)
			return
		}
		if err != nil {
			e.malformed.Add(1)
			continue
		}
		again, ok := e.out.answer(h.got, h.taken, h.missing, now)
		if !ok {
			e.malformed.Add(1)
			continue
		}
		e.resend(again, now)
		switch kind {
		case kindContent:
			e.accept(h.number, content, now)
		case kindProbe:
			e.urgent = true
		case kindHello:
			e.urgent = true
			e.resend(e.out.lost(now), now)
		}
	}
}

// accept takes a content.
func (e *end) accept(number uint64, content []byte, now time.Time) {
	switch e.in.accept(number, content, e.taken.Load(), MaxMessages) {
	case duplicate:
		e.duplicates.Add(1)
		e.urgent = true // the answer to the first was lost, or is late
	case beyond:
		e.overruns.Add(1)
	case opensGap:
		e.gaps.Add(1)
		e.urgent = true
	case early:
		e.urgent = true
	case inOrder:
		e.urgent = e.urgent || len(e.in.ready) > 1 // a gap is closed
	}
	for _, body := range e.in.ready {
		e.inbox.TryPush(body) // never full: accept keeps to the window
		e.received.Add(1)
	}
	if len(e.in.ready) > 0 {
		e.owner.Wake()
	}
	if e.answerBy.IsZero() {
		e.answerBy = now.Add(answerAfter)
	}
}

// resendDue sends again what was not answered in time.
func (e *end) resendDue(now time.Time) {
	again, probe := e.out.due(now)
	if probe || len(again) > 0 {
		e.timeouts.Add(1)
	}
	e.resend(again, now)
	if probe {
		e.transmit(begin(nil, kindProbe), 0)
	}
}

func (e *end) resend(numbers []uint64, now time.Time) {
	for _, n := range numbers {
		e.resent.Add(1)
		e.transmit(e.out.message(n, now), n)
	}
}

// write packs and sends new contents while the window has room.
func (e *end) write(now time.Time) {
	e.lingering.Store(false)
	for e.out.room() && !e.closing.Load() {
		some, busy := e.what.waiting()
		if !some {
			return
		}
		if !busy && now.Sub(e.wrote) < e.cfg.Linger {
			e.lingering.Store(true)
			return
		}
		limit := int(e.payload.Load())
		msg, err := e.what.fill(begin(e.out.buffer(), kindContent), min(e.cfg.Batch, limit), limit)
		if err != nil {
			e.fail(err)
			return
		}
		number := e.out.next
		e.out.add(msg, now)
		e.sent.Add(1)
		e.sentBytes.Add(uint64(len(msg)))
		e.transmit(msg, number)
		now = time.Now()
		e.wrote = now
	}
}

// tell answers the peer, unless a content has just done so or more can wait.
func (e *end) tell(now time.Time) {
	used := e.behind && !e.hungry.Load()
	many := e.in.got-e.toldGot >= answerEvery
	late := !e.answerBy.IsZero() && !now.Before(e.answerBy)
	if e.urgent || used || many || late {
		e.transmit(begin(nil, kindAnswer), 0)
	}
}

// transmit completes a message and gives it to NATS. If that does not take it, it is as lost as any.
func (e *end) transmit(msg []byte, number uint64) {
	e.hungry.Store(true) // before the look: what the owner uses after it makes it wake us
	taken := e.taken.Load()
	complete(msg, header{number: number, got: e.in.got, taken: taken, missing: e.in.missing()})
	switch err := e.carrier.Publish(e.subject, msg); {
	case errors.Is(err, ErrGone):
		e.fail(err)
	case err != nil:
		e.refused.Add(1)
	}
	e.toldGot, e.urgent, e.answerBy = e.in.got, false, time.Time{}
	if e.behind = taken < e.in.got; !e.behind {
		e.hungry.Store(false)
	}
}

// use is called by the owner when it is done with a content of n bytes.
func (e *end) use(n int) {
	e.taken.Add(1)
	e.used.messages++
	e.used.bytes += n
	if !e.hungry.Load() {
		return
	}
	if e.used.bytes >= e.cfg.Bytes/4 || e.used.messages >= answerEvery || e.inbox.Len() == 0 {
		e.used = window{}
		e.hungry.Store(false)
		e.park.Wake()
	}
}

// err returns why the end can do nothing more.
func (e *end) err() error {
	if err := e.failure.Load(); err != nil {
		return *err
	}
	return fmt.Errorf("link %s: %w", e.name, ErrClosed)
}

// fail ends the connection, once. Any goroutine may call it.
func (e *end) fail(err error) {
	err = fmt.Errorf("link %s: %w", e.name, err)
	if !e.failure.CompareAndSwap(nil, &err) {
		return
	}
	e.closing.Store(true)
	e.park.Wake()
	if e.cfg.Failed != nil {
		e.cfg.Failed(err)
	}
}

// close ends the goroutine and waits for it; see Outbound.Close.
func (e *end) close() {
	e.closing.Store(true)
	e.park.Wake()
	<-e.done
	if e.gone != nil {
		e.gone()
	}
}
