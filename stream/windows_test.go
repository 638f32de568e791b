package stream

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// cut drives a windowed task to its end and returns the window of every item, as the runtime would see it: an item
// belongs to the window after the last that was complete when it was emitted.
func cut(t require.TestingT, task SourceTask, arrived func() int, limit func() int) (windows []uint64, err error) {
	w := task.(WindowedTask)
	for {
		_, err := task.Fill(limit())
		task.Flush()
		for len(windows) < arrived() {
			windows = append(windows, w.Open())
		}
		require.LessOrEqual(t, w.Complete(), w.Open())
		if errors.Is(err, io.EOF) {
			require.False(t, w.Pending())
			return windows, nil
		}
		if err != nil {
			return windows, err
		}
	}
}

func windowedSource(t require.TestingT, src Source[uint64], option Option) (SourceTask, *recorder[uint64]) {
	top := New("test")
	s := From(top, "source", func(int, int) (Source[uint64], error) { return src, nil }, option)
	To(s, "sink", func(int, int) (Sink[uint64], error) { return nil, nil })
	nodes, err := top.Build()
	require.NoError(t, err)
	require.True(t, nodes[0].Windowed && nodes[1].Windowed)
	r := newRecorder[uint64](t, unlimited)
	task, err := nodes[0].NewSource(0, r, nil)
	require.NoError(t, err)
	r.open = task.Buffered
	return task, r
}

// Whatever the sizes of the reads, items fall into the windows that their number, or their time, says.
func TestWindowsAreCutWhereTheyEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.Uint64Range(1, 400).Draw(rt, "size")
		timed := rapid.Bool().Draw(rt, "timed")
		shift := rapid.Int64Range(-100_000, 100_000).Draw(rt, "shift")
		at := func(v uint64) time.Time { return time.UnixMilli(int64(v) + shift) }
		option := WindowItems(size)
		want := func(v uint64) uint64 { return v/size + 1 }
		if timed {
			option = WindowTime(time.Duration(size)*time.Millisecond, at)
			want = func(v uint64) uint64 {
				start := WindowStart(timeOrigin, time.Duration(size)*time.Millisecond)
				steps := at(v).Sub(start) / (time.Duration(size) * time.Millisecond)
				if at(v).Before(start.Add(steps * time.Duration(size) * time.Millisecond)) {
					steps--
				}
				return uint64(timeOrigin + int64(steps))
			}
		}
		src := &scripted{}
		for range rapid.IntRange(0, 12).Draw(rt, "reads") {
			src.answers = append(src.answers, answer{n: rapid.IntRange(1, SlabItems).Draw(rt, "n")})
		}
		task, r := windowedSource(rt, src, option)
		got, err := cut(rt, task, func() int { return len(r.items[channel{0, 0}]) }, func() int {
			return rapid.IntRange(1, 2*SlabItems).Draw(rt, "limit")
		})
		require.NoError(rt, err)
		require.Len(rt, got, int(src.next))
		for i, w := range got {
			require.Equal(rt, want(uint64(i)), w, "item %d", i)
			if timed {
				start := WindowStart(w, time.Duration(size)*time.Millisecond)
				require.False(rt, at(uint64(i)).Before(start))
				require.Less(rt, at(uint64(i)).Sub(start), time.Duration(size)*time.Millisecond)
			}
		}
	})
}

// A straggler counts in the window that is open.
func TestStragglersCountInTheOpenWindow(t *testing.T) {
	times := []int64{5, 12, 3, 18, 25}
	option := WindowTime(10*time.Millisecond, func(v uint64) time.Time { return time.UnixMilli(times[v]) })
	task, r := windowedSource(t, &scripted{answers: []answer{{n: len(times)}}}, option)
	got, err := cut(t, task, func() int { return len(r.items[channel{0, 0}]) }, func() int { return SlabItems })
	require.NoError(t, err)
	require.Equal(t, []uint64{timeOrigin, timeOrigin + 1, timeOrigin + 1, timeOrigin + 1, timeOrigin + 2}, got)
}

// Before a gap the window that was open ends under its own number.
func TestWindowsWithGaps(t *testing.T) {
	times := []int64{5, 7, 4012, 4015}
	option := WindowTime(10*time.Millisecond, func(v uint64) time.Time { return time.UnixMilli(times[v]) })
	task, r := windowedSource(t, &scripted{answers: []answer{{n: len(times)}}}, option)
	w := task.(WindowedTask)
	var ends []uint64
	for {
		_, err := task.Fill(SlabItems)
		task.Flush()
		if n := len(ends); w.Complete() > 0 && (n == 0 || ends[n-1] != w.Complete()) {
			ends = append(ends, w.Complete())
		}
		if err != nil {
			break
		}
	}
	require.Equal(t, []uint64{timeOrigin, timeOrigin + 400}, ends)
	require.Len(t, r.items[channel{0, 0}], 4)
	by := &windowTime[uint64]{size: time.Hour}
	require.Less(t, by.number(time.Time{}), by.number(time.Unix(0, 0)))
	require.Greater(t, by.number(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)), by.number(time.Unix(0, 0)))
}

