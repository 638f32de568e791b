package controller_test

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	"github.com/afstream/afstream/internal/thorough"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/worker"
)

// skewed sends all but every 16th item to one partition.
func skewed() stream.Option {
	return stream.HashUint64(func(v uint64) uint64 {
		if v%16 != 0 {
			return 0
		}
		return v / 16
	})
}

// sharedIDs is ids under any norm, which looks each theta that it is told up in what the store holds at that time.
type sharedIDs struct {
	ids
	measure stream.Measure
	granted func(part int, theta float64)
}

func (s *sharedIDs) Measure() stream.Measure { return s.measure }

func (s *sharedIDs) SetTheta(theta float64) {
	s.ids.SetTheta(theta)
	s.granted(s.part, theta)
}

// grants reads the ledger that a controller has made durable, as another controller would.
type grants struct {
	store backup.Store
	job   string
	told  atomic.Int64 // thetas that differ from the first
}

// ledger returns that of an operator, nil if there is none yet.
func (g *grants) ledger(operator string) (*errorbound.Ledger, error) {
	incarnation, _, err := backup.LatestIncarnation(g.store, g.job)
	if err != nil {
		return nil, err
	}
	record, found, err := backup.LoadGrants(g.store, g.job+"/"+incarnation+"/"+operator+"/shares")
	if err != nil || !found {
		return nil, err
	}
	l := new(errorbound.Ledger)
	return l, l.UnmarshalBinary(record)
}

// shareCase is one operator whose Theta is divided by load, through failures.
type shareCase struct {
	options          controller.Options
	measure          stream.Measure
	items            uint64
	workers, compute int
	seen             *ledger
	grants           *grants
	out              gather[uint64]
	equal            float64 // theta of a partition that nobody has told anything else
}

// unit is the theta of a partition whose worker has all of Theta.
func (c *shareCase) unit() float64 {
	return c.options.Theta * errorbound.Share(c.measure.Norm, c.measure.Combine, c.compute)
}

// granted checks that theta is durable before a worker uses it.
func (c *shareCase) granted(part int, theta float64) {
	if math.Abs(theta-c.equal) > 1e-9*theta {
		c.grants.told.Add(1)
	}
	l, err := c.grants.ledger("ids")
	most := c.equal
	if l != nil {
		most = l.AtRisk(part/c.compute) * c.unit()
	}
	if err != nil || theta > most*(1+1e-9) {
		c.seen.mu.Lock()
		defer c.seen.mu.Unlock()
		c.seen.fault("partition %d is told theta %v, %v is durable (%v)", part, theta, most, err)
	}
}

func (c *shareCase) topology(pick stream.Option) *stream.Topology {
	topo := stream.New(c.grants.job)
	s := stream.From(topo, "source", newNumbers(c.items))
	newIDs := func() *sharedIDs {
		return &sharedIDs{
			ids:     ids{l: c.seen, has: map[uint64]bool{}, last: map[uint64]uint64{}, parts: 1},
			measure: c.measure, granted: c.granted,
		}
	}
	kept := stream.Then(s, "ids", newIDs, pick, stream.EmitOnClose(), stream.Workers(c.workers), stream.Compute(c.compute))
	stream.To(kept, "out", c.out.final)
	return topo
}

// spent is what the failures so far could have cost at most, in Theta, and how often each worker failed.
func (c *shareCase) spent(failures []controller.Failure) (cost float64, times []uint64) {
	costs := make([]float64, c.workers)
	times = make([]uint64, c.workers)
	for _, f := range failures {
		costs[f.Worker] += f.DivergenceBudget / c.unit()
		times[f.Worker]++
	}
	for _, x := range costs {
		if c.measure.Norm == errorbound.L2 && c.measure.Combine == errorbound.Disjoint {
			cost += x * x
		} else {
			cost += x
		}
	}
	if c.measure.Norm == errorbound.L2 && c.measure.Combine == errorbound.Disjoint {
		cost = math.Sqrt(cost)
	}
	return cost, times
}

