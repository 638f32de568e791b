// Package leader runs a controller: it takes part in the election of the one that leads, and while it leads carries out
// what package controller/machine decides.
//
// # Election
//
// The record [cluster.LeaderKey] is a lease. Whoever leads changes it every Renew; who stands by and has seen no change for
// a whole Lease, by its own clock, puts itself in its place, by compare-and-set from the revision that it has watched, and
// with the next term. Clocks need not agree, they only have to go at about the same rate:
//
//  1. A lease counts from before its renewal was sent, at the leader, and from after it was seen, at all others. The leader
//     ends Margin earlier, and nothing it has begun is let go on for longer. So it has ended before another begins, as long as no
//     process is stopped in between.
//  2. A process that was stopped, or whose machine was, may go on for as long as it takes it to look at the clock. Then the terms in
//     the records hold it back: the next leader has written each record again before it changes it, so a write of an
//     earlier one is refused (machine, rule 1).
//  3. Terms only grow, also if the record of the lease was deleted: a leader that meets a higher one in a job's record gives up
//     and stands again, for a term above that.
//
// A leader that ends in order gives the lease back, and the next one need not wait.
//
// # Goroutines
//
// [Run]'s own goroutine owns the machine and never waits for the store. Each watch, each write and each renewal is a goroutine that
// hands what came of it to that one, as a function to call. All of a reign end with its context, before the next
// begins.
package leader
