package stream

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// model is what an emitter is to do, in the plainest words: it deals item number i of the stream.
type model struct {
	outputs []output
	part    int
	dealt   []uint64 // per leg, items of a shuffle
	items   map[channel][]uint64
}

func (m *model) emit(item uint64) {
	for leg, o := range m.outputs {
		s := &settings{}
		o.route(s)
		for _, to := range m.targets(leg, s, item) {
			c := channel{leg, to}
			m.items[c] = append(m.items[c], item)
		}
		m.dealt[leg]++
	}
}

func (m *model) targets(leg int, s *settings, item uint64) []int {
	n := m.outputs[leg].parts
	switch s.routing {
	case routeShuffle:
		return []int{int(m.dealt[leg] / SlabItems % uint64(n))}
	case routeForward:
		return []int{m.part}
	case routeBroadcast:
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		return all
	}
	return []int{s.pick.(Partitioner[uint64])(item, n)}
}

func newModel(part int, outputs []output) *model {
	return &model{outputs: outputs, part: part, dealt: make([]uint64, len(outputs)), items: map[channel][]uint64{}}
}

// drawOutputs draws one to three output edges; forward edges all have the same number of partitions, as they must.
func drawOutputs(t *rapid.T) []output {
	copies := rapid.IntRange(1, 4).Draw(t, "forward")
	var outputs []output
	for range rapid.IntRange(1, 3).Draw(t, "legs") {
		n := rapid.IntRange(1, 5).Draw(t, "parts")
		o := rapid.SampledFrom([]output{
			{Shuffle(), n}, {Forward(), copies}, {Broadcast(), n}, {HashUint64(identity), n},
			{Hash(func(x uint64) string { return fmt.Sprint(x % 7) }), n}, {Custom(byItem), n},
		}).Draw(t, "route")
		outputs = append(outputs, o)
	}
	return outputs
}

// drawGrant draws a rule for credit: what is asked for and a little more, or all there is.
func drawGrant(t *rapid.T) func(int64) int64 {
	extra := rapid.SampledFrom([]int64{0, 1, 7, 300, Unlimited}).Draw(t, "credit")
	return func(n int64) int64 {
		if extra == Unlimited {
			return Unlimited
		}
		return n + extra
	}
}

func partOf(t *rapid.T, n *Node) int { return rapid.IntRange(0, n.Partitions()-1).Draw(t, "part") }

// Whatever the routing, the credit and the flushes, every channel gets what the model says, in its order, and never
// more is emitted than credited (the recorder checks that, and that nothing is buffered while the exit is asked).
func TestEmitterDeliversAsTheModelSays(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		outputs := drawOutputs(rt)
		n := sender[uint64](rt, outputs...)
		part := partOf(rt, n)
		e, r := emitterTo[uint64](rt, n, part, drawGrant(rt))
		m := newModel(part, outputs)
		item := uint64(0)
		for range rapid.IntRange(1, 5).Draw(rt, "runs") {
			for range rapid.IntRange(0, 3*SlabItems).Draw(rt, "items") {
				e.Emit(item)
				m.emit(item)
				item++
			}
			if rapid.Bool().Draw(rt, "flush") {
				e.flush()
			}
			require.EqualValues(rt, int64(item)*e.copies, r.sent+int64(e.buffered()))
			require.LessOrEqual(rt, r.sent, r.given)
		}
		require.Equal(rt, m.items, flushed(e, r))
	})
}

// A source that reads straight into the slabs fills the channels exactly as one whose items are emitted one by one.
func TestRoomAndFilledAreEmit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		parts := rapid.IntRange(1, 4).Draw(rt, "parts")
		outputs := []output{{rapid.SampledFrom([]Option{Shuffle(), Forward()}).Draw(rt, "route"), parts}}
		n := sender[uint64](rt, outputs...)
		part := partOf(rt, n)
		e, r := emitterTo[uint64](rt, n, part, drawGrant(rt))
		require.True(rt, e.direct())
		m := newModel(part, outputs)
		item := uint64(0)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0:
				e.flush()
			case 1: // both ways may alternate
				e.Emit(item)
				m.emit(item)
				item++
			default:
				dst := e.room()
				require.NotEmpty(rt, dst)
				k := rapid.IntRange(0, len(dst)).Draw(rt, "read")
				for i := range k {
					dst[i] = item
					m.emit(item)
					item++
				}
				e.filled(k)
			}
			require.LessOrEqual(rt, r.sent+int64(e.buffered()), max(r.given, 0))
		}
		require.Equal(rt, m.items, flushed(e, r))
	})
}

