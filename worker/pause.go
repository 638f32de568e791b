package worker

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/transport"
)

// This file holds how a whole job is brought to rest with nothing of it in flight, so that its state can be divided among
// other workers: every item that a source has read is processed and in durable states, no log holds anything, and each
// source stands, durably, behind the last of these items. Nothing is closed for it and no window ends.
//
// It goes in rounds, which are numbered from 1. A round is over, in vain, when a worker is replaced: what its successor does again
// makes others that were at rest work again. The next round begins when the successor is connected.
//
//  1. Sources are held (Hold): each goes on until all that any of its receivers has ever had is made again, and stops
//     there. They say in which windows they have emitted (Held).
//  2. All are told to pause, with the highest of those windows (Pause). A source ends windows until it has ended that one and
//     stops right behind the end: then nobody's items have to wait for windows that others have not ended. It says on each
//     of its channels that nothing more comes (a Paused frame, with the round), and waits until its receivers have
//     committed all it has sent.
//  3. A partition whose channels have all said so has nothing left to process. It says the same on its own channels, and
//     saves its whole state and its positions.
//  4. The worker is at rest when all of its partitions are (Paused). It lives on, and resends what its receivers lack.
//
// In a round no worker is replaced, so one that is at rest stays so: what comes on a channel behind Paused comes from a new
// incarnation. Hence if all workers say of the same round that they are at rest, one after the other, all are at once.
//
// It can be given up at any time: Resume lets the sources read on, and what they send is news to whoever is at rest.

// ErrCannotPause is wrapped by the errors about workers that cannot come to rest without loss.
var ErrCannotPause = errors.New("worker cannot come to rest without loss")

// pausing is what a worker has been asked for.
type pausing struct {
	asked  atomic.Pointer[pause]  // nil: to go on
	cannot atomic.Pointer[string] // why it cannot
}

// pause is one request. It does not change.
type pause struct {
	round  uint64
	hold   bool   // sources only stop
	window uint64 // that sources go on to end
}

// Pausable says whether the worker can come to rest. The error wraps ErrCannotPause:
//
//   - under None, where nothing can be saved;
//   - for a source that is read like a pipe, since what it has read cannot be read again from where it stands;
//   - for operators that send or take feedback, and those whose partitions hand each other values, which would be lost.
func (w *Worker) Pausable() error {
	n := w.cfg.Node
	why := ""
	switch {
	case w.cfg.Store == nil:
		why = "the job makes no backups"
	case n.IsSource && w.replay != Rewinds:
		why = "its input is read like a pipe"
	case len(n.BackIn)+len(n.BackOut) > 0:
		why = "feedback to or from it would be lost"
	case w.rebuilds:
		why = "its state is made again from its inputs, of which those before the change would be missing"
	case n.NewDesk != nil:
		why = "its partitions hand each other values"
	default:
		return nil
	}
	return fmt.Errorf("%s: %w: %s", w.cfg.name(), ErrCannotPause, why)
}

// Scalable says whether the state of the worker's operator can be divided among another number of workers. The error wraps
// stream.ErrRescale.
func (w *Worker) Scalable() error { return w.unscalable }

// Hold begins a round: sources stop where they are. It does not wait.
func (w *Worker) Hold(round uint64) { w.ask(&pause{round: round, hold: true}) }

// Held returns in which round all partitions of a source have stopped, 0 for none, and the number of the last window
// whose end precedes items that one of them has sent: Pause needs the highest of all sources.
func (w *Worker) Held() (round, window uint64) {
	for i, s := range w.sources {
		h := s.held.Load()
		if h == nil {
			return 0, 0
		}
		if i == 0 || h.round < round {
			round = h.round
		}
		window = max(window, h.window)
	}
	return round, window
}

// Pause has the worker come to rest; see Paused. It does not wait, and it is no use unless all workers of the job are
// asked for it.
func (w *Worker) Pause(round, window uint64) { w.ask(&pause{round: round, window: window}) }

