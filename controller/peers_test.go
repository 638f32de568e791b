package controller_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/threshold"
	"github.com/afstream/afstream/worker"
)

// peered is a topology with holders in the middle.
type peered struct {
	n, every         uint64 // items, and per window of a source partition; 0 = no windows
	sources          int
	workers, compute int
	keep, hops       int
	emits            bool          // built without EmitOnClose
	foreign          atomic.Uint64 // items that did not come to the partition that holds them
	l                *ledger
	out              gather[held]
}

func drawPeered(rt *rapid.T) *peered {
	return &peered{
		n:       rapid.Uint64Range(0, 4000).Draw(rt, "items"),
		every:   rapid.SampledFrom([]uint64{0, 50, 300, 1000}).Draw(rt, "window"),
		sources: rapid.IntRange(1, 2).Draw(rt, "sources"),
		workers: rapid.IntRange(1, 2).Draw(rt, "workers"),
		compute: rapid.IntRange(1, 4).Draw(rt, "compute"),
		keep:    rapid.SampledFrom([]int{0, 1, 10, 200, 100_000}).Draw(rt, "keep"),
		hops:    rapid.SampledFrom([]int{0, 0, 1, 5}).Draw(rt, "hops"),
		l:       newLedger(),
	}
}

func (p *peered) topology() *stream.Topology {
	t := stream.New("peered")
	from := []stream.Option{stream.Workers(p.sources)}
	if p.every > 0 {
		from = append(from, stream.WindowItems(p.every))
	}
	stream.To(p.holders(stream.From(t, "source", newNumbers(p.n), from...)), "out", p.out.sink)
	return t
}

func (p *peered) holders(s stream.Stream[uint64]) stream.Stream[held] {
	options := []stream.Option{stream.Workers(max(p.workers, 1)), stream.Compute(p.compute), stream.Colleagues[note]()}
	if !p.emits {
		options = append(options, stream.EmitOnClose())
	}
	return stream.Then(s, "holders", p.holder, options...)
}

func (p *peered) holder() *holder {
	return &holder{l: p.l, keep: p.keep, hops: p.hops, foreign: &p.foreign, held: tray{}, dirty: map[uint64]struct{}{}}
}

// run runs the topology and counts the items that are missing, and how often others are there once too often.
func (p *peered) run(rt require.TestingT, o controller.Options) (r *controller.Result, missing, again uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := controller.RunLocal(ctx, p.topology(), o)
	require.NoError(rt, err)
	require.False(rt, r.Interrupted, "the job did not end: %+v", r)
	require.Empty(rt, p.l.faults)
	times := map[uint64]uint64{}
	for _, h := range p.out.all() {
		times[h.ID] += h.Times
		if p.every > 0 {
			require.Equal(rt, h.ID/uint64(p.sources)/p.every+1, h.Window, "item %d came in another window", h.ID)
		}
	}
	missing = p.n - uint64(len(times))
	for _, n := range times {
		again += n - 1
	}
	return r, missing, again
}

// Without failures every item is held once, in its own window, whatever the schedule, the budgets and the shape are.
func TestPeersAreExactWithoutFailures(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPeered(rt)
		p.emits = rapid.Bool().Draw(rt, "emits")
		budget := rapid.SampledFrom([]uint64{0, 3, 100, 100_000})
		o := options(float64(budget.Draw(rt, "theta")), budget.Draw(rt, "l"), budget.Draw(rt, "gamma"))
		o.PipeSources = rapid.Bool().Draw(rt, "pipe")
		if rapid.Bool().Draw(rt, "none") {
			o.Guarantee = worker.None
		}
		r, missing, again := p.run(rt, o)
		require.Zero(rt, missing)
		require.Zero(rt, again)
		h := r.Operators[1]
		require.Zero(rt, h.HandedLost+h.HandedTwice)
		if p.compute == 1 {
			require.Zero(rt, h.Handed)
		} else if p.hops == 0 {
			require.EqualValues(rt, p.foreign.Load(), h.Handed)
		}
	})
}

