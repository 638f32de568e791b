// Package worker runs one incarnation of one worker of an operator: three stages joined by lock-free rings.
//
//		            ring                    ring
//		upstream ----------> compute 0..C ----------> downstream
//		   |  deliveries        |   outgoing frames       |
//		   +-- acks, item log   +-- state backups         +-- retained slabs, credits
//
//	  - The upstream goroutine takes frames off the connections from sending workers, drops what it already has,
//	    acknowledges (invariant I2, by threshold.Receiver) and passes whole slabs on without touching items. It writes
//	    the item log when a sender is blocked.
//	  - Each compute goroutine owns one partition: it runs the operator, watches the divergence of its state (I1, by
//	    threshold.Backup), and backs it up through the store without stopping. A source's compute goroutine reads instead.
//	  - The downstream goroutine moves slabs to the receiving workers. Depending on how the output could be had again
//	    it keeps them until they are acknowledged (I3, by threshold.Sender), until they are committed, or not at all.
//
// A worker decides with the pure machines of package threshold and does the I/O around them. It knows nothing of the
// cluster: connections are attached from outside, and it ends by Stop, by Kill, or by an error.
//
// # Who owns what
//
// Every structure belongs to one goroutine and is touched by no other; what others need is published in atomics or
// sent through a ring. A goroutine that waits parks on its own Parker, and whoever changes what it waits for wakes it:
//
//	upstream   woken by: senders (frames), compute (room, progress, commits), the item log, attach, halt
//	compute    woken by: upstream (deliveries, gate, demands for a commit), downstream (room, acks, rewinds), the store, peers
//	           (values, ends, room), senders of feedback, Reshare, halt
//	downstream woken by: compute (frames), receivers (acks, room), attach, halt
//
// # Halting
//
// Stop and Kill only set a flag and wake everyone. A compute goroutine that is deep inside the user's Emit leaves it
// by a panic that is recovered at its top. Nothing is flushed: what must survive is in the store already.
//
// # Coming to rest
//
// A job whose number of workers is to change is brought to rest first, with nothing in flight: pause.go says how. What
// the workers of the next layout take over of the one before is in layout.go.
package worker
