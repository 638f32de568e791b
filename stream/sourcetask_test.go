package stream

import (
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// answer is what a scripted source says to one Read: n items, clamped to the buffer unless it lies, and an error.
type answer struct {
	n   int
	err error
	lie bool
}

// scripted counts up and answers as told, then with io.EOF.
type scripted struct {
	answers []answer
	next    uint64
	asked   []int
	closed  bool
}

func (s *scripted) Read(dst []uint64) (int, error) {
	s.asked = append(s.asked, len(dst))
	if len(s.answers) == 0 {
		return 0, io.EOF
	}
	a := s.answers[0]
	s.answers = s.answers[1:]
	if a.lie {
		return a.n, a.err
	}
	n := min(a.n, len(dst))
	for i := range n {
		dst[i] = s.next
		s.next++
	}
	return n, a.err
}

func (s *scripted) Close() error { s.closed = true; return errOdd }

// sourceTo returns a source task with the given outputs and what it emits.
func sourceTo(t require.TestingT, src Source[uint64], grant func(int64) int64, outputs ...output) (SourceTask, *recorder[uint64]) {
	n := sender[uint64](t, outputs...)
	r := newRecorder[uint64](t, grant)
	task, err := n.NewSource(0, r, src)
	require.NoError(t, err)
	r.open = task.Buffered
	return task, r
}

// Both ways of filling: straight into the slabs, and item by item through a partitioner.
var ways = map[string]output{
	"direct":      {Shuffle(), 2},
	"partitioned": {Custom(func(uint64, int) int { return 0 }), 2},
}

func TestFillKeepsToItsLimit(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			src := &scripted{answers: []answer{{n: 1000}, {n: 1000}, {n: 1000}, {n: 2, err: io.EOF}}}
			task, r := sourceTo(t, src, unlimited, way)
			for _, limit := range []int{1, 10, 10_000} {
				n, err := task.Fill(limit)
				require.NoError(t, err)
				require.LessOrEqual(t, n, min(limit, SlabItems))
				require.Positive(t, n)
			}
			n, err := task.Fill(SlabItems)
			require.Equal(t, 2, n, "items that come with the end count")
			require.ErrorIs(t, err, io.EOF)
			n, err = task.Fill(SlabItems)
			require.Zero(t, n)
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, []int{1, 10}, src.asked[:2])
			require.EqualValues(t, src.next, r.sent, "the end leaves nothing buffered")
		})
	}
}

// What a source has is passed on at once when it has no more for now.
func TestShortReadIsFlushed(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			task, r := sourceTo(t, &scripted{answers: []answer{{n: 100}, {n: 3}}}, unlimited, way)
			_, err := task.Fill(100)
			require.NoError(t, err)
			require.Equal(t, 100, task.Buffered(), "all that was asked for: there may be more")
			_, err = task.Fill(100)
			require.NoError(t, err)
			require.Zero(t, task.Buffered())
			require.Equal(t, []int{103}, r.slabs)
		})
	}
}

// A source is never asked for more than there is credit for, so that no item waits in the middle of a Fill.
func TestFillKeepsToItsCredit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		outputs := drawOutputs(rt)
		src := &scripted{}
		for range rapid.IntRange(1, 30).Draw(rt, "reads") {
			src.answers = append(src.answers, answer{n: rapid.IntRange(1, SlabItems).Draw(rt, "items")})
		}
		task, r := sourceTo(rt, src, drawGrant(rt), outputs...)
		m := newModel(0, outputs)
		for item := uint64(0); ; {
			asks := r.asks
			n, err := task.Fill(rapid.IntRange(1, SlabItems).Draw(rt, "limit"))
			require.LessOrEqual(rt, r.asks, asks+1)
			for range n {
				m.emit(item)
				item++
			}
			require.LessOrEqual(rt, r.sent+int64(task.Buffered()), r.given)
			if err != nil {
				require.ErrorIs(rt, err, io.EOF)
				break
			}
		}
		task.Flush()
		require.Equal(rt, m.items, r.items)
	})
}

// Sources that break the contract fail the job with an error that says how, and what they left is not emitted.
// numbers yields 1, 2, 3, ... behind pointers, and writes over those that it is given.
type numbers struct {
	last, made uint64
}

func (s *numbers) Read(dst []*uint64) (int, error) {
	clear(dst)
	return s.ReadOver(dst)
}

func (s *numbers) ReadOver(dst []*uint64) (int, error) {
	for i := range dst {
		if dst[i] == nil {
			dst[i] = new(uint64)
			s.made++
		}
		s.last++
		*dst[i] = s.last
	}
	return len(dst), nil
}

func (s *numbers) Close() error { return nil }

