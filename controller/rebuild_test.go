package controller_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/stream"
)

// herd is how many neighbouring numbers of either input are partners of one another.
const herd = 8

// match emits every pair of numbers of both inputs that are in the same herd and window. A herd is kept until all sources have
// passed it, so that nothing depends on the order between the channels, and perhaps longer.
type match struct {
	sources uint64 // of each input
	longer  uint64 // in herds
	next    uint64 // herds before it are gone
	herds   map[uint64]*[2][]numbered
	latest  [2]map[uint64]uint64 // per source, the herd of its last number
	given   uint64
	fresh   []uint64
}

type numbered struct{ id, turn uint64 }

// restored is the turn of a number that was restored.
const restored = ^uint64(0)

func (m *match) ProcessLeft(id uint64, out *stream.Emitter[[2]uint64]) error {
	return m.add(0, id, func(other uint64) { out.Emit([2]uint64{id, other}) })
}

func (m *match) ProcessRight(id uint64, out *stream.Emitter[[2]uint64]) error {
	return m.add(1, id, func(other uint64) { out.Emit([2]uint64{other, id}) })
}

func (m *match) add(side int, id uint64, emit func(other uint64)) error {
	m.keep(side, id, m.given)
	m.given++
	m.fresh = append(m.fresh, id<<1|uint64(side))
	for _, other := range m.herds[id/herd][1-side] {
		emit(other.id)
	}
	if m.latest[side][id%m.sources] = id / herd; id%herd < m.sources {
		m.forget()
	}
	return nil
}

func (m *match) keep(side int, id, turn uint64) {
	h := m.herds[id/herd]
	if h == nil {
		h = &[2][]numbered{}
		m.herds[id/herd] = h
	}
	h[side] = append(h[side], numbered{id, turn})
}

// forget drops what no number can be a partner of any more.
func (m *match) forget() {
	passed := ^uint64(0)
	for side := range m.latest {
		for from := range m.sources {
			passed = min(passed, m.latest[side][from])
		}
	}
	for ; m.next+m.longer < passed; m.next++ {
		delete(m.herds, m.next)
	}
}

func (m *match) CloseWindow(w stream.Window, _ *stream.Emitter[[2]uint64]) error {
	if !w.Last {
		clear(m.herds)
	}
	return nil
}

func (m *match) OldestItem() (uint64, bool) {
	oldest := m.given
	for _, h := range m.herds {
		for _, n := range slices.Concat(h[0], h[1]) {
			oldest = min(oldest, n.turn)
		}
	}
	return oldest, true
}

func (m *match) Measure() stream.Measure {
	return stream.Measure{Alpha: 1, Beta: herd, Norm: errorbound.Count, Combine: errorbound.Disjoint}
}
func (m *match) StateDivergence() float64 { return float64(len(m.fresh)) }

func (m *match) BackupState(w *stream.StateWriter) error {
	if w.Whole() {
		m.fresh = m.fresh[:0]
		for _, h := range m.herds {
			for side := range h {
				for _, n := range h[side] {
					m.fresh = append(m.fresh, n.id<<1|uint64(side))
				}
			}
		}
	}
	for _, id := range m.fresh {
		w.PutUint64(id, 0)
	}
	m.fresh = m.fresh[:0]
	return nil
}

func (m *match) RestoreState(r *stream.StateReader) error {
	for r.Next() {
		id, _, err := r.Uint64()
		if err != nil {
			return err
		}
		if side, id := int(id&1), id>>1; m.herds[id/herd] == nil || !slices.Contains(m.herds[id/herd][side], numbered{id, restored}) {
			m.keep(side, id, restored)
		}
	}
	return r.Err()
}

// herding is a join of two sources of n numbers each, or of one with itself.
type herding struct {
	n, sources, longer, window uint64
	one                        bool // source for both inputs
	workers, compute           int
	limit                      uint64 // items to be replayed at most
	moves                      bool   // workers move, which saves their state
}

func (h *herding) topology(out *gather[[2]uint64]) *stream.Topology {
	opts := []stream.Option{stream.Workers(int(h.sources))}
	if h.window > 0 {
		opts = append(opts, stream.WindowItems(h.window))
	}
	topo := stream.New("rebuilds")
	left := stream.From(topo, "left", newNumbers(h.n), opts...)
	right := left
	if !h.one {
		right = stream.From(topo, "right", newNumbers(h.n), opts...)
	}
	byHerd := stream.HashUint64(func(id uint64) uint64 { return id / herd })
	newMatch := func() *match {
		return &match{sources: h.sources, longer: h.longer, herds: map[uint64]*[2][]numbered{}, latest: [2]map[uint64]uint64{{}, {}}}
	}
	pairs := stream.Join(left, right, "match", newMatch, byHerd, byHerd, stream.Workers(h.workers), stream.Compute(h.compute))
	stream.To(pairs, "out", out.sink)
	return topo
}

