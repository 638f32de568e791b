package stream

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// hint is a feedback of no fixed size.
type hint struct{ Words []string }

// teller sends feedback of type F, and heeder takes it.
type teller[F any] struct {
	echo
	back *Feedback[F]
}

func (t *teller[F]) SetFeedback(b *Feedback[F]) { t.back = b }

type heeder[F any] struct {
	echo
	got map[int]F
}

func (h *heeder[F]) Feedback(from int, value F) error {
	h.got[from] = value
	return nil
}

type echo struct{}

func (echo) Process(in int, out *Emitter[int]) error {
	out.Emit(in)
	return nil
}

// wayBack is a way back of F from an operator of two partitions to one of three.
func wayBack[F any]() *BackEdge {
	t := New("back")
	s := From(t, "source", func(int, int) (Source[int], error) { return nil, nil })
	to := Then(s, "heed", func() *heeder[F] { return nil }, Workers(3))
	from := Then(to, "tell", func() *teller[F] { return nil }, Workers(2))
	FeedbackTo[F](from, to)
	return from.node.BackOut[0]
}

// TestFeedbackLeavesTheProcess: through an outbox and its wire form the newest value of each partition arrives, the one that was
// sent before there was an outbox, too.
func TestFeedbackLeavesTheProcess(t *testing.T) {
	e := wayBack[hint]()
	woken := 0
	var tellers [2]teller[hint]
	box := e.NewOutbox(func() { woken++ })
	for i := range tellers {
		post, err := e.NewPost(&tellers[i], i)
		require.NoError(t, err)
		tellers[i].back.Send(1, hint{[]string{"early"}})
		post.ConnectOutbox(1, box)
		require.True(t, box.Pending())
		if i == 1 {
			tellers[i].back.Send(1, hint{[]string{"of", "one"}})
			require.EqualValues(t, 1, post.Dropped())
		}
	}
	require.Equal(t, 3, woken)
	h := &heeder[hint]{got: map[int]hint{}}
	arrived := 0
	mail, err := e.NewMailbox(h, func() { arrived++ })
	require.NoError(t, err)
	require.NoError(t, box.Take(mail.Put))
	require.False(t, box.Pending())
	require.Equal(t, 2, arrived)
	require.True(t, mail.Pending())
	n, err := mail.Deliver()
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, map[int]hint{0: {[]string{"early"}}, 1: {[]string{"of", "one"}}}, h.got)
	require.NoError(t, box.Take(func(int, []byte) error { panic("there is nothing") }))

	require.ErrorIs(t, mail.Put(2, nil), ErrWire)
	require.ErrorIs(t, mail.Put(-1, nil), ErrWire)
	require.ErrorIs(t, mail.Put(0, nil), ErrWire, "no value")
	require.ErrorIs(t, mail.Put(0, []byte{1, 2, 3}), ErrWire)
	require.False(t, mail.Pending())
}

// TestFeedbackThatCannotLeave says why.
func TestFeedbackThatCannotLeave(t *testing.T) {
	e := wayBack[func()]()
	var from teller[func()]
	post, err := e.NewPost(&from, 0)
	require.NoError(t, err)
	box := e.NewOutbox(func() {})
	post.ConnectOutbox(0, box)
	from.back.Send(0, func() {})
	require.ErrorContains(t, box.Take(func(int, []byte) error { return nil }), "func() cannot be read back")
}
