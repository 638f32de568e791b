// Package machine decides what must run where, for all jobs of a cluster. It is pure: no goroutine, no I/O, no clock. Time
// comes in as an argument, and what has to be written comes out as [Write]s, for package controller/leader to carry out.
//
// # How it decides
//
// A Machine knows the records as they are stored, and what the nodes have said of themselves. [Machine.Step] compares the
// two and proposes the next record of each job, with everything in it that follows from what is known now. There is at most
// one write per job under way; the next decision is made from what is stored then, whatever became of the write. So a
// decision that was not stored was never made: nothing has to be taken back, and the same facts lead to it again.
//
// # Rules
//
//  1. A record of an earlier leader is first written again with this leader's term, and nothing else changed. From then on
//     earlier leaders cannot write it, and what they did before is known.
//  2. A worker's failure, and the end of its assignment, are in one write. It costs a part of the error budget unless the
//     incarnation is known to have processed nothing (Unloaded).
//  3. Epoch grows with each assignment, so a pair of worker and epoch is given to one session, once. A worker without a node
//     keeps the epoch of its last assignment.
//  4. A session is dead once it has said so, once the record of its node names another session or is gone, or after a
//     silence (detect.go). The last is taken back by a beat, which costs nothing as long as the worker was not given away.
//  5. A job that has ended stays as it is. It holds no assignments.
//  6. A worker that has finished the stream is replaced like any other when its node dies, since those that send to it may
//     have to be served again; that it had finished stays known.
//  7. A job of which no worker has a node gets nodes for all at once. Jobs that have lost some and wait for slots that others of
//     them hold give way to older ones (place.go: yields), so that one of them goes on.
//  8. A worker on a node that is to be emptied, by a user's wish or since the node is about to end, moves as soon as there is a
//     place elsewhere, and so does one of a calm job where that clearly spreads the load (move.go). It is asked to retire, and
//     its next incarnation costs nothing once it is known that it has (Retired), even if its node died right after it. One worker of
//     a job at a time.
//  9. A worker that cannot retire, or not in time, is moved at the cost of a failure if its node is to be emptied, and else told to
//     go on where it is.
//  10. A backup server that has failed a job for some time, or has lost what it was given, is taken out of the job's view, with
//     an incident (servers.go): never the last one, and none that is only silent as long as no other one works.
//  11. The number of workers of an operator changes step by step, each of them in the record (scale.go). A step follows from what all
//     workers that the record names say of the record's round; a round ends with each worker that is replaced or lost. Until all are at
//     rest a change can be given up, and the job goes on as it is; nothing is held before all have said that it can be done.
//
// What is not in records is forgotten with the leader: how often a worker broke in a row, and how long to wait before it is
// tried again, and how long a job has been coming to rest. A new leader begins to count anew.
package machine
