package stream

import (
	"errors"
	"fmt"
	"io"
)

var errSealed = errors.New("stream: an operator built with EmitOnClose emitted outside of CloseWindow")

// Node is one operator of a built topology, as the runtime sees it.
type Node struct {
	Name             string
	Workers, Compute int
	Inputs, Outputs  []*Edge
	IsSource, IsSink bool
	EmitOnClose      bool

	// NewSource makes the task of a source. With running, the source of an earlier incarnation, it goes on with that one
	// instead of opening it anew: what is read like a pipe has no beginning to return to.
	NewSource func(part int, exit Exit, running any) (SourceTask, error)
	// NewTask makes the task of any other operator.
	NewTask func(part int, exit Exit) (Task, error)
}

// Partitions returns how many compute goroutines run the operator.
func (n *Node) Partitions() int { return n.Workers * n.Compute }

// Edge connects two operators.
type Edge struct {
	From, To *Node
	Port     int // which input of To: 0, or 1 for the right side of a join

	routing routing
	typed   any // *edgeType[T]: asserted once per emitter, never per item
	decode  func(wire []byte) (Slab, error)
}

// Reaches says whether items of sending partition from can arrive at receiving partition to.
func (e *Edge) Reaches(from, to int) bool { return e.routing != routeForward || from == to }

// Decode rebuilds a slab from what Slab.AppendItems wrote.
func (e *Edge) Decode(wire []byte) (Slab, error) { return e.decode(wire) }

// copies is how many channels one emitted item goes to.
func (e *Edge) copies() int {
	if e.routing == routeBroadcast {
		return e.To.Partitions()
	}
	return 1
}

type edgeType[T any] struct {
	pick func(item T, n int) int
}

func (*edgeType[T]) decode(wire []byte) (Slab, error) {
	items, err := decodeItems[T](wire)
	if err != nil {
		return nil, err
	}
	b := &batch[T]{items: items}
	b.refs.Store(1)
	return b, nil
}

// Task is an operator instance with its types erased. One compute goroutine drives it.
type Task interface {
	// Process hands items [from, to) of s to the operator.
	Process(port int, s Slab, from, to int) error
	// CloseWindow is called when the punctuation w has arrived on every input.
	CloseWindow(w Window) error
	// Flush sends what the emitter has buffered.
	Flush()
	// Resume continues the output numbering; sent counts items without punctuation, per channel.
	Resume(sent []uint64)
	// Buffered returns how many items the emitter holds that were not sent yet.
	Buffered() int
	// Operator returns the user's operator, to look for its optional abilities.
	Operator() any
}

type operatorTask[In, Out any] struct {
	op          Operator[In, Out]
	many        BatchOperator[In, Out] // op, if it can
	closer      WindowCloser[Out]      // op, if it can
	out         *Emitter[Out]
	emitOnClose bool
}

func newOperatorTask[In, Out any](op Operator[In, Out], out *Emitter[Out], emitOnClose bool) Task {
	t := &operatorTask[In, Out]{op: op, out: out, emitOnClose: emitOnClose}
	t.many, _ = op.(BatchOperator[In, Out])
	t.closer, _ = op.(WindowCloser[Out])
	return t
}

func (t *operatorTask[In, Out]) Process(_ int, s Slab, from, to int) error {
	items := s.(*batch[In]).items[from:to]
	if t.many != nil {
		return t.many.ProcessBatch(items, t.out)
	}
	for i := range items {
		if err := t.op.Process(items[i], t.out); err != nil {
			return err
		}
	}
	return nil
}

func (t *operatorTask[In, Out]) CloseWindow(w Window) error {
	return closeWindow(t.closer, t.out, t.emitOnClose, w)
}

func (t *operatorTask[In, Out]) Buffered() int        { return t.out.buffered() }
func (t *operatorTask[In, Out]) Flush()               { t.out.flush() }
func (t *operatorTask[In, Out]) Resume(sent []uint64) { t.out.resume(sent) }
func (t *operatorTask[In, Out]) Operator() any        { return t.op }

func closeWindow[Out any](closer WindowCloser[Out], out *Emitter[Out], emitOnClose bool, w Window) error {
	if closer == nil {
		return nil
	}
	out.unseal()
	defer out.seal(emitOnClose)
	return closer.CloseWindow(w, out)
}

