// Package state holds ready states: data structures that an operator embeds, or holds, instead of writing its own
// fault tolerance.
//
//	type count struct{ state.Map[string, int64] }
//
//	func (c *count) Process(word string, _ *stream.Emitter[Count]) error { c.Add(word, 1); return nil }
//
// That is all: by embedding, the operator has [stream.StateDivergence], [stream.BackupState], [stream.RestoreState],
// [stream.BackupDurable], [stream.Thresholder] and [stream.Measurer], and the runtime finds them. (Value does without theta.)
//
// # Which state
//
//   - [Counters]: a fixed number of sums that only grow, for sketches and histograms. The cheapest: an addition costs
//     one memory access and one comparison.
//   - [Value]: one number.
//   - [Map]: numbers by key, under one of four norms.
//   - [Set]: keys.
//   - [Array] and [Matrix]: a fixed number of numbers that may go up and down, such as the weights of a model.
//   - [Group]: several of these, or one's own, as one state with one divergence and one backup.
//
// # What they promise
//
// StateDivergence is never less than the true distance between the state as it is and what would be restored if the
// worker died now, whether or not the backup in flight turns out to have become durable. So a state counts from the
// last durable backup, element by element, and needs no help from the runtime to account for a backup in flight.
//
// (Under L2 distances below 1e-150 count as none: their squares are.)
//
// Backups are made of elements. A whole backup writes all of them, a partial one only those that have moved most, so
// that for the Max norm theta updates of one element cost about one small write.
//
// Where changes can cancel, the distance says less than it seems: see Options.PathLength.
//
// With theta = +Inf nothing is tracked: updates cost nothing extra, StateDivergence is +Inf, and every backup, partial
// or not, writes the whole state.
//
// # Failures
//
// Only one backup can be in flight: BackupState, then BackupDurable. If the backup was lost instead, another
// BackupState may simply follow; what the lost one held is written again.
//
// Values that are not finite poison a state: StateDivergence turns NaN, which the runtime takes as exceeded, and
// BackupState returns an error that wraps [ErrNotFinite]. RestoreState checks every element and reports bytes that
// cannot be right with an error that wraps [stream.ErrState].
//
// No type of this package may be used by two goroutines at once, nor be copied after its first use.
package state
