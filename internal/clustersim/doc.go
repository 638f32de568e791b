// Package clustersim holds the simulation of whole clusters: controllers, nodes and workers as they are, in one process and in
// fake time, over a network (cluster/clustertest) that loses, doubles, delays and reorders, through processes that are
// killed, cut off, half cut off, or stand still, all at once too. There is nothing in it but tests.
//
// A run follows from a seed: a plan (topology, budgets, input), and what goes wrong when. All workers tell a ledger outside of
// them what they do. It knows what no worker can: what an incarnation had that was lost, and who still works beside
// its successor. So it can say which invariant of docs/design.md was broken, and not only that the result is wrong:
//
//	I1      what a restored state lacks of the one before it, and what a zombie has beyond it, is within theta
//	I2, I3  what is missing from the result is within what the failures in the job's record may cost, each by its own share
//	I4      the thetas of all incarnations of all partitions add up to at most Theta; an incarnation that has worked is
//	        a failure in the record before there is another one
//	I5, I6  what a partition is given is numbered by who gives it, and no number comes twice, nor a lower one later, since what the
//	I7      restored state holds
//
// The machines of package threshold check themselves with the build tag invariants. Besides: records only change as they
// may, nobody works whose lease is over or whose job has ended, and every job ends, with its results, once the faults have.
//
// Goroutines that run at the same fake instant may run in any order, so a seed that has failed may not fail each time. Run
// it some times:
//
//	go test ./internal/clustersim -run Simulation -sim.seed=17 -count 20
package clustersim