type joinTask[A, B, Out any] struct {
	op          JoinOperator[A, B, Out]
	closer      WindowCloser[Out]
	out         *Emitter[Out]
	emitOnClose bool
}

func newJoinTask[A, B, Out any](op JoinOperator[A, B, Out], out *Emitter[Out], emitOnClose bool) Task {
	t := &joinTask[A, B, Out]{op: op, out: out, emitOnClose: emitOnClose}
	t.closer, _ = op.(WindowCloser[Out])
	return t
}

func (t *joinTask[A, B, Out]) Process(port int, s Slab, from, to int) error {
	if port == 0 {
		return each(s.(*batch[A]).items[from:to], t.op.ProcessLeft, t.out)
	}
	return each(s.(*batch[B]).items[from:to], t.op.ProcessRight, t.out)
}

func each[T, Out any](items []T, process func(T, *Emitter[Out]) error, out *Emitter[Out]) error {
	for i := range items {
		if err := process(items[i], out); err != nil {
			return err
		}
	}
	return nil
}

func (t *joinTask[A, B, Out]) CloseWindow(w Window) error {
	return closeWindow(t.closer, t.out, t.emitOnClose, w)
}

func (t *joinTask[A, B, Out]) Buffered() int        { return t.out.buffered() }
func (t *joinTask[A, B, Out]) Flush()               { t.out.flush() }
func (t *joinTask[A, B, Out]) Resume(sent []uint64) { t.out.resume(sent) }
func (t *joinTask[A, B, Out]) Operator() any        { return t.op }

type sinkTask[T any] struct{ sink Sink[T] }

func (t *sinkTask[T]) Process(_ int, s Slab, from, to int) error {
	return t.sink.Write(s.(*batch[T]).items[from:to])
}

func (t *sinkTask[T]) CloseWindow(w Window) error {
	if !w.Last {
		return nil
	}
	return t.sink.Close()
}

func (t *sinkTask[T]) Buffered() int   { return 0 }
func (t *sinkTask[T]) Flush()          {}
func (t *sinkTask[T]) Resume([]uint64) {}
func (t *sinkTask[T]) Operator() any   { return t.sink }

// SourceTask is a source instance with its types erased. One compute goroutine drives it.
type SourceTask interface {
	// Fill reads and emits some items, at most limit, and returns how many; io.EOF at the end.
	Fill(limit int) (int, error)
	Flush()
	Resume(sent []uint64)
	Buffered() int
	// Source returns the user's source, to look for its optional abilities.
	Source() any
	// Close ends the source; it may be called while Fill waits for input.
	Close() error
}

type sourceTask[T any] struct {
	src     Source[T]
	out     *Emitter[T]
	scratch []T // for partitioners that look at each item
}

func newSourceTask[T any](src Source[T], out *Emitter[T]) SourceTask {
	t := &sourceTask[T]{src: src, out: out}
	if !out.direct() {
		t.scratch = make([]T, SlabItems)
	}
	return t
}

func (t *sourceTask[T]) Fill(limit int) (int, error) {
	if t.scratch == nil {
		dst := t.out.room()
		n, err := t.read(dst[:min(limit, len(dst))])
		if n > 0 {
			t.out.filled(n)
		}
		return n, err
	}
	if t.out.credit < t.out.copies {
		t.out.wait()
	}
	affordable := int(min(int64(len(t.scratch)), t.out.credit/max(t.out.copies, 1)))
	n, err := t.read(t.scratch[:min(limit, affordable)])
	for i := range t.scratch[:n] {
		t.out.Emit(t.scratch[i])
	}
	return n, err
}

func (t *sourceTask[T]) read(dst []T) (int, error) {
	n, err := t.src.Read(dst)
	if n < 0 || n > len(dst) {
		return 0, fmt.Errorf("stream: source returned %d items for a buffer of %d", n, len(dst))
	}
	if n == 0 && err == nil && len(dst) > 0 {
		return 0, io.ErrNoProgress
	}
	return n, err
}

func (t *sourceTask[T]) Buffered() int        { return t.out.buffered() }
func (t *sourceTask[T]) Flush()               { t.out.flush() }
func (t *sourceTask[T]) Resume(sent []uint64) { t.out.resume(sent) }
func (t *sourceTask[T]) Source() any          { return t.src }
func (t *sourceTask[T]) Close() error         { return t.src.Close() }