// Resume ends that: the worker goes on as if it had not been asked for anything.
func (w *Worker) Resume() { w.ask(nil) }

func (w *Worker) ask(p *pause) {
	w.pausing.asked.Store(p)
	for _, s := range w.sources {
		s.park.Wake()
	}
	for _, o := range w.operators {
		o.park.Wake()
	}
}

// Paused returns the round in which the worker is at rest, 0 for none: its state is durable as a whole, and nothing of what
// its senders said in that round is left to do. The error, which wraps ErrCannotPause, says that it will never be.
func (w *Worker) Paused() (round uint64, err error) {
	if why := w.pausing.cannot.Load(); why != nil {
		return 0, fmt.Errorf("%s: %w: %s", w.cfg.name(), ErrCannotPause, *why)
	}
	first := true
	note := func(r uint64) {
		if first || r < round {
			round = r
		}
		first = false
	}
	for _, s := range w.sources {
		note(s.rested.Load())
	}
	for _, o := range w.operators {
		note(o.rested.Load())
	}
	return round, nil
}

// Settled says whether all that the worker has taken over from an earlier layout is durable in its own.
func (w *Worker) Settled() bool { return w.unsettled.Load() == 0 }

// tell says that Held, Paused or Settled may have changed.
func (w *Worker) tell() {
	if w.cfg.OnRest != nil {
		w.cfg.OnRest()
	}
}

// rest is how far one partition has come.
type rest struct {
	rested atomic.Uint64 // the round in which it is at rest
	said   uint64        // the round that its receivers were told
	saving bool          // the commit under way is to make it so
	stored bool          // nothing has changed since the state was saved as a whole
}

// unrest takes note that there is something to do again.
func (r *rest) unrest() {
	if r.stored || r.saving || r.said != 0 {
		r.stored, r.saving, r.said = false, false, 0
		r.rested.Store(0)
	}
}

// landed takes note that a commit has become durable.
func (r *rest) landed() {
	if r.saving {
		r.stored, r.saving = true, false
	}
}

// sayPaused tells all receivers that nothing more comes.
func (c *core) sayPaused(round uint64) {
	if c.said == round {
		return
	}
	c.said = round
	if c.exit != nil {
		c.exit.each(func(ordinal int) {
			f := transport.Frame{Kind: transport.Paused}
			f.Window.Number = round
			c.exit.push(ordinal, f)
		})
	}
}

// atRest takes note that the partition is.
func (c *core) atRest(round uint64) {
	c.stored = true
	c.rested.Store(round)
	c.w.tell()
}

// paused takes note that a channel has said that nothing more comes on it.
func (u *upstream) paused(ch *inChannel, round uint64) {
	ch.paused = round
	part := ch.id.To % u.w.cfg.Node.Compute
	for _, edge := range u.channels {
		for _, other := range edge[part] {
			if other != nil && other.paused != round {
				return
			}
		}
	}
	o := u.w.operators[part]
	o.quiet.Store(round)
	o.park.Wake()
}

// resumed takes note that something has come on a channel.
func (u *upstream) resumed(ch *inChannel) {
	if ch.paused != 0 {
		ch.paused = 0
		u.w.operators[ch.id.To%u.w.cfg.Node.Compute].quiet.Store(0)
	}
}

// pauseDue says whether the partition has nothing left to process in the round that is asked for, and there is something
// to do about that now.
func (o *operator) pauseDue() bool {
	p := o.w.pausing.asked.Load()
	if p == nil || p.hold || o.plan.never || o.quiet.Load() != p.round || o.in.Len() > 0 || o.rested.Load() == p.round {
		return false
	}
	return o.said != p.round || o.stored || o.mayBegin()
}

