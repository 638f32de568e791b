package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/ringbuf"
	"github.com/afstream/afstream/stream"
)

// source is one compute goroutine that reads. Fields belong to that goroutine; before Run they belong to Load.
type source struct {
	core
	task         stream.SourceTask
	seek         stream.Replayable   // nil when it is read like a pipe
	progress     stream.Progresser   // nil if it cannot tell
	windows      stream.WindowedTask // nil if it has none but the stream
	rewinds      *ringbuf.SPSC[rewind]
	waypoints    []waypoint // oldest first, never empty when seek is set
	lastWaypoint uint64
	fetched      stream.Position // with windows: where what is pending was read from
	owed         []uint64        // per output channel, what receivers had been sent when the source last went back
	emittedIn    uint64          // the window that had ended before the last item that was sent
	lastLevel    uint64          // level before the end of the stream
	held         atomic.Pointer[standing]
	lastEnd      []uint64      // output numbers after the last end of a window; nil before the first, or after going back
	read         uint64        // items, as positions count them
	furthest     atomic.Uint64 // the most that read has been
	base         uint64        // of a pipe: what earlier incarnations had taken from it
	ended        bool
	next         backup.Commit
}

// waypoint is a place that a source can go back to: reading on from position continues the numbering with next.
type waypoint struct {
	position stream.Position
	next     []uint64
	level    uint64 // the window that was ended last
	windows  uint64 // how many were
	open     uint64 // the window that is open
	skip     uint64 // items behind position that were sent before
}

// run is the compute goroutine of a source. It stays after the end of its input: a receiver may ask for items again.
func (s *source) run() error {
	defer func() {
		if s.seek == nil { // what it had taken when it was unwound is gone, but it was read
			s.furthest.Store(s.base + s.task.Taken())
		}
	}()
	if err := s.settleDown(); err != nil {
		return err
	}
	s.exit.each(s.exit.notice)
	for {
		if r, ok := s.rewinds.TryPop(); ok {
			s.w.down.park.Wake()
			if err := s.rewind(r); err != nil {
				return err
			}
			continue
		}
		p, stop := s.stops()
		if stop {
			if err := s.pause(p); err != nil {
				return err
			}
			continue
		}
		if s.ended {
			s.await(forTheEnd, func() bool {
				return s.rewinds.Len() > 0 || s.flight.phase.Load() == landed || s.w.pausing.asked.Load() != p
			})
			if err := s.settle(); err != nil {
				return err
			}
			continue
		}
		if s.w.halted.Load() {
			return nil
		}
		if err := s.fill(); err != nil {
			return err
		}
	}
}

// fill reads up to a slab.
func (s *source) fill() error {
	if s.draining() {
		s.end()
		return nil
	}
	limit := stream.SlabItems
	s.unrest()
	if s.windows != nil && s.seek != nil && !s.ahead() {
		s.fetched = s.seek.Position()
	}
	if s.seek != nil && s.read < s.furthest.Load() && s.w.pausing.asked.Load() != nil {
		limit = int(min(uint64(limit), s.furthest.Load()-s.read)) // where it stopped before it went back
	}
	if s.seek != nil && s.w.draining.Load() { // the stream ends where it would have, had it not gone back
		limit = int(min(uint64(limit), s.furthest.Load()-s.read))
	}
	n, err := s.task.Fill(s.cutAtFault(limit))
	s.read += uint64(n)
	s.furthest.Store(max(s.read, s.furthest.Load()))
	s.items.Add(uint64(n))
	if n > 0 {
		s.emittedIn = s.exit.level
	}
	s.report()
	if s.windows != nil && s.windows.Complete() > s.exit.level {
		if err := s.endWindow(); err != nil {
			return err
		}
	}
	switch {
	case errors.Is(err, io.EOF), s.draining():
		s.end()
		return nil
	case err == nil && s.seek != nil && s.read-s.lastWaypoint >= waypointEvery && !s.ahead():
		return s.keepWaypoint()
	case err == nil:
		return nil
	}
	return fmt.Errorf("read %s partition %d: %w", s.w.cfg.Node.Name, s.index, err)
}

// endWindow sends the end of the window that is complete, and lets the receivers come within two windows: what is
// further ahead would have to wait with them, in memory.
func (s *source) endWindow() error {
	s.task.Flush()
	before := waypoint{next: s.lastEnd}
	s.exit.punctuate(stream.Window{Number: s.windows.Complete()})
	s.lastEnd = append([]uint64(nil), s.exit.next...)
	if s.exit.sender != nil {
		s.exit.sender.Raise(split(&s.w.cfg, stream.Measure{}, s.w.cfg.remembered(s.exit.level)).Gamma)
	}
	if s.seek == nil || before.next == nil {
		return nil
	}
	goOn := func() bool { // a job that comes to rest waits in another way
		return s.rewinds.Len() > 0 || s.passed(before) || s.w.pausing.asked.Load() != nil
	}
	for !goOn() {
		s.await(forReceivers, func() bool { return s.flight.phase.Load() == landed || goOn() })
		if err := s.settle(); err != nil {
			return err
		}
	}
	return nil
}

// ahead says whether the source's position is beyond what was emitted.
func (s *source) ahead() bool { return s.windows != nil && s.windows.Pending() }

// open returns the number of the window that is open, 0 without windows.
func (s *source) open() uint64 {
	if s.windows == nil {
		return 0
	}
	return s.windows.Open()
}

