package stream

import (
	"context"

	"github.com/afstream/afstream/errorbound"
)

// Operator is user logic: it takes items of type In and emits items of type Out. One instance serves one partition
// and is called by one goroutine only. An error fails the job.
type Operator[In, Out any] interface {
	Process(in In, out *Emitter[Out]) error
}

// BatchOperator is an Operator that prefers many items per call. The runtime then calls ProcessBatch instead of
// Process, with runs short enough that the divergence thresholds still hold between calls. The slice is read-only
// and valid only during the call.
type BatchOperator[In, Out any] interface {
	Operator[In, Out]
	ProcessBatch(in []In, out *Emitter[Out]) error
}

// JoinOperator takes items of two streams. The order between the two is not defined.
type JoinOperator[A, B, Out any] interface {
	ProcessLeft(in A, out *Emitter[Out]) error
	ProcessRight(in B, out *Emitter[Out]) error
}

// WindowCloser is told when every input has delivered the punctuation that ends a window.
//
// An operator built with [EmitOnClose] must emit here only, and the same items in the same order for the same state:
// the runtime may run the close again after a failure and relies on it to number the items alike. (Beware of ranging
// over a Go map.) Of any other operator the outputs of a close may come twice
// after a failure. Windows may be skipped: a close of number n ends all windows up to n that were not closed before.
type WindowCloser[Out any] interface {
	CloseWindow(w Window, out *Emitter[Out]) error
}

// Window names a punctuation: the end of a window, or of the stream.
type Window struct {
	Number uint64 // 1 for the first
	Last   bool   // the stream ends here
}

// Opener is called once, before the first item and before any state is restored.
type Opener interface {
	Open(ctx context.Context, p Placement) error
}

// Placement tells an operator instance which one it is.
type Placement struct {
	Operator              string
	Partition, Partitions int
	Epoch                 uint64 // incarnation of its worker; 1 for the first
}

// StateDivergence says how far the current state is from the most recent backup: a distance, 0 right after
// BackupState. It is asked after every run of items and must be cheap, best O(1). NaN counts as exceeded.
//
// A state that also has [BackupDurable] counts from the last durable backup instead.
//
// Where items can be lost (inputs that cannot be had again), changes must not cancel: a state that went up by 9 and down
// by 9 has diverged by 18, since either half may be lost alone.
type StateDivergence interface {
	StateDivergence() float64
}

// BackupState saves the state: all of it when w.Whole(), else all or only the elements that changed most. What it
// leaves out must still show in StateDivergence afterwards.
type BackupState interface {
	BackupState(w *StateWriter) error
}

// RestoreState rebuilds the state from a backup. It is called once, on a fresh operator.
type RestoreState interface {
	RestoreState(r *StateReader) error
}

// BackupDurable tells a state that what the last BackupState wrote is durable now. A state that has it includes the
// backup in flight in its StateDivergence by itself, element by element, which is tighter than the sum that the
// runtime must assume otherwise.
type BackupDurable interface {
	BackupDurable()
}

// Thresholder is told theta, the divergence this partition may have from its last durable backup, before the first item of
// every incarnation, and again when it changes: between two items, and never between BackupState and the time that what it
// wrote is durable. The state may then be further from its backup than a lower theta allows; the runtime backs it up until
// it is not, before it goes on. +Inf means that the job makes no promise and nothing need be tracked.
type Thresholder interface {
	SetTheta(theta float64)
}

// Measurer states the bound inputs of the theory for this operator.
type Measurer interface {
	Measure() Measure
}

// Measure holds what the error bounds need to know about an operator (mission: "Bounds").
type Measure struct {
	Alpha   float64            // divergence that one item can add to the state; 0 = unknown, then it is checked after each item
	Beta    float64            // outputs that one item can produce
	Norm    errorbound.Norm    // the distance that StateDivergence measures
	Combine errorbound.Combine // how the states of the partitions combine downstream
}

// Idempotent is implemented by operators whose outputs do no harm if they come twice, because each says how things are and
// not by how much they have changed: the sum of all so far, the latest value of a key. A failure may then repeat any number
// of outputs, and the runtime need not commit after every l items what an operator that emits as it processes has
// processed. What is repeated so is not counted. The method does nothing.
type Idempotent interface {
	Idempotent()
}

// Rebuildable is implemented by operators whose state need not be backed up, because it follows from the items that a window
// of their input still holds. Where all of them come from sources that can be read again, the runtime reads that much again
// after a failure, gives it to the operator anew, and drops what it emits meanwhile, since it was emitted before.
//
// So a fresh instance, or one restored from an older backup, that is given the items since then which OldestItem asks for has
// to become as good as this one, and what an instance has emitted after some items must not depend on the order between
// its inputs. Only the order within each channel is the same the second time.
type Rebuildable interface {
	// OldestItem returns the number, from 0 and over all inputs, of the first item that the state depends on, among those
	// that this instance was given; what it was restored from does not count. It is asked every few thousand items. ok says that
	// the state can be rebuilt at all; it is the same at any time.
	OldestItem() (n uint64, ok bool)
}

// Compensator may correct a restored state for what the failure may have lost: at most theta of divergence, and
// lost items of alpha each.
type Compensator interface {
	Compensate(theta float64, lost uint64)
}

// MergeState adds the state of another partition of the same operator to this one's, as if this one had had the items of
// both: what is needed to run the operator with fewer workers. It says with that that any division of the items among partitions is
// right, because whoever is downstream adds the states up (Measure.Combine is errorbound.Added). It is called on a
// restored or fresh operator before the first item, and r yields each element once, none of them deleted. The state is
// backed up as a whole right after.
type MergeState interface {
	MergeState(r *StateReader) error
}

// Keyed says to which of n partitions an element of the state belongs, by the key that BackupState wrote it under: the partition
// that the partitioner of the operator's input sends the items of that element to. It is what is needed to run an
// operator whose input is partitioned by key with another number of workers. A negative result says that every
// partition has that element. It must depend on its arguments alone; see [PartitionOf] and [PartitionOfUint64].
type Keyed interface {
	PartitionOf(key []byte, n int) int
}
