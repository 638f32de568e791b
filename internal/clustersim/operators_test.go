package clustersim

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// item is a number on its way, with who has sent it: on a channel the pairs of Epoch and N only grow.
type item struct {
	ID    uint64
	Part  uint64 // of the sender
	Epoch uint64 // of the sender; 0 where the numbering goes on after a failure, the window where it is emitted at a close
	N     uint64
}

// after says whether an item was sent after another one of the same sender.
func (i item) after(o item) bool { return i.Epoch > o.Epoch || i.Epoch == o.Epoch && i.N > o.N }

// numbers is a source of the numbers 0 to n-1, split over its partitions in turns. They come at a steady rate, whoever reads them and
// however often.
type numbers struct {
	n, parts, part, at uint64
	began              time.Time
	apart              time.Duration // from one number to the next
	closed             chan struct{}
}

func (s *numbers) number() uint64 { return s.at*s.parts + s.part }

func (s *numbers) Read(dst []item) (int, error) {
	if wait := time.Until(s.began.Add(time.Duration(min(s.number(), s.n)) * s.apart)); wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-s.closed:
			return 0, io.ErrClosedPipe
		}
	}
	come := s.n
	if s.apart > 0 {
		come = min(s.n, uint64(time.Since(s.began)/s.apart)+1)
	}
	for i := range dst {
		switch {
		case s.number() >= s.n:
			return i, io.EOF
		case s.number() >= come:
			return i, nil
		}
		dst[i] = item{ID: s.number(), Part: s.part, N: s.at}
		s.at++
	}
	return len(dst), nil
}

func (s *numbers) Close() error                 { close(s.closed); return nil }
func (s *numbers) Position() stream.Position    { return stream.Position{Item: s.at} }
func (s *numbers) Seek(p stream.Position) error { s.at = p.Item; return nil }

// hated is what an operator that panics says.
const hated = "an item that operators do not like, once"

// worker is what all operators do besides.
type worker struct {
	l    *ledger
	s    *site // where it runs
	at   stream.Placement
	last map[uint64]item // of each sender
	// What is known of it, and noted once.
	late   bool // it works when it should not
	zombie bool // it works beside its successor
}

func (w *worker) Open(_ context.Context, at stream.Placement) error {
	w.at, w.last = at, map[uint64]item{}
	return nil
}

// take is told of each item. The ledger is locked.
func (w *worker) take(i item) {
	if last, ok := w.last[i.Part]; ok && !i.after(last) {
		w.l.fault("I6, I7: %s has taken %+v after %+v", w, i, last)
	}
	w.last[i.Part] = i
	w.l.works(w)
}

func (w *worker) String() string {
	return fmt.Sprintf("partition %d of %s, epoch %d, on %s", w.at.Partition, w.at.Operator, w.at.Epoch, w.s.name)
}

// linger is time that an item takes, or the panic that comes once. The ledger is not locked.
func (w *worker) linger(i item) {
	p := w.l.plan
	if p.slowEvery > 0 && i.ID%p.slowEvery == 0 && p.slow == w.at.Operator {
		time.Sleep(p.slowFor)
	}
	if i.ID == p.panicAt && p.panics == w.at.Operator && w.l.panicked.CompareAndSwap(false, true) {
		panic(hated)
	}
}

// relay emits what it is given, under a number of its own; its state is how many there were.
type relay struct {
	worker
	sent        uint64
	seen, since uint64
}

func (r *relay) Process(in item, out *stream.Emitter[item]) error {
	r.linger(in)
	r.l.mu.Lock()
	r.take(in)
	r.l.mu.Unlock()
	r.seen++
	r.since++
	r.sent++
	out.Emit(item{ID: in.ID, Part: uint64(r.at.Partition), Epoch: r.at.Epoch, N: r.sent})
	return nil
}

func (r *relay) StateDivergence() float64 { return float64(r.since) }
func (r *relay) Measure() stream.Measure  { return stream.Measure{Alpha: 1, Beta: 1} }