// Reopened where nothing was pending, a task cuts the rest as it would have.
func TestWindowsGoOnWhereTheyWere(t *testing.T) {
	task, r := windowedSource(t, &scripted{answers: []answer{{n: 30}, {n: 40}, {n: 10}}, next: 70}, WindowItems(50))
	w := task.(WindowedTask)
	w.Reopen(1, 2, 70)
	got, err := cut(t, task, func() int { return len(r.items[channel{0, 0}]) }, func() int { return SlabItems })
	require.NoError(t, err)
	for i, window := range got {
		require.EqualValues(t, (70+i)/50+1, window)
	}
}

func TestFaultsOfWindows(t *testing.T) {
	at := func(uint64) time.Time { return time.Time{} }
	for name, option := range map[string]Option{
		"no items":     WindowItems(0),
		"no time":      WindowTime(time.Microsecond, at),
		"no function":  WindowTime[uint64](time.Second, nil),
		"another type": WindowTime(time.Second, func(string) time.Time { return time.Time{} }),
		"memory":       Forget(-1),
	} {
		top := New("test")
		s := From(top, "origin", func(int, int) (Source[uint64], error) { return nil, nil }, option)
		To(s, "sink", func(int, int) (Sink[uint64], error) { return nil, nil })
		_, err := top.Build()
		require.ErrorIs(t, err, ErrTopology, name)
		require.ErrorContains(t, err, `"origin"`, name)
	}
	top := New("test")
	s := From(top, "origin", func(int, int) (Source[uint64], error) { return nil, nil })
	To(s, "sink", func(int, int) (Sink[uint64], error) { return nil, nil }, WindowItems(3))
	_, err := top.Build()
	require.ErrorContains(t, err, "windows are set at the source")
}

// listener remembers feedback.
type listener struct{ got map[int][]string }

func (l *listener) Feedback(from int, value string) error {
	if value == "bad" {
		return errOdd
	}
	l.got[from] = append(l.got[from], value)
	return nil
}

// speaker is given the way back.
type speaker struct{ back *Feedback[string] }

func (s *speaker) SetFeedback(back *Feedback[string]) { s.back = back }

// The last value of each sender arrives, whatever it replaced or missed is counted, and nothing ever waits.
func TestFeedbackIsConflated(t *testing.T) {
	nodes := []*Node{{Name: "up", Workers: 2, Compute: 1}, {Name: "down", Workers: 2, Compute: 1}}
	top := New("test")
	FeedbackTo[string](Stream[int]{t: top, node: nodes[1]}, Stream[int]{t: top, node: nodes[0]})
	edge := nodes[0].BackIn[0]
	woken := 0
	ear := &listener{got: map[int][]string{}}
	box, err := edge.NewMailbox(ear, func() { woken++ })
	require.NoError(t, err)
	var mouths [2]speaker
	var posts [2]Post
	for i := range mouths {
		posts[i], err = edge.NewPost(&mouths[i], i)
		require.NoError(t, err)
	}
	mouths[0].back.Send(0, "first")
	mouths[0].back.Send(0, "early")
	require.EqualValues(t, 1, posts[0].Dropped())
	for _, p := range posts {
		p.Connect(0, box)
	}
	require.True(t, box.Pending())
	n, err := box.Deliver()
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, map[int][]string{0: {"early"}}, ear.got)
	clear(ear.got)
	for _, v := range []string{"a", "b", "c"} {
		mouths[0].back.Broadcast(v) // partition 1 is not connected
	}
	mouths[1].back.Send(0, "x")
	require.True(t, box.Pending())
	require.Equal(t, 2, box.Waiting())
	n, err = box.Deliver()
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, map[int][]string{0: {"c"}, 1: {"x"}}, ear.got)
	require.EqualValues(t, 1+2+2, posts[0].Dropped())
	require.Zero(t, posts[1].Dropped())
	require.Equal(t, 5, woken)
	require.Equal(t, 2, mouths[0].back.Partitions())
	mouths[1].back.Send(0, "bad")
	_, err = box.Deliver()
	require.ErrorIs(t, err, errOdd)
	_, err = edge.NewMailbox(&speaker{}, nil)
	require.ErrorContains(t, err, "takes no feedback of type string")
	_, err = edge.NewPost(ear, 0)
	require.ErrorContains(t, err, "sends no feedback of type string")
}
