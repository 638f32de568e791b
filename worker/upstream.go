package worker

import (
	"fmt"
	"time"

	"github.com/afstream/afstream/ringbuf"
	"github.com/afstream/afstream/transport"
)

// Input is a connection from one incarnation of a sending worker.
type Input struct {
	Edge   int // among the inputs of this worker's operator
	Sender int // number of the sending worker
	Epoch  uint64
	Replay Replay
	In     transport.Inbound
	// Emitted is what the sender's previous incarnation had emitted per channel, if that is known: [partition of the
	// sending worker][receiving partition].
	Emitted [][]uint64
}

// upstream is the receiving stage. Everything here belongs to its goroutine.
type upstream struct {
	w        *Worker
	park     *ringbuf.Parker
	attached handoff[Input]
	channels [][][]*inChannel // [input edge][compute goroutine][sending partition], nil where nothing can arrive
	conns    []*connection
	turn     int         // whose turn it is among conns
	arrivals []*arrivals // per compute goroutine
	logDone  handoff[logResult]
}

// inChannel is what a partition has of one input channel.
type inChannel struct {
	conn      *connection // nil until its sender is attached
	id        transport.Channel
	input     int    // dense number
	epoch     uint64 // incarnation of the sender that next counts in
	next      uint64 // everything before is here
	acked     uint64 // everything before is answered for
	announced announced
	fresh     bool              // nothing has arrived on this connection yet
	level     uint64            // the last window that has ended
	ended     bool              // so has the stream
	paused    uint64            // the round in which its sender has said that nothing more comes; 0 if something may
	safe      safe              // of a sender that makes its output again
	waiting   []transport.Frame // of windows that the partition has not come to yet
	gap       gap               // what was dropped at the mark of a partition that is rebuilt
	// before is how far the previous incarnation of this worker had processed the channel: to count repetitions and losses.
	before InputRemains
}

// announced is what the sender of a channel was told last.
type announced struct{ acked, committed uint64 }

// noEpoch is no sender's incarnation.
const noEpoch = ^uint64(0)

// connection is one attached sending worker.
type connection struct {
	Input
	channels []*inChannel
	hello    int // channels that have been told where to start
	held     *transport.Frame
	heldBuf  transport.Frame
}

// numbering is the epoch that positions of the connection's channels are counted in. Output that can be re-created
// keeps its numbers across incarnations of the sender.
func (c *connection) numbering(epoch uint64) uint64 {
	if c.Replay == Rewinds || c.Replay == Retains {
		return 0
	}
	return epoch
}

type logResult struct {
	part    int
	err     error
	bytes   int
	started time.Time
}