// run runs it, and checks I9: no pair is missing but those that were at risk on their way to the sink, and none comes twice but those
// of L items.
func (h *herding) run(t require.TestingT, topo *stream.Topology, o controller.Options, out *gather[[2]uint64]) *controller.Result {
	o.Rebuild(h.limit)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // a hang; it may be slow where the machine is busy
	defer cancel()
	r, err := controller.RunLocal(ctx, topo, o)
	require.NoError(t, err)
	require.False(t, r.Interrupted)
	got := map[[2]uint64]int{}
	for _, p := range out.all() {
		got[p]++
	}
	missing, twice := 0, 0
	for left := range h.n {
		first := left / herd * herd
		for right := first; right < min(first+herd, h.n); right++ {
			if h.window > 0 && left/h.sources/h.window != right/h.sources/h.window {
				continue
			}
			p := [2]uint64{left, right}
			if got[p] == 0 {
				missing++
			}
			twice += max(got[p]-1, 0)
			delete(got, p)
		}
	}
	require.Empty(t, got, "pairs that are none")
	slack := 8 * herd * len(r.Failures)
	bound := int(o.Gamma+o.L) + slack
	if h.limit < unbounded {
		bound += int(o.Theta) * herd
	}
	require.LessOrEqual(t, missing, bound, "missing")
	require.LessOrEqual(t, twice, int(o.L)*(herd+1)+slack, "twice")
	if len(r.Failures) == 0 {
		require.Zero(t, missing+twice)
	}
	for _, op := range r.Operators {
		if op.Name == "match" && h.limit == unbounded && h.window == 0 && !h.moves {
			require.Zero(t, op.Bytes, "nothing of the state was backed up")
		}
	}
	return r
}

// unbounded is more than is ever replayed here.
const unbounded = 1 << 20

// TestRebuilds runs a join through random failures at random points, while it is being rebuilt included. Theta is mostly such that
// a state that is restored, and not rebuilt, may lose everything.
func TestRebuilds(t *testing.T) {
	t.Parallel() // it waits more than it works
	rapid.Check(t, func(rt *rapid.T) {
		h := herding{
			n:       rapid.Uint64Range(herd, rapid.SampledFrom([]uint64{2_000, 2_000, 6_000, 20_000}).Draw(rt, "up to")).Draw(rt, "items"),
			sources: rapid.Uint64Range(1, 3).Draw(rt, "sources"),
			longer:  rapid.SampledFrom([]uint64{0, 0, 20, 1000}).Draw(rt, "longer"),
			window:  rapid.SampledFrom([]uint64{0, 0, 100, 1000}).Draw(rt, "window"),
			one:     rapid.Bool().Draw(rt, "one source"),
			workers: rapid.IntRange(1, 2).Draw(rt, "workers"),
			compute: rapid.IntRange(1, 2).Draw(rt, "compute"),
			limit:   rapid.SampledFrom([]uint64{unbounded, 20_000, 4000, 300}).Draw(rt, "limit"),
		}
		o := options(float64(rapid.SampledFrom([]int{1 << 30, 1 << 30, 0, 50}).Draw(rt, "theta")),
			rapid.SampledFrom([]uint64{0, 1, 20, 300}).Draw(rt, "l"), rapid.SampledFrom([]uint64{1, 50, 400}).Draw(rt, "gamma"))
		var out gather[[2]uint64]
		topo := h.topology(&out)
		nodes, err := topo.Build()
		require.NoError(rt, err)
		o.Faults = controller.RandomFaults(nodes, rapid.IntRange(0, 5).Draw(rt, "failures"), rapid.Uint64().Draw(rt, "seed"))
		for _, at := range rapid.SliceOfNDistinct(rapid.Uint64Range(1, 3*h.n), 0, 4, rapid.ID[uint64]).Draw(rt, "kills") {
			o.Faults = append(o.Faults, controller.Fault{Operator: "match", Items: at})
		}
		h.moves = rapid.IntRange(0, 3).Draw(rt, "moves") == 0
		if h.moves {
			stop := o.Moves(rapid.Uint64().Draw(rt, "moves seed"))
			defer func() { rt.Logf("%d workers moved", stop()) }()
		}
		r := h.run(rt, topo, o, &out)
		rt.Logf("%v: %+v", o.Faults, r.Failures)
	})
}

// A place may be far behind the marks: sources keep what is between the two, also through failures of their own.
func TestSourcesKeepWhatARebuildNeeds(t *testing.T) {
	longer := uint64(thorough.Number(2000, 4000))
	for _, one := range []bool{true, false}[:thorough.Number(1, 2)] {
		h := herding{n: 20 * longer, sources: 1, longer: longer, one: one, workers: 1, compute: 1, limit: unbounded}
		var out gather[[2]uint64]
		o := options(1<<30, 300, 400)
		for i, share := range []float64{0.55, 0.6, 0.65, 0.8, 0.95} {
			o.Faults = append(o.Faults, controller.Fault{Operator: "match", Share: share})
			if i%2 == 1 {
				o.Faults = append(o.Faults, controller.Fault{Operator: "left", Share: share})
			}
		}
		r := h.run(t, h.topology(&out), o, &out)
		replayed := uint64(0)
		for _, f := range r.Failures {
			replayed += f.Replayed
		}
		require.Greater(t, replayed, longer*herd/2, "the state holds twice as many of each input")
	}
}

// A state that was backed up because it needs too much is rebuilt from that backup, and what has come since, by the next incarnation: its
// marks count only when a commit of its own says from where.
func TestRebuildsOnTopOfABackup(t *testing.T) {
	h := herding{n: 40_000, sources: 1, longer: 1000, workers: 1, compute: 1, limit: 12_000}
	var out gather[[2]uint64]
	o := options(40, 300, 400)
	for _, at := range []uint64{20_000, 26_000, 45_000, 50_000} {
		o.Faults = append(o.Faults, controller.Fault{Operator: "match", Items: at})
	}
	r := h.run(t, h.topology(&out), o, &out)
	require.Len(t, r.Failures, 4)
}
