package worker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/ringbuf"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/transport"
)

// counting is a source of 0, 1, 2 ... below n that can go back.
type counting struct{ n, at uint64 }

func (c *counting) Read(dst []uint64) (int, error) {
	for i := range dst {
		if c.at >= c.n {
			return i, io.EOF
		}
		dst[i] = c.at
		c.at++
	}
	return len(dst), nil
}
func (c *counting) Close() error                 { return nil }
func (c *counting) Position() stream.Position    { return stream.Position{Item: c.at} }
func (c *counting) Seek(p stream.Position) error { c.at = p.Item; return nil }

type discard struct{}

func (discard) Write([]uint64) error { return nil }
func (discard) Close() error         { return nil }

// twoNodes is a source with one worker and a sink with two.
func twoNodes(t *testing.T, n uint64) []*stream.Node {
	t.Helper()
	topo := stream.New("stages")
	s := stream.From(topo, "source", func(int, int) (stream.Source[uint64], error) { return &counting{n: n}, nil })
	stream.To(s, "sink", func(int, int) (stream.Sink[uint64], error) { return discard{}, nil }, stream.Workers(2))
	nodes, err := topo.Build()
	require.NoError(t, err)
	return nodes
}

func load(t *testing.T, node *stream.Node, epoch uint64, store backup.Store, change func(*Config)) *Worker {
	t.Helper()
	cfg := Config{
		Job: Job{Name: "stages", Incarnation: "i1"}, Node: node, Epoch: epoch, Failures: epoch - 1, Store: store,
		Params: errorbound.Params{Theta: 100, L: 100, Gamma: 100}, Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	w, err := Load(context.Background(), cfg)
	require.NoError(t, err)
	return w
}

// peer is the receiving end of a source worker under test, driven by the test itself.
type peer struct {
	in   transport.Inbound
	park *ringbuf.Parker
	next uint64 // sequence number after the last item received
	end  bool
}

func attach(w *Worker, receiver int) *peer {
	park := ringbuf.NewParker()
	out, in := transport.Pipe(4, w.DownstreamParker(), park)
	w.AttachOutput(Output{Edge: 0, Receiver: receiver, Out: out})
	return &peer{in: in, park: park}
}

func (p *peer) resume(t *testing.T, receiver int, epoch, from uint64) {
	t.Helper()
	p.next, p.end = from, false
	require.True(t, p.in.Acknowledge(transport.Ack{Channel: transport.Channel{To: receiver}, Resume: true, Epoch: epoch, Acked: from}))
}

// take receives frames until done says so, checking that sequence numbers go on without a gap.
func (p *peer) take(t *testing.T, done func() bool) {
	t.Helper()
	for !done() {
		p.park.Prepare()
		f, ok := p.in.Receive()
		if !ok {
			require.True(t, p.park.ParkTimeout(time.Minute), "nothing comes any more")
			continue
		}
		p.park.Cancel()
		require.LessOrEqual(t, f.First, p.next)
		if f.Kind == transport.Punctuation {
			p.end = true
		}
		p.next = max(p.next, f.Next())
		f.Release()
	}
}

// A source sends the same numbers again from wherever a receiver asks, as often as it asks, while the other receiver
// is served without repetition.
func TestSourceRewinds(t *testing.T) {
	const n = 100_000
	store := backup.NewMemory()
	defer store.Close()
	w := load(t, twoNodes(t, n)[0], 1, store, nil)
	require.Equal(t, Rewinds, w.Replay())
	a, b := attach(w, 0), attach(w, 1)
	a.resume(t, 0, 1, 0)
	b.resume(t, 1, 1, 0)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(context.Background()) }()

	other := make(chan struct{})
	go func() {
		defer close(other)
		b.take(t, func() bool { return b.end })
	}()
	a.take(t, func() bool { return a.next > 20_000 })
	for _, from := range []uint64{3, 15_000, 0, 49_000} {
		a = attach(w, 0)
		a.resume(t, 0, 1, from)
		a.take(t, func() bool { return a.next > from+700 || a.end })
	}
	a.take(t, func() bool { return a.end })
	<-other
	require.EqualValues(t, n+2, a.next+b.next, "all items, and an end on each channel")

	a = attach(w, 0)
	a.resume(t, 0, 1, a.next+50_000)
	a.take(t, func() bool { return a.end }) // a receiver that has all is told again that this was the end
	w.Stop()
	require.NoError(t, <-ended)
}

