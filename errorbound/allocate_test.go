package errorbound_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/errorbound"
)

// whole is the left side of the constraint that shares must keep: what equal shares make 1.
func whole(norm errorbound.Norm, combine errorbound.Combine, shares []float64) float64 {
	if combine == errorbound.Disjoint {
		switch norm {
		case errorbound.Max:
			return measure(errorbound.Max, shares)
		case errorbound.L2:
			return measure(errorbound.L2, shares)
		}
	}
	return measure(errorbound.L1, shares)
}

func drawLoads(t *rapid.T, least int) []errorbound.Load {
	n := rapid.IntRange(least, 8).Draw(t, "workers")
	loads := make([]errorbound.Load, n)
	for i := range loads {
		loads[i] = errorbound.Load{
			Rate: math.Pow(10, rapid.Float64Range(-3, 6).Draw(t, "rate")),
			Cost: math.Pow(10, rapid.Float64Range(-6, 1).Draw(t, "cost")),
		}
		if rapid.IntRange(0, 9).Draw(t, "idle") == 0 {
			loads[i].Rate = 0
		}
	}
	return loads
}

func TestAllocateClosedForms(t *testing.T) {
	loads := []errorbound.Load{{Rate: 1, Cost: 1}, {Rate: 16, Cost: 4}}
	shares, err := errorbound.Allocate(errorbound.Max, errorbound.Added, loads, 0)
	require.NoError(t, err)
	require.InDelta(t, 1./9, shares[0], 1e-12, "1 : 8, the square roots of 1 : 64")
	require.InDelta(t, 8./9, shares[1], 1e-12)
	require.InEpsilon(t, 81, errorbound.BackupWork(loads, shares), 1e-9, "(sum of the roots)^2, against 2*65 for equal shares")

	shares, err = errorbound.Allocate(errorbound.L2, errorbound.Disjoint, loads, 0)
	require.NoError(t, err)
	require.InEpsilon(t, 4, shares[1]/shares[0], 1e-9, "the cube roots of 1 : 64")
	require.InDelta(t, 1, math.Hypot(shares[0], shares[1]), 1e-9)

	shares, err = errorbound.Allocate(errorbound.Max, errorbound.Disjoint, loads, 0.5)
	require.NoError(t, err)
	require.Equal(t, []float64{1, 1}, shares, "a maximum does not add up")
}

// Nothing that keeps the constraint and the floors does less backup work.
func TestAllocateIsBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		norm := rapid.SampledFrom(allNorms).Draw(t, "norm")
		combine := rapid.SampledFrom([]errorbound.Combine{errorbound.Added, errorbound.Disjoint}).Draw(t, "combine")
		loads := drawLoads(t, 1)
		floor := rapid.SampledFrom([]float64{0, 0.1, 0.5, 1}).Draw(t, "floor")
		shares, err := errorbound.Allocate(norm, combine, loads, floor)
		if err != nil {
			t.Fatal(err)
		}
		least := floor * errorbound.Share(norm, combine, len(loads))
		if w := whole(norm, combine, shares); w > 1 {
			t.Fatalf("the shares %v make %v of the budget", shares, w)
		}
		work := errorbound.BackupWork(loads, shares)
		for range 50 {
			other := make([]float64, len(loads))
			for i := range other {
				if rapid.Bool().Draw(t, "near") { // a small step away finds a wrong optimum sooner than a leap
					other[i] = shares[i] * rapid.Float64Range(0.8, 1.25).Draw(t, "step")
				} else {
					other[i] = rapid.Float64Range(1e-6, 1).Draw(t, "other")
				}
			}
			other = scaledToFit(norm, combine, other, least)
			if other == nil {
				continue
			}
			if w := errorbound.BackupWork(loads, other); w < work*(1-1e-9) {
				t.Fatalf("%v costs %v, %v only %v, for %v", shares, work, other, w, loads)
			}
		}
		for i, s := range shares {
			if s < least*(1-1e-9) {
				t.Fatalf("share %d is %v, below the floor %v", i, s, least)
			}
		}
	})
}

