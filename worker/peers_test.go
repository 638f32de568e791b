package worker

import (
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// mute takes items and does nothing.
type mute struct{}

func (mute) Process(uint64, *stream.Emitter[uint64]) error { return nil }

// talker hands over whatever the test wants.
type talker struct {
	peers *stream.Peers[uint64]
	got   []uint64
	since float64
}

func (t *talker) SetPeers(p *stream.Peers[uint64])              { t.peers = p }
func (t *talker) Process(uint64, *stream.Emitter[uint64]) error { return nil }
func (t *talker) StateDivergence() float64                      { return t.since }
func (t *talker) BackupState(*stream.StateWriter) error         { t.since = 0; return nil }
func (t *talker) RestoreState(r *stream.StateReader) error      { r.Next(); return r.Err() }
func (t *talker) Receive(_ int, v uint64) error {
	t.since++
	t.got = append(t.got[:0], v)
	return nil
}

// loadPeers loads a worker with n compute goroutines, which the test plays.
func loadPeers[Op stream.Operator[uint64, uint64]](t testing.TB, n int, p errorbound.Params, newOperator func() Op, opts ...stream.Option) *Worker {
	t.Helper()
	topo := stream.New("peers")
	s := stream.From(topo, "source", func(int, int) (stream.Source[uint64], error) { return nil, io.EOF })
	stream.To(stream.Then(s, "op", newOperator, append(opts, stream.Compute(n))...), "sink",
		func(int, int) (stream.Sink[uint64], error) { return discard{}, nil })
	nodes, err := topo.Build()
	require.NoError(t, err)
	store := backup.NewMemory()
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	w, err := Load(t.Context(), Config{
		Job: Job{Name: "peers", Incarnation: "i1"}, Node: nodes[1], Epoch: 1, Store: store, Params: p, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	return w
}

// P1 and P2, as a giver sees them: it may hand over its half of gamma until its peers have taken some, and l until its next
// commit, which is due at half of that.
func TestCredit(t *testing.T) {
	// A half of the budget is the first incarnation's, and of that a half each partition's.
	w := loadPeers(t, 2, errorbound.Params{Theta: 1e9, L: 4 * 8, Gamma: 4 * 12}, func() *talker { return &talker{} }, stream.Colleagues[uint64]())
	a, b := w.operators[0], w.operators[1]
	hand := func(v uint64) bool { return a.task.Operator().(*talker).peers.Hand(1, v) }
	require.False(t, hand(0), "before the partition runs")
	a.rejoin()
	b.rejoin()

	for v := range uint64(6) { // the other half of 12 is for items: their output is at risk
		require.True(t, hand(v))
		require.Equal(t, v+1 >= 4, a.peers.due())
	}
	require.False(t, hand(6), "gamma")
	require.True(t, b.hasMail())
	require.NoError(t, b.collect())
	require.False(t, b.hasMail())
	require.Equal(t, []uint64{5}, b.task.Operator().(*talker).got)
	require.EqualValues(t, 6, w.stats.Handed.Load())

	require.True(t, hand(6))
	require.True(t, hand(7))
	require.False(t, hand(8), "l")
	require.NoError(t, a.commitNow(false))
	require.True(t, hand(8))

	lost, twice := a.peers.cost()
	require.EqualValues(t, 3, lost)
	require.Zero(t, twice)
	require.NoError(t, b.collect())
	lost, twice = a.peers.cost()
	require.Zero(t, lost)
	require.EqualValues(t, 1, twice)
}

// BenchmarkCollect is all that peers add to a run of items: for an operator without them a comparison with nil, for one
// with three that are silent a look at each ring.
func BenchmarkCollect(b *testing.B) {
	p := errorbound.Params{Theta: 1e9, L: 1e9, Gamma: 1e9}
	run := func(name string, w *Worker) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := w.operators[0].collect(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("none", loadPeers(b, 4, p, func() mute { return mute{} }))
	run("silent", loadPeers(b, 4, p, func() *talker { return &talker{} }, stream.Colleagues[uint64]()))
}
