package stream

import (
	"math"
	"reflect"
	"time"
)

// WindowItems makes a source end a window after every n items of each of its partitions. A window that would be empty
// at the end of the stream is not opened. n below 1 is a topology error.
func WindowItems(n uint64) Option {
	return func(s *settings) { s.windows = windowItems(n) }
}

// WindowTime makes a source end windows of the given size in event time: a window ends when an item comes that belongs to
// a later one, so items have to come roughly in the order of at; a straggler counts in the window that is open. All
// partitions number alike, by the time since 1970 (windows before it included); see WindowStart. After a gap in the times
// one more close, of the last window of the gap, comes with no items: other partitions could have had some. A size below
// a millisecond is a topology error.
func WindowTime[T any](size time.Duration, at func(T) time.Time) Option {
	return func(s *settings) { s.windows = &windowTime[T]{size: size, at: at} }
}

// newTask makes the task of a source, with or without windows.
func newTask[T any](src Source[T], out *Emitter[T], windows any) SourceTask {
	switch w := windows.(type) {
	case windowItems:
		return newWindowedTask(src, out, w, nil)
	case *windowTime[T]:
		return newWindowedTask(src, out, 0, w)
	}
	return newSourceTask(src, out)
}

// checkWindows faults settings of windows that make no sense.
func checkWindows[T any](t *Topology, n *Node, windows any) {
	n.Windowed = windows != nil
	switch w := windows.(type) {
	case nil:
	case windowItems:
		if w < 1 {
			t.fault("operator %q: a window of no items", n.Name)
		}
	case *windowTime[T]:
		if w.size < time.Millisecond || w.at == nil {
			t.fault("operator %q: a window needs a size of at least 1ms, not %v, and a function that tells the time", n.Name, w.size)
		}
	default:
		t.fault("operator %q: WindowTime is for items of another type than %v", n.Name, reflect.TypeFor[T]())
	}
}

// timeOrigin is the number of the window that starts in 1970: far enough from 0 for all times before.
const timeOrigin = 1 << 60

// WindowStart returns when the window of this number of a source with WindowTime starts.
func WindowStart(number uint64, size time.Duration) time.Time {
	return time.Unix(0, 0).Add(time.Duration(int64(number-timeOrigin)) * size).UTC()
}

// windowItems is the setting of WindowItems.
type windowItems uint64

// windowTime is the setting of WindowTime.
type windowTime[T any] struct {
	size time.Duration
	at   func(T) time.Time
}

// number returns the window of a time; the division rounds down on both sides of 1970. Times that nanoseconds since 1970
// cannot express, before 1678 and after 2262, count as the last that they can.
func (w *windowTime[T]) number(t time.Time) uint64 {
	ns, size := t.UnixNano(), int64(w.size)
	switch {
	case t.Before(time.Unix(0, math.MinInt64)):
		ns = math.MinInt64
	case t.After(time.Unix(0, math.MaxInt64)):
		ns = math.MaxInt64
	}
	q := ns / size
	if ns%size < 0 {
		q--
	}
	return uint64(timeOrigin + q)
}

// Forget declares that the state of an operator does not remember what is further back than n windows: 1 where every
// window starts afresh (tumbling), the number of panes where windows slide. A failure is then forgotten, and thresholds
// rise again, once n windows have been closed since.
func Forget(n int) Option { return func(s *settings) { s.forget = n } }

// Decaying declares that the state fades, and with it the error of earlier failures: thresholds are never lowered.
func Decaying() Option { return func(s *settings) { s.forget = fades } }

const fades = math.MinInt

// Fades says whether the operator was built with Decaying.
func (n *Node) Fades() bool { return n.Forget == fades }

// WindowedTask is a source task that ends windows. Fill returns early where one ends.
type WindowedTask interface {
	SourceTask
	// Complete returns the number of the last window that nothing more will be emitted for; 0 for none. Punctuation has
	// to be sent before the next Fill.
	Complete() uint64
	// Pending says whether items have been read that are not emitted yet: the source's position is then ahead.
	Pending() bool
	// Open returns the number of the window of the last item, 0 before the first.
	Open() uint64
	// Reopen continues behind window level, in window open, after so many items of the partition.
	Reopen(level, open, items uint64)
}

// windowedTask emits what it reads one by one and looks which window each item belongs to.
type windowedTask[T any] struct {
	sourceTask[T]
	every   uint64 // items per window, 0 = by time
	time    *windowTime[T]
	pending []T
	err     error  // what came with the pending items
	short   bool   // the source had less than it was asked for
	items   uint64 // emitted
	level   uint64 // windows up to here are complete
	open    uint64 // window of the last item, 0 before the first
}

func newWindowedTask[T any](src Source[T], out *Emitter[T], every windowItems, by *windowTime[T]) SourceTask {
	t := &windowedTask[T]{sourceTask: sourceTask[T]{src: src, out: out}, every: uint64(every), time: by}
	t.scratch = make([]T, SlabItems)
	return t
}

// Fill implements SourceTask.
func (t *windowedTask[T]) Fill(limit int) (int, error) {
	if len(t.pending) == 0 {
		t.err = t.fetch(limit)
	}
	n := 0
	for len(t.pending) > 0 && n < limit {
		w := t.window(t.pending[0])
		if t.open > 0 && w > t.open && t.level < w-1 {
			if t.level < t.open {
				t.level = t.open
			} else {
				t.level = w - 1 // a gap: other partitions may have items in it, this one has not
			}
			return n, nil
		}
		item := t.pending[0]
		t.open, t.pending = w, t.pending[1:]
		t.items++
		n++
		t.out.Emit(item) // last: it may unwind
	}
	if len(t.pending) > 0 {
		return n, nil
	}
	if t.short {
		t.out.flush() // the next items may be long in coming
	}
	return n, t.err
}

// fetch reads no more than there is credit for, since what is read and not sent dies with the worker.
func (t *windowedTask[T]) fetch(limit int) error {
	if t.out.credit < t.out.copies {
		t.out.wait()
	}
	affordable := min(int64(len(t.scratch)), t.out.credit/max(t.out.copies, 1))
	asked := min(limit, int(affordable))
	n, err := t.read(t.src.Read, t.scratch[:asked])
	t.pending, t.short = t.scratch[:n], n < asked
	return err
}

// window returns the window that the next item belongs to: never an earlier one than is open.
func (t *windowedTask[T]) window(item T) uint64 {
	if t.every > 0 {
		return t.items/t.every + 1
	}
	return max(t.time.number(t.time.at(item)), t.open, t.level+1)
}

// Buffered implements SourceTask.
func (t *windowedTask[T]) Buffered() int { return t.out.buffered() + len(t.pending) }

// Complete implements WindowedTask.
func (t *windowedTask[T]) Complete() uint64 { return t.level }

// Pending implements WindowedTask.
func (t *windowedTask[T]) Pending() bool { return len(t.pending) > 0 }

// Open implements WindowedTask.
func (t *windowedTask[T]) Open() uint64 { return t.open }

// Reopen implements WindowedTask.
func (t *windowedTask[T]) Reopen(level, open, items uint64) {
	t.pending, t.err = nil, nil
	t.level, t.open, t.items = level, open, items
}