// A source commits only what all receivers have committed, and goes on from there with the same numbers.
func TestSourceGoesOnFromItsCommit(t *testing.T) {
	const n = 200_000
	store := backup.NewMemory()
	defer store.Close()
	node := twoNodes(t, n)[0]
	w := load(t, node, 1, store, nil)
	peers := []*peer{attach(w, 0), attach(w, 1)}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(context.Background()) }()
	for i, p := range peers {
		p.resume(t, i, 1, 0)
	}
	committed := []uint64{60_000, 40_000}
	for i, p := range peers {
		p.in.Acknowledge(transport.Ack{Channel: transport.Channel{To: i}, Epoch: 1, Committed: committed[i]})
	}
	var taken sync.WaitGroup
	for _, p := range peers {
		taken.Go(func() { p.take(t, func() bool { return p.next > 90_000 }) })
	}
	taken.Wait()
	w.Stop()
	require.NoError(t, <-ended)

	next := load(t, node, 2, store, nil)
	m := next.sources[0].waypoints[0]
	for i := range committed {
		require.LessOrEqual(t, m.next[i], committed[i])
	}
	require.NotZero(t, m.position.Item)
	require.EqualValues(t, m.position.Item, m.next[0]+m.next[1])
	_, err := Load(context.Background(), Config{
		Job: Job{Name: "stages", Incarnation: "i1"}, Node: node, Epoch: 1, Store: store, Log: slog.New(slog.DiscardHandler),
	})
	require.ErrorIs(t, err, backup.ErrFenced, "an incarnation that has been replaced can load nothing")
}

func TestWaypointsThinOut(t *testing.T) {
	s := &source{}
	for i := range uint64(10) {
		s.waypoints = append(s.waypoints, waypoint{position: stream.Position{Item: i}})
	}
	s.thin()
	var at []uint64
	for _, m := range s.waypoints {
		at = append(at, m.position.Item)
	}
	require.Equal(t, []uint64{0, 2, 4, 6, 8}, at)
}

func TestWaypointsRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		word := func(name string) uint64 { return rapid.Uint64().Draw(rt, name) }
		m := waypoint{
			position: stream.Position{Item: word("item"), Offset: int64(word("offset")), Line: word("line")},
			level:    word("level"), windows: word("windows"), open: word("open"), skip: word("skip"),
		}
		var got waypoint
		require.NoError(rt, got.decode(m.encode()))
		require.Equal(rt, m, got)
		m.skip = 0
		require.NoError(rt, got.decode(m.encode()[:withoutSkip]), "of an earlier version")
		require.Equal(rt, m, got)
	})
	require.Error(t, (&waypoint{}).decode([]byte("short")))
}

func TestGuarantees(t *testing.T) {
	for _, g := range []Guarantee{Approximate, None, ErrorFree, MiniBatch, UpstreamBackup} {
		got, err := ParseGuarantee(g.String())
		require.NoError(t, err)
		require.Equal(t, g, got)
	}
	_, err := ParseGuarantee("perhaps")
	require.ErrorContains(t, err, `"perhaps"`)
}

// Every kind of frame that a downstream stage may see again is dropped, kept or sent as its kind demands.
func TestForgetKeepsWhatIsNotYetSafe(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ch := &outChannel{}
		var slabs []*fakeSlab
		next := uint64(0)
		for range rapid.IntRange(1, 20).Draw(rt, "frames") {
			n := rapid.IntRange(1, 9).Draw(rt, "items")
			s := &fakeSlab{n: n, refs: 1}
			slabs = append(slabs, s)
			ch.queue = append(ch.queue, transport.Frame{First: next, Count: n, Slab: s})
			next += uint64(n)
		}
		ch.delivered = rapid.IntRange(0, len(ch.queue)).Draw(rt, "delivered")
		unsent := slices.Clone(ch.queue[ch.delivered:])
		to := rapid.Uint64Range(0, next).Draw(rt, "to")
		ch.forget(to)
		for _, s := range slabs {
			require.True(rt, s.refs == 0 || s.refs == 1)
		}
		for _, f := range ch.queue {
			require.Greater(rt, f.Next(), to)
		}
		for _, f := range unsent {
			if f.Next() > to {
				require.True(rt, slices.ContainsFunc(ch.queue[ch.delivered:], func(q transport.Frame) bool { return q.First == f.First }))
			}
		}
	})
}