// run is the upstream goroutine: it moves what it can and parks when nothing moved.
func (u *upstream) run() error {
	for !u.w.halted.Load() {
		moved, err := u.step()
		if err != nil {
			return err
		}
		if moved {
			continue
		}
		u.park.Wait(func() bool {
			if u.w.halted.Load() {
				return true
			}
			moved, err = u.step()
			return moved || err != nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// step does everything that can be done without waiting and reports whether that was anything.
func (u *upstream) step() (moved bool, err error) {
	for _, in := range u.attached.take() {
		u.attach(in)
		moved = true
	}
	for _, r := range u.logDone.take() {
		if err := u.logged(r); err != nil {
			return false, err
		}
		moved = true
	}
	if !u.quieten() {
		got, err := u.receive()
		if err != nil {
			return false, err
		}
		moved = moved || got
	}
	for i, a := range u.arrivals {
		if err := u.account(i, a); err != nil {
			return false, err
		}
	}
	for _, c := range u.conns {
		u.announce(c)
	}
	return moved, nil
}

// attach replaces the connection of a sending worker. What its earlier incarnation still had under way is dropped
// with the old connection.
func (u *upstream) attach(in Input) {
	c := &connection{Input: in}
	for i, old := range u.conns {
		if old.Edge == in.Edge && old.Sender == in.Sender {
			u.conns = append(u.conns[:i], u.conns[i+1:]...)
			break
		}
	}
	edge := u.w.cfg.Node.Inputs[in.Edge]
	for local := range edge.From.Compute {
		from := in.Sender*edge.From.Compute + local
		for part := range u.channels[in.Edge] {
			ch := u.channels[in.Edge][part][from]
			if ch == nil {
				continue
			}
			if in.Emitted != nil {
				u.countLost(ch, in.Emitted[local][ch.id.To])
			}
			if epoch := c.numbering(in.Epoch); epoch != ch.epoch {
				ch.epoch, ch.next, ch.acked = epoch, 0, 0
				ch.safe.renumber()
			}
			ch.conn, ch.fresh, ch.waiting, ch.gap = c, true, nil, noGap
			u.resumed(ch)
			ch.announced = announced{}
			c.channels = append(c.channels, ch)
		}
	}
	u.conns = append(u.conns, c)
	if c.Replay == AtRisk && u.w.budget.L < smallWindow {
		u.park.WatchClosely()
		for _, o := range u.w.operators {
			o.park.WatchClosely()
		}
	}
}

// countLost adds what the sender's previous incarnation emitted beyond what came here, or was answered for by the
// previous incarnation of this worker.
func (u *upstream) countLost(ch *inChannel, emitted uint64) {
	here := ch.next
	if ch.before.Epoch == ch.epoch {
		here = max(here, ch.before.Acked)
	}
	if emitted > here {
		u.w.stats.Lost.Add(emitted - here)
	}
}

// framesPerStep is how many frames each of the connections that take turns may deliver before acknowledgements are looked after.
const framesPerStep = 16

// receive takes frames off the connections until they are empty or the rings of their partitions are full: of one after the other
// if they are all of one input.
//
// Those of several inputs take turns, a frame each, also when there is room for one at a time, or until it has been long enough:
// else the first connections would have all the room there is, and an operator that joins its inputs would have to keep what
// one is ahead of the other.
func (u *upstream) receive() (moved bool, err error) {
	for _, c := range u.conns {
		if err := u.admit(c); err != nil {
			return false, err
		}
	}
	if len(u.w.cfg.Node.Inputs) > 1 {
		return u.takeTurns()
	}
	for i := 0; i < len(u.conns); {
		got, err := u.receiveOne(u.conns[i])
		if err != nil {
			return moved, err
		}
		if moved = moved || got; !got {
			i++
		}
	}
	return moved, nil
}

// takeTurns goes on, the next time, with whose turn it is.
func (u *upstream) takeTurns() (moved bool, err error) {
	for n, still := framesPerStep*len(u.conns), 0; n > 0 && still < len(u.conns); n-- {
		u.turn %= len(u.conns)
		got, err := u.receiveOne(u.conns[u.turn])
		if err != nil {
			return moved, err
		}
		still++
		if u.turn++; got {
			moved, still = true, 0
		}
	}
	return moved, nil
}

// receiveOne takes a frame off a connection, if there is one and room for it.
func (u *upstream) receiveOne(c *connection) (bool, error) {
	if c.held == nil {
		f, ok := c.In.Receive()
		if !ok {
			return false, nil
		}
		c.heldBuf = f
		c.held = &c.heldBuf
	}
	taken, err := u.deliver(c, c.held)
	if err != nil || !taken {
		return false, err
	}
	c.held = nil
	return true, nil
}

// deliver takes one frame, or reports false if there is no room for it. What belongs to a window that its partition has
// not come to waits; it has not arrived yet as far as acknowledgements are concerned. How much can wait is bounded by
// the sender: by gamma, or because a source is at most two windows ahead of what its receivers have committed.
func (u *upstream) deliver(c *connection, f *transport.Frame) (bool, error) {
	part := f.Channel.To % u.w.cfg.Node.Compute
	ch := u.channels[c.Edge][part][f.Channel.From]
	if f.Epoch != c.Epoch {
		u.w.stats.Stale.Add(uint64(f.Count))
		f.Release()
		return true, nil
	}
	if f.Kind == transport.Blocked {
		u.blocked(c, part)
		return true, nil
	}
	if f.Kind != transport.Paused {
		u.resumed(ch)
	}
	if r := &u.w.operators[part].rebuild; (ch.gap != noGap || r.silent.Load()) && ch.tooEarly(r, f) {
		f.Release()
		return true, nil
	}
	if len(ch.waiting) > 0 || f.Level > u.w.operators[part].aligned.Load() && f.Count > 0 {
		ch.waiting = append(ch.waiting, *f)
		return true, nil
	}
	return u.hand(c, ch, f)
}

// blocked takes note that a sender of a partition waits: for acknowledgements, or for a commit.
func (u *upstream) blocked(c *connection, part int) {
	if c.Replay != Remakes {
		u.arrivals[part].blocked = true
		return
	}
	p := u.w.operators[part]
	p.remake.demand.Store(true)
	p.park.Wake()
}

// admit passes on what has waited for the partition to come to its window.
func (u *upstream) admit(c *connection) error {
	for _, ch := range c.channels {
		n := 0
		for n < len(ch.waiting) {
			if f := &ch.waiting[n]; f.Count > 0 && f.Level > u.w.operators[ch.id.To%u.w.cfg.Node.Compute].aligned.Load() {
				break
			}
			taken, err := u.hand(c, ch, &ch.waiting[n])
			if err != nil {
				return err
			}
			if !taken {
				break
			}
			n++
		}
		if n > 0 {
			rest := copy(ch.waiting, ch.waiting[n:])
			clear(ch.waiting[rest:])
			ch.waiting = ch.waiting[:rest]
		}
	}
	return nil
}

// hand passes one frame of the partition's present window to its ring, or reports false if there is no room.
func (u *upstream) hand(c *connection, ch *inChannel, f *transport.Frame) (bool, error) {
	if f.Kind == transport.Paused {
		u.paused(ch, f.Window.Number)
		return true, nil
	}
	part := ch.id.To % u.w.cfg.Node.Compute
	a := u.arrivals[part]
	d := delivery{Frame: *f, input: ch.input, position: ch.epoch, accounted: c.Replay == AtRisk}
	switch {
	case ch.ended, f.Kind == transport.Data && f.Level < ch.level:
		// Sent again by a sender that does not know: all of a window came before its end.
		ch.next, ch.acked = max(ch.next, f.Next()), max(ch.acked, f.Next())
		ch.safe.skip(ch.next)
		u.w.stats.Duplicates.Add(uint64(f.Count))
		f.Release()
		return true, nil
	case f.Kind == transport.Punctuation && (f.Count == 0 || f.Next() <= ch.next) && f.Window.Number <= ch.level && !f.Window.Last:
		return true, nil // no news, and not to take up room: the partition may be waiting for others
	case f.Kind == transport.Punctuation && (f.Count == 0 || f.Next() <= ch.next):
		d.repeated, d.accounted = true, false // its position is known, but not that it was an end
	case f.Next() <= ch.next:
		u.w.stats.Duplicates.Add(uint64(f.Count))
		f.Release()
		return true, nil
	case f.First < ch.next:
		d.skip = int(ch.next - f.First)
	case f.First > ch.next && !ch.fresh:
		return false, fmt.Errorf("%s: channel %+v: got sequence %d, want %d", u.w.cfg.name(), ch.id, f.First, ch.next)
	}
	p := u.w.operators[part]
	if d.accounted {
		retain(f) // before compute can let go of it
	}
	if !p.push(d) {
		if d.accounted {
			f.Release()
		}
		return false, nil
	}
	if ch.fresh && f.Count > 0 {
		u.first(ch, f)
	}
	if d.accounted {
		a.add(ch, *f, d.skip)
	}
	if f.Count > 0 {
		ch.next = max(ch.next, f.Next())
	}
	if c.Replay == Remakes && !d.repeated {
		ch.safe.hand(ch.next)
	}
	if f.Kind == transport.Punctuation {
		ch.level, ch.ended = max(ch.level, f.Window.Number), ch.ended || f.Window.Last
	}
	p.park.Wake()
	return true, nil
}

// push puts a delivery into the partition's ring, or reports false if there is no room; upstream is then woken when there
// is.
func (o *operator) push(d delivery) bool {
	if o.in.TryPush(d) {
		return true
	}
	o.full.Store(true)
	return o.in.TryPush(d) // compute may have made room before it could see the mark
}

// first looks at the first frame of a connection, which shows what a failure of this worker has cost: a gap is what
// the sender could or need not send again.
func (u *upstream) first(ch *inChannel, f *transport.Frame) {
	ch.fresh = false
	start := max(f.First, ch.next)
	if ch.before.ProcessedEpoch != ch.epoch {
		return
	}
	ch.before.ProcessedEpoch = noEpoch // counted
	p := u.w.operators[ch.id.To%u.w.cfg.Node.Compute]
	if f.First > ch.next {
		here := ch.next
		if !p.flushes { // otherwise what was processed is lost, too
			here = max(here, min(start, ch.before.Processed))
		}
		u.w.stats.Lost.Add(start - here)
	}
	if again := ch.before.Processed; again > start {
		u.w.stats.Replayed.Add(again - start)
		if p.repeats {
			u.w.stats.Repeated.Add(again - min(again, max(start, p.rebuild.mark(ch.input))))
		}
	}
}

// account runs the acknowledgement machine of one partition and logs what it must.
func (u *upstream) account(part int, a *arrivals) error {
	p := u.w.operators[part]
	m := a.machine
	m.Processed(p.processed.Load())
	m.Logged(p.covered.Load())
	m.Raise(p.limit.Load())
	a.acknowledge()
	if checkInvariants {
		if err := m.Valid(); err != nil {
			return fmt.Errorf("%s partition %d: %w", u.w.cfg.name(), p.index, err)
		}
	}
	if gate := m.Gate(); gate != p.gate.Load() {
		p.gate.Store(gate)
		p.park.Wake()
	}
	wanted := ^uint64(0)
	if m.Acked() < m.Received() {
		wanted = m.Done() + 1
		if p.flushes { // until then only what is durable changes anything, which wakes by itself
			wanted = max(wanted, m.Gate())
		}
	} else {
		a.blocked = false // there is nothing that its sender could wait for
	}
	p.wanted.Store(wanted)
	if a.logging || !(a.blocked || m.MustLog()) {
		return nil
	}
	if from, to := m.Pending(); from == to || u.w.cfg.Store == nil {
		return nil
	}
	entries, err := a.pending()
	if err != nil {
		return fmt.Errorf("log items of %s: %w", u.w.cfg.name(), err)
	}
	bytes := 0
	for i := range entries {
		bytes += len(entries[i].Items)
	}
	a.logging, a.blocked = true, false
	started := time.Now()
	p.logged.Store(a.logTo) // before there is anything to clear
	p.store.AppendLog(entries, func(err error) {
		u.logDone.put(logResult{part: part, err: err, bytes: bytes, started: started})
		u.park.Wake()
	})
	return nil
}

func (u *upstream) logged(r logResult) error {
	if r.err != nil {
		return fmt.Errorf("log items of %s: %w", u.w.cfg.name(), r.err)
	}
	a := u.arrivals[r.part]
	a.logging = false
	a.machine.Logged(a.logTo)
	u.w.stats.logged(r.bytes, time.Since(r.started))
	return nil
}

// announce tells the sender what has changed since it was last told. Acknowledgements are cumulative, so one that finds
// no room is simply made later.
func (u *upstream) announce(c *connection) {
	for c.hello < len(c.channels) {
		ch := c.channels[c.hello]
		a := transport.Ack{Channel: ch.id, Resume: true, Epoch: c.Epoch, Acked: ch.next, Live: c.Replay == Live && u.w.cfg.Before != nil}
		if !c.In.Acknowledge(a) {
			return
		}
		c.hello++
	}
	for _, ch := range c.channels {
		if !u.ask(c, ch) {
			return
		}
		now := announced{acked: ch.acked, committed: u.committed(ch)}
		if now == ch.announced {
			continue
		}
		if !c.In.Acknowledge(transport.Ack{Channel: ch.id, Epoch: c.Epoch, Acked: now.acked, Committed: now.committed}) {
			return
		}
		ch.announced = now
	}
}

// committed returns the channel's durable position. Only senders that can re-create their output care for it.
func (u *upstream) committed(ch *inChannel) uint64 {
	o := u.w.operators[ch.id.To%u.w.cfg.Node.Compute]
	switch ch.conn.Replay {
	case Rewinds, Retains: // positions that hold across incarnations
		return o.committed[ch.input].Load()
	case Remakes:
		return ch.safe.durable(o.remake.covered[ch.input].Load())
	}
	return 0
}
