package stream

// Wire is the form that items of one type have outside of a process, for sinks that keep what they are given: the form
// that they have on their way there. It never changes and may be used by any goroutine.
type Wire[T any] struct{ codec *codec[T] }

// NewWire looks at the type, which costs some microseconds.
func NewWire[T any]() Wire[T] { return Wire[T]{codec: newCodec[T]()} }

// Append appends items to dst. The error names a type of which something would be lost.
func (w Wire[T]) Append(dst []byte, items []T) ([]byte, error) { return w.codec.append(dst, items) }

// Decode appends to items what one call of Append wrote. It allocates no more than in proportion to wire, whatever is in
// it. The error wraps [ErrWire].
func (w Wire[T]) Decode(items []T, wire []byte) ([]T, error) { return w.codec.decode(items, wire) }
