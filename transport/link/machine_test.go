package link

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/transport"
)

// start is when the machines' tests begin.
var start = time.Unix(1000, 0)

// sent makes a machine with n messages of size bytes under way.
func sent(limit window, n, size int) *outgoing {
	o := newOutgoing(limit)
	for range n {
		o.add(make([]byte, size), start)
	}
	return &o
}

func TestWindowOfMessages(t *testing.T) {
	o := sent(window{messages: 3, bytes: 1000}, 3, 10)
	require.False(t, o.room())
	_, ok := o.answer(3, 0, 0, start)
	require.True(t, ok)
	require.False(t, o.room(), "they have arrived, but were not used")
	_, ok = o.answer(3, 1, 0, start)
	require.True(t, ok)
	require.True(t, o.room())
	o.valid(t)
}

func TestWindowOfBytes(t *testing.T) {
	o := sent(window{messages: 10, bytes: 100}, 1, 1000)
	require.False(t, o.room())
	o.answer(1, 1, 0, start)
	require.True(t, o.room(), "a message beyond the window goes alone")
}

// A timeout sends the oldest message alone, and waits longer each time. When it is answered, all that is as old
// follows.
func TestTimeouts(t *testing.T) {
	o := sent(window{messages: 10, bytes: 1000}, 3, 10)
	now := start
	for i, wait := range []time.Duration{firstTimeout, 2 * firstTimeout, 4 * firstTimeout, 8 * firstTimeout, maxTimeout, maxTimeout} {
		require.Equal(t, now.Add(wait), o.deadline(), "%d", i)
		again, probe := o.due(o.deadline().Add(-1))
		require.Empty(t, again)
		require.False(t, probe)
		now = o.deadline()
		again, probe = o.due(now)
		require.Equal(t, []uint64{1}, again)
		require.False(t, probe)
		o.message(1, now)
	}
	again, ok := o.answer(1, 1, 0, now.Add(time.Millisecond))
	require.True(t, ok)
	require.Equal(t, []uint64{2, 3}, again)
	require.Zero(t, o.trip, "an answer to what was sent twice says nothing about the way")
}

// With nothing under way but a closed window the peer is asked: the message that opened it may have been lost.
func TestClosedWindowIsProbed(t *testing.T) {
	o := sent(window{messages: 1, bytes: 1000}, 1, 10)
	o.answer(1, 0, 0, start.Add(time.Second))
	again, probe := o.due(o.deadline())
	require.Empty(t, again)
	require.True(t, probe)
	o.answer(1, 1, 0, start.Add(2*time.Second))
	require.True(t, o.deadline().IsZero(), "nothing is waited for")
}

// A gap is sent again once per round trip, however often it is reported.
func TestGaps(t *testing.T) {
	o := sent(window{messages: 10, bytes: 1000}, 5, 10)
	now := start.Add(10 * time.Millisecond)
	again, ok := o.answer(1, 0, 4, now)
	require.True(t, ok)
	require.Equal(t, []uint64{2, 3}, again)
	for _, n := range []uint64{2, 3} {
		o.message(n, now)
	}
	again, _ = o.answer(1, 0, 4, now.Add(time.Millisecond))
	require.Empty(t, again)
	again, _ = o.answer(1, 0, 4, now.Add(time.Second))
	require.Equal(t, []uint64{2, 3}, again)
	require.Equal(t, 10*time.Millisecond, o.trip)
}

// What a peer cannot say changes nothing; what is old changes nothing either.
func TestOddAnswers(t *testing.T) {
	o := sent(window{messages: 10, bytes: 1000}, 5, 10)
	_, ok := o.answer(3, 2, 0, start)
	require.True(t, ok)
	for _, a := range [][3]uint64{{6, 0, 0}, {3, 4, 0}, {1 << 63, 1 << 63, 0}, {3, 0, 6}} {
		_, ok := o.answer(a[0], a[1], a[2], start)
		require.False(t, ok, "%v", a)
	}
	_, ok = o.answer(1, 1, 0, start)
	require.True(t, ok)
	require.Equal(t, [2]uint64{3, 2}, [2]uint64{o.got, o.taken})
	o.valid(t)
}

