// Package errorbound is the theory of approximate fault tolerance as pure functions: how much of the user's error
// budget one failure may cost, how the budget is divided over failures, partitions and pipeline stages, and what the
// divided budget means for the answer of an algorithm.
//
// # The budget
//
// A user states three parameters ([Params]): Theta bounds how far a state may be from its last durable backup, L how
// many acknowledged items may be neither processed nor in the item log, Gamma how many sent items may be
// unacknowledged. Let alpha be the divergence one item can add to a state and beta the number of outputs one item can
// produce. One failure of a worker that runs with thresholds theta, l, gamma then costs at most theta + l*alpha of
// state divergence and gamma + l*beta outputs.
//
// # Many failures
//
// The k-th incarnation of a worker (k = number of failures so far, from 0) runs with the share a_k of the budget. Any
// [Series] with sum a_k <= 1 keeps the sum over all failures under Theta + L*alpha ([Params.StateBound]) and
// Gamma + L*beta ([Params.LossBound]), however many failures there are. This rests on the triangle inequality and on
// the assumption that processing the same item does not push two states further apart (true of sums, counts, sets,
// sketches, and of gradient steps on a convex loss with a step below 2/smoothness).
//
// # Many partitions and stages
//
// [Share] divides theta over the partitions of one operator by norm and by the way their states are combined.
// [StageShare] divides all three parameters over the stages of a pipeline. Item counts always add up, so L and Gamma
// are divided by the number of partitions whatever the norm.
//
// # Integers
//
// Item thresholds are whole numbers. [Series.Grant] divides in integers, rounding down, so sums of grants can never
// pass the total by a rounding error. A grant of 0 for gamma would stop a sender for good; a sender is always allowed
// one item, and [Params.Overdraft] says what this costs once the grants have run out.
//
// Nothing here reads a clock, does I/O or starts a goroutine.
package errorbound
