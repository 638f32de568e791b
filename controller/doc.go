// Package controller places the workers of a topology, watches them and recovers them.
//
// [RunLocal] runs a whole job in this process. The controller never touches items: it makes workers (package worker),
// connects them (package transport), and when one ends before its time it makes the next incarnation, in the order
// that the protocol demands:
//
//  1. the new epoch and the failure count k+1 become durable (invariant I4);
//  2. loading the new incarnation fences the store, restores the state, compensates and reads the item log;
//  3. new connections to all neighbours are attached; over them receivers say where senders have to resume;
//  4. the worker runs.
//
// With [ByCost] the controller also divides Theta among the workers of an operator by what they cost, see Allocation; what
// it grants is durable before it is told.
//
// [Scale] changes the number of workers of an operator while the job runs: the job comes to rest, all workers end, and those of
// the next layout take over their states.
//
// A failure during a recovery is a failure like any other. [Fault] injects failures: a worker is killed where it
// stands, and nothing of its memory is used again except to count what was lost.
package controller
