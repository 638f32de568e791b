// Package node is the process of a cluster that hosts workers.
//
//	err := node.Run(ctx, node.Options{Name: "a", Programs: programs, Records: records, Messages: messages, Bus: bus, OpenStore: open})
//
// [Run] takes the node's name for the process, runs whatever workers the records of jobs assign to it (package cluster),
// connects them with their neighbours, and tells in beats what they do. It decides nothing: a worker that has ended stays
// in the beats, as ended, until its record assigns it no more.
//
// # Lease and session
//
// A process has the name of a node as long as the node's record names its session. It rewrites the record three times per
// lease. If it could not for a whole lease, because it was cut off or was stopped, others may have been given its workers:
// it stops them, and begins a new session when the record can be written again; so it does if somebody has deleted the record. If
// the record names a session of another process, Run ends with [ErrTaken]. A process that begins finds out first whether the
// one before it is still there.
//
// Nothing depends on it that a node stops in time: what was replaced can save nothing (backup.ErrFenced), and its
// connections lead nowhere.
//
// # Moves
//
// A worker whose record asks for it retires: it ends so that nothing is lost (worker.Retire), and stays in the beats as Retired until
// it is assigned to another node. A process that is told to end says so in its beats (Ending), and waits for all of its workers to
// be moved in that way, up to Options.Grace.
//
// # Scaling
//
// While an operator of a job is given another number of workers the node has its workers hold, come to rest, or go on, as the record
// says, and tells how far they are. The next layout is another topology, with another preparation, and other incarnations.
//
// # Goroutines
//
// One goroutine, of Run, owns all state and never waits for anything but its events: functions that the others pass to
// it (host.do). It is the only one that changes what is wanted; what it wants is carried out by others, which may wait for
// the network:
//
//	keeper    the node's record                                        one
//	watcher   the records of jobs                                      one
//	beater    publishes beats                                          one
//	preparer  builds a topology, opens the store                       one per job and layout
//	worker    waits for its predecessor, loads, runs, cleans up        one per incarnation of a worker
//	wirer     makes the connections of an incarnation                  one per incarnation that runs
//	postman   sends feedback to other processes                        one per incarnation that sends any
//
// All end with the context that the host's goroutine gives them. User code may hold a worker up: Run names it and leaves it
// behind.
package node