// An incarnation that dies before anything has come leaves to the next what it knew of the one before it: otherwise
// everything that one had processed since its last commit would be taken for lost.
func TestRemainsOfAnIncarnationThatGotNothing(t *testing.T) {
	before := InputRemains{Epoch: 3, Acked: 70, ProcessedEpoch: 3, Processed: 60}
	ch := &inChannel{epoch: 3, next: 20, acked: 20, before: before}
	u := &upstream{channels: [][][]*inChannel{{{ch}}}}
	o := &operator{inputs: []backup.Input{{Position: backup.Position{Epoch: 3, Seq: 20}}}}
	require.Equal(t, []InputRemains{before}, u.remains(0, o))

	ch.before.ProcessedEpoch = noEpoch // something has come: what the failure had cost is counted
	require.Equal(t, []InputRemains{{Epoch: 3, Acked: 70, ProcessedEpoch: 3, Processed: 20}}, u.remains(0, o))

	ch.epoch, ch.acked, o.inputs[0].Position = 4, 5, backup.Position{Epoch: 4, Seq: 5} // of a later sender
	require.Equal(t, []InputRemains{{Epoch: 4, Acked: 5, ProcessedEpoch: 4, Processed: 5}}, u.remains(0, o))
}

// The item log is cleared by commits; what a mark is beyond, perhaps in a later incarnation of the sender, is not
// processed again.
func TestTheLogBelowAMarkIsNotReplayed(t *testing.T) {
	o := &operator{inputs: []backup.Input{{Position: backup.Position{Epoch: 2, Seq: 30}}}}
	for _, e := range []backup.LogEntry{{Epoch: 1, First: 50, Count: 20}, {Epoch: 2, First: 10, Count: 20}} {
		require.NoError(t, o.replay(0, e))
	}
	require.Empty(t, o.log)

	end := backup.LogEntry{Epoch: 1, First: 70, Count: 1, Kind: uint8(transport.Punctuation), Items: appendWindow(nil, stream.Window{Number: 3})}
	require.NoError(t, o.replay(0, end))
	end.Epoch = 3
	require.NoError(t, o.replay(0, end))
	require.Len(t, o.log, 2)
	require.True(t, o.log[0].repeated, "it was an end, whose position is known")
	require.False(t, o.log[1].repeated)
}

func TestPanicsAreErrorsAndHaltsAreNot(t *testing.T) {
	w := &Worker{cfg: Config{Node: &stream.Node{Name: "op"}}, log: slog.New(slog.DiscardHandler)}
	require.NoError(t, w.guard("here", func() error { panic(errHalted) }))
	require.ErrorIs(t, w.guard("here", func() error { panic("boom") }), ErrPanic)
	want := errors.New("plain")
	require.ErrorIs(t, w.guard("here", func() error { return want }), want)
}

// slow is a sink that takes its time.
type slow struct {
	writes int
	gate   chan struct{}
}

func (s *slow) Write([]uint64) error { s.writes++; <-s.gate; return nil }
func (s *slow) Close() error         { return nil }

// A worker that is stopped does not work off what it was given before: that may take long.
func TestStopLeavesWhatHasArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &slow{gate: make(chan struct{})}
		topo := stream.New("slow")
		s := stream.From(topo, "source", func(int, int) (stream.Source[uint64], error) { return &counting{n: 10 * stream.SlabItems}, nil })
		stream.To(s, "sink", func(int, int) (stream.Sink[uint64], error) { return sink, nil })
		nodes, err := topo.Build()
		require.NoError(t, err)
		store := backup.NewMemory()
		defer store.Close()
		from, to := load(t, nodes[0], 1, store, nil), load(t, nodes[1], 1, store, nil)
		out, in := transport.Pipe(4, from.DownstreamParker(), to.UpstreamParker())
		from.AttachOutput(Output{Out: out})
		to.AttachInput(Input{Epoch: 1, Replay: Rewinds, In: in})
		ended := make(chan error, 2)
		for _, w := range []*Worker{from, to} {
			go func() { ended <- w.Run(t.Context()) }()
		}
		synctest.Wait() // the sink is in its first slab, all others wait in front of it
		from.Stop()
		to.Stop()
		close(sink.gate)
		require.NoError(t, errors.Join(<-ended, <-ended))
		require.Equal(t, 1, sink.writes)
	})
}

