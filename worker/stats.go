package worker

import (
	"sync/atomic"
	"time"
)

// Stats counts what a worker did. All fields may be read while it runs.
type Stats struct {
	Emitted      atomic.Uint64 // sent downstream
	Replayed     atomic.Uint64 // taken from the item log, or received again after a failure
	Duplicates   atomic.Uint64 // received again and dropped
	Stale        atomic.Uint64 // of an older incarnation of the sender, dropped
	Lost         atomic.Uint64 // neither processed by this incarnation nor by the one before, nor to be had again
	Repeated     atomic.Uint64 // processed by the one before too: outputs emitted twice, if it emits as it processes
	StateCommits atomic.Uint64
	Marks        atomic.Uint64 // positions made durable without a commit
	ItemCommits  atomic.Uint64
	Bytes        atomic.Uint64 // of elements and items in these
	Nanoseconds  atomic.Uint64 // from the start of each until it was durable, added up
	Feedback     atomic.Uint64 // values delivered
	PacesGivenUp atomic.Uint64 // times that an operator went on without the feedback it waited for
	Handed       atomic.Uint64 // values that partitions of the worker have handed one another
	HandedLost   atomic.Uint64 // of these, on their way when the incarnation before died
	HandedTwice  atomic.Uint64 // at most so many that had counted in the incarnation before and are handed over again
	Waits        atomic.Uint64 // times that processing stopped for a backup
}

func (s *Stats) committed(bytes int, d time.Duration) {
	s.StateCommits.Add(1)
	s.Bytes.Add(uint64(bytes))
	s.Nanoseconds.Add(uint64(d))
}

func (s *Stats) logged(bytes int, d time.Duration) {
	s.ItemCommits.Add(1)
	s.Bytes.Add(uint64(bytes))
	s.Nanoseconds.Add(uint64(d))
}

// Autopsy is what is left to know of a worker that has ended. It serves to count losses exactly, which only a run in
// one process can, and is nothing that a recovery relies on.
type Autopsy struct {
	Items     uint64    // processed, or read
	Retired   bool      // nothing of it was lost
	Partition []Remains // per compute goroutine
	Feedback  uint64    // values that were sent and never delivered
	// See Stats: what the death has cost that way.
	HandedLost, HandedTwice uint64
	sources                 []any // of a source read like a pipe: it goes on
}

// Level returns the last window that all partitions had closed.
func (a *Autopsy) Level() uint64 {
	level := streamEnded
	for _, p := range a.Partition {
		level = min(level, p.Level)
	}
	return level
}

// Theta returns the highest of the thetas that the partitions were held to, 0 if none has a divergence.
func (a *Autopsy) Theta() float64 {
	theta := 0.0
	for _, p := range a.Partition {
		theta = max(theta, p.Theta)
	}
	return theta
}

// Remains is the last state of one partition.
type Remains struct {
	Divergence float64        // of its state from the last durable backup, as far as it says
	Theta      float64        // what that could have been at most; 0 if the state cannot tell
	Inputs     []InputRemains // per input channel
	Emitted    []uint64       // per output channel
	Read       uint64         // of a source
	Level      uint64         // the last window it had ended or closed
	Open       uint64         // of a source: the window that was open
	Ended      bool           // of a source: it had ended the stream
}

// InputRemains is how far one input channel had come, as positions in the sender's incarnation Epoch.
type InputRemains struct {
	Epoch          uint64
	Acked          uint64
	ProcessedEpoch uint64
	Processed      uint64
}
