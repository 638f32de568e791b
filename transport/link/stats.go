package link

import "sync/atomic"

// Stats counts what has happened at one end since it was made.
type Stats struct {
	Sent       uint64 // messages with content, each once
	SentBytes  uint64 // their sizes
	Received   uint64 // messages with content that were handed on, each once and in order
	Resent     uint64 // messages that were sent again
	Timeouts   uint64 // times that no answer came in time, or that a full window did not move
	Duplicates uint64 // messages that arrived again, and were dropped
	Gaps       uint64 // times that a message arrived before one that precedes it
	Malformed  uint64 // messages that were damaged or made no sense, and were dropped
	Refused    uint64 // messages that NATS did not take, as while it is disconnected; they are sent again
	Overruns   uint64 // messages beyond the window or the mailbox, dropped
	Slow       uint64 // messages that NATS dropped since this process was too slow to take them
}

// counters are Stats while they grow. They belong to the end's goroutine and are read by any.
type counters struct {
	sent, sentBytes, received, resent, timeouts, duplicates, gaps, malformed, refused, overruns atomic.Uint64
}

func (c *counters) stats(slow uint64) Stats {
	return Stats{
		Sent: c.sent.Load(), SentBytes: c.sentBytes.Load(), Received: c.received.Load(), Resent: c.resent.Load(),
		Timeouts: c.timeouts.Load(), Duplicates: c.duplicates.Load(), Gaps: c.gaps.Load(), Malformed: c.malformed.Load(),
		Refused: c.refused.Load(), Overruns: c.overruns.Load(), Slow: slow,
	}
}
