package clustersim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/cluster/clustertest"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/node"
	"github.com/afstream/afstream/stream"
	runtime "github.com/afstream/afstream/worker"
)

// plan is one job.
type plan struct {
	id        string
	n         uint64
	apart     time.Duration
	window    uint64 // items of each partition of the source; 0: none
	guarantee runtime.Guarantee
	params    errorbound.Params
	batch     uint64
	operators []cluster.Operator
	shuffled  []bool // how items get to each operator
	final     bool   // the sink cannot flush
	keyed     bool   // sets say where their items belong, if these are not shuffled
	compute   map[string]int
	slow      string // operator that lingers at one of slowEvery items
	slowEvery uint64
	slowFor   time.Duration
	panics    string // operator that panics once at item panicAt
	panicAt   uint64
}

// pick returns one of several.
func pick[T any](rnd *rand.Rand, of ...T) T { return of[rnd.IntN(len(of))] }

func drawPlan(rnd *rand.Rand, id string, lasts time.Duration) *plan {
	p := &plan{id: id, compute: map[string]int{}}
	p.n = pick[uint64](rnd, 0, 1, 100, 400, 1000, 1000, 2000, 2000, 4000, 8000, 8000, 50_000)
	p.guarantee = pick(rnd, runtime.Approximate, runtime.Approximate, runtime.Approximate, runtime.ErrorFree, runtime.ErrorFree,
		runtime.UpstreamBackup, runtime.MiniBatch)
	budget := func() uint64 { return pick[uint64](rnd, 0, 1, 7, 50, 400, 3000) }
	p.params = errorbound.Params{Theta: float64(budget()), L: budget(), Gamma: budget(), Series: pick(rnd, errorbound.Geometric, errorbound.Telescoping)}
	least := min(p.params.Theta, float64(p.params.L), float64(p.params.Gamma))
	switch p.guarantee {
	case runtime.ErrorFree:
		p.params = errorbound.Params{Gamma: 1}
		least = 0
	case runtime.UpstreamBackup, runtime.MiniBatch:
		p.batch = pick[uint64](rnd, 7, 50, 400)
		least = float64(p.batch)
	}
	if least < 50 { // each commit takes a while
		p.n = min(p.n, 1000)
	}
	p.apart = time.Duration(float64(lasts) * (0.3 + 0.7*rnd.Float64()) / float64(max(p.n, 1)))
	p.window = pick[uint64](rnd, 0, 0, 50, 300)
	p.drawOperators(rnd)
	inner := p.operators[1:]
	p.slow, p.slowEvery = pick(rnd, inner...).Name, pick[uint64](rnd, 0, 0, 1, 10)
	p.slowFor = time.Duration(p.slowEvery) * min(time.Duration(2*rnd.Float64()*float64(p.apart)), 4*time.Millisecond) // a slab takes no longer than a second
	p.panics, p.panicAt = pick(rnd, inner...).Name, p.n                                                               // never
	if p.n > 0 && rnd.IntN(3) == 0 {
		p.panicAt = rnd.Uint64N(p.n)
	}
	return p
}

func (p *plan) drawOperators(rnd *rand.Rand) {
	add := func(o cluster.Operator) {
		o.Workers = 1 + rnd.IntN(2)
		p.operators = append(p.operators, o)
		p.shuffled = append(p.shuffled, rnd.IntN(2) == 0)
		p.compute[o.Name] = o.Compute
	}
	add(cluster.Operator{Name: "source", Compute: 1, Source: true})
	relays, sets := rnd.IntN(3), rnd.IntN(3) > 0
	for i := range relays {
		add(cluster.Operator{Name: fmt.Sprint("relay", i), Compute: 1 + rnd.IntN(2)})
	}
	if sets {
		add(cluster.Operator{Name: "set", Compute: 1 + rnd.IntN(2)})
	}
	add(cluster.Operator{Name: "out", Compute: 1, Sink: true})
	p.final = sets && p.window == 0 && rnd.IntN(2) == 0
}

func (p *plan) spec() cluster.Spec {
	return cluster.Spec{Name: p.id, Version: "1", Operators: p.operators, Backups: []string{store}}
}

func (p *plan) workers() int {
	n := 0
	for _, o := range p.operators {
		n += o.Workers
	}
	return n
}

// program is the job as one process carries it.
func (p *plan) program(l *ledger, began time.Time, s *site) node.Program {
	return node.Program{Name: p.id, Version: "1", Build: func(context.Context, []string) (*node.Blueprint, error) {
		return &node.Blueprint{Topology: p.topology(l, began, s), Guarantee: p.guarantee, Params: p.params, Batch: p.batch}, nil
	}}
}