// Failures of any worker at any time cost no more than the thresholds of the incarnations that failed allow: lost items
// are within theta and gamma, repeated ones within theta and l, for the n partitions of a failed worker together.
func TestPeersThroughFailures(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPeered(rt)
		p.n += 100
		p.emits = rapid.Bool().Draw(rt, "emits")
		budget := rapid.SampledFrom([]uint64{0, 1, 20, 300, 3000})
		o := options(float64(budget.Draw(rt, "theta")), budget.Draw(rt, "l"), budget.Draw(rt, "gamma"))
		o.Series = rapid.SampledFrom([]errorbound.Series{errorbound.Geometric, errorbound.Telescoping}).Draw(rt, "series")
		nodes, err := p.topology().Build()
		require.NoError(rt, err)
		o.Faults = controller.RandomFaults(nodes, rapid.IntRange(0, 2).Draw(rt, "failures"), rapid.Uint64().Draw(rt, "seed"))
		for range rapid.IntRange(1, 6).Draw(rt, "failures of holders") {
			o.Faults = append(o.Faults, controller.Fault{
				Operator: "holders", Worker: rapid.IntRange(0, p.workers-1).Draw(rt, "worker"),
				Items: rapid.Uint64Range(1, p.n/uint64(p.workers)).Draw(rt, "after"),
			})
		}
		o.Faults = once(o.Faults)
		r, missing, again := p.run(rt, o)
		rt.Logf("%v: %+v", o.Faults, r.Failures)

		var theta float64
		var lost, twice uint64
		for _, f := range r.Failures {
			if f.Operator != "holders" {
				continue
			}
			// Where the output is at risk too, one half of gamma is for that.
			b := threshold.Split(threshold.Config{
				Params: o.Params, Norm: errorbound.L1, Combine: errorbound.Added, Partitions: p.workers * p.compute, Failures: f.Epoch - 1,
			})
			theta += b.Theta * float64(p.compute)
			if p.emits {
				b.Gamma /= 2
			}
			lost += max(b.Gamma, 1) * uint64(p.compute)
			twice += max(b.L, 1) * uint64(p.compute)
		}
		if p.compute == 1 {
			lost, twice = 0, 0
		}
		h := r.Operators[1]
		require.LessOrEqual(rt, h.HandedLost, lost)
		require.LessOrEqual(rt, h.HandedTwice, twice)
		if p.emits { // what it emits may be lost on its way, and come twice
			theta += float64(o.Gamma + o.L + 8*uint64(len(r.Failures)))
			again = 0
		}
		require.LessOrEqual(rt, float64(missing), theta+float64(h.HandedLost), "items lost")
		require.LessOrEqual(rt, float64(again), theta+float64(h.HandedTwice), "items repeated")
	})
}

// withholding is a store in which the writes of one owner's first incarnation, but for the first few, neither become
// durable nor end.
type withholding struct {
	backup.Store
	owner  string // how it ends
	mu     sync.Mutex
	writes int // that are still let through
}

func (s *withholding) Apply(b *backup.Batch, done func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasSuffix(b.Owner, s.owner) && b.Epoch == 1 {
		if s.writes--; s.writes < 0 {
			return
		}
	}
	s.Store.Apply(b, done)
}

// A worker fails when one of its two partitions has closed a window durably and the other has not. The first says again
// that it has, or the other could not close it; and it drops what the other hands over again, which its backup holds.
// Only what the other was handed in that window is gone: it was within its theta, which is without limit here.
func TestPeersWithBackupsOfDifferentAges(t *testing.T) {
	for stuck := range 2 {
		const window, n = 1024, 4096
		p := &peered{n: n, every: window, sources: 1, workers: 1, compute: 2, l: newLedger()}
		store := &withholding{Store: backup.NewMemory(), owner: fmt.Sprintf("holders/%d", stuck), writes: 1}
		o := options(1e9, 1e9, 1e9)
		o.Store = store
		o.Faults = []controller.Fault{{Operator: "holders", Items: 2*(window+2) + 20}}
		r, missing, again := p.run(t, o)
		require.NoError(t, store.Close())

		// A shuffle deals blocks of 256, so of each window each partition gets one half, and of these half are the other's.
		const foreign = window / 4
		require.Len(t, r.Failures, 1)
		require.EqualValues(t, foreign, missing)
		require.Zero(t, again)
		require.EqualValues(t, foreign, r.Operators[1].Duplicates)
		there := map[uint64]bool{}
		for _, h := range p.out.all() {
			there[h.ID] = true
		}
		for id := range uint64(n) {
			handed := id/window == 1 && id%2 == uint64(stuck) && id/256%2 != uint64(stuck)
			require.Equal(t, !handed, there[id], "item %d", id)
		}
	}
}

