package worker

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// Guarantee is what a job promises about failures.
type Guarantee uint8

const (
	// Approximate bounds the error of any number of failures by Theta, L and Gamma.
	Approximate Guarantee = iota
	// None backs nothing up: the ceiling of speed, and no promise.
	None
	// ErrorFree is Approximate with Theta = 0, L = 0 and Gamma = 1: every item and every change of state is backed up
	// before anything depends on it.
	ErrorFree
	// MiniBatch stops every partition after a number of items, saves its whole state, and after a failure reads again
	// from there, for operators whose inputs can be had again: states are exact, and what an operator emits as it
	// processes comes at least once.
	MiniBatch
	// UpstreamBackup keeps every item with its sender until the receiver has made its effects durable, what it emitted
	// because of it included, and sends it again after a failure: states are exact, outputs come at least once, for
	// inputs that can be had again.
	UpstreamBackup
)

var guarantees = [...]string{Approximate: "approximate", None: "none", ErrorFree: "error-free", MiniBatch: "mini-batch", UpstreamBackup: "upstream-backup"}

// String returns the name used on the command line.
func (g Guarantee) String() string { return guarantees[g] }

// Known says whether g is one of the guarantees.
func (g Guarantee) Known() bool { return int(g) < len(guarantees) }

// batches says whether commits are made after a number of items, whatever the divergence.
func (g Guarantee) batches() bool { return g == MiniBatch || g == UpstreamBackup }

// ParseGuarantee is the inverse of String.
func ParseGuarantee(s string) (Guarantee, error) {
	if i := slices.Index(guarantees[:], s); i >= 0 {
		return Guarantee(i), nil
	}
	return 0, fmt.Errorf("worker: unknown guarantee %q (%s)", s, strings.Join(guarantees[:], ", "))
}

// Replay says how the output of a sending partition can be had again after a failure.
type Replay uint8

const (
	// AtRisk: nobody can re-create it. The sender keeps slabs until they are acknowledged, at most gamma items.
	AtRisk Replay = iota
	// Rewinds: the source reads it again from a waypoint. Nothing is kept, nothing is at risk.
	Rewinds
	// Retains: the operator emits only at closes, which can be run again. Slabs are kept until they are committed.
	Retains
	// Remakes: the operator makes it again, under new numbers, from inputs that stay with their senders until what it made
	// of them is committed. Slabs are kept until they are committed.
	Remakes
	// Live: the job makes no promise; what is lost is lost.
	Live
)

// UnknownLevel, in Config.FailedAt, is that of a failure of which nobody knows when it struck: it is never forgotten.
const UnknownLevel = streamEnded

// Job identifies the job in the store.
type Job struct{ Name, Incarnation string }

// Config describes one incarnation of one worker.
type Config struct {
	Job       Job
	Node      *stream.Node
	Index     int      // number of the worker within its operator
	Epoch     uint64   // incarnation, from 1
	Failures  uint64   // durable before this incarnation was made
	FailedAt  []uint64 // of each failure, the last window that the worker had closed, or UnknownLevel
	FailedIn  []uint64 // of each failure, the epoch that it ended, 0 if it was in an earlier layout; nil if all before this one ended so
	Grant     *Grant   // its part of Theta, durable before this incarnation was made; nil for an equal one
	Guarantee Guarantee
	Params    errorbound.Params
	Batch     uint64 // items between two backups of a partition, for MiniBatch and UpstreamBackup; 0 = 1 << 16
	Rebuild   uint64 // items that a failure replays at most to rebuild a state, which is backed up if it needs more; 0 = 1 << 20
	// PipeSources reads every source like a pipe, even one that could be rewound: its channels are then at risk.
	PipeSources bool
	// InputsAtRisk says that some sender of this worker cannot send again what a failure here loses.
	InputsAtRisk bool
	// InputsRewind says that every sender of this worker is a source that can be read again.
	InputsRewind bool
	// Layout numbers the divisions of the job's state among partitions, from 1; 0 stands for 1. A partition that has saved
	// nothing in this one takes over what it is due of the one before, where the operator had Former partitions.
	Layout uint64
	Former int
	Store  backup.Store // nil for None
	Log    *slog.Logger

	// Before is what is known of the previous incarnation, nil for the first. It serves to count what was lost and, for
	// a source read like a pipe, to go on reading it.
	Before *Autopsy
	// Pin ties every compute goroutine to a core, where the system allows it.
	Pin bool
	// PinFirst is the turn of the operator's first partition: those of other operators have the turns before it.
	PinFirst int
	// KillAt ends the worker abruptly after so many items; 0 = never. Fault injection.
	KillAt uint64
	// OnProgress is told by a source how far it has come, once per slab. It must be cheap.
	OnProgress func(part int, done, total int64)
	// OnDone is told once when the last partition of the worker has finished the stream, durably.
	OnDone func()
	// OnRest is told, from any goroutine, that Held, Paused or Settled may have changed. It must not block.
	OnRest func()
}

// Tuning that users need not see. A variable only where tests shrink it.
const (
	// ringSlabs is the room between two stages. On two cores a stage runs until its ring is empty or full, so the ring
	// sets how many slabs one goroutine switch is shared by.
	ringSlabs = 32
	// wakeEvery is how many slabs a busy compute goroutine passes on before it wakes the downstream goroutine. Waking one
	// that sleeps takes longer than making a slab, and whoever is woken for one slab at a time sleeps again at once.
	wakeEvery = 8
	// smallWindow is the number of items under way below which a stage waits for the other side within less time than it
	// takes to wake it: both wake each other at once, and look on for longer before they sleep.
	smallWindow = wakeEvery * stream.SlabItems
	// waypointEvery is how many items a source emits between two waypoints: what a rewind reads again at most needlessly.
	waypointEvery = 1 << 14
	// maxWaypoints bounds the waypoints a source keeps; beyond it every second one is dropped.
	maxWaypoints = 1024
	// replayLimit is after how many items a partition commits its position even if its state did not diverge: it
	// bounds the replay after a failure.
	replayLimit = 1 << 20
	// marksBetween is how many marks there may be between two commits while there is something in the item log, which is cleared
	// by commits only.
	marksBetween = 64
	// batchItems is the default of Config.Batch.
	batchItems = 1 << 16
	// logPatience is how long a sender waits for credit before it tells its receivers to log what they hold. The
	// receivers are mostly about to acknowledge by processing, which is cheaper than a log write. It is also the first wait
	// for receivers' commits, which doubles up to maxPatience.
	logPatience = 5 * time.Millisecond
)

func (c *Config) name() string { return fmt.Sprintf("%s/%d", c.Node.Name, c.Index) }

// failuresBefore returns how many failures the incarnation epoch came after.
func (c *Config) failuresBefore(epoch uint64) uint64 {
	if c.FailedIn == nil {
		return epoch - 1
	}
	n := uint64(0)
	for _, e := range c.FailedIn {
		if e < epoch {
			n++
		}
	}
	return n
}

// partition returns the number of the worker's i-th partition.
func (c *Config) partition(i int) int { return c.Index*c.Node.Compute + i }

// emits says whether the operator emits while it processes.
func (c *Config) emits() bool { return emits(c.Node) }

func emits(n *stream.Node) bool { return !n.IsSource && !n.IsSink && !n.EmitOnClose }

// fed says whether a sender of the worker's operator emits while it processes.
func (c *Config) fed() bool {
	return slices.ContainsFunc(c.Node.Inputs, func(e *stream.Edge) bool { return emits(e.From) })
}