// scaledToFit puts shares at their floors or above and uses the whole budget; nil if that fails.
func scaledToFit(norm errorbound.Norm, combine errorbound.Combine, shares []float64, least float64) []float64 {
	low, high := 0.0, 1e7
	at := func(scale float64) []float64 {
		scaled := make([]float64, len(shares))
		for i, s := range shares {
			scaled[i] = max(least, s*scale)
		}
		return scaled
	}
	for range 100 {
		if middle := (low + high) / 2; whole(norm, combine, at(middle)) <= 1 {
			low = middle
		} else {
			high = middle
		}
	}
	if fit := at(low); low > 0 && whole(norm, combine, fit) <= 1 {
		return fit
	}
	return nil
}

func TestAllocateAtTheEdges(t *testing.T) {
	for _, loads := range [][]errorbound.Load{nil, {{Rate: -1}}, {{Rate: math.NaN()}}, {{Rate: math.Inf(1), Cost: 1}}, {{Rate: 1, Cost: -1}}} {
		_, err := errorbound.Allocate(errorbound.L1, errorbound.Added, loads, 0)
		require.ErrorIs(t, err, errorbound.ErrAllocate, "%v", loads)
	}
	for _, floor := range []float64{-0.1, 1.1, math.NaN()} {
		_, err := errorbound.Allocate(errorbound.L1, errorbound.Added, make([]errorbound.Load, 2), floor)
		require.ErrorContains(t, err, "floor")
	}
	shares, err := errorbound.Allocate(errorbound.L1, errorbound.Added, make([]errorbound.Load, 4), 0)
	require.NoError(t, err)
	require.Equal(t, []float64{0.25, 0.25, 0.25, 0.25}, shares, "no load at all")
	shares, err = errorbound.Allocate(errorbound.L1, errorbound.Added, []errorbound.Load{{}, {Rate: 1, Cost: 1}}, 0.2)
	require.NoError(t, err)
	require.InDeltaSlice(t, []float64{0.1, 0.9}, shares, 1e-12, "one without load keeps its floor")
}

// workerModel is a worker that obeys messages in its own time.
type workerModel struct {
	failures uint64
	round    uint64
	share    float64 // of Theta, in use now
	lost     float64 // by its failures so far, each at its worst
	inbox    []errorbound.Change
	answers  []uint64
}

func (w *workerModel) obey() {
	c := w.inbox[0]
	w.inbox = w.inbox[1:]
	if c.Failures != w.failures || c.Round < w.round {
		return
	}
	w.round, w.share = c.Round, c.Share
	if c.Lower {
		w.answers = append(w.answers, c.Round)
	}
}

