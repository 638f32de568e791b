// Package copies keeps a backup.Store on several others, in practice on several backup servers, so that state survives the
// loss of a server with its disk.
//
//	store, err := copies.Dial(ctx, remote.Address{URL: "nats://host:4222", Cluster: "prod"}, []string{"one", "two"}, copies.Options{
//		Suspect: func(name string, err error) { ... }, // ask whoever decides about the view
//	})
//	p := backup.OpenPartition(store, key, epoch)
//	...
//	store.Drop("two") // it was decided, for everybody
//
// # The view
//
// The view is the set of members that count. It is decided elsewhere, once for all processes that use it (in a cluster: in the
// record of the job, by compare-and-set), and only ever shrinks. A process may learn of that late; then its view is larger
// than the decided one, never smaller. A member that was dropped never comes back, not even empty: a new server serves new
// views, that is new jobs, only. A view with one member is as good as that one is.
//
// A member that fails, or does not answer, is suspected and asked again. Everything that needs it waits until it answers or is
// dropped. When one member is left, its errors are the Store's, as with a single store.
//
// # Records
//
// With each batch of an owner a member stores, in the same atom, how many batches of which epoch it has (key v/OWNER, which
// Scan does not show), and which keys the batch touches, if these are few. A batch that has no room for that comes in three: an odd
// number, which says that the batch may be there, the batch, and its number.
//
// # Invariants
//
// For an owner whose writers call Fence first, each with an epoch of its own:
//
//	C1 A batch is sent only when all members of the view have the one before it.
//	C2 done is called without an error only when all members of the view have the batch.
//	C3 A member's record is never ahead of its keys: if it says n, all batches up to n are there.
//	C4 Two members that are whole and have the same even record have the same keys.
//	C5 When Fence returns, all members of the view have the same keys, and nothing of an older epoch can reach any of them.
//	C6 What was reported durable is never undone by a Fence, whichever members are lost as long as one of the decided view is left.
//	C7 What was read after a Fence is never undone either, under the same condition.
//
// C1 holds because there is one batch of an owner under way (lane). Hence a member that has failed with it can be given it
// again: nothing that came later can be in its way, and it applies as often as one likes. A batch that fails (the last member has, or
// the Store is being closed) is the last before the next Fence, and one that a member has refused the last of its epoch: it may be
// on some members, and nothing must get there behind a gap.
// It costs that batches of one owner do not overlap; those of different owners do.
//
// C3: the number is in the atom of the batch, or comes in a batch of its own when the member has confirmed the large one.
//
// C4: by C5 all members begin an epoch alike, and by C1 and C3 the number says which of its batches were applied since. A member
// that is made equal to another gets its record in the atom that makes it so: who does it may be lost, and so may the other. If
// that atom has no room for it, the member has an odd number, or is torn, from before the atom until its record is there.
//
// C6: let a batch be durable under the view V, and let Fence go by a view W later. Both are decided views or were, and views
// only shrink, so one holds the other, and a member of the smaller one that is left has the batch (C2). After the fences nothing
// moves any more. The source is the member with the highest record. By C3 it has the batch if the record says so; and that is so,
// since of the members in W at least one has a record that high. That the smaller view may be V, when W has members that
// were dropped long ago, is why the choice is not arbitrary. Of a batch that was not reported durable the source may have
// it or not; either is a state that one store could have been left in.
//
// C5: members with the record of the source have its keys already (C4). One that lacks the last batch is given what that
// touched; another is compared as a whole, two ordered scans side by side. As long as the differences fit one batch, they are an
// atom, so a crash leaves the member with either state. Between members of the decided view that is always so: by C1 they differ by
// one batch. More may be needed for one that was dropped, or whose disk has forgotten; it is marked as torn first, and
// never taken as a source until its record is written anew. In the end all get a new record, unless they had the same one.
//
// C7 follows from C5: whoever has read one member after his Fence has read them all. Before any Fence, one may read what
// is on one member only; so may one whose successor has begun to write in between. Where that matters, a second Fence of the same
// epoch after reading tells: without an error, what was read is what is on all of them.
//
// Marks (backup.Marker) have numbers of their own: the latest wins, and is on all members before Fence returns.
//
// Fences of one owner that race: each member takes the higher epoch, whoever comes first, and the lower one gets ErrFenced at the
// latest where it comes second. Its repairs are writes in its epoch, and are refused like any others.
//
// Owners that nobody fences (grants, the names of runs) have no records: on all members of the view is what was reported
// durable. What was not may be seen, and be gone after the loss of a member. Do not write as one owner with and
// without fences.
//
// # What survives what
//
// The loss of all members of the decided view but one, with their disks. A member that comes back with an empty disk, or
// an older one, is refused by the clients that know it (remote.ErrReplaced) and so is suspected; to others its record says
// how far it is, and they bring it up to date. A record that is damaged inside a member's database is not mended from the others, but
// reported as it is with a single store.
//
// Once dropped, a member has no way back, and there is none for a view to grow: whoever has lost a server has one copy less until the
// job ends.
//
// backup.DropJob, and Drop of a partition, if interrupted, may leave garbage on some members that a repetition does not find. It leaves the record of
// each owner, of about 150 bytes, as it leaves its fence.
//
// # Cost
//
// A batch is copied once and sent to all members at the same time. It takes as long as the slowest one. A mark is written to one
// member after the other. A Fence is one question more than with a single store, and one more again after a crash in the
// middle of a batch.
package copies
