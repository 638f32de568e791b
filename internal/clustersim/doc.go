// Package clustersim holds the simulation of whole clusters: controllers, nodes and workers as they are, in one process and in
// fake time, over a network (cluster/clustertest) that loses, doubles, delays and reorders, through processes that are
// killed, cut off, half cut off, or stand still, all at once too, while operators are given other numbers of workers. There is nothing in it but tests.
//
// A run follows from a seed: a plan (topology, budgets, input), and what goes wrong when. All workers tell a ledger outside of
// them what they do. It knows what no worker can: what an incarnation had that was lost, and who still works beside
// its successor. So it can say which invariant of docs/design.md was broken, and not only that the result is wrong:
//
//	I1      what a restored state lacks of the one before it, and what a zombie has beyond it, is within theta; of a worker that
//	        has moved in order nothing is lacking
//	I2, I3  what the result lacks, and what it has twice, is within what the failures in the job's record may cost, each by
//	        the share that it had
//	I4      the thetas of all incarnations that have failed, and of the last, add up to at most Theta; one that has worked is a
//	        failure in the record, or has moved in order, before there is another
//	I5-I7   what a partition is given is numbered by who gives it, and of each giver the numbers grow, from those that the
//	        restored state holds
//	C8      once the record says that all are at rest nobody of that layout processes anything, and whoever is late is refused
//
// The machines of package threshold check themselves with the build tag invariants. Besides: records only change as they
// may, nobody works whose lease is over or whose job has ended, and every job ends, with its results, once the faults have.
//
// Goroutines that run at the same fake instant may run in any order, so a seed that has failed may not fail each time. Run
// it some times:
//
//	go test ./internal/clustersim -run Simulation -sim.seed=17 -count 20
package clustersim