// valid checks the invariants.
func (o *outgoing) valid(t require.TestingT) {
	require.LessOrEqual(t, o.taken, o.got)
	require.Less(t, o.got, o.next)
	require.Len(t, o.kept, int(o.next-1-o.taken))
	bytes := 0
	for i, k := range o.kept {
		require.Equal(t, o.taken+1+uint64(i) <= o.got, k.msg == nil, "message %d", o.taken+1+uint64(i))
		bytes += k.size
	}
	require.Equal(t, bytes, o.bytes)
	require.LessOrEqual(t, len(o.kept), o.limit.messages)
	if n := len(o.kept); n > 0 {
		require.Less(t, bytes-o.kept[n-1].size, o.limit.bytes)
	}
}

// The two machines against each other, with messages and answers in any order: invariants hold, and all is handed on in
// order and once.
func TestMachines(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := window{messages: rapid.IntRange(1, 6).Draw(rt, "messages"), bytes: rapid.IntRange(1, 60).Draw(rt, "bytes")}
		o := newOutgoing(limit)
		in := incoming{}
		now, taken, handed := start, uint64(0), uint64(0)
		for range rapid.IntRange(1, 200).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(rt, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 3).Draw(rt, "step") {
			case 0:
				if o.room() {
					o.add(append(o.buffer(), make([]byte, rapid.IntRange(1, 20).Draw(rt, "size"))...), now)
				}
			case 1: // any message ever sent
				if o.next == 1 {
					break
				}
				n := rapid.Uint64Range(1, o.next-1).Draw(rt, "number")
				v := in.accept(n, []byte{byte(n)}, taken, limit.messages)
				require.Equal(rt, n <= handed, v == duplicate && n <= in.got)
				for _, body := range in.ready {
					handed++
					require.Equal(rt, byte(handed), body[0])
				}
				require.Equal(rt, in.got, handed)
				require.LessOrEqual(rt, handed-taken, uint64(limit.messages))
			case 2:
				taken = rapid.Uint64Range(taken, in.got).Draw(rt, "taken")
			case 3:
				again, ok := o.answer(in.got, taken, in.missing(), now)
				require.True(rt, ok)
				for _, n := range again {
					require.Greater(rt, n, o.got)
					require.NotNil(rt, o.message(n, now))
				}
				again, probe := o.due(now)
				require.False(rt, probe && len(again) > 0)
			}
			o.valid(rt)
		}
	})
}

func TestConfig(t *testing.T) {
	c, err := Config{}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, [4]int{DefaultBytes, DefaultMessages, DefaultBatch, DefaultQueue}, [4]int{c.Bytes, c.Messages, c.Batch, c.Queue})
	_, err = Config{Bytes: -1, Messages: MaxMessages + 1, Linger: time.Hour}.withDefaults()
	require.ErrorContains(t, err, "Bytes of -1")
	require.ErrorContains(t, err, "Messages of 1025, want 1 to 1024")
	require.ErrorContains(t, err, "Linger of 1h0m0s")
}

// Whatever the bytes: no panic, and what is accepted is as it was written.
func FuzzParse(f *testing.F) {
	msg := append(begin(nil, kindContent), 1, 2, 3)
	complete(msg, header{number: 1, got: 2, taken: 1, missing: 4})
	f.Add(msg)
	f.Fuzz(func(t *testing.T, msg []byte) {
		kind, h, content, err := parse(msg)
		if err != nil {
			return
		}
		again := append(begin(nil, kind), content...)
		complete(again, h)
		kind2, h2, content2, err := parse(again)
		require.NoError(t, err)
		require.Equal(t, kind, kind2)
		require.Equal(t, h, h2)
		require.True(t, bytes.Equal(content, content2))
	})
}

func TestParseErrors(t *testing.T) {
	for name, msg := range map[string][]byte{
		"no header":         transport.Begin(nil, kindContent),
		"unknown kind":      begin(nil, kindHello+1),
		"no kind":           begin(nil, 0),
		"content, number 0": append(begin(nil, kindContent), 1),
		"answer and more":   append(begin(nil, kindAnswer), 1),
	} {
		transport.Seal(msg)
		_, _, _, err := parse(msg)
		require.ErrorIs(t, err, transport.ErrWire, name)
	}
}