// draining says whether the source has been told to end and has read all that it had read before it went back.
func (s *source) draining() bool {
	return s.w.draining.Load() && (s.seek == nil || s.read >= s.furthest.Load())
}

// end ends the stream.
func (s *source) end() {
	s.ended, s.lastLevel = true, s.exit.level
	s.task.Flush()
	last := stream.Window{Number: s.exit.level + 1, Last: true}
	if s.windows != nil {
		last.Number = max(last.Number, s.windows.Open())
	}
	s.exit.punctuate(last)
}

func (s *source) report() {
	if s.progress == nil || s.w.cfg.OnProgress == nil {
		return
	}
	done, total := s.progress.Progress()
	s.w.cfg.OnProgress(s.index, done, total)
}

// keepWaypoint notes where the source stands, and commits the newest waypoint that all receivers have committed beyond: after a
// failure of the source nothing before it will be asked for.
func (s *source) keepWaypoint() error {
	s.task.Flush()
	s.lastWaypoint = s.read
	s.waypoints = append(s.waypoints, waypoint{
		position: s.seek.Position(), next: append([]uint64(nil), s.exit.next...), level: s.exit.level, windows: s.exit.windows,
		open: s.open(),
	})
	if len(s.waypoints) > maxWaypoints {
		s.thin()
	}
	if err := s.settle(); err != nil || s.flight.phase.Load() != noFlight {
		return err
	}
	newest := 0
	for i := len(s.waypoints) - 1; i > 0; i-- {
		if s.passed(s.waypoints[i]) {
			newest = i
			break
		}
	}
	if newest == 0 {
		return nil
	}
	s.waypoints = append(s.waypoints[:0], s.waypoints[newest:]...)
	m := s.waypoints[0]
	s.next = backup.Commit{Whole: s.store.NeedWhole(), Source: m.encode(), Outputs: m.next}
	s.commit(&s.next)
	return nil
}

// settle takes note of a commit that has ended.
func (s *source) settle() error {
	ended, err := s.settled()
	if ended && err == nil {
		s.rest.landed()
	}
	return err
}

// passed says whether every receiver has committed all that came before m.
func (s *source) passed(m waypoint) bool {
	for ordinal, ok := range s.exit.reach {
		if ok && m.next[ordinal] > s.exit.committed[ordinal].Load() {
			return false
		}
	}
	return true
}

// thin drops every second waypoint but the first: going back gets coarser, never wrong.
func (s *source) thin() {
	kept := s.waypoints[:1]
	for i := 2; i < len(s.waypoints); i += 2 {
		kept = append(kept, s.waypoints[i])
	}
	s.waypoints = kept
}

// rewind goes back to the newest waypoint that is not beyond what any receiver has. What some receivers get again by that is
// dropped by the downstream goroutine.
func (s *source) rewind(r rewind) error {
	i := len(s.waypoints) - 1
	for i > 0 && s.beyond(s.waypoints[i], r) {
		i--
	}
	m := s.waypoints[i]
	if s.beyond(m, r) {
		return fmt.Errorf("rewind %s: asked for the items from %v on, the oldest waypoint is at %v", s.w.cfg.name(), r.from, m.next)
	}
	s.waypoints = s.waypoints[:i+1]
	s.exit.gen = r.gen
	s.ended = false
	s.unrest()
	for ordinal, from := range r.from {
		s.owed[ordinal] = max(s.owed[ordinal], from)
	}
	if err := s.start(m); err != nil {
		return err
	}
	s.exit.each(s.exit.notice)
	return nil
}

// beyond says whether a receiver lacks something that came before m.
func (s *source) beyond(m waypoint, r rewind) bool {
	for ordinal, ok := range s.exit.reach {
		if ok && m.next[ordinal] > r.from[ordinal] {
			return true
		}
	}
	return false
}

// start makes the source go on from m.
func (s *source) start(m waypoint) error {
	if err := s.seek.Seek(m.position); err != nil {
		return fmt.Errorf("go back to item %d of %s: %w", m.position.Item, s.w.cfg.Node.Name, err)
	}
	copy(s.exit.next, m.next)
	s.lastEnd = nil
	s.exit.level, s.exit.windows, s.exit.ended = m.level, m.windows, false
	s.task.Resume(s.exit.sent())
	if err := s.task.Skip(m.skip); err != nil {
		return fmt.Errorf("read %d items of %s again: %w", m.skip, s.w.cfg.Node.Name, err)
	}
	s.read = m.position.Item + m.skip
	s.lastWaypoint = s.read
	if s.windows != nil {
		s.windows.Reopen(m.level, m.open, s.read)
	}
	return nil
}

// waypointBytes is the length of a waypoint in a commit, without its output numbers. Earlier versions wrote no skip.
const (
	waypointBytes = 7 * 8
	withoutSkip   = 6 * 8
)

func (m *waypoint) encode() []byte {
	b := make([]byte, 0, waypointBytes)
	for _, v := range []uint64{m.position.Item, uint64(m.position.Offset), m.position.Line, m.level, m.windows, m.open, m.skip} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func (m *waypoint) decode(b []byte) error {
	if len(b) != waypointBytes && len(b) != withoutSkip {
		return fmt.Errorf("source position of %d bytes, want %d", len(b), waypointBytes)
	}
	field := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	m.position = stream.Position{Item: field(0), Offset: int64(field(1)), Line: field(2)}
	m.level, m.windows, m.open, m.skip = field(3), field(4), field(5), 0
	if len(b) == waypointBytes {
		m.skip = field(6)
	}
	return nil
}