// Workers fail at any moment of any change, always at the worst divergence that they are allowed; messages are late,
// and answers too. What all failures cost together never passes Theta.
func TestLedgerNeverBreaksTheTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		series := rapid.SampledFrom(allSeries).Draw(t, "series")
		norm := rapid.SampledFrom(allNorms).Draw(t, "norm")
		combine := rapid.SampledFrom([]errorbound.Combine{errorbound.Added, errorbound.Disjoint}).Draw(t, "combine")
		n := rapid.IntRange(1, 5).Draw(t, "n")
		l := errorbound.NewLedger(series, norm, combine, n)
		workers := make([]workerModel, n)
		for i := range workers {
			workers[i].share = l.Share(i)
		}
		send := func(changes []errorbound.Change) {
			for _, c := range changes {
				workers[c.Worker].inbox = append(workers[c.Worker].inbox, c)
			}
		}
		pick := func(t *rapid.T) int { return rapid.IntRange(0, n-1).Draw(t, "worker") }
		t.Repeat(map[string]func(*rapid.T){
			"rebalance": func(t *rapid.T) {
				loads := make([]errorbound.Load, n)
				for i := range loads {
					loads[i] = errorbound.Load{Rate: rapid.Float64Range(0, 100).Draw(t, "rate"), Cost: 1}
				}
				changes, err := l.Rebalance(loads, rapid.SampledFrom([]float64{0, 0.1, 0.5}).Draw(t, "floor"))
				if err != nil {
					t.Fatal(err)
				}
				send(changes)
			},
			"obey": func(t *rapid.T) {
				if w := &workers[pick(t)]; len(w.inbox) > 0 {
					w.obey()
				}
			},
			"answer": func(t *rapid.T) {
				i := pick(t)
				if w := &workers[i]; len(w.answers) > 0 {
					round := w.answers[0]
					w.answers = w.answers[1:]
					send(l.Lowered(i, round))
				}
			},
			"fail": func(t *rapid.T) {
				i := pick(t)
				w := &workers[i]
				w.lost += w.share
				if w.share > l.AtRisk(i)*(1+1e-9) {
					t.Fatalf("worker %d uses %v, the ledger counts on %v", i, w.share, l.AtRisk(i))
				}
				changes := l.Failed(i)
				w.failures++
				w.share = l.Share(i)
				send(changes)
			},
			"": func(t *rapid.T) {
				if err := l.Valid(); err != nil {
					t.Fatal(err)
				}
				lost := make([]float64, n)
				for i := range workers {
					lost[i] = workers[i].lost
				}
				if cost := whole(norm, combine, lost); cost > 1+1e-9 || cost > l.Spent()*(1+1e-9) {
					t.Fatalf("failures cost %v of the budget, the ledger says %v", cost, l.Spent())
				}
			},
		})
	})
}

// Left to itself, a ledger reaches the shares that Allocate finds.
func TestLedgerReachesTheOptimum(t *testing.T) {
	loads := []errorbound.Load{{Rate: 1, Cost: 1}, {Rate: 4, Cost: 1}, {Rate: 0.04, Cost: 1}}
	for _, c := range []struct {
		norm    errorbound.Norm
		combine errorbound.Combine
	}{{errorbound.Max, errorbound.Added}, {errorbound.L2, errorbound.Disjoint}, {errorbound.Max, errorbound.Disjoint}} {
		l := errorbound.NewLedger(errorbound.Telescoping, c.norm, c.combine, len(loads))
		require.InDelta(t, errorbound.Share(c.norm, c.combine, 3)/2, l.Share(0), 1e-12)
		changes, err := l.Rebalance(loads, 0.01)
		require.NoError(t, err)
		for _, change := range changes {
			if change.Lower {
				require.Less(t, change.Share, l.AtRisk(change.Worker), "not counted on before it is confirmed")
				l.Lowered(change.Worker, change.Round)
				require.Empty(t, l.Lowered(change.Worker, change.Round), "an answer counts once")
			}
		}
		want, err := errorbound.Allocate(c.norm, c.combine, loads, 0.01)
		require.NoError(t, err)
		for i := range loads {
			require.InEpsilon(t, want[i]/2, l.Share(i), 0.02, "%v: worker %d", c, i)
		}
		require.NoError(t, l.Valid())
		_, err = l.Rebalance(loads[:1], 0)
		require.ErrorIs(t, err, errorbound.ErrAllocate)
	}
}

// Moving all of the budget to whoever is about to fail is the case that thetas which merely add up to Theta at any
// moment would not survive.
func TestLedgerAgainstFailuresThatFollowTheBudget(t *testing.T) {
	const n = 8
	l := errorbound.NewLedger(errorbound.Geometric, errorbound.L1, errorbound.Added, n)
	lost := 0.0
	for i := range n {
		loads := make([]errorbound.Load, n)
		loads[i] = errorbound.Load{Rate: 1, Cost: 1}
		changes, err := l.Rebalance(loads, 0)
		require.NoError(t, err)
		for _, c := range changes {
			l.Lowered(c.Worker, c.Round)
		}
		lost += l.AtRisk(i)
		l.Failed(i)
	}
	require.Greater(t, lost, 0.9, "each found half of what was left")
	require.LessOrEqual(t, lost, 1.0)
	require.InDelta(t, lost, l.Spent(), 1e-9)
}