// TestAlignment compares with the definition: a window is complete when every channel has ended it or a later one, and
// each is told once, in order.
func TestAlignment(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		channels := rapid.IntRange(1, 4).Draw(rt, "channels")
		a := alignment{levels: make([]uint64, channels)}
		want := make([]uint64, channels)
		told := uint64(0)
		for range rapid.IntRange(0, 40).Draw(rt, "steps") {
			c := rapid.IntRange(0, channels-1).Draw(rt, "channel")
			w := stream.Window{Number: rapid.Uint64Range(1, 9).Draw(rt, "number"), Last: rapid.IntRange(0, 9).Draw(rt, "last") == 0}
			level := w.Number
			if w.Last {
				level = streamEnded
			}
			want[c] = max(want[c], level)
			got, complete := a.note(c, w)
			require.Equal(rt, slices.Min(want) > told, complete)
			if !complete {
				continue
			}
			told = slices.Min(want)
			require.Equal(rt, told == streamEnded, got.Last)
			require.True(rt, got.Last || got.Number == told)
			a.passed(got)
			require.Equal(rt, told, a.level)
		}
	})
}

func TestClosingsRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := stream.Window{Number: rapid.Uint64Range(1, 1<<61).Draw(rt, "number"), Last: rapid.Bool().Draw(rt, "last")}
		pending := rapid.Bool().Draw(rt, "pending")
		gotW, gotPending := decodeClosing(encodeClosing(w, pending))
		require.Equal(rt, w, gotW)
		require.Equal(rt, pending, gotPending)
		got, err := decodeWindow(appendWindow(nil, w))
		require.NoError(rt, err)
		require.Equal(rt, w, got)
	})
	for _, bad := range []string{"", "1234567", "\x01\x00\x00\x00\x00\x00\x00\x00", "\x00\x00\x00\x00\x00\x00\x00\x00"} {
		_, err := decodeWindow([]byte(bad))
		require.ErrorIs(t, err, errWindow)
	}
}

type flushing struct{ discard }

func (flushing) Flush() error { return nil }

// A commit between marks is made only as long as the item log may hold something that it clears.
func TestCommitsBetweenMarksClearTheLog(t *testing.T) {
	topo := stream.New("marks")
	from := stream.From(topo, "source", func(int, int) (stream.Source[uint64], error) { return &counting{}, nil })
	stream.To(from, "sink", func(int, int) (stream.Sink[uint64], error) { return flushing{}, nil })
	nodes, err := topo.Build()
	require.NoError(t, err)
	store := backup.NewMemory()
	defer store.Close()
	open := func(epoch uint64) *operator {
		return load(t, nodes[1], epoch, store, func(c *Config) { c.InputsAtRisk = true }).operators[0]
	}
	o := open(1)
	commit := func() {
		t.Helper()
		require.NoError(t, o.begin(false))
		o.land()
		require.NoError(t, o.settle())
	}
	marks := func(most int) (n int) {
		t.Helper()
		for ; n < most; n++ {
			o.handled++
			o.total++
			if done, err := o.mark(); !done {
				require.NoError(t, err)
				break
			}
		}
		return n
	}
	require.Zero(t, marks(1), "it is not based on a commit")
	commit()
	require.Equal(t, 10*marksBetween, marks(10*marksBetween), "the log is empty")

	o.logged.Store(o.handled + 1)
	require.Equal(t, marksBetween, marks(10*marksBetween))
	commit()
	require.Equal(t, 10*marksBetween, marks(10*marksBetween), "the log is empty again")

	o.logged.Store(o.handled + 10) // the commit clears a part of it
	commit()
	require.Equal(t, marksBetween, marks(10*marksBetween))

	o = open(2) // which does not know what is in it
	commit()
	require.Equal(t, marksBetween, marks(10*marksBetween))
	commit()
	require.Equal(t, 10*marksBetween, marks(10*marksBetween))
}
