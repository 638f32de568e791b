package stream

import (
	"fmt"
	"reflect"
	"sync/atomic"
)

// FeedbackSender is an operator that sends values of type F back to an operator upstream of it: a model to its
// learners, a threshold to its filters. It is given the way back before its first item, after its state is restored.
type FeedbackSender[F any] interface {
	SetFeedback(back *Feedback[F])
}

// FeedbackReceiver takes what partition from of the sending operator sent back, between items, on the goroutine that
// processes them. Values are conflated: of several that one partition sent meanwhile only the last is delivered.
type FeedbackReceiver[F any] interface {
	Feedback(from int, value F) error
}

// Pacer is an operator that sometimes must not take items until feedback has arrived, as a learner does that may only
// be so many steps ahead of the model. Waiting ends after a second in any case: the sender of the feedback may have failed,
// and its last value with it. The operator then gets an item all the same.
type Pacer interface {
	// Pace returns how many items the operator takes before it is asked again, 0 if it takes none until feedback has arrived.
	Pace() int
}

// Feedback is the way back to the partitions of an operator upstream. Sending never waits: feedback in a graph that
// waited could stop the stream for good. A value that was not taken yet is replaced, which Dropped counts; one that is sent
// before the receiver is there, as in SetFeedback, waits for it.
type Feedback[F any] struct {
	from    int
	boxes   []atomic.Pointer[mailbox[F]]
	early   []atomic.Pointer[F] // sent before the receiver was connected, as in SetFeedback
	dropped atomic.Uint64
}

// Partitions returns how many partitions the receiving operator has.
func (f *Feedback[F]) Partitions() int { return len(f.boxes) }

// Send sends a value to one partition. It costs one allocation, and less than a microsecond.
func (f *Feedback[F]) Send(to int, value F) {
	box := f.boxes[to].Load()
	if box == nil {
		if f.early[to].Swap(&value) != nil {
			f.dropped.Add(1)
		}
		return
	}
	f.put(box, &value)
}

func (f *Feedback[F]) put(box *mailbox[F], value *F) {
	if box.slots[f.from].Swap(value) != nil {
		f.dropped.Add(1)
	}
	box.pending.Store(true)
	box.wake()
}

// Broadcast sends a value to every partition.
func (f *Feedback[F]) Broadcast(value F) {
	for to := range f.boxes {
		f.Send(to, value)
	}
}

// mailbox holds the last value of every sending partition for one receiving partition. It dies with its owner.
type mailbox[F any] struct {
	slots   []atomic.Pointer[F]
	pending atomic.Bool
	wake    func()
	codec   *codec[F]
}

// Mailbox is what the runtime sees of the feedback that waits for one partition.
type Mailbox interface {
	// Pending says whether something waits.
	Pending() bool
	// Deliver hands what waits to the operator that the mailbox belongs to, and returns how many values that were.
	Deliver() (int, error)
	// Put takes the wire form of a value from sending partition from of another process, and keeps none of it. Any
	// goroutine may call it. The error is about a value, or a partition, that does not exist.
	Put(from int, wire []byte) error
	// Waiting counts the values that would be lost now.
	Waiting() int
}

// Outbox is a mailbox that stands in for that of a partition in another process: whoever made it takes the values out and
// sends them there, where they are given to Mailbox.Put.
type Outbox interface {
	// Pending says whether something waits.
	Pending() bool
	// Take calls each with the wire form of all that waits, which it must not keep. An error is about a type that has no
	// wire form, or of each.
	Take(each func(from int, wire []byte) error) error
}

type boundMailbox[F any] struct {
	*mailbox[F]
	op FeedbackReceiver[F]
}

func (m boundMailbox[F]) Pending() bool { return m.pending.Load() }

func (m boundMailbox[F]) Deliver() (int, error) {
	m.pending.Store(false) // before looking: what comes now sets it again
	n := 0
	for from := range m.slots {
		value := m.slots[from].Swap(nil)
		if value == nil {
			continue
		}
		n++
		if err := m.op.Feedback(from, *value); err != nil {
			return n, err
		}
	}
	return n, nil
}

func (m boundMailbox[F]) Put(from int, wire []byte) error {
	if from < 0 || from >= len(m.slots) {
		return fmt.Errorf("%w: feedback of partition %d of %d", ErrWire, from, len(m.slots))
	}
	values, err := m.codec.decode(nil, wire)
	if err != nil {
		return err
	}
	if len(values) != 1 {
		return fmt.Errorf("%w: feedback of %d values", ErrWire, len(values))
	}
	m.slots[from].Store(&values[0])
	m.pending.Store(true)
	m.wake()
	return nil
}

