package threshold_test

// stepSource emits the next entry of a source partition's script.
func (p *partition) stepSource() bool {
	if !p.running() || p.cursor == len(p.script) {
		return false
	}
	if p.op.sends == rewind {
		return p.emitReplayable()
	}
	if len(p.pending) > 0 || p.send.Credit() == 0 {
		return false
	}
	e := p.script[p.cursor]
	p.cursor++
	p.store.pipe = p.cursor
	if e.id == punctuation {
		p.punctuate(e.window)
		return true
	}
	p.emit(e.id)
	return true
}

// emitReplayable emits with the numbers that belong to the place in the script and leaves out what the receiver is
// known to have been sent.
func (p *partition) emitReplayable() bool {
	for _, c := range p.outs {
		if !c.linked {
			return false
		}
	}
	e := p.script[p.cursor]
	for i, c := range p.outs {
		seq := p.prefix[p.cursor+1][i]
		if seq == p.prefix[p.cursor][i] || seq <= c.sent {
			continue
		}
		c.sent = seq
		c.window = max(c.window, e.window)
		e.uid, e.at = e.id, position{0, seq}
		c.wire = append(c.wire, e)
	}
	p.cursor++
	return true
}

// levelAt returns the newest punctuation among the first seq entries of an output channel.
func (p *partition) levelAt(out int, seq uint64) int {
	w := 0
	for i, e := range p.script {
		if p.prefix[i+1][out] > seq {
			break
		}
		w = max(w, e.window)
	}
	return w
}

const markEvery = 3 // entries of the script between two marks of a rewind source

// seek goes back to the newest mark from which everything above need on channel c is emitted again.
func (p *partition) seek(c *channel, need uint64) {
	c.sent = need
	place := p.store.cursor
	for m := len(p.script) / markEvery * markEvery; m > place; m -= markEvery {
		if p.prefix[m][c.fromIdx] <= need {
			place = m
			break
		}
	}
	if p.prefix[place][c.fromIdx] > need {
		p.sim.fail("%v has committed past what %v needs: mark at %d, needed above %d", p, c.to,
			p.prefix[place][c.fromIdx], need)
	}
	p.cursor = min(p.cursor, place)
}

// commitSource writes the newest mark that every receiver has committed; it becomes durable at once (a slower write
// only keeps an older, safe mark).
func (p *partition) commitSource() bool {
	if !p.running() || p.op.sends != rewind {
		return false
	}
	best := p.store.cursor
	for m := best - best%markEvery + markEvery; m <= p.cursor; m += markEvery {
		safe := true
		for i, c := range p.outs {
			known := c.committed
			if p.sim.mutation == sourceCommitsReceived {
				known = c.sent
			}
			safe = safe && p.prefix[m][i] <= known
		}
		if safe {
			best = m
		}
	}
	if best == p.store.cursor {
		return false
	}
	p.store.cursor = best
	return true
}
