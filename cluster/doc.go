// Package cluster is what the processes of a cluster agree on: the records that say what must run where, the beats by which
// nodes say what they do, the names of all subjects, and the interfaces to what carries these.
//
// There are three kinds of processes. A controller decides; of any number one leads, by a lease. A node hosts workers. A
// backup server (package backup/remote) keeps what has to survive them. They meet at NATS.
//
// # Who says what
//
// All that is decided is in records (interface [Records]: a JetStream key-value bucket), each changed by compare-and-set:
//
//	job.ID      Job       made by whoever submits it, from then on changed by the leading controller only
//	wish.KIND.ID          what a user wants: a job ended, an operator scaled, a node emptied; the leader carries it out
//	node.NAME   Node      which process has that name now; renewed by that process, which is its lease
//	leader      Leader    which controller leads; renewed by it
//
// A Job says for each worker on which node, in which session of it and as which incarnation it shall run. That is all that
// nodes go by: a node watches the jobs, runs what is assigned to its session, stops what no longer is, and connects each
// worker with the incarnations of its neighbours that the record names. A connection's id follows from the record
// ([LinkID]), so nobody has to ask anybody. Records are levels, not events: who misses a change sees the next.
//
// The record also says which backup servers of the job still count (Job.View). Nodes tell which of them fail the job; the leader
// takes out what is gone for good, and from then on nobody waits for it. What is out never comes back.
//
// A node says what it does in beats ([Beat]), to all controllers, several times a second and at once when a worker ends.
// Beats may be lost. So may everything but records: whoever waits asks, or says it again.
//
// A worker that is to move is first asked, in the record, to retire (Worker.Retire). Its node says when it has (Retired): all it
// had is durable, so the next incarnation, on another node, is no failure. A node that is about to end asks to be emptied that way.
//
// Another number of workers of an operator is a row of records, too (Scaling): nodes do what the phase in the record wants
// of their workers, in the round that it names, and say in beats how far each is (Rest).
//
// # What makes it safe
//
// A failed worker's next epoch and failure count are in the record before anybody starts it, and in the backup store,
// fenced, before it loads state. So whatever a controller believes, of two incarnations of a worker only the later one
// can save anything. A leader that was replaced cannot write: the next one has rewritten each record first, and the
// revision it knows is stale. A node that cannot renew its record stops its workers, since others may have taken them over,
// and begins a new session.
package cluster
