// Package remote keeps a backup.Store in another process: a [Server] serves a store over NATS, a [Client] is a Store for
// workers and controllers. State then survives the loss of the machines that the workers run on.
//
//	store, err := backup.OpenBadger(dir, backup.BadgerOptions{Sync: true})
//	server, err := remote.Serve(nc, store, remote.ServerOptions{Cluster: "prod"})
//
//	client, err := remote.Dial(ctx, remote.Address{URL: "nats://host:4222", Cluster: "prod"})
//	p := backup.OpenPartition(client, key, epoch)
//
// # What survives what
//
// Workers, their processes and machines, the connection, and kills of the server (-9 included): everything that was
// reported as durable, and every batch is applied at most once. A power cut of the server's machine: the same with
// [backup.BadgerOptions].Sync; without it the last seconds may be gone, fences among them, and a client that relied on
// them gets ErrReplaced instead of going on above a hole. The loss of the server's disk: nothing; package
// backup/copies keeps several.
//
// # Subjects
//
// A server listens on afstream.CLUSTER.backup.NAME and publishes to afstream.CLUSTER.backup-reply.>; clients do the
// opposite. These are all permissions that either needs. Whoever may publish to the first can read and overwrite all
// backups: names of owners are no secrets.
//
// # Batches
//
// A client begins a session, of which the server makes a durable note, and numbers its batches from 1. All of a client's
// batches form one sequence, which is stronger than an order per owner and simpler. NATS delivers at most once, so:
//
//   - The server takes in batch next and nothing else. When it sees a gap it asks the client, once per round, to go back;
//     going back begins a round. A batch it has seen is answered again, or not yet if the store has it.
//   - The client knows the fate of all batches before base, which it says in every message. At most 256 batches, and
//     Window bytes, are under way beyond that.
//   - Nothing happens for a while: the client asks (probe), and the answer tells it all at once. It never sends a batch
//     again on suspicion, so a slow disk does not multiply traffic.
//   - Batches larger than a message come in parts, which the server puts together before anything is applied. Only batch
//     next can be incomplete, so a client holds up at most one batch of memory; the parts are dropped when it has been
//     silent for 30 seconds.
//
// # Why a batch is applied once, in order, and its outcome is true
//
// While a server runs this is so because it takes in batch next and then increments next, from one goroutine, and the
// store keeps the order of its calls. A restart is what needs an argument:
//
//  1. With batch n the store writes, in the same atom, the note slot[n mod 256] = n. Batch n+256 is sent only when the
//     client knows the fate of n. So for every n from base on, slot[n mod 256] = n exactly if n was applied.
//  2. A server that starts reads the notes; H is the highest number among them. next begins at the first base it hears, and
//     the client goes back to it. For n <= H it applies nothing: if the slot holds n the answer is that it is durable;
//     otherwise the earlier server refused it, since the store had passed on to H. Applying it now could bring it behind a
//     later one. Whether the reason was a fence is still known, since fences are never taken back; other reasons are not.
//  3. For n > H no note exists, so n was not applied, and it is now.
//  4. A refusal by an earlier server may still be on its way when the next one applies the batch. Therefore starts are
//     numbered, durably: a server ignores batches that are not meant for its start and says so, and a client that has heard
//     of a start ignores what earlier ones say. So an outcome that a client believes is of the last server that can have
//     applied the batch.
//
// A session takes about 10 KB of memory and at most 257 notes of the store. It ends when the client is closed; after a day of silence; and, if the
// server has not been started since, after 5 minutes of silence of a client all of whose owners have been fenced in newer epochs since it
// wrote for them: nothing of it would be applied any more, and a message of an unknown session never is.
//
// A batch of which a client was told that there is no answer (ErrNoAnswer) may or may not be applied later, but never after
// a later batch of that client: the first message about a later one moves base beyond it.
//
// Fences hold for batches on their way because the store checks them when it applies; Fence and Scan are repeated freely,
// for both may be.
//
// The test of all this runs the real code of both ends over a simulated network that loses, repeats and reorders messages
// (sim_test.go); others kill real processes and cut real connections.
//
// # Scans
//
// A scan is sent in chunks of 260 KiB, of which four may be under way: the server reads on when the client has consumed
// some. A scan whose client is silent for 30 seconds is given up. A scan of a single chunk is one message each way.
// A snapshot dies with its server: if nothing was delivered yet the client begins anew, otherwise Scan returns
// [backup.ErrInterrupted], since what was delivered belongs to a snapshot that no longer exists. Loading a partition repeats
// such a scan.
//
// # Memory
//
// A client refers to batches that wait and does not copy them; whoever applies them bounds them, as with a local store. A
// server holds at most ServerOptions.MaxBytes of batches and then asks clients to wait, and at most 64 scans of 1 MiB.
//
// # One server
//
// A client keeps to one server, and a server that comes back without its store is refused ([ErrReplaced]). Package backup/copies
// makes one store of several.
package remote