func TestRestIsTheTail(t *testing.T) {
	for _, s := range allSeries {
		for k := range uint64(20) {
			left := 1.0
			if k > 0 {
				left -= s.Spent(k - 1)
			}
			require.InEpsilon(t, left/s.Term(k), s.Rest(k), 1e-9)
		}
	}
}

// confirm has every worker obey at once.
func confirm(l *errorbound.Ledger, changes []errorbound.Change) {
	for _, c := range changes {
		if c.Lower {
			confirm(l, l.Lowered(c.Worker, c.Round))
		}
	}
}

// After failures, whose costs are gone and which left workers in different incarnations, the rest of the budget is
// still divided as well as it can be.
func TestLedgerIsBestAfterFailures(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loads := drawLoads(t, 2)
		for i := range loads {
			loads[i].Rate = max(loads[i].Rate, 0.01)
		}
		l := errorbound.NewLedger(errorbound.Telescoping, errorbound.Max, errorbound.Added, len(loads))
		failures := make([]uint64, len(loads))
		for range rapid.IntRange(0, 6).Draw(t, "failures") {
			i := rapid.IntRange(0, len(loads)-1).Draw(t, "who")
			failures[i]++
			l.Failed(i)
		}
		for range 5 { // raises below a hundredth are not made; each time there is less to raise
			changes, err := l.Rebalance(loads, 0)
			if err != nil {
				t.Fatal(err)
			}
			confirm(l, changes)
		}
		shares, reserves := make([]float64, len(loads)), make([]float64, len(loads))
		for i := range loads {
			shares[i] = l.Share(i)
			reserves[i] = shares[i] * errorbound.Telescoping.Rest(failures[i])
		}
		if used := l.Spent() + measure(errorbound.L1, reserves); used < 0.98 {
			t.Fatalf("only %v of the budget is in use", used)
		}
		work := errorbound.BackupWork(loads, shares)
		for range 100 {
			other := make([]float64, len(loads))
			for i := range other {
				other[i] = reserves[i] * rapid.Float64Range(0.3, 3).Draw(t, "step")
			}
			scale := (1 - l.Spent()) / measure(errorbound.L1, other)
			for i := range other {
				other[i] *= scale / errorbound.Telescoping.Rest(failures[i])
			}
			if w := errorbound.BackupWork(loads, other); w < work*0.97 {
				t.Fatalf("%v costs %v, %v only %v", shares, work, other, w)
			}
		}
	})
}

func TestLedgerCallsOffALowering(t *testing.T) {
	l := errorbound.NewLedger(errorbound.Geometric, errorbound.L1, errorbound.Added, 2)
	lower, err := l.Rebalance([]errorbound.Load{{Rate: 1, Cost: 1}, {Rate: 9, Cost: 1}}, 0)
	require.NoError(t, err)
	require.Len(t, lower, 1, "a raise has to wait")
	require.True(t, lower[0].Lower)
	require.InDelta(t, 0.125, lower[0].Share, 1e-9)
	back, err := l.Rebalance([]errorbound.Load{{Rate: 1, Cost: 1}, {Rate: 1, Cost: 1}}, 0)
	require.NoError(t, err)
	require.Len(t, back, 1)
	require.InDelta(t, 0.25, back[0].Share, 1e-9, "the worker may have obeyed, and is told that it need not")
	require.Empty(t, l.Lowered(0, lower[0].Round), "its answer comes too late to count")
	require.InDelta(t, 0.25, l.AtRisk(0), 1e-9)
	require.NoError(t, l.Valid())
}

