package stream

// Task is an operator instance with its types erased. One compute goroutine drives it.
type Task interface {
	// Process hands items [from, to) of s to the operator.
	Process(port int, s Slab, from, to int) error
	// Steps says whether ProcessUntil can stop early: the operator takes one input and tells its divergence.
	Steps() bool
	// ProcessUntil is Process until there are no more items or the operator's divergence is no longer from 0 to most. It looks
	// after each item, or after as many as would at alpha each, if that is not 0, be the first to lead beyond most. It returns
	// how many items it has handed over, at least one.
	ProcessUntil(port int, s Slab, from, to int, most, alpha float64) (int, error)
	// CloseWindow is called when the punctuation w has arrived on every input.
	CloseWindow(w Window) error
	// Flush sends what the emitter has buffered.
	Flush()
	// Resume continues the output numbering; sent counts items without punctuation, per channel.
	Resume(sent []uint64)
	// Mute makes the emitter drop what is emitted until it is called with false. Nothing may be buffered.
	Mute(on bool)
	// Buffered returns how many items the emitter holds that were not sent yet.
	Buffered() int
	// Operator returns the user's operator, to look for its optional abilities.
	Operator() any
}

type operatorTask[In, Out any] struct {
	op          Operator[In, Out]
	many        BatchOperator[In, Out] // op, if it can
	closer      WindowCloser[Out]      // op, if it can
	divergence  StateDivergence        // op, if it can
	out         *Emitter[Out]
	emitOnClose bool
}

func newOperatorTask[In, Out any](op Operator[In, Out], out *Emitter[Out], emitOnClose bool) Task {
	t := &operatorTask[In, Out]{op: op, out: out, emitOnClose: emitOnClose}
	t.many, _ = op.(BatchOperator[In, Out])
	t.closer, _ = op.(WindowCloser[Out])
	t.divergence, _ = op.(StateDivergence)
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

func (t *operatorTask[In, Out]) Steps() bool { return t.divergence != nil }

func (t *operatorTask[In, Out]) ProcessUntil(port int, s Slab, from, to int, most, alpha float64) (int, error) {
	for at := from; ; {
		d := t.divergence.StateDivergence()
		if at > from && !(d >= 0 && d <= most) {
			return at - from, nil
		}
		n := 1
		if room := most - d; alpha > 0 && room > 0 {
			n = to - at
			if fit := room / alpha; fit < float64(n-1) {
				n = int(fit) + 1
			}
		}
		if err := t.Process(port, s, at, at+n); err != nil {
			return at + n - from, err
		}
		if at += n; at == to {
			return at - from, nil
		}
	}
}

func (t *operatorTask[In, Out]) CloseWindow(w Window) error {
	return closeWindow(t.closer, t.out, t.emitOnClose, w)
}

func (t *operatorTask[In, Out]) Buffered() int        { return t.out.buffered() }
func (t *operatorTask[In, Out]) Flush()               { t.out.flush() }
func (t *operatorTask[In, Out]) Resume(sent []uint64) { t.out.resume(sent) }
func (t *operatorTask[In, Out]) Mute(on bool)         { t.out.mute(on) }
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

func (t *joinTask[A, B, Out]) Steps() bool { return false }

func (t *joinTask[A, B, Out]) ProcessUntil(port int, s Slab, from, to int, _, _ float64) (int, error) {
	return to - from, t.Process(port, s, from, to)
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
func (t *joinTask[A, B, Out]) Mute(on bool)         { t.out.mute(on) }
func (t *joinTask[A, B, Out]) Operator() any        { return t.op }

type sinkTask[T any] struct{ sink Sink[T] }

func (t *sinkTask[T]) Process(_ int, s Slab, from, to int) error {
	return t.sink.Write(s.(*batch[T]).items[from:to])
}

func (t *sinkTask[T]) Steps() bool { return false }

func (t *sinkTask[T]) ProcessUntil(port int, s Slab, from, to int, _, _ float64) (int, error) {
	return to - from, t.Process(port, s, from, to)
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
func (t *sinkTask[T]) Mute(bool)       {}
func (t *sinkTask[T]) Operator() any   { return t.sink }
