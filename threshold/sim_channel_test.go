package threshold_test

// feedback is what a receiver tells a sender: cumulative positions.
type feedback struct{ acked, committed position }

// channel joins one sending with one receiving partition. Its two ends are memory of the two workers; the wire keeps
// order. linked says that the present incarnations of both ends have shaken hands.
type channel struct {
	kind           kind
	from, to       *partition
	fromIdx, toIdx int

	linked bool
	wire   []entry
	back   []feedback

	// sender's end
	sent      uint64  // last number given; rewind: highest number the receiver is known to have been sent
	kept      []entry // at risk: until acked; retain: until committed
	acked     uint64
	committed uint64
	window    int // newest punctuation sent by this incarnation, or known to have been sent by the one before

	// receiver's end
	received  position
	ended     int      // newest punctuation received
	level     int      // newest punctuation processed
	done      position // last position that was processed, by this incarnation or up to the commit
	ackedPos  position
	inbox     []entry // rewind, retain: received, not processed
	restarted bool    // the receiver has come back and needs what its store lacks
}

// resetSender forgets the sender's end.
func (c *channel) resetSender() {
	c.linked, c.back = false, nil
	c.sent, c.kept, c.acked, c.committed, c.window = 0, nil, 0, 0, 0
}

// resetReceiver forgets the receiver's end. Frames under way to the dead incarnation are lost; feedback under way may
// or may not still arrive.
func (c *channel) resetReceiver() {
	c.linked, c.wire = false, nil
	if c.to.sim.rng.IntN(2) == 0 {
		c.back = nil
	}
	c.received, c.done, c.ackedPos = position{}, position{}, position{}
	c.ended, c.level, c.inbox = 0, 0, nil
}

// epoch of the numbers that the sender gives now.
func (c *channel) epoch() uint64 {
	if c.kind == atRisk {
		return c.from.worker.epoch
	}
	return 0
}

// need returns the position above which the receiver wants the channel again.
func (c *channel) need() position {
	if !c.restarted {
		return c.received
	}
	s, st := c.to.sim, &c.to.store
	need := st.at[c.toIdx]
	if c.kind == atRisk {
		for _, l := range st.log {
			if l.in == c.toIdx {
				need = s.latest(need, l.at)
			}
		}
	}
	return need
}

// link is the handshake of steps 7 and 8: the receiver says what it needs, the sender rewinds or sends again what it
// keeps above, the receiver takes over the sender's epoch. The need is as good as an ack.
func (c *channel) link() {
	s := c.to.sim
	need := c.need()
	if c.restarted {
		c.received, c.restarted = need, false
		if s.mutation != needIsNoAck {
			c.ackedPos = s.latest(c.ackedPos, need)
		}
	}
	c.wire, c.back, c.linked = nil, nil, true
	c.takeCommitted(c.to.store.at[c.toIdx])
	c.notice(need)
	switch c.kind {
	case rewind:
		c.from.seek(c, need.seq)
		return
	case retain:
		if len(c.kept) > 0 && c.kept[0].at.seq > need.seq+1 || len(c.kept) == 0 && c.sent > need.seq {
			s.fail("%v cannot re-create what %v needs: keeps %d up to %d, needed above %d", c.from, c.to,
				len(c.kept), c.sent, need.seq)
		}
	case atRisk:
		c.takeAck(c.ackedPos)
		if c.received.epoch < c.epoch() {
			c.received = position{epoch: c.epoch()}
			if s.mutation == seqWithoutEpoch {
				c.received = need
			}
		}
	}
	for _, e := range c.kept {
		if e.at.after(need, s.mutation) {
			c.wire = append(c.wire, e)
		}
	}
}

// notice tells the receiver, as the first thing on the new connection, which punctuation went before what it needs: its
// store knows positions and the last window that was closed, not which channels had ended the next one.
func (c *channel) notice(need position) {
	w := c.window
	if c.kind == rewind {
		w = c.from.levelAt(c.fromIdx, need.seq)
	}
	for _, e := range c.kept {
		if e.at.after(need, c.to.sim.mutation) {
			w = e.level
			break
		}
	}
	if w > 0 {
		c.told(w)
	}
}

// told takes punctuation that moves no position: a notice, or an end whose position the receiver has. It only knows
// that something was there.
func (c *channel) told(window int) {
	switch {
	case c.to.sim.mutation == forgetNotice:
	case c.kind == atRisk:
		c.to.notices = append(c.to.notices, notice{c, window, uint64(len(c.to.arrivals))})
	default:
		c.inbox = append(c.inbox, entry{id: punctuation, window: window})
	}
}

// send numbers an entry, keeps it, and puts it on the wire if there is one.
func (c *channel) send(e entry) {
	c.sent++
	e.at, e.level = position{c.epoch(), c.sent}, c.window
	c.window = max(c.window, e.window)
	c.kept = append(c.kept, e)
	if c.linked {
		c.wire = append(c.wire, e)
	}
}

func (c *channel) takeAck(p position) {
	if c.kind != atRisk || p.epoch != c.epoch() || p.seq <= c.acked {
		return
	}
	c.from.ackedTotal += p.seq - c.acked
	c.acked = p.seq
	c.from.send.Acked(c.from.ackedTotal)
	c.drop(p.seq)
}

func (c *channel) takeCommitted(p position) {
	if c.kind == atRisk {
		return
	}
	c.committed = max(c.committed, p.seq)
	if c.kind == retain {
		c.drop(p.seq)
	}
}

func (c *channel) drop(upTo uint64) {
	i := 0
	for i < len(c.kept) && c.kept[i].at.seq <= upTo {
		i++
	}
	c.kept = c.kept[i:]
}

// deliver hands the next frame to the receiver. What belongs to a window that it has not come to waits, else the arrival
// order would not be the order of processing. What belongs to a window that the channel has ended is a repetition by a
// sender that does not know: all of it came before the end.
func (c *channel) deliver() bool {
	if len(c.wire) == 0 || !c.to.running() {
		return false
	}
	s, e := c.to.sim, c.wire[0]
	if e.level > c.to.closed && s.mutation != admitUnaligned {
		return false
	}
	c.wire = c.wire[1:]
	if !e.at.after(c.received, s.mutation) {
		if e.id == punctuation {
			c.told(e.window)
		}
		return true // had it before
	}
	if c.kind != atRisk && e.at.seq != c.received.seq+1 {
		s.fail("gap on %v to %v: %d after %d", c.from, c.to, e.at.seq, c.received.seq)
	}
	c.received = e.at
	if e.id != punctuation && e.level < c.ended && c.kind == atRisk && s.mutation != takeLate {
		c.ackedPos = s.latest(c.ackedPos, e.at)
		c.back = append(c.back, feedback{acked: c.ackedPos})
		return true
	}
	c.ended = max(c.ended, e.window)
	c.to.admit(c, e)
	return true
}

// deliverBack hands the next feedback to the sender.
func (c *channel) deliverBack() bool {
	if len(c.back) == 0 || !c.from.running() {
		return false
	}
	f := c.back[0]
	c.back = c.back[1:]
	c.takeAck(f.acked)
	c.takeCommitted(f.committed)
	return true
}