func (r *relay) BackupState(w *stream.StateWriter) error {
	w.PutUint64(0, r.seen)
	r.since = 0
	return nil
}

func (r *relay) RestoreState(s *stream.StateReader) (err error) {
	for s.Next() {
		if _, r.seen, err = s.Uint64(); err != nil {
			return err
		}
	}
	return s.Err()
}

// MergeState implements stream.MergeState.
func (r *relay) MergeState(s *stream.StateReader) error {
	for s.Next() {
		_, seen, err := s.Uint64()
		if err != nil {
			return err
		}
		r.seen += seen
	}
	return s.Err()
}

// set is a state that holds the very items it was given since the last close: a plain state under the Count norm. Every item
// is an element of its own, so a partial backup holds those that are new since the last.
type set struct {
	worker
	theta float64
	has   map[uint64]item
	base  map[uint64]item // what it was restored with
	fresh []item
	lost  int // how much of it its successor lacked
	begun int // which of all sets that have was the one; 0 before
}

func newSet(w worker) *set { return &set{worker: w, has: map[uint64]item{}} }

func (s *set) SetTheta(theta float64) { s.theta = theta }

func (s *set) Process(in item, _ *stream.Emitter[item]) error {
	s.linger(in)
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	s.l.begin(s)
	s.take(in)
	s.has[in.ID] = in
	s.fresh = append(s.fresh, in)
	s.l.beside(s)
	return nil
}

func (s *set) CloseWindow(w stream.Window, out *stream.Emitter[item]) error {
	s.l.mu.Lock()
	s.l.begin(s)
	ids := make([]uint64, 0, len(s.has))
	for id := range s.has {
		ids = append(ids, id)
	}
	clear(s.has)
	s.fresh = s.fresh[:0]
	s.l.mu.Unlock()
	slices.Sort(ids)
	for n, id := range ids {
		out.Emit(item{ID: id, Part: uint64(s.at.Partition), Epoch: w.Number, N: uint64(n)})
	}
	return nil
}

func (s *set) StateDivergence() float64 { return float64(len(s.fresh)) }

func (s *set) Measure() stream.Measure {
	return stream.Measure{Alpha: 1, Norm: errorbound.Count, Combine: errorbound.Added}
}

func (s *set) BackupState(w *stream.StateWriter) error {
	put := func(i item) {
		var b []byte
		for _, v := range [...]uint64{i.ID, i.Part, i.Epoch, i.N} {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		w.Put(b[:8], b[8:])
	}
	if w.Whole() {
		for _, i := range s.has {
			put(i)
		}
	} else {
		for _, i := range s.fresh {
			put(i)
		}
	}
	s.fresh = s.fresh[:0]
	return nil
}

func (s *set) RestoreState(r *stream.StateReader) error {
	for r.Next() {
		var v [4]uint64
		b := append(append([]byte{}, r.Key()...), r.Value()...)
		if len(b) != 8*len(v) {
			return fmt.Errorf("%w: an item of %d bytes", stream.ErrState, len(b))
		}
		for i := range v {
			v[i] = binary.LittleEndian.Uint64(b[8*i:])
		}
		in := item{ID: v[0], Part: v[1], Epoch: v[2], N: v[3]}
		s.has[in.ID] = in
		if last, ok := s.last[in.Part]; !ok || in.after(last) {
			s.last[in.Part] = in
		}
	}
	return r.Err()
}

// merging is a set whose partitions may hold any items.
type merging struct{ *set }

// MergeState implements stream.MergeState.
func (m merging) MergeState(r *stream.StateReader) error { return m.RestoreState(r) }

// keyed is a set each of whose partitions holds the items that belong there.
type keyed struct{ *set }

// PartitionOf implements stream.Keyed.
func (keyed) PartitionOf(key []byte, n int) int {
	return stream.PartitionOfUint64(binary.LittleEndian.Uint64(key), n)
}