// TestDivisionProperties moves Theta between workers as fast as it can while they fail, at any moment of any change.
// Whatever happens, the thetas of all failures make up no more than Theta, in the operator's norm; no theta is used that is
// not durable; no state is further from its backup than the theta in force; and what is lost in the end is within Theta.
func TestDivisionProperties(t *testing.T) {
	thorough.Only(t)
	var told atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		c := shareCase{
			items:   rapid.Uint64Range(2000, 30_000).Draw(rt, "items"),
			workers: rapid.IntRange(2, 4).Draw(rt, "workers"), compute: rapid.IntRange(1, 2).Draw(rt, "compute"),
			measure: stream.Measure{
				Alpha:   rapid.SampledFrom([]float64{0, 1}).Draw(rt, "alpha"),
				Norm:    rapid.SampledFrom([]errorbound.Norm{errorbound.Count, errorbound.L1, errorbound.L2}).Draw(rt, "norm"),
				Combine: rapid.SampledFrom([]errorbound.Combine{errorbound.Added, errorbound.Disjoint}).Draw(rt, "combine"),
			},
			seen: newLedger(),
		}
		store := backup.NewMemory()
		defer store.Close()
		c.grants = &grants{store: store, job: "divided"}
		o := options(rapid.SampledFrom([]float64{1, 7, 50, 400, 3000}).Draw(rt, "theta"), 50, 50)
		o.Series = rapid.SampledFrom([]errorbound.Series{errorbound.Geometric, errorbound.Telescoping}).Draw(rt, "series")
		o.PipeSources = rapid.Bool().Draw(rt, "pipe")
		o.Store, o.Allocate = store, controller.ByCost
		o.Hasty()
		for range rapid.IntRange(0, 8).Draw(rt, "failures") {
			o.Faults = append(o.Faults, controller.Fault{
				Operator: "ids", Worker: rapid.IntRange(0, c.workers-1).Draw(rt, "who"), Items: rapid.Uint64Range(1, c.items).Draw(rt, "when"),
			})
		}
		o.Faults = once(o.Faults)
		c.options = o
		c.equal = c.unit() / 2 * errorbound.Share(c.measure.Norm, c.measure.Combine, c.workers)

		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r, err := controller.RunLocal(ctx, c.topology(skewed()), o)
		if err != nil {
			rt.Fatal(err)
		}
		told.Add(c.grants.told.Load())
		c.check(rt, r)
	})
	require.Positive(t, told.Load(), "nothing was ever moved")
}

func (c *shareCase) check(rt *rapid.T, r *controller.Result) {
	rt.Logf("%+v", r.Failures)
	for _, f := range c.seen.faults {
		rt.Error(f)
	}
	if r.Interrupted || r.Items != c.items {
		rt.Fatalf("read %d of %d items: %+v", r.Items, c.items, r)
	}
	cost, times := c.spent(r.Failures)
	if cost > 1+1e-9 {
		rt.Errorf("failures could cost %v of Theta", cost)
	}
	for _, f := range r.Failures {
		if f.Divergence > f.DivergenceBudget*(1+1e-9) && f.Divergence > 1 { // one item may be waiting for its backup
			rt.Errorf("a state diverged by %v, theta was %v", f.Divergence, f.DivergenceBudget)
		}
	}
	l, err := c.grants.ledger("ids")
	if err != nil {
		rt.Fatal(err)
	}
	if l == nil {
		if len(r.Failures) > 0 || r.Operators[1].Changes > 0 {
			rt.Fatal("what was granted was not recorded")
		}
	} else if err := l.Valid(); err != nil || l.Spent() < cost*(1-1e-9) {
		rt.Errorf("failures cost %v, the ledger says %v (%v)", cost, l.Spent(), err)
	}
	for i, n := range times {
		if l != nil && l.Failures(i) != n {
			rt.Errorf("worker %d failed %d times, the ledger says %d", i, n, l.Failures(i))
		}
	}
	c.checkLoss(rt, r)
}