// After a failure an emitter that is told what was sent goes on as if nothing had happened, even if the first one had
// more in its slabs.
func TestResumeGoesOnAsIfNotInterrupted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		outputs := drawOutputs(rt)
		n := sender[uint64](rt, outputs...)
		part := partOf(rt, n)
		before := rapid.OneOf(
			rapid.IntRange(0, 4*SlabItems),
			rapid.SampledFrom([]int{SlabItems - 1, SlabItems, SlabItems + 1, 3*SlabItems - 1, 3 * SlabItems}),
		).Draw(rt, "before")
		after := rapid.IntRange(0, 4*SlabItems).Draw(rt, "after")

		whole, all := emitterTo[uint64](rt, n, part, drawGrant(rt))
		for i := range before + after {
			whole.Emit(uint64(i))
		}
		want := flushed(whole, all)

		first, r1 := emitterTo[uint64](rt, n, part, drawGrant(rt))
		for i := range before {
			first.Emit(uint64(i))
		}
		first.flush()
		sent := r1.sentPerChannel(n)

		second := first // rewound itself, or replaced
		r2 := r1
		if rapid.Bool().Draw(rt, "replaced") {
			second, r2 = emitterTo[uint64](rt, n, part, drawGrant(rt))
		}
		for i := range rapid.IntRange(0, SlabItems).Draw(rt, "forgotten") {
			second.Emit(uint64(1_000_000 + i))
		}
		r2.items, r2.sent, r2.given = map[channel][]uint64{}, 0, 0
		second.resume(sent)
		require.Zero(rt, second.buffered())
		for i := range after {
			second.Emit(uint64(before + i))
		}
		flushed(second, r2)
		for c, items := range want {
			head := sent[ordinal(n, c)]
			require.True(rt, slices.Equal(items[head:], r2.items[c]), "channel %v", c)
		}
	})
}

func ordinal(n *Node, c channel) int {
	at := c.to
	for _, e := range n.Outputs[:c.leg] {
		at += e.To.Partitions()
	}
	return at
}

// A shuffle deals whole blocks, and each leaves in a slab of its own unless it was flushed in between.
func TestShuffleSlabsKeepToTheirBlocks(t *testing.T) {
	n := sender[uint64](t, output{Shuffle(), 2})
	e, r := emitterTo[uint64](t, n, 0, unlimited)
	for i := range 100 {
		e.Emit(uint64(i))
	}
	e.flush()
	e.flush()
	for i := 100; i < 3*SlabItems; i++ {
		e.Emit(uint64(i))
	}
	require.Equal(t, []int{100, SlabItems - 100, SlabItems, SlabItems}, r.slabs)
	require.Zero(t, e.buffered())
}

// Room that nothing was read into leaves nothing to send: the end of a source sends no empty slab.
func TestUnusedRoomIsNotSent(t *testing.T) {
	e, r := emitterTo[uint64](t, sender[uint64](t, output{Forward(), 1}), 0, unlimited)
	e.room()
	e.filled(0)
	e.flush()
	require.Empty(t, r.slabs)
}

func TestFlushDoesNotWaitForAFullSlab(t *testing.T) {
	e, r := emitterTo[uint64](t, sender[uint64](t, output{Forward(), 1}), 0, unlimited)
	e.Emit(1)
	require.Empty(t, r.slabs)
	e.Flush()
	require.Equal(t, []int{1}, r.slabs)
	require.Equal(t, 1, r.hurried)
}

func TestPartitionOutOfRangePanicsAndSaysWhich(t *testing.T) {
	for _, to := range []int{-1, 3} {
		n := sender[uint64](t, output{Custom(func(uint64, int) int { return to }), 3})
		e, _ := emitterTo[uint64](t, n, 0, unlimited)
		require.PanicsWithError(t, fmt.Sprintf("stream: the partitioner chose partition %d of 3", to), func() { e.Emit(1) })
	}
}

// prompt is an Exit whose receivers have acknowledged all that was sent before it is asked.
type prompt struct {
	*recorder[uint64]
	window int
}

func (p prompt) Credit(buffered int) int64 { return int64(p.window - buffered) }

// While credit comes in time no slab is cut short for it, however small the window.
func TestCreditInTimeCutsNoSlab(t *testing.T) {
	r := newRecorder[uint64](t, unlimited)
	e := newEmitter[uint64](sender[uint64](t, output{Forward(), 1}), 0, prompt{r, SlabItems + 10})
	for i := range uint64(10 * SlabItems) {
		e.Emit(i)
	}
	require.Equal(t, slices.Repeat([]int{SlabItems}, 10), r.slabs)
	require.Zero(t, r.asks, "it never waited")
}

// stopped is an Exit whose worker is stopped: it unwinds instead of returning.
type stopped struct{}

func (stopped) Send(int, int, Slab)     { panic("stopped") }
func (stopped) Hurry()                  {}
func (stopped) Credit(int) int64        { return Unlimited }
func (stopped) AwaitCredit(int64) int64 { return Unlimited }

// What the exit has been given is no longer buffered, also when it unwinds: nothing is counted twice.
func TestUnwindingSendLeavesNothingBuffered(t *testing.T) {
	e := newEmitter[uint64](sender[uint64](t, output{Forward(), 1}), 0, stopped{})
	e.Emit(1)
	require.Equal(t, 1, e.buffered())
	require.PanicsWithValue(t, "stopped", e.flush)
	require.Zero(t, e.buffered())
}

// What is emitted while an emitter is muted goes nowhere, and takes part in nothing: no turn of a shuffle, no credit.
func TestMutedEmitterDropsItems(t *testing.T) {
	for name, o := range map[string]output{"shuffle": {Shuffle(), 3}, "broadcast": {Broadcast(), 2}} {
		t.Run(name, func(t *testing.T) {
			n := sender[uint64](t, o)
			grant := func(n int64) int64 { return n + 2 }
			e, r := emitterTo[uint64](t, n, 0, grant)
			plain, want := emitterTo[uint64](t, n, 0, grant)
			e.mute(true)
			for i := range uint64(1000) {
				e.Emit(i)
			}
			require.Zero(t, e.buffered())
			require.Zero(t, r.asks)
			e.mute(false)
			for i := range uint64(1000) {
				e.Emit(i)
				plain.Emit(i)
			}
			require.Equal(t, flushed(plain, want), flushed(e, r))
		})
	}
}