func (p *plan) topology(l *ledger, began time.Time, s *site) *stream.Topology {
	t := stream.New(p.id)
	var out stream.Stream[item]
	for i, o := range p.operators {
		options := []stream.Option{stream.Workers(o.Workers), stream.Compute(o.Compute)}
		switch {
		case o.Source:
		case p.shuffled[i]:
			options = append(options, stream.Shuffle())
		default:
			options = append(options, stream.HashUint64(func(i item) uint64 { return i.ID }))
		}
		w := worker{l: l, s: s}
		switch {
		case o.Source:
			if p.window > 0 {
				options = append(options, stream.WindowItems(p.window))
			}
			out = stream.From(t, o.Name, func(part, parts int) (stream.Source[item], error) {
				return &numbers{n: p.n, parts: uint64(parts), part: uint64(part), began: began, apart: p.apart, closed: make(chan struct{})}, nil
			}, options...)
		case o.Sink:
			stream.To(out, o.Name, func(part, _ int) (stream.Sink[item], error) {
				k := &sink{worker: w, part: part}
				if p.final {
					return final{k}, nil
				}
				return k, nil
			}, options...)
		case o.Name == "set" && p.keyed && !p.shuffled[i]:
			out = stream.Then(out, o.Name, func() keyed { return keyed{newSet(w)} }, append(options, stream.EmitOnClose())...)
		case o.Name == "set":
			out = stream.Then(out, o.Name, func() merging { return merging{newSet(w)} }, append(options, stream.EmitOnClose())...)
		default:
			out = stream.Then(out, o.Name, func() *relay { return &relay{worker: w} }, options...)
		}
	}
	return t
}

func (p *plan) String() string {
	return fmt.Sprintf("job %s: %d items, one every %v, windows of %d, %v %+v batch %d, operators %+v shuffled %v final %v keyed %v, %s lingers %v at each %d, %s panics at %d",
		p.id, p.n, p.apart, p.window, p.guarantee, p.params, p.batch, p.operators, p.shuffled, p.final, p.keyed, p.slow, p.slowFor, p.slowEvery, p.panics, p.panicAt)
}

// drawFaults is how bad the network is in a run.
func drawFaults(rnd *rand.Rand) clustertest.Faults {
	up := func(d time.Duration) time.Duration { return time.Duration(rnd.Int64N(int64(d))) }
	return clustertest.Faults{
		Lose: pick(rnd, 0, 0.01, 0.05, 0.2), Double: pick(rnd, 0, 0.05), Delay: pick(rnd, time.Millisecond, up(10*time.Millisecond), up(60*time.Millisecond)),
		Slow: pick(rnd, time.Millisecond, up(10*time.Millisecond)), Fail: pick(rnd, 0, 0.02, 0.1), Stale: pick(rnd, 0, up(2*time.Second)),
	}
}

// calm is a network without faults.
var calm = clustertest.Faults{Delay: 2 * time.Millisecond, Slow: time.Millisecond}

// trouble is something that goes wrong, with how often it does.
type trouble struct {
	often int
	name  string
	do    func(r *run)
}

var troubles = []trouble{
	{6, "a node is killed", func(r *run) { r.node().crash(r) }},
	{3, "a node ends in order", func(r *run) { r.node().leave(r) }},
	{4, "a node is drained", func(r *run) {
		key := cluster.DrainKey(r.node().name)
		r.wanted[key] = []byte("x")
		r.after(r.upTo(10*time.Second), func() { r.wanted[key] = nil })
	}},
	{1, "all nodes are killed", func(r *run) {
		for _, s := range r.nodes {
			s.crash(r)
		}
	}},
	{3, "a node is cut off", func(r *run) { r.cut(r.node().name, 14*time.Second) }},
	{3, "a node reaches no records", func(r *run) { r.block(r.node().name, clustertest.Keeper, 14*time.Second) }},
	{3, "no records reach a node", func(r *run) { r.block(clustertest.Keeper, r.node().name, 14*time.Second) }},
	{3, "no controller hears a node", func(r *run) {
		s, d := r.node(), r.upTo(10*time.Second)
		for _, c := range r.controllers {
			r.blockFor(s.name, c.name, d)
		}
	}},
	{8, "a node is cut off from records and controllers", func(r *run) {
		s, d := r.node(), 2*time.Second+r.upTo(12*time.Second)
		for _, place := range []string{clustertest.Keeper, r.controllers[0].name, r.controllers[1].name} {
			r.blockFor(s.name, place, d)
			r.blockFor(place, s.name, d)
		}
	}},
	{3, "a node does not hear another", func(r *run) { r.block(r.node().name, r.node().name, 4*time.Second) }},
	{2, "the store does not hear a node", func(r *run) { r.block(r.node().name, store, 8*time.Second) }},
	{2, "a node does not hear the store", func(r *run) { r.block(store, r.node().name, 8*time.Second) }},
	{1, "the store is cut off", func(r *run) { r.cut(store, 4*time.Second) }},
	{1, "the records are cut off", func(r *run) { r.cut(clustertest.Keeper, 4*time.Second) }},
	{4, "a node stands still", func(r *run) { r.node().pause(r.upTo(13 * time.Second)) }},
	{2, "a node stands still for a moment", func(r *run) { r.node().pause(r.upTo(time.Second)) }},
	{2, "a controller stands still", func(r *run) { r.controller().pause(r.upTo(5 * time.Second)) }},
	{2, "a controller is killed", func(r *run) { r.controller().crash(r) }},
	{2, "a controller is cut off", func(r *run) { r.cut(r.controller().name, 5*time.Second) }},
	{1, "no records reach a controller", func(r *run) { r.block(clustertest.Keeper, r.controller().name, 5*time.Second) }},
}

func drawTrouble(rnd *rand.Rand) trouble {
	sum := 0
	for _, t := range troubles {
		sum += t.often
	}
	at := rnd.IntN(sum)
	i := slices.IndexFunc(troubles, func(t trouble) bool { at -= t.often; return at < 0 })
	return troubles[i]
}