func (c *shareCase) checkLoss(rt *rapid.T, r *controller.Result) {
	got := c.out.all()
	distinct := map[uint64]bool{}
	for _, id := range got {
		distinct[id] = true
	}
	if len(distinct) != len(got) {
		rt.Errorf("%d items twice", len(got)-len(distinct))
	}
	bound := c.options.Theta
	if c.measure.Norm == errorbound.L2 && c.measure.Combine == errorbound.Disjoint { // a sum against a root of squares
		bound *= math.Sqrt(float64(c.workers * c.compute))
	}
	if c.options.PipeSources {
		bound += float64(c.options.L)
	}
	// An item whose effect alone is above theta is processed all the same, and waits for its backup before it counts.
	bound += float64(len(r.Failures) * c.compute)
	if lost := float64(c.items) - float64(len(distinct)); lost > bound {
		rt.Errorf("lost %v items, bound %v", lost, bound)
	}
}

// A skewed load moves Theta to where the load is, and fewer backups are made for the same bound. How many are made depends on
// how fast the store is beside the workers, which on a busy machine can be anything: of a few pairs of runs one must show it.
func TestByCostBacksUpLess(t *testing.T) {
	thorough.Only(t)
	var tried []map[controller.Allocation]uint64
	for range 5 {
		commits := backedUpBySkewedLoad(t)
		if commits[controller.ByCost] < commits[controller.Equal] {
			return
		}
		tried = append(tried, commits)
	}
	t.Errorf("commits: %v", tried)
}

func backedUpBySkewedLoad(t *testing.T) map[controller.Allocation]uint64 {
	commits := map[controller.Allocation]uint64{}
	for _, a := range []controller.Allocation{controller.Equal, controller.ByCost} {
		c := shareCase{
			items: 300_000, workers: 4, compute: 1, measure: stream.Measure{Alpha: 1, Norm: errorbound.L1},
			seen: newLedger(), grants: &grants{job: "divided"},
		}
		c.options = options(400, 0, 0)
		c.options.Allocate = a
		c.options.Hasty()
		c.grants.store = backup.NewMemory()
		c.options.Store, c.equal = c.grants.store, 50
		r, err := controller.RunLocal(context.Background(), c.topology(skewed()), c.options)
		require.NoError(t, err)
		require.NoError(t, c.grants.store.Close())
		require.Empty(t, c.seen.faults)
		op := r.Operators[1]
		commits[a] = op.StateCommits
		if a == controller.Equal {
			require.Nil(t, op.Shares)
			require.Zero(t, op.Changes)
			continue
		}
		require.Len(t, op.Shares, 4)
		require.Positive(t, op.Changes)
		busiest := 0.0
		for _, s := range op.Shares {
			busiest = max(busiest, s)
		}
		require.Greater(t, busiest, 0.25, "%v, equal is 1/8", op.Shares)
	}
	return commits
}

// Operators whose Theta cannot be divided run as ever, under any guarantee.
func TestByCostLeavesOthersAlone(t *testing.T) {
	for _, g := range []worker.Guarantee{worker.None, worker.ErrorFree, worker.MiniBatch, worker.Approximate} {
		var out gather[[8]uint64]
		o := options(100, 100, 100)
		o.Allocate, o.Guarantee = controller.ByCost, g
		o.Hasty()
		workers := 2
		if g == worker.Approximate {
			workers = 1
		}
		r, err := controller.RunLocal(context.Background(), sumsTopology(20_000, workers, &out), o)
		require.NoError(t, err)
		require.EqualValues(t, 20_000, total(out.all()))
		for _, op := range r.Operators {
			require.Nil(t, op.Shares, "%v: %s", g, op.Name)
		}
	}
}