// latecomer keeps slabs for a while and checks that nobody writes over what their items point to.
type latecomer struct {
	*recorder[*uint64]
	held []*batch[*uint64]
	want []uint64 // the first item of each
	most int
	seen uint64
}

func (h *latecomer) Send(_, _ int, s Slab) {
	h.held, h.want = append(h.held, s.(*batch[*uint64])), append(h.want, h.seen+1)
	h.seen += uint64(s.Len())
	for len(h.held) > h.most {
		for i, item := range h.held[0].items {
			require.Equal(h.t, h.want[0]+uint64(i), *item)
		}
		h.held[0].Release()
		h.held, h.want = h.held[1:], h.want[1:]
	}
}

// A Reuser writes over items of released slabs alone, and makes no more of them than are in use. Where each item goes to a
// slab of its own choice, it is not asked to.
func TestReuser(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that slabs are used again as soon as they are released
	for name, routing := range map[string]Option{"direct": Shuffle(), "partitioned": Custom(func(*uint64, int) int { return 0 })} {
		rapid.Check(t, func(t *rapid.T) {
			src := &numbers{}
			most := rapid.IntRange(0, 10).Draw(t, "most")
			n := sender[*uint64](t, output{routing, 2})
			h := &latecomer{recorder: newRecorder[*uint64](t, unlimited), most: most}
			task, err := n.NewSource(0, h, src)
			require.NoError(t, err)
			h.open = task.Buffered
			items := 0
			for range rapid.IntRange(1, 60).Draw(t, "fills") {
				n, err := task.Fill(rapid.IntRange(1, SlabItems).Draw(t, "limit"))
				require.NoError(t, err)
				items += n
				if rapid.IntRange(0, 9).Draw(t, "flush") == 0 {
					task.Flush()
				}
			}
			if name == "partitioned" {
				require.EqualValues(t, items, src.made)
				return
			}
			require.LessOrEqual(t, src.made, uint64(most+3)*SlabItems) // two lanes are being filled
		})
	}
}

func TestMisbehavingSources(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		answer answer
		text   string
		is     error
		items  int
	}{
		"more than asked": {answer{n: 11, lie: true}, "returned 11 items for a buffer of 10", nil, 0},
		"negative":        {answer{n: -1, lie: true}, "returned -1 items", nil, 0},
		"negative end":    {answer{n: -1, lie: true, err: io.EOF}, "returned -1 items", nil, 0},
		"nothing":         {answer{}, "no items and no error", io.ErrNoProgress, 0},
		"error":           {answer{err: broken}, "broken", broken, 0},
		"items and error": {answer{n: 4, err: broken}, "broken", broken, 4},
	} {
		for way, o := range ways {
			t.Run(name+"/"+way, func(t *testing.T) {
				task, r := sourceTo(t, &scripted{answers: []answer{c.answer}}, unlimited, o)
				n, err := task.Fill(10)
				require.ErrorContains(t, err, c.text)
				if c.is != nil {
					require.ErrorIs(t, err, c.is)
				} else {
					require.NotErrorIs(t, err, io.EOF)
				}
				require.Equal(t, c.items, n)
				task.Flush()
				require.EqualValues(t, c.items, r.sent)
			})
		}
	}
}

// A source goes on after Resume with what a partitioner or a shuffle needs to know.
func TestSourceTaskResume(t *testing.T) {
	src := &scripted{answers: []answer{{n: SlabItems}}}
	task, r := sourceTo(t, src, unlimited, output{Shuffle(), 2})
	task.Resume([]uint64{SlabItems, 6})
	n, err := task.Fill(SlabItems)
	require.NoError(t, err)
	require.Equal(t, SlabItems-6, n, "the rest of the block")
	require.Len(t, r.items[channel{0, 1}], SlabItems-6)
	require.Same(t, src, task.Source())
	require.ErrorIs(t, task.Close(), errOdd)
	require.True(t, src.closed)
}

// A source is opened where there is none that still runs, with the number of partitions; it may fail to.
func TestNewSourceOpens(t *testing.T) {
	top := New("job")
	var opened [][2]int
	open := func(part, parts int) (Source[uint64], error) {
		opened = append(opened, [2]int{part, parts})
		if part == 2 {
			return nil, errOdd
		}
		return &scripted{}, nil
	}
	To(From(top, "in", open, Workers(3)), "out", noSink[uint64])
	n := build(t, top, "in")
	task, err := n.NewSource(1, &sieve{}, nil)
	require.NoError(t, err)
	again, err := n.NewSource(1, &sieve{}, task.Source())
	require.NoError(t, err)
	require.Same(t, task.Source(), again.Source())
	_, err = n.NewSource(2, &sieve{}, nil)
	require.ErrorIs(t, err, errOdd)
	require.Equal(t, [][2]int{{1, 3}, {2, 3}}, opened)
}
