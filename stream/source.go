package stream

// Source yields the items of one source partition in order. Read fills dst like io.Reader: it returns n items and
// perhaps an error; io.EOF at the end. It waits for the first item but for no more: less than len(dst) items say that
// there are none now, and what was read is passed on at once. No items without an error are a fault. What an item
// points to must not be changed after Read has returned it. Close may be called while Read blocks and must make it
// return.
type Source[T any] interface {
	Read(dst []T) (int, error)
	Close() error
}

// Reuser is a Source whose items point to memory that it has made for them and can use again, where allocating that memory
// costs more than filling it. ReadOver is Read, but each item of dst is one that was returned before and is in no slab any
// more, or a zero: what it points to may be overwritten. A Source may be a Reuser only where the operators that take its items
// neither keep nor emit what they point to.
type Reuser[T any] interface {
	ReadOver(dst []T) (int, error)
}

// NewSource opens partition part of parts.
type NewSource[T any] func(part, parts int) (Source[T], error)

// Position is where a replayable source stands.
type Position struct {
	Item   uint64 // items delivered so far
	Offset int64  // the connector's own hint, such as a byte offset; 0 = none
	Line   uint64 // lines read so far, for messages; 0 = not counted
}

// Replayable is a source that can yield the same items again in the same order, also in another process. The runtime
// then keeps no copies of what it sent and loses nothing when a receiver or the source itself fails.
type Replayable interface {
	Position() Position
	Seek(p Position) error
}

// Progresser is a source that knows how far it has come. A total of 0 means unknown.
type Progresser interface {
	Progress() (done, total int64)
}

// Sink takes the items of one sink partition. Items are valid only during the call. Close flushes at the end of the
// stream and is what makes the result final; a sink that is dropped after a failure is not closed, and its successor
// is given the items again. A sink that can make what it was given safe before the end says so with [Flusher].
type Sink[T any] interface {
	Write(items []T) error
	Close() error
}

// Flusher is a sink that can make all items written so far final. The runtime calls it from time to time and after
// that does not write them again.
//
// A process may die between a Flush and the commit that it was made for, and the items come again. A sink that would then
// have them twice has BackupState and RestoreState as well, and no StateDivergence: what BackupState writes after a Flush
// becomes durable in one step with what the runtime remembers of the items, and RestoreState says how much of what was
// flushed counts. If it is not called, nothing does.
type Flusher interface {
	Flush() error
}

// NewSink opens the sink of partition part of parts, once for every incarnation.
type NewSink[T any] func(part, parts int) (Sink[T], error)
