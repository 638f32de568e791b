// Package threshold holds the pure machines that decide, for one partition, when a state is backed up, what may be
// acknowledged, processed and sent, and when pending items must be logged. It is errorbound put to work: [Split] gives
// a partition the budget of its incarnation; [Backup] keeps theta, [Receiver] keeps l, [Sender] keeps gamma, and
// [Marks] bounds what is emitted twice.
//
// The machines know no clock, no I/O, no goroutine and no item: they are fed with counts and divergences, per slab or
// run, and answer with counts and actions. Each belongs to the goroutine that calls it. Each lists its invariants on
// its type and checks them in Valid, which is for tests and debug builds.
//
// # What a divergence must be
//
// A recovery does not return to one earlier state: it loads the last backup and applies those later items that were
// logged or are resent, and not those that were only processed. The error is the sum of the effects of the items in
// between, a subset of those since the backup. The bound theta holds for a subset if the effect of any subset is at
// most the divergence reported. That is so for counts, sums of non-negative values, sets that only grow and sketches.
// A state whose changes can cancel (+9, then -9) must report the length of its path since the backup, |9| + |-9|, not
// the distance between its ends, if any of its inputs is at risk: otherwise each +9 may be lost and each -9 be replayed
// from the item log, over and over, with a distance that never passes 9. On inputs that can be had again in full the
// plain distance is enough.
//
// # One commit at a time
//
// A partition has one commit under way at most: a state backup, which holds elements and the processed positions; a
// commit of the positions alone; or the commit that a close starts from. A mark beside the commits takes no slot and may be
// made while a state backup is in flight: Backup's divergence counts what is in flight, so the positions are sound
// whether that backup lands or not. Whatever it is, what lies at or below its positions is never applied or emitted
// again. So each moves [Marks], and each counts as logged for [Receiver]; only a commit with elements is reported to
// [Backup]. Where Backup asks for a start while the slot is taken, the caller goes on and is asked to wait later, if it must be.
//
// # How it is tested
//
// The tests in paper_test.go cite the theory claim by claim. protocol_sim_test.go runs the machines inside a whole
// simulated job (sources, channels, stores, crashes at any step) and compares each run with a failure-free one; then it
// breaks one rule of the protocol after the other and demands that the comparison notices. Run more seeds with
// -sim.runs, replay one with -sim.seed.
package threshold