// A giver whose backups do not become durable hands over l values and no more, since all of them would come twice.
func TestPeersRepeatNoMoreThanL(t *testing.T) {
	const l = 6 // of the first incarnation of each partition
	p := &peered{n: 4096, sources: 1, workers: 1, compute: 2, l: newLedger()}
	store := &withholding{Store: backup.NewMemory(), owner: "holders/0"}
	o := options(1e9, 4*l, 1e9)
	o.Store = store
	o.Faults = []controller.Fault{{Operator: "holders", Items: 3000}}
	r, _, again := p.run(t, o)
	require.NoError(t, store.Close())
	require.Len(t, r.Failures, 1)
	require.LessOrEqual(t, r.Operators[1].HandedTwice, uint64(2*l))
	require.LessOrEqual(t, again, uint64(2*l))
	there := map[uint64]bool{}
	for _, h := range p.out.all() {
		there[h.ID] = true
	}
	for id := range p.n {
		handed := id%2 == 1 && id/256%2 == 0 // see TestPeersWithBackupsOfDifferentAges
		require.True(t, there[id] || !handed, "item %d: its giver starts all over, and hands it over again", id)
	}
}

// Values that are handed on in a circle of full rings stop nothing: who cannot hand one on holds it.
func TestPeersInACircle(t *testing.T) {
	p := &peered{n: 8000, sources: 2, workers: 1, compute: 4, hops: 50, l: newLedger()}
	r, missing, again := p.run(t, options(1e9, 1e9, 1e9))
	require.Zero(t, missing)
	require.Zero(t, again)
	require.Greater(t, r.Operators[1].Handed, uint64(8000/4*3), "some were handed on")
}

// The thresholds decide how much may be on its way: a giver without any has one value under way, not none.
func TestPeersWithoutBudget(t *testing.T) {
	p := &peered{n: 500, every: 100, sources: 1, workers: 1, compute: 3, hops: 1, l: newLedger()}
	_, missing, again := p.run(t, options(0, 0, 0))
	require.Zero(t, missing)
	require.Zero(t, again)
}

// lazy never has anything to hand over and never finishes.
type lazy struct{ *holder }

func (lazy) Process(uint64, *stream.Emitter[held]) error { return nil }
func (lazy) Finish(stream.Window) (bool, error)          { return false, nil }

// forgetful is a colleague whose state nobody can save.
type forgetful struct{}

func (forgetful) SetPeers(*stream.Peers[note])                           {}
func (forgetful) Receive(int, note) error                                { return nil }
func (forgetful) Process(uint64, *stream.Emitter[held]) error            { return nil }
func (forgetful) CloseWindow(stream.Window, *stream.Emitter[held]) error { return nil }

// What cannot be promised is refused by name, and what would wait for ever is an error.
func TestPeersThatCannotWork(t *testing.T) {
	run := func(o controller.Options, add func(stream.Stream[uint64]) stream.Stream[held]) error {
		topo := stream.New("refused")
		var out gather[held]
		stream.To(add(stream.From(topo, "source", newNumbers(1000))), "out", out.sink)
		_, err := controller.RunLocal(context.Background(), topo, o)
		return err
	}
	p := &peered{compute: 2, l: newLedger()}
	for _, g := range []worker.Guarantee{worker.ErrorFree, worker.MiniBatch} {
		o := options(10, 10, 10)
		o.Guarantee = g
		err := run(o, p.holders)
		require.ErrorIs(t, err, worker.ErrOperator)
		require.ErrorContains(t, err, `operator "holders"`)
		require.ErrorContains(t, err, fmt.Sprintf("guarantee %v cannot cover Colleagues", g))
	}
	err := run(options(10, 10, 10), func(s stream.Stream[uint64]) stream.Stream[held] {
		return stream.Then(s, "op", func() forgetful { return forgetful{} }, stream.Colleagues[note]())
	})
	require.ErrorIs(t, err, worker.ErrOperator)
	require.ErrorContains(t, err, "a stream.Colleague needs StateDivergence, BackupState and RestoreState")
	err = run(options(10, 10, 10), func(s stream.Stream[uint64]) stream.Stream[held] {
		return stream.Then(s, "op", func() lazy { return lazy{p.holder()} }, stream.Compute(2), stream.Colleagues[note]())
	})
	require.ErrorContains(t, err, "it was reported unfinished although no value was refused")
}