// outbox implements Outbox.
type outbox[F any] struct{ *mailbox[F] }

func (o outbox[F]) Pending() bool { return o.pending.Load() }

func (o outbox[F]) Take(each func(from int, wire []byte) error) error {
	o.pending.Store(false) // before looking: what comes now sets it again
	for from := range o.slots {
		value := o.slots[from].Swap(nil)
		if value == nil {
			continue
		}
		wire, err := o.codec.append(nil, []F{*value})
		if err != nil {
			return err
		}
		if err := each(from, wire); err != nil {
			return err
		}
	}
	return nil
}

func (m boundMailbox[F]) Waiting() int {
	n := 0
	for from := range m.slots {
		if m.slots[from].Load() != nil {
			n++
		}
	}
	return n
}

// Post is what the runtime sees of the sending side of one partition.
type Post interface {
	// Connect leads feedback for partition to into a mailbox, in place of the one before it. Any goroutine may call it.
	Connect(to int, m Mailbox)
	// ConnectOutbox does the same where the partition is in another process.
	ConnectOutbox(to int, o Outbox)
	// Dropped counts the values that were replaced before they were taken.
	Dropped() uint64
}

// Connect implements Post.
func (f *Feedback[F]) Connect(to int, m Mailbox) { f.connect(to, m.(boundMailbox[F]).mailbox) }

// ConnectOutbox implements Post.
func (f *Feedback[F]) ConnectOutbox(to int, o Outbox) { f.connect(to, o.(outbox[F]).mailbox) }

func (f *Feedback[F]) connect(to int, box *mailbox[F]) {
	f.boxes[to].Store(box)
	if value := f.early[to].Swap(nil); value != nil {
		f.put(box, value)
	}
}

// Dropped implements Post.
func (f *Feedback[F]) Dropped() uint64 { return f.dropped.Load() }

// BackEdge is one way back, as the runtime sees it.
type BackEdge struct {
	From, To *Node // the sender, downstream, and the receiver, upstream of it
	// NewMailbox makes the mailbox of one receiving partition; wake is called after every value put into it.
	NewMailbox func(op any, wake func()) (Mailbox, error)
	// NewPost gives one sending partition its way back.
	NewPost func(op any, from int) (Post, error)
	// NewOutbox makes an outbox for one receiving partition in another process; wake is called after every value put into
	// it.
	NewOutbox func(wake func()) Outbox
}

// FeedbackTo lets the operator behind from send values of type F back to the operator behind to. The first must be a
// [FeedbackSender], the second a [FeedbackReceiver] of F; that they are is checked when they are started.
func FeedbackTo[F, A, B any](from Stream[A], to Stream[B]) {
	t := from.t
	if to.t != t {
		t.fault("operator %q: its feedback goes to another topology", from.node.Name)
		return
	}
	if from.node.IsSource || to.node.IsSource {
		t.fault("operator %q: feedback goes between operators, not sources", from.node.Name)
	}
	e, codec := &BackEdge{From: from.node, To: to.node}, newCodec[F]()
	newMailbox := func(wake func()) *mailbox[F] {
		return &mailbox[F]{slots: make([]atomic.Pointer[F], e.From.Partitions()), wake: wake, codec: codec}
	}
	e.NewMailbox = func(op any, wake func()) (Mailbox, error) {
		r, ok := op.(FeedbackReceiver[F])
		if !ok {
			return nil, fmt.Errorf("%T takes no feedback of type %v", op, reflect.TypeFor[F]())
		}
		return boundMailbox[F]{mailbox: newMailbox(wake), op: r}, nil
	}
	e.NewOutbox = func(wake func()) Outbox { return outbox[F]{newMailbox(wake)} }
	e.NewPost = func(op any, from int) (Post, error) {
		s, ok := op.(FeedbackSender[F])
		if !ok {
			return nil, fmt.Errorf("%T sends no feedback of type %v", op, reflect.TypeFor[F]())
		}
		f := &Feedback[F]{from: from, boxes: make([]atomic.Pointer[mailbox[F]], e.To.Partitions())}
		f.early = make([]atomic.Pointer[F], e.To.Partitions())
		s.SetFeedback(f)
		return f, nil
	}
	e.From.BackOut = append(e.From.BackOut, e)
	e.To.BackIn = append(e.To.BackIn, e)
}