// What Plan promises is what Rebalance brings, and the record of a ledger is the ledger, at any moment of its life.
func TestLedgerPlanAndRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		series := rapid.SampledFrom(allSeries).Draw(t, "series")
		norm := rapid.SampledFrom(allNorms).Draw(t, "norm")
		loads := drawLoads(t, 2)
		l := errorbound.NewLedger(series, norm, errorbound.Disjoint, len(loads))
		for range rapid.IntRange(0, 5).Draw(t, "failures") {
			i := rapid.IntRange(0, len(loads)-1).Draw(t, "who")
			risk := l.AtRisk(i)
			confirm(l, l.Failed(i))
			costs := l.Costs(i)
			require.EqualValues(t, len(costs), l.Failures(i))
			require.Equal(t, risk, costs[len(costs)-1])
		}
		before, _ := l.AppendBinary(nil)
		plan, err := l.Plan(loads, 0.1)
		require.NoError(t, err)
		same, _ := l.AppendBinary(nil)
		require.Equal(t, before, same, "a plan changes nothing")

		changes, err := l.Rebalance(loads, 0.1)
		require.NoError(t, err)
		waits := false
		for _, c := range changes {
			waits = waits || c.Lower
		}
		require.Equal(t, !waits, l.Settled())
		record, err := l.AppendBinary(nil)
		require.NoError(t, err)
		var read errorbound.Ledger
		require.NoError(t, read.UnmarshalBinary(record))
		require.Equal(t, l, &read)

		confirm(l, changes)
		require.True(t, l.Settled())
		for range 5 { // raises below a hundredth are not made; each time there is less to raise
			changes, err = l.Rebalance(loads, 0.1)
			require.NoError(t, err)
			confirm(l, changes)
		}
		for i, s := range l.Shares() {
			if planned := plan[i]; s < planned*0.98 || s > planned*1.02 {
				t.Fatalf("worker %d: %v was planned, it has %v", i, planned, s)
			}
		}
	})
}

func TestLedgerRefusesWhatIsNoRecord(t *testing.T) {
	l := errorbound.NewLedger(errorbound.Telescoping, errorbound.L2, errorbound.Disjoint, 3)
	l.Failed(1)
	record, err := l.AppendBinary(nil)
	require.NoError(t, err)
	untouched := errorbound.NewLedger(errorbound.Geometric, errorbound.L1, errorbound.Added, 2)
	share := untouched.Share(0)
	for n := range record {
		require.ErrorIs(t, untouched.UnmarshalBinary(record[:n]), errorbound.ErrLedger, "%d bytes", n)
	}
	require.ErrorIs(t, untouched.UnmarshalBinary(append(record, 0)), errorbound.ErrLedger)
	other := append([]byte(nil), record...)
	other[2] = 1 // the norm: what three workers have under L2 is too much under L1
	require.ErrorContains(t, untouched.UnmarshalBinary(other), "invariant")
	require.Equal(t, share, untouched.Share(0))
}

func FuzzLedgerRecord(f *testing.F) {
	l := errorbound.NewLedger(errorbound.Geometric, errorbound.L1, errorbound.Added, 3)
	l.Failed(2)
	if _, err := l.Rebalance([]errorbound.Load{{Rate: 1, Cost: 1}, {Rate: 9, Cost: 1}, {Rate: 4, Cost: 1}}, 0.1); err != nil {
		f.Fatal(err)
	}
	record, err := l.AppendBinary(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(record)
	f.Add([]byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		var l, again errorbound.Ledger
		if l.UnmarshalBinary(b) != nil {
			return
		}
		require.NoError(t, l.Valid())
		record, err := l.AppendBinary(nil)
		require.NoError(t, err)
		require.NoError(t, again.UnmarshalBinary(record))
		require.Equal(t, l, again)
	})
}
