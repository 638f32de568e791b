package stream

import (
	"fmt"
	"io"
)

// SourceTask is a source instance with its types erased. One compute goroutine drives it.
type SourceTask interface {
	// Fill reads and emits some items, at most limit (at least 1), and returns how many, and io.EOF or what else the
	// source returned with them. When the source has less than it was asked for, all is sent on at once: its next items
	// may be long in coming.
	Fill(limit int) (int, error)
	// Flush and Resume are as in Task; so is Buffered, which counts what was read and not emitted yet as well.
	Flush()
	Resume(sent []uint64)
	Buffered() int
	// Taken returns how many items were read from the source, those of a Fill that was unwound included.
	Taken() uint64
	// Skip reads n items, which were read and emitted before, and drops them.
	Skip(n uint64) error
	// Source returns the user's source, to look for its optional abilities.
	Source() any
	// Close ends the source; it may be called while Fill waits for input.
	Close() error
}

type sourceTask[T any] struct {
	src     Source[T]
	load    func(dst []T) (int, error) // reads into a slab: src.Read, or ReadOver
	out     *Emitter[T]
	scratch []T // for partitioners that look at each item
	held    int // items of it that are not emitted yet
	taken   uint64
}

func newSourceTask[T any](src Source[T], out *Emitter[T]) SourceTask {
	t := &sourceTask[T]{src: src, load: src.Read, out: out}
	if !out.direct() {
		t.scratch = make([]T, SlabItems)
	} else if r, ok := src.(Reuser[T]); ok {
		t.load = r.ReadOver
	}
	return t
}

func (t *sourceTask[T]) Fill(limit int) (int, error) {
	asked, n, err := t.fill(limit)
	if n < asked {
		t.out.flush()
	}
	return n, err
}

// fill returns how many items the source was asked for, too.
func (t *sourceTask[T]) fill(limit int) (asked, n int, err error) {
	if t.scratch == nil {
		dst := t.out.room()
		asked = min(limit, len(dst))
		if n, err = t.read(t.load, dst[:asked]); n > 0 {
			t.out.filled(n)
		}
		return asked, n, err
	}
	if t.out.credit < t.out.copies {
		t.out.wait()
	}
	affordable := min(int64(len(t.scratch)), t.out.credit/max(t.out.copies, 1))
	asked = min(limit, int(affordable))
	n, err = t.read(t.src.Read, t.scratch[:asked])
	for i := range t.scratch[:n] {
		t.held = n - i - 1
		t.out.Emit(t.scratch[i])
	}
	return asked, n, err
}

// read guards against sources that break the contract of Read.
func (t *sourceTask[T]) read(from func([]T) (int, error), dst []T) (int, error) {
	n, err := from(dst)
	if n < 0 || n > len(dst) {
		return 0, fmt.Errorf("stream: source returned %d items for a buffer of %d", n, len(dst))
	}
	if n == 0 && err == nil && len(dst) > 0 {
		return 0, fmt.Errorf("stream: source returned no items and no error: %w", io.ErrNoProgress)
	}
	t.taken += uint64(n)
	return n, err
}

func (t *sourceTask[T]) Skip(n uint64) error {
	dropped := make([]T, min(n, SlabItems))
	for n > 0 {
		got, err := t.read(t.src.Read, dropped[:min(n, SlabItems)])
		if n -= uint64(got); err == io.EOF && n > 0 {
			return fmt.Errorf("stream: the source ends %d items before it did: %w", n, io.ErrUnexpectedEOF)
		}
		if err != nil && err != io.EOF {
			return err
		}
	}
	return nil
}

func (t *sourceTask[T]) Buffered() int        { return t.out.buffered() + t.held }
func (t *sourceTask[T]) Taken() uint64        { return t.taken }
func (t *sourceTask[T]) Flush()               { t.out.flush() }
func (t *sourceTask[T]) Resume(sent []uint64) { t.out.resume(sent) }
func (t *sourceTask[T]) Source() any          { return t.src }
func (t *sourceTask[T]) Close() error         { return t.src.Close() }
