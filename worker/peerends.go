package worker

import (
	"errors"
	"fmt"

	"github.com/afstream/afstream/stream"
)

// rejoin says again which window the partition had ended: the peers of a recovered one may have an older backup than it
// has, but never one from before the window before, which it could not have closed without them.
func (o *operator) rejoin() {
	p := o.peers
	if p == nil {
		return
	}
	p.closed = level(o.closed)
	p.silent = o.pending || o.closed.Last
	if p.closed > 0 {
		for to := range p.all {
			p.end(to, p.closed) // there is room in a new ring
		}
	}
}

// level is the level of a partition that has ended w.
func level(w stream.Window) uint64 {
	if w.Last {
		return streamEnded
	}
	return w.Number
}

// meet lets the partitions of the worker agree that window w, which the inputs of this one have ended, is complete: each
// hands over what it has left, says so behind it, and takes what the others have handed over before they said so.
// Nobody waits here without taking, hence nobody waits for ever.
func (o *operator) meet(w stream.Window) error {
	p := o.peers
	if p == nil {
		return nil
	}
	o.task.Flush() // this may take a while
	p.meeting = level(w)
	if err := p.finish(w); err != nil {
		return err
	}
	p.silent = true
	p.desk.Revoke()
	for to := range p.all {
		for !p.end(to, p.meeting) {
			if err := p.await(func() bool { return p.all[to].desk.Waiting(p.self()) < stream.PeerRoom }); err != nil {
				return err
			}
		}
	}
	for !p.agreed() {
		if err := p.await(func() bool { return false }); err != nil {
			return err
		}
	}
	p.meeting = 0
	return nil
}

// errUnfinished would be a wait for ever: the rings are empty, and nothing is in the way.
var errUnfinished = errors.New("it was reported unfinished although no value was refused")

// finish lets the operator hand over what it has left of window w.
func (p *peers) finish(w stream.Window) error {
	for p.finisher != nil {
		taken, before := p.taken(), p.freed()
		done, err := p.finisher.Finish(w)
		if err == nil && !done && p.Credit() > 0 && p.handed() == taken {
			err = errUnfinished
		}
		if err != nil {
			return fmt.Errorf("finish window %d of %s partition %d: %w", w.Number, p.o.w.cfg.Node.Name, p.o.index, err)
		}
		if err := p.o.changed(); err != nil || done {
			return err
		}
		if p.due() && p.Credit() == 0 && p.sender.Credit() > 0 { // P2 alone is in the way
			err = p.o.commitNow(false)
		} else {
			err = p.await(func() bool { return p.freed() != before })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// freed grows with everything that makes room for values to be handed over: peers that take some (P1), and commits that
// become durable (P2).
func (p *peers) freed() uint64 {
	n := p.taken()
	for _, handed := range p.durable {
		n += handed
	}
	return n
}

// end tells one peer that the partition has ended the windows up to level, or reports false if there is no room.
func (p *peers) end(to int, level uint64) bool {
	if to == p.self() {
		p.levels[to] = level
		return true
	}
	if !p.desk.End(to, level) {
		return false
	}
	p.Gave(to)
	return true
}

// agreed says whether all peers have ended the window that the partition wants to close.
func (p *peers) agreed() bool {
	for _, l := range p.levels {
		if l < p.meeting {
			return false
		}
	}
	return true
}

// await waits until a peer has handed over something, which it takes, a commit has ended, or room says that a peer has
// taken something of this partition.
func (p *peers) await(room func() bool) error {
	o := p.o
	o.await(forPeers, func() bool {
		p.wants.Store(true) // before looking: a peer that takes something after that wakes this one
		return o.hasMail() || o.flight.phase.Load() == landed || room()
	})
	p.wants.Store(false)
	if err := o.settle(); err != nil {
		return err
	}
	return o.collect()
}

// passed lets the next window in.
func (p *peers) passed(level uint64) {
	if p != nil {
		p.closed, p.silent = level, level == streamEnded
	}
}
