package worker

import (
	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/threshold"
	"github.com/afstream/afstream/transport"
)

// arrival is one frame of a channel at risk, kept until it is both acknowledged and safe from a failure.
type arrival struct {
	channel *inChannel
	frame   transport.Frame
	skip    int    // leading items that were there before
	end     uint64 // position after it in the order of arrival
}

// arrivals is the order in which items at risk have arrived at one partition. Acknowledgements, processing and the
// item log are all prefixes of it (I2), so each is one number, and what it means for a channel follows from here.
type arrivals struct {
	machine *threshold.Receiver
	queue   []arrival
	logging bool   // a log write is under way
	blocked bool   // a sender waits for credit
	logTo   uint64 // position that the log write under way reaches
	entries []backup.LogEntry
}

// add takes one retained frame, and releases it when it leaves the queue.
func (a *arrivals) add(c *inChannel, f transport.Frame, skip int) {
	if f.Kind == transport.Punctuation {
		a.machine.ReceivePunctuation()
	} else {
		a.machine.Receive(uint64(f.Count - skip))
	}
	a.queue = append(a.queue, arrival{channel: c, frame: f, skip: skip, end: a.machine.Received()})
}

// acknowledge advances the channels' acknowledged positions and forgets what nobody needs any more.
func (a *arrivals) acknowledge() {
	acked := a.machine.Ack()
	for i := range a.queue {
		e := &a.queue[i]
		start := e.end - uint64(e.frame.Count-e.skip)
		if acked <= start {
			break
		}
		c := e.channel
		if e.frame.Epoch == c.epoch {
			c.acked = max(c.acked, e.frame.Next()-(e.end-min(e.end, acked)))
		}
	}
	safe := min(acked, a.machine.Safe())
	if a.logging {
		return // the log write reads the slabs
	}
	n := 0
	for n < len(a.queue) && a.queue[n].end <= safe {
		a.queue[n].frame.Release()
		n++
	}
	if n > 0 {
		a.queue = append(a.queue[:0], a.queue[n:]...)
	}
}

// pending returns the log entries for everything that the log must take now; the position they reach is logTo.
func (a *arrivals) pending() ([]backup.LogEntry, error) {
	from, to := a.machine.Pending()
	a.entries, a.logTo = a.entries[:0], to
	for i := range a.queue {
		e := &a.queue[i]
		if e.end <= from {
			continue
		}
		skip := e.skip
		if start := e.end - uint64(e.frame.Count-e.skip); start < from {
			skip += int(from - start)
		}
		if err := a.enter(e, skip, e.frame.Count); err != nil {
			return nil, err
		}
	}
	return a.entries, nil
}

// enter adds the entries for items [from, to) of an arrival, cut so that each fits into the log.
func (a *arrivals) enter(e *arrival, from, to int) error {
	entry := backup.LogEntry{
		Channel: channelID(e.frame.Channel),
		Epoch:   e.channel.conn.numbering(e.frame.Epoch),
		First:   e.frame.First + uint64(from),
		Count:   to - from,
		Kind:    uint8(e.frame.Kind),
	}
	if e.frame.Kind == transport.Punctuation {
		entry.Items = appendWindow(nil, e.frame.Window)
	} else {
		var err error
		if entry.Items, err = e.frame.Slab.AppendItems(nil, from, to); err != nil {
			return err
		}
	}
	if len(entry.Items) > backup.MaxLogItems && to-from > 1 {
		half := from + (to-from)/2
		if err := a.enter(e, from, half); err != nil {
			return err
		}
		return a.enter(e, half, to)
	}
	a.entries = append(a.entries, entry)
	return nil
}

// channelID is how a backup names an input channel.
func channelID(c transport.Channel) uint64 { return uint64(c.Edge)<<32 | uint64(c.From) }
