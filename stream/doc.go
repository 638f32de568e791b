// Package stream is the public vocabulary of afstream: what a user writes to describe a job.
//
// A [Topology] is a directed acyclic graph of operators. [From] begins it with a source, [Then] and [Join] add
// operators, [To] ends a stream in a sink:
//
//	t := stream.New("wordcount")
//	lines := stream.From(t, "lines", connector.Lines("book.txt"))
//	words := stream.Then(lines, "split", newSplit)
//	counts := stream.Then(words, "count", newCount, stream.Hash(word), stream.Workers(4), stream.EmitOnClose())
//	stream.To(counts, "top", connector.Collect(&top))
//
// Everything is typed end to end. Items travel in slabs of up to [SlabItems]; types are erased once per slab, never
// per item, so the path of an item has no allocation, no reflection and no interface conversion.
//
// An [Operator] need only process items. What else it can do it says with small interfaces that the runtime finds
// when it starts the operator: [StateDivergence], [BackupState] and [RestoreState] make its state fault tolerant;
// [Thresholder], [BackupDurable], [Measurer], [Compensator], [Idempotent], [Rebuildable], [Opener], [WindowCloser] and [BatchOperator] refine that.
// The ready states of package state bring most of them by embedding.
//
// # Sources and sinks
//
// A [Source] fills slices like io.Reader. One that is also [Replayable] is read again after a failure, so nothing that it
// sent is ever lost; [Progresser] lets it say how far it has come. A [Sink] is final when it is closed, or, if it is a
// [Flusher], from flush to flush.
//
// # Windows
//
// [WindowItems] and [WindowTime] make a source end windows; operators close them in CloseWindow once all their inputs have
// delivered the end, and start afresh, or not. [Forget] says after how many windows a failure no longer counts against
// the budget, [Decaying] that it never does; [Budget] gives an operator a part of it.
//
// # Joins and feedback
//
// [Join] takes two streams. [FeedbackTo] leads values back to an operator upstream: a [FeedbackSender] sends, a
// [FeedbackReceiver] takes the last value of each partition between two items, a [Pacer] may wait for it.
//
// # Peers
//
// With [Colleagues] the partitions of one worker hand values to one another: a [Colleague] gives them with Peers.Hand, which
// never waits, and takes them in Receive. A [Finisher] hands over what it has kept back when a window ends.
//
// The second half of the package ([Node], [Edge], [Task], [SourceTask], [Slab], [Exit]) is what the runtime sees of
// a built topology. Nothing here runs anything; controller.RunLocal does, and has examples of whole topologies.
package stream