// pause takes one step to rest. It never waits for receivers: these may be waiting for what this partition has to say in the
// next round.
func (o *operator) pause() error {
	p := o.w.pausing.asked.Load()
	if !o.pauseDue() {
		return nil
	}
	switch {
	case o.said != p.round:
		o.task.Flush()
		o.sayPaused(p.round)
		return nil
	case o.stored:
		o.atRest(p.round)
		return nil
	case o.w.cfg.Node.IsSink && o.state.flush == nil && o.total > 0 && !o.closed.Last:
		// Only its Close makes it safe, so its successor would have to be given everything again.
		why := "a sink without Flush has been given items"
		o.w.pausing.cannot.CompareAndSwap(nil, &why)
		o.w.tell()
		o.stored = true // as far as that goes: not to come here again
		return nil
	}
	o.saving = true
	return o.begin(o.state.backup != nil)
}

// standing is where a source stops.
type standing struct{ round, window uint64 }

// caughtUp says whether the source has made again all that any receiver has ever had. Nobody is sent an item that one before
// it may have been given already, if the source stops here.
func (s *source) caughtUp() bool {
	if s.exit.unmet.Load() > 0 || s.read < s.furthest.Load() {
		return false
	}
	for ordinal, ok := range s.exit.reach {
		if ok && s.exit.next[ordinal] < max(s.exit.had[ordinal].Load(), s.owed[ordinal]) {
			return false
		}
	}
	return true
}

// inPlace says whether the source has come to where p wants it.
func (s *source) inPlace(p *pause) bool {
	return s.caughtUp() && (p.hold || s.ended || s.exit.level >= p.window)
}

// stops says whether the source is to read no further just now, and why. As long as not all receivers have said what they have,
// it is not known how far it has to go.
func (s *source) stops() (*pause, bool) {
	p := s.w.pausing.asked.Load()
	return p, p != nil && s.seek != nil && (s.exit.unmet.Load() > 0 || s.inPlace(p))
}

// pause takes one step to rest, and then waits until there is something to do.
func (s *source) pause(p *pause) error {
	if s.inPlace(p) {
		switch {
		case p.hold:
			s.task.Flush() // or what receivers are given would depend on where slabs end
			if h := s.held.Load(); h == nil || h.round != p.round {
				s.held.Store(&standing{round: p.round, window: s.emittedIn})
				s.w.tell()
			}
		case s.said != p.round:
			s.task.Flush()
			s.sayPaused(p.round)
			return nil // which may have taken a while
		case s.stored && s.rested.Load() != p.round:
			s.atRest(p.round)
		case !s.stored && s.phase.Load() == noFlight:
			if m := s.standing(); s.passed(m) {
				s.waypoints = append(s.waypoints[:0], m)
				s.next = backup.Commit{Whole: s.store.NeedWhole(), Source: m.encode(), Outputs: m.next}
				s.saving = true
				s.commit(&s.next)
			}
		}
	}
	s.await(forTheEnd, func() bool {
		return s.rewinds.Len() > 0 || s.phase.Load() == landed || s.w.pausing.asked.Load() != p || s.pauseDue(p)
	})
	return s.settle()
}

// pauseDue says whether pause has something to do.
func (s *source) pauseDue(p *pause) bool {
	if !s.inPlace(p) {
		return s.exit.unmet.Load() == 0 && !s.ended
	}
	switch {
	case p.hold:
		h := s.held.Load()
		return h == nil || h.round != p.round
	case s.said != p.round:
		return true
	case s.stored:
		return s.rested.Load() != p.round
	}
	return s.phase.Load() == noFlight && s.passed(s.standing())
}

// standing returns the waypoint where the source stands. An end of the stream is not part of it: it is sent again.
func (s *source) standing() waypoint {
	m := waypoint{
		position: s.seek.Position(), next: append([]uint64(nil), s.exit.next...),
		level: s.exit.level, windows: s.exit.windows, open: s.open(),
	}
	if s.ahead() { // the items that were read and not emitted are read again
		m.position = s.fetched
		m.skip = s.read - s.fetched.Item
	}
	if s.ended {
		m.level, m.windows = s.lastLevel, m.windows-1
		s.exit.each(func(ordinal int) { m.next[ordinal]-- })
	}
	return m
}
