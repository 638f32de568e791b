package threshold_test

// position is how far a channel was read: the epoch of the sender and the sequence number. Channels whose sender can
// re-create its output keep epoch 0 for ever.
type position struct{ epoch, seq uint64 }

func (a position) after(b position, m mutation) bool {
	if m == seqWithoutEpoch {
		return a.seq > b.seq
	}
	return a.epoch > b.epoch || a.epoch == b.epoch && a.seq > b.seq
}

func (s *sim) latest(a, b position) position {
	if b.after(a, s.mutation) {
		return b
	}
	return a
}

const punctuation int32 = -1

// entry is an item or punctuation on its way. uid names the emission: an item that an operator emits twice has two,
// an item that is sent again or re-created has one.
type entry struct {
	id, uid int32
	window  int // of a punctuation
	level   int // newest punctuation that went before it on its channel
	at      position
}

// logged is an entry of the item log with the input channel it came from.
type logged struct {
	in int
	entry
}

// element is one element of a state with the emissions it contains, in the order applied.
type element struct {
	value float64
	uids  []int32
}

// clone shares the uids: they are only ever appended to, and the capacity is cut so that appending copies.
func (e element) clone() element {
	e.uids = e.uids[:len(e.uids):len(e.uids)]
	return e
}

// store is the durable side of one partition: what survives its worker.
type store struct {
	elems   []element
	at      []position // committed, per input channel
	outSeq  []uint64   // retain: next numbers less one, per output channel
	closed  int        // last window whose end was committed
	reclose bool       // retain: the commit was made for the close of `closed` and nothing later
	log     []logged
	cursor  int // rewind sources: committed place in the script
	pipe    int // sources read like a pipe: where the pipe stands
}

// commit is one atomic write: changed elements, positions, output numbers. A mark is one without elements.
type commit struct {
	changed      map[int]element
	at           []position
	outSeq       []uint64
	closed       int
	reclose      bool
	positionOnly bool   // no elements: the state is not asked and not told
	waits        int32  // an item that is included but does not count before the commit is durable, or punctuation
	processed    uint64 // in the count of Marks
	done         uint64 // in the count of Receiver
	epoch        uint64
	covers       []float64 // reading per element when the snapshot was taken
}

type logWrite struct {
	entries []logged
	to      uint64
	epoch   uint64
}

func (st *store) applyCommit(c *commit, m mutation) {
	for k, e := range c.changed {
		st.elems[k] = e
	}
	st.at, st.outSeq = c.at, c.outSeq
	st.closed, st.reclose = c.closed, c.reclose
	if m == replayCommitted {
		return
	}
	kept := st.log[:0:0]
	for _, l := range st.log {
		if l.at.after(st.at[l.in], m) {
			kept = append(kept, l)
		}
	}
	st.log = kept
}

func (st *store) applyLog(w *logWrite) { st.log = append(st.log, w.entries...) }