// Windows close, and with them whole states are saved, while Theta moves.
func TestByCostWithWindows(t *testing.T) {
	for seed := range uint64(thorough.Number(2, 6)) {
		const n = 40_000
		var out gather[windowCount]
		topo := stream.New("windows")
		s := stream.From(topo, "source", newNumbers(n), stream.WindowItems(5000))
		c := stream.Then(s, "count", newKeyed, skewed(), stream.EmitOnClose(), stream.Workers(3), stream.Compute(2))
		stream.To(c, "out", out.sink)
		nodes, err := topo.Build()
		require.NoError(t, err)
		o := options(600, 0, 0)
		o.Allocate = controller.ByCost
		o.Hasty()
		for _, f := range controller.RandomFaults(nodes, 6, seed) {
			if f.Operator == "count" {
				o.Faults = append(o.Faults, controller.Fault{Operator: "count", Worker: f.Worker, Items: uint64(f.Share * n)})
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		r, err := controller.RunLocal(ctx, topo, o)
		cancel()
		require.NoError(t, err)
		require.False(t, r.Interrupted)
		counted := uint64(0)
		for _, w := range out.all() {
			counted += w.Count
		}
		require.LessOrEqual(t, counted, uint64(n))
		require.InDelta(t, n, float64(counted), o.Theta+float64(2*len(r.Failures)), "seed %d: %+v", seed, r.Failures)
	}
}

// tornStore refuses to write what a controller grants.
type tornStore struct{ backup.Store }

var errTorn = errors.New("torn")

func (s tornStore) Apply(b *backup.Batch, done func(error)) {
	if strings.HasSuffix(b.Owner, "/shares") {
		done(errTorn)
		return
	}
	s.Store.Apply(b, done)
}

// A grant that cannot be made durable is not made.
func TestGrantsThatAreNotDurableFailTheJob(t *testing.T) {
	for _, faults := range [][]controller.Fault{nil, {{Operator: "ids", Worker: 0, Items: 1}}} {
		c := shareCase{
			items: 200_000, workers: 2, compute: 1, measure: stream.Measure{Alpha: 1, Norm: errorbound.L1},
			seen: newLedger(), grants: &grants{job: "divided"},
		}
		c.options = options(40, 0, 0)
		c.options.Allocate, c.options.Faults = controller.ByCost, faults
		c.options.Hasty()
		c.grants.store = tornStore{backup.NewMemory()}
		c.options.Store, c.equal = c.grants.store, 10
		_, err := controller.RunLocal(context.Background(), c.topology(skewed()), c.options)
		require.ErrorIs(t, err, errTorn)
		require.ErrorContains(t, err, "ids")
		require.Zero(t, c.grants.told.Load())
		require.NoError(t, c.grants.store.Close())
	}
}

func TestAllocationsByName(t *testing.T) {
	for _, a := range []controller.Allocation{controller.Equal, controller.ByCost} {
		got, err := controller.ParseAllocation(a.String())
		require.NoError(t, err)
		require.Equal(t, a, got)
	}
	_, err := controller.ParseAllocation("fair")
	require.ErrorContains(t, err, `"fair" (equal, by-cost)`)
	o := options(1, 1, 1)
	o.Allocate = 7
	_, err = controller.RunLocal(context.Background(), sumsTopology(10, 1, &gather[[8]uint64]{}), o)
	require.ErrorContains(t, err, "allocation number 7")
}

// TestByCostEndsCleanly starts and ends jobs at any moment of a division; goleak looks for what they leave.
func TestByCostEndsCleanly(t *testing.T) {
	var jobs sync.WaitGroup
	for i := range 4 {
		jobs.Go(func() {
			o := options(50, 0, 0)
			o.Allocate = controller.ByCost
			o.Hasty()
			ctx, cancel := context.WithCancel(context.Background())
			o.OnProgress = func(done, _ int64) {
				if done > int64(5000*i) {
					cancel()
				}
			}
			topo := stream.New(fmt.Sprintf("job%d", i))
			s := stream.From(topo, "source", newNumbers(1<<20))
			sums := stream.Then(s, "sums", newSums, skewed(), stream.Workers(3), stream.EmitOnClose())
			stream.To(sums, "out", (&gather[[8]uint64]{}).sink)
			r, err := controller.RunLocal(ctx, topo, o)
			if err != nil || !r.Interrupted {
				t.Errorf("job %d: %v", i, err)
			}
			cancel()
		})
	}
	jobs.Wait()
}
